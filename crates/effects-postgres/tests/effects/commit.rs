//! Connections that die: before the commit, in its middle, and after it, before its answer arrives.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use everstep_postgres::{name, once};
use everstep_sdk::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::rig::{Rig, connect, pay, step};

/// Where the way to the database breaks, once it is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// The commit does not arrive.
    BeforeCommit,
    /// The commit arrives and is done, and its answer does not come back.
    AfterCommit,
}

/// A way to the server that reads what passes. Gives the URL through it.
async fn way(url: &str, at: Break, armed: Arc<AtomicBool>) -> String {
    let (head, tail) = url.split_at(url.find('@').unwrap() + 1);
    let (server, database) = tail.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{head}{}/{database}", listener.local_addr().unwrap());
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(pass(client, server, at, armed.clone()));
        }
    });
    through
}

async fn pass(mut client: TcpStream, mut server: TcpStream, at: Break, armed: Arc<AtomicBool>) {
    let (mut up, mut down) = ([0; 4_096], [0; 4_096]);
    let mut committing = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(read @ 1..) = read else { return };
                committing |= armed.load(Ordering::SeqCst) && up[..read].windows(6).any(|text| text == b"COMMIT");
                if committing && at == Break::BeforeCommit {
                    return;
                }
                server.write_all(&up[..read]).await.unwrap();
            }
            read = server.read(&mut down) => {
                let Ok(read @ 1..) = read else { return };
                if committing {
                    // The answer is there, so it is done; nobody hears of it.
                    return;
                }
                client.write_all(&down[..read]).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_lost_answer_to_the_commit_is_unknown_and_the_next_attempt_finds_out() {
    for at in [Break::BeforeCommit, Break::AfterCommit] {
        let rig = Rig::new().await;
        let armed = Arc::new(AtomicBool::new(true));
        let mut client = connect(&way(&rig.installation.postgres, at, armed.clone()).await).await;
        let lost = once(step(1, 1), &mut client, async |tx| pay(tx, 7).await).await.unwrap_err();
        assert_eq!((lost.name(), lost.is_permanent()), (name::UNKNOWN, false), "{at:?}: {lost}");
        assert!(!lost.is_without_effect());
        let written = i64::from(at == Break::AfterCommit);
        assert_eq!(rig.counts().await, (written, written), "{at:?}");
        let ran = AtomicBool::new(false);
        let mut client = rig.client().await;
        let next = once(step(1, 2), &mut client, async |tx| {
            ran.store(true, Ordering::SeqCst);
            pay(tx, 7).await
        });
        assert_eq!(next.await.unwrap(), 1);
        assert_eq!(ran.load(Ordering::SeqCst), at == Break::BeforeCommit);
        assert_eq!(rig.counts().await, (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_connection_that_is_killed_before_the_commit_has_written_nothing() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let observer = rig.client().await;
    let killed = once(step(1, 1), &mut client, async |tx| {
        let id = pay(tx, 7).await?;
        let pid: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        observer.execute("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await?;
        Ok::<i64, Error>(id)
    });
    let killed = killed.await.unwrap_err();
    assert_eq!((killed.name(), killed.is_permanent()), (name::DATABASE, false), "{killed}");
    assert_eq!(rig.counts().await, (0, 0));
    assert_eq!(once(step(1, 2), &mut rig.client().await, async |tx| pay(tx, 7).await).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_commit_that_the_database_refuses_is_known() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let deferred = "CREATE TABLE line (payout bigint REFERENCES payout (id) DEFERRABLE INITIALLY DEFERRED)";
    client.batch_execute(deferred).await.unwrap();
    let refused =
        once(step(1, 1), &mut client, async |tx| tx.execute("INSERT INTO line VALUES (17)", &[]).await);
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.name(), name::DATABASE, "{refused}");
    assert!(refused.message().contains("nothing was written"), "{refused}");
    assert_eq!(rig.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_commit_that_is_answered_by_a_lost_connection_is_unknown() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let table = "CREATE TABLE said (code text); CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'said at the commit' USING ERRCODE = NEW.code; END $$; \
                 CREATE CONSTRAINT TRIGGER say AFTER INSERT ON said DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION say()";
    client.batch_execute(table).await.unwrap();
    for (code, expected) in [
        ("08006", name::UNKNOWN),
        ("08P01", name::UNKNOWN),
        ("57P01", name::UNKNOWN),
        ("57P03", name::UNKNOWN),
        ("40003", name::UNKNOWN),
        ("40001", name::DATABASE),
        ("23514", name::DATABASE),
        ("P0001", name::DATABASE),
    ] {
        let said = once(step(1, 1), &mut client, async |tx| {
            tx.execute("INSERT INTO said VALUES ($1)", &[&code]).await
        });
        let said = said.await.unwrap_err();
        assert_eq!((said.name(), said.is_permanent()), (expected, false), "{code}: {said}");
        assert!(!said.is_without_effect() && said.message().contains("said at the commit"), "{said}");
    }
    assert_eq!(rig.counts().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_an_attempt_that_is_dropped_leaves_nothing_behind() {
    let rig = Rig::new().await;
    let mut client = rig.client().await;
    let (wrote, is_written) = tokio::sync::oneshot::channel();

    let dropped = once(step(1, 1), &mut client, async |tx| {
        pay(tx, 7).await?;
        wrote.send(()).unwrap();
        std::future::pending::<Result<(), Error>>().await
    });
    tokio::select! {
        _ = dropped => panic!("it ended"),
        _ = is_written => {}
    }
    // On the same connection, as a pool would hand it out again.
    assert_eq!(once(step(1, 2), &mut client, async |tx| pay(tx, 7).await).await.unwrap(), 1);
    assert_eq!(rig.counts().await, (1, 1));
}
