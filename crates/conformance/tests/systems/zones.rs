//! Other time zones than ours: a database that lives elsewhere changes no moment (T44, O-08).

use std::time::{Duration, Instant};

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_system_tests::{Kind, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t44_o08_a_database_in_another_time_zone_moves_no_timer_and_no_time_that_is_shown() {
    let registry = Registry::new().workflow_fn("waits", |cx: Workflow, how: String| async move {
        match how.as_str() {
            "sleep" => cx.sleep("nap", "1500ms").await?,
            "event" => {
                let timed_out =
                    cx.event::<()>("never").timeout("1500ms").await.is_err_and(|error| error.is_timed_out());
                assert!(timed_out, "nothing was sent");
            }
            _ => {
                let second = async |step: Step, (): ()| {
                    if step.attempt() == 2 { Ok(()) } else { Err(Error::failed("again")) }
                };
                cx.step("twice", (), second).retry(Retry::constant("1500ms")).await?;
            }
        }
        Ok::<_, Error>(cx.now())
    });
    let mut world = Setup::new(Kind::Fleet).serve(registry).await;
    for zone in ["America/St_Johns", "Asia/Kathmandu"] {
        let set = format!("ALTER DATABASE {} SET timezone = '{zone}'", world.database());
        world.sql(&set);
        // Sessions keep the zone that they began with.
        world.crash_coordinator(world.coordinators_made() - 1).await;
        world.add_coordinator().await;
        assert_eq!(world.sql("SHOW timezone"), zone);
        let began = Instant::now();
        let kinds = ["sleep", "event", "retry"];
        for how in kinds {
            world.begin("waits", &format!("{how}-{}", zone.len()), how).await;
        }
        for how in kinds {
            let id = format!("{how}-{}", zone.len());
            world.end("waits", &id).await;
            let view = world.view("waits", &id).await.unwrap();
            let took = view.ended_at.unwrap().since(view.created_at).as_u64();
            assert!((1_500..10_000).contains(&took), "{zone} {how}: {took} ms");
            // What is stored counts from 1970 in UTC, wherever the server is.
            let now: i64 = world.sql("SELECT (extract(epoch FROM now()) * 1000000)::bigint").parse().unwrap();
            let distance = now - view.ended_at.unwrap().0;
            assert!((0..60_000_000).contains(&distance), "{zone} {how}: {distance} µs");
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
