//! One key, many attempts.

use deadpool_postgres::{Manager, Pool, Runtime};
use everstep_postgres::{Once, Schema, migrate, name, once};
use everstep_sdk::Error;
use futures::future::join_all;
use tokio_postgres::{IsolationLevel, NoTls};

use super::rig::{Rig, pay, step};

fn pool(rig: &Rig, size: usize) -> Pool {
    let manager = Manager::new(rig.installation.postgres.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_of_racing_attempts_one_writes_and_all_have_its_output() {
    let rig = Rig::new().await;
    let pool = pool(&rig, 64);
    let levels = [
        None,
        Some(IsolationLevel::ReadCommitted),
        Some(IsolationLevel::RepeatableRead),
        Some(IsolationLevel::Serializable),
    ];
    for (key, level) in levels.into_iter().enumerate() {
        let race = (0..64).map(|attempt| {
            let pool = pool.clone();
            async move {
                let mut client = pool.get().await.unwrap();
                let step = step(key as u8, attempt + 1);
                let mut effect = Once::new(step).input(&5);
                if let Some(level) = level {
                    effect = effect.isolation(level);
                }
                effect.run(&mut client, async |tx| pay(tx, 5).await).await
            }
        });
        let outputs: Vec<i64> = join_all(race).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(outputs, vec![key as i64 + 1; 64], "{level:?}");
        assert_eq!(rig.counts().await, (key as i64 + 1, key as i64 + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_an_attempt_waits_for_the_one_that_writes_and_takes_its_place_if_that_rolls_back() {
    let rig = Rig::new().await;
    for (key, first_commits) in [(1, true), (2, false)] {
        let (mut first, mut second) = (rig.client().await, rig.client().await);
        let (wrote, is_written) = tokio::sync::oneshot::channel();
        let (go, may_go) = tokio::sync::oneshot::channel::<()>();
        let one = tokio::spawn(async move {
            once(step(key, 1), &mut first, async |tx| {
                let id = pay(tx, 1).await?;
                wrote.send(()).unwrap();
                may_go.await?;
                if first_commits { Ok(id) } else { Err(Error::failed("changed its mind")) }
            })
            .await
        });
        is_written.await.unwrap();
        let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let two =
            tokio::spawn(async move { once(step(key, 2), &mut second, async |tx| pay(tx, 2).await).await });
        waits_for_a_lock(&rig, pid).await;
        go.send(()).unwrap();
        let (one, two) = (one.await.unwrap(), two.await.unwrap().unwrap());
        if first_commits {
            assert_eq!(one.unwrap(), two);
        } else {
            assert_eq!(one.unwrap_err().message(), "changed its mind");
        }
        let cents = "SELECT cents FROM payout WHERE id = $1";
        let cents: i64 = rig.client().await.query_one(cents, &[&two]).await.unwrap().get(0);
        assert_eq!(cents, if first_commits { 1 } else { 2 });
    }
    assert_eq!(rig.counts().await, (2, 2));
}

/// Until the server says that this connection waits.
async fn waits_for_a_lock(rig: &Rig, pid: i32) {
    let observer = rig.client().await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
    while observer.query_one(waits, &[&pid]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_an_error_of_the_write_leaves_nothing_behind() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let own = once(step(1, 1), &mut client, async |tx| {
        pay(tx, 1).await?;
        Err::<i64, _>(Error::permanent("no such account").named("NoAccount"))
    });
    let own = own.await.unwrap_err();
    assert_eq!((own.name(), own.is_permanent()), ("NoAccount", true), "it comes back as it is");
    let refused = once(step(1, 2), &mut client, async |tx| {
        pay(tx, 1).await?;
        Ok::<u64, Error>(tx.execute("INSERT INTO payout (id, cents) VALUES (1, 2)", &[]).await?)
    });
    assert!(refused.await.unwrap_err().message().contains("duplicate key"));
    let swallowed = once(step(1, 3), &mut client, async |tx| {
        pay(tx, 1).await?;
        drop(tx.execute("SELECT 1 / 0", &[]).await);
        Ok::<(), Error>(())
    });
    let swallowed = swallowed.await.unwrap_err();
    assert_eq!((swallowed.name(), swallowed.is_permanent()), (name::DATABASE, false), "{swallowed}");
    assert_eq!(rig.counts().await, (0, 0));
    assert_eq!(once(step(1, 4), &mut client, async |tx| pay(tx, 1).await).await.unwrap(), 1);
    assert_eq!(rig.counts().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_another_input_or_another_type_under_one_key_is_refused() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let written = Once::new(step(1, 1)).input(&("a", 1)).run(&mut client, async |tx| pay(tx, 1).await);
    assert_eq!(written.await.unwrap(), 1);
    let other = Once::new(step(1, 2)).input(&("a", 2)).run(&mut client, async |tx| pay(tx, 2).await);
    let other = other.await.unwrap_err();
    assert_eq!((other.name(), other.is_permanent()), (name::CONFLICT, true));
    let spelt = Once::new(step(1, 2)).input(&serde_json_like()).run(&mut client, async |tx| pay(tx, 1).await);
    assert_eq!(spelt.await.unwrap(), 1, "the same value is the same input, whatever its type");
    let unsaid = once(step(1, 2), &mut client, async |tx| pay(tx, 1).await).await;
    assert_eq!(unsaid.unwrap(), 1, "who says nothing of the input is not compared");
    let misfit =
        once(step(1, 2), &mut client, async |_| Ok::<String, Error>("other".to_owned())).await.unwrap_err();
    assert_eq!((misfit.name(), misfit.is_permanent()), (name::MISFIT, true));
    assert_eq!(rig.counts().await, (1, 1));
}

fn serde_json_like() -> (String, u8) {
    ("a".to_owned(), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_an_output_that_cannot_be_recorded_is_not_written() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let nan = once(step(1, 1), &mut client, async |tx| {
        pay(tx, 1).await?;
        Ok::<f64, Error>(f64::NAN)
    });
    let nan = nan.await.unwrap_err();
    assert_eq!((nan.name(), nan.is_permanent()), (name::OUTPUT, true));
    let step = step(1, 1);
    let large = Once::new(step).output_bytes(10).run(&mut client, async |tx| {
        pay(tx, 1).await?;
        Ok::<String, Error>("x".repeat(9))
    });
    let large = large.await.unwrap_err();
    assert_eq!((large.name(), large.is_permanent()), (name::OUTPUT, true));
    assert_eq!(rig.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_step_may_have_several_effects_and_savepoints() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    for attempt in [1, 2] {
        let step = step(1, attempt);
        let first =
            Once::new(step).part("debit").run(&mut client, async |tx| pay(tx, 1).await).await.unwrap();
        let second = Once::new(step).part("credit").run(&mut client, async |tx| {
            tx.batch_execute("SAVEPOINT a; INSERT INTO payout VALUES (99, 1); ROLLBACK TO a; SAVEPOINT b")
                .await?;
            let id = pay(tx, 2).await?;
            tx.batch_execute("RELEASE b").await?;
            Ok::<i64, Error>(id)
        });
        assert_eq!((first, second.await.unwrap()), (1, 2));
    }
    assert_eq!(rig.counts().await, (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_write_that_ends_its_transaction_is_found_out() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    for statement in ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN"] {
        let ended = once(step(1, 1), &mut client, async |tx| {
            pay(tx, 1).await?;
            tx.batch_execute(statement).await?;
            Ok::<(), Error>(())
        });
        let ended = ended.await.unwrap_err();
        assert_eq!((ended.name(), ended.is_permanent()), (name::ENDED, true), "{statement}: {ended}");
        client.batch_execute("TRUNCATE everstep_effect").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_write_that_ends_a_transaction_of_ones_own_is_found_out() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    for statement in ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN"] {
        let tx = client.transaction().await.unwrap();
        let ended = Once::new(step(1, 1)).within(&tx, async |tx| {
            pay(tx, 1).await?;
            tx.batch_execute(statement).await?;
            Ok::<(), Error>(())
        });
        let ended = ended.await.unwrap_err();
        assert_eq!((ended.name(), ended.is_permanent()), (name::ENDED, true), "{statement}: {ended}");
        drop(tx);
        client.batch_execute("TRUNCATE everstep_effect").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_an_effect_may_be_part_of_a_transaction_of_ones_own() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    migrate(&mut client, Some(&Schema::new("billing").unwrap())).await.unwrap();
    for commits in [false, true, true] {
        let step = step(1, 1);
        let mut tx = client.transaction().await.unwrap();
        let savepoint = tx.transaction().await.unwrap();
        let schema = Schema::new("billing").unwrap();
        let effect = Once::new(step).schema(&schema).within(&savepoint, async |tx| pay(tx, 1).await);
        assert_eq!(effect.await.unwrap(), 1);
        savepoint.commit().await.unwrap();
        if commits {
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(rig.counts().await, (1, 0));
    let rows = client.query_one("SELECT count(*) FROM billing.everstep_effect", &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 1);
}
