//! How fast one caller may ask, over HTTP (rule A8). Not: how it is counted, which `pace.rs` says.

use everstep_coordinator::http::{self, Demand, Rate};
use everstep_protocol::Role;

use crate::{access::token, rig::Rig};

const LIST: &str = "/v1/default/instances";

/// So slow that nothing is given back while a test runs.
async fn slow(access: Demand, burst: u32) -> Rig {
    let settings = http::Settings { access, rate: Rate { per_second: 1, burst } };
    Rig::serving(settings, "127.0.0.1:0", async |_| ()).await
}

#[tokio::test]
async fn a08_whoever_asks_too_fast_is_told_when_to_come_again() {
    let rig = slow(Demand::UnlessLoopback, 3).await;
    let mut refused = None;
    // One a second is given back, and a test may be slow.
    for _ in 0..100 {
        let answer = rig.get(LIST).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("they come faster than one a second");
    let detail = refused.problem(429, "rate_limited");
    assert!(detail.contains("nothing was done"), "{detail}");
    assert_eq!((&refused.json()["retry_safe"], refused.headers["retry-after"].as_str()), (&true.into(), "1"));
    assert!(refused.json()["hint"].as_str().unwrap().contains("Retry-After"), "{}", refused.body);
    // Probes are answered whatever is asked.
    for _ in 0..9 {
        assert_eq!(rig.get("/healthz").await.status, 200);
        assert_eq!(rig.get("/readyz").await.status, 200);
    }
    let families = rig.handle.metrics().gather();
    let limited = families.iter().find(|family| family.name() == "everstep_http_limited_total").unwrap();
    let of = |caller: &str| {
        let fits = |metric: &&prometheus::proto::Metric| metric.get_label()[0].value() == caller;
        limited.get_metric().iter().find(fits).unwrap().get_counter().get_value()
    };
    assert!(of("address") >= 1.0);
    assert!(of("token").abs() < f64::EPSILON);
}

#[tokio::test]
async fn a08_guesses_take_no_turns_of_whoever_has_a_token() {
    let rig = slow(Demand::Always, 20).await;
    let viewer = format!("Bearer {}", token(&rig.store, Role::Viewer, "*").await);
    let ask = async |bearer: &str| rig.ask("GET", LIST, &[("authorization", bearer)], "").await.status;
    // Seen to be good once, from the allowance of its address.
    assert_eq!(ask(&viewer).await, 200);
    let mut statuses = Vec::new();
    for number in 0..100 {
        statuses.push(ask(&format!("Bearer evs_{number:032x}_{}", "0".repeat(64))).await);
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    // The address has no turns left; the token that was seen to be good has.
    assert_eq!(ask(&viewer).await, 200);
    // It is counted for itself.
    let mut refused = 0;
    for _ in 0..100 {
        refused += u32::from(ask(&viewer).await == 429);
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn a08_without_a_rate_nobody_is_refused() {
    let rig = Rig::new().await;
    for _ in 0..300 {
        assert_eq!(rig.get("/v1/default/hooks").await.status, 200);
    }
}
