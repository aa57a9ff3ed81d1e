//! Long journals on whole systems: rules W26 and W27. What a step and a wake cost is counted in entries that are read and fed, and
//! does not depend on how many came before.

use everstep::{Error, Registry, Step, Workflow};
use everstep_engine::Answer;
use everstep_store::StatusWord;
use everstep_system_tests::{World, on_both};
use everstep_worker::Metrics;

async fn same(_: Step, n: u64) -> Result<u64, Error> {
    Ok(n)
}

/// So many steps, after every tenth a sleep, and at last the wait for an event.
fn long(steps: u64) -> Registry {
    Registry::new().workflow_fn("long", move |cx: Workflow, (): ()| async move {
        let mut sum = 0;
        for n in 0..steps {
            sum += cx.step("a", n, same).await?;
            if n % 10 == 9 {
                cx.sleep("nap", 150).await?;
            }
        }
        cx.event::<()>("go").timeout("5 min").await?;
        Ok::<_, Error>(sum)
    })
}

/// So many steps, a hundred at once, then the wait for an event, and some more.
fn straight(steps: u64) -> Registry {
    Registry::new().workflow_fn("straight", move |cx: Workflow, (): ()| async move {
        let mut sum = 0;
        for round in 0..steps / 100 {
            let calls = (0..100).map(|n| cx.step("a", 100 * round + n, same));
            for n in cx.join_all(calls).await {
                sum += n?;
            }
        }
        cx.event::<()>("go").timeout("5 min").await?;
        for n in 0..10 {
            sum += cx.step("b", n, same).await?;
        }
        Ok::<_, Error>(sum)
    })
}

/// How many entries were read, for grants and for whoever lacked some.
fn read(world: &World) -> (u64, u64) {
    let families = world.handle().metrics().gather();
    let family = families.iter().find(|family| family.name() == "everstep_entries_read_total");
    let of = |reason| {
        let rows = family.map_or(&[][..], |family| family.get_metric());
        let row = rows.iter().find(|row| row.get_label()[0].value() == reason);
        row.map_or(0, |row| row.get_counter().get_value() as u64)
    };
    (of("grant"), of("lack"))
}

on_both! {
    async fn w27_sleeps_between_steps_read_no_journal_again(setup) {
        let metrics = Metrics::default();
        let world = setup.worker(|settings| settings.metrics = metrics.clone()).serve(long(300)).await;
        world.begin("long", "one", &()).await;
        world.until("long", "one", "it waits for the event", |view| view.steps == 300 && view.status == StatusWord::Waiting).await;
        assert_eq!(world.send("long", "one", ("1", "go"), &()).await, Answer::Done);
        assert_eq!(world.end("long", "one").await.output::<u64>(), 299 * 300 / 2);
        let entries = world.journal("long", "one").await.len() as u64;
        // 30 wakes, each of which would read 180 entries on average. An answer that is late is made good by reading what it brought,
        // and no more.
        let (granted, lacked) = read(&world);
        assert!(granted < entries, "{granted} entries were read for grants, {lacked} for others; the journal has {entries}");
        assert_eq!(metrics.replays.get(), 0, "every body was found again");
    }

    async fn w27_ten_thousand_steps_survive_their_worker(setup) {
        let mut world = setup.serve(straight(10_000)).await;
        world.begin("straight", "one", &()).await;
        world.until("straight", "one", "it waits", |view| view.steps == 10_000 && view.status == StatusWord::Waiting).await;
        // Where an answer comes so late that the report is sent again, the entries of that report are read, no others.
        let sum = |(granted, lacked)| granted + lacked;
        let before = sum(read(&world));
        assert!(before < 5_000, "{before}: steps read nothing, however many came before");
        world.crash_worker(0).await;
        world.add_worker(straight(10_000)).await;
        let began = std::time::Instant::now();
        assert_eq!(world.send("straight", "one", ("1", "go"), &()).await, Answer::Done);
        assert_eq!(world.end("straight", "one").await.output::<u64>(), 9_999 * 10_000 / 2 + 45);
        let entries = world.journal("straight", "one").await.len() as u64;
        let read = sum(read(&world)) - before;
        // Once, and again those parts that took longer than a second; not once for each of the ten steps.
        assert!((10_000..2 * entries).contains(&read), "{read} of {entries}: the journal once");
        eprintln!("10,000 steps were replayed and ten more run within {:?}", began.elapsed());
    }
}
