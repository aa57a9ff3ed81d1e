//! A whole system: a workflow, the pool's worker, and a payment service that fails as real ones do.

use everstep::{Registry, Retry, Workflow, embedded::Embedded};
use everstep_examples::payment;
use everstep_http::{
    POOL, post,
    worker::{HttpCalls, Secrets, Settings},
};
use everstep_sdk::Error;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    payment: String,
    id: String,
}

#[derive(Serialize)]
struct Charge {
    order: String,
    cents: i64,
    currency: &'static str,
}

async fn pay(cx: Workflow, order: Order) -> Result<(u16, u32), Error> {
    let charge = Charge { order: order.id, cents: 1_999, currency: "EUR" };
    let answer = post(format!("{}/charges", order.payment))
        .json(&charge)
        .step(&cx, "charge")
        .retry(Retry::constant("10ms").limit(5))
        .await?;
    Ok((answer.status, 1))
}

/// Nine of ten requests are answered 503 before the charge, or by a closed connection after it, up to the third of each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l03_retries_of_a_whole_system_have_one_effect() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger");
    let settings = payment::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        ledger: ledger.clone(),
        seed: 7,
        unavailable_percent: 40,
        drop_percent: 50,
    };
    let service = payment::serve(settings).await.unwrap();
    let address = service.address();
    let settings = Settings {
        hosts: vec![format!("http://{address}").parse().unwrap()],
        networks: vec!["127.0.0.1".parse().unwrap()],
        ..Settings::default()
    };
    let calls = HttpCalls::new(&settings, Secrets::default()).unwrap();
    let registry =
        Registry::new().workflow_fn("pay", pay).function(everstep_http::FUNCTION, calls.function());
    let everstep = Embedded::open(dir.path().join("everstep.db"))
        .registry(registry)
        .worker(|worker| worker.pools.push(POOL.parse().unwrap()))
        .start()
        .await
        .unwrap();
    let mut orders = Vec::new();
    for number in 0..20 {
        let order = Order { payment: format!("http://{address}"), id: format!("o-{number}") };
        orders.push(everstep.start("pay", Some(&order.id), &order).await.unwrap());
    }
    for order in orders {
        let (status, _) = order.result::<(u16, u32)>().await.unwrap();
        assert!(matches!(status, 200 | 201), "{status}");
    }
    everstep.stop().await.unwrap();
    service.stop().await.unwrap();
    let charged = std::fs::read_to_string(ledger).unwrap();
    assert_eq!(charged.lines().count(), 20, "each order is charged once");
}
