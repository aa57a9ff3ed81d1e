//! The auditor among instances that are damaged: rule W42. Not here: each kind of breach (the stores' conformance), nor what becomes of one
//! that is read (the coordinator's own tests).

use everstep_system_tests::{Kind, Setup};

/// A worker would take up what is ready, so there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w42_a_suspect_that_cannot_be_read_holds_up_nobody() {
    let world = Setup::new(Kind::Fleet).start().await;
    for id in ["damaged", "idle"] {
        world.start("nobody", id, &()).await;
    }
    // The walk comes to the older one first.
    let damage = "UPDATE journal SET entry = '\\x00' WHERE instance = (SELECT instance FROM instance_name WHERE id = 'damaged'); \
                  DELETE FROM ready";
    tokio::task::block_in_place(|| world.installation().sql(damage)).expect("it is changed");
    world.until("nobody", "idle", "it is mended", |view| view.ready_at.is_some()).await;
    let damaged = world.view("nobody", "damaged").await.expect("it is there");
    assert_eq!(damaged.ready_at, None, "nobody can say what it waits for");
}
