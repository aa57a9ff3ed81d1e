//! The world of the example workflows in `dev`: the payment service that they charge by, and the pool of their remote step.

use std::path::Path;

use anyhow::Context;
use everstep_examples::{
    fulfil::{self, LABEL_POOL},
    payment,
};
use everstep_protocol::Pool;

/// Starts the payment service on a free port, with its ledger in `data`, and tells the steps where it is. It never fails on
/// purpose here: that is what the demo is for.
pub(super) async fn payments(data: &Path) -> anyhow::Result<payment::Server> {
    let settings = payment::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        ledger: data.join("payments.ledger"),
        seed: 0,
        unavailable_percent: 0,
        drop_percent: 0,
    };
    let server = payment::serve(settings).await.context("the examples' payment service cannot start")?;
    fulfil::configure(format!("http://{}", server.address()), None);
    Ok(server)
}

/// The pools of the settings, and the one of the examples.
pub(super) fn pools(settings: &[Pool]) -> anyhow::Result<Vec<Pool>> {
    let own = Pool::new(LABEL_POOL)?;
    let mut pools = settings.to_vec();
    if !pools.contains(&own) {
        pools.push(own);
    }
    Ok(pools)
}
