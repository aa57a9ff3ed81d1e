//! Says how much waits for a person (rule L8): a metric by kind and age.

use std::{sync::Arc, time::Duration};

use super::duties::DISPATCH;
use crate::{Error, shared::Shared};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(15);
/// The ages that a store counts by.
const AGES: [&str; 3] = ["hour", "day", "older"];

/// Runs until the coordinator stops; whoever offers looks.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if !shared.has_duty(DISPATCH) {
            shared.metrics.attention.reset();
        } else if let Err(error) = look(&shared).await {
            tracing::warn!(%error, "how much waits for a person is not known");
        }
    }
}

/// What is answered by now is not named any more.
async fn look(shared: &Shared) -> Result<(), Error> {
    let counts = shared.store.attention_counts().await?;
    let gauge = &shared.metrics.attention;
    gauge.reset();
    for count in counts {
        for (age, open) in AGES.into_iter().zip(count.by_age) {
            let open = i64::try_from(open).unwrap_or(i64::MAX);
            gauge.with_label_values(&[count.kind.as_str(), age]).set(open);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Proves what is shown. Not: what the store counts; see its conformance.
    use everstep_broker::MemoryBroker;
    use everstep_engine::{Writes, rows::Needs};
    use everstep_protocol::{
        Incarnation, InstanceUid, Timestamp,
        journal::{ParkCode, Parked},
    };
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn l08_what_waits_for_a_person_is_counted_by_kind_and_age() {
        let dir = std::env::temp_dir().join(format!("everstep-attention-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let broker = Arc::new(MemoryBroker::new().connection());
        let (shared, _ends) =
            Shared::new(store, broker, Settings::default(), Incarnation(1), Arc::new(crate::SystemChance));
        let why = Parked::new(ParkCode::Poison, "dead".to_owned());
        let parked = vec![(InstanceUid::generate(), Timestamp(1), why)];
        let writes = Writes { parked, ..Writes::default() };
        shared.store.transact(Needs::default(), Box::new(|_| writes)).await.expect("it is written");
        look(&shared).await.expect("the store answers");
        let open = |age| shared.metrics.attention.with_label_values(&["poison", age]).get();
        assert_eq!(["hour", "day", "older"].map(open), [0, 0, 1]);
        drop(std::fs::remove_dir_all(dir));
    }
}
