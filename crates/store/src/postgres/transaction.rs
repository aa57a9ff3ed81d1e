//! The transaction of a batch: lock and load in one round trip, decide, write and commit in a second one.

use deadpool_postgres::Object;
use everstep_engine::rows::Needs;

use super::{fault::Fault, load, trip::Trip, write};
use crate::{Decide, StepOver};

/// A connection inside a transaction. Dropped there, it is closed and the database rolls back: it never returns to the pool
/// in the middle of something.
pub(super) struct Open(Option<Object>);

impl Open {
    pub(super) const fn new(client: Object) -> Self {
        Self(Some(client))
    }

    pub(super) fn client(&self) -> &Object {
        self.0.as_ref().expect("it is taken only when it is dropped")
    }

    /// The transaction is over, whichever way: the connection can serve others.
    pub(super) fn done(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

/// Ends a reader's transaction. A reader that is dropped before, and one whose transaction does not end, gives its connection up.
pub(super) async fn over<T>(client: Open, read: Result<T, Fault>) -> Result<T, Fault> {
    if client.client().batch_execute("COMMIT").await.is_ok() {
        client.done();
    }
    read
}

pub(super) async fn run(client: Object, needs: Needs, decide: Decide) -> Result<Vec<StepOver>, Fault> {
    let open = Open::new(client);
    let (loaded, places) = match load::load(open.client(), needs).await {
        Ok(loaded) => loaded,
        Err(fault) => return Err(roll_back(open, fault).await),
    };
    let now = loaded.now;
    let writes = decide(loaded);
    let mut trip = Trip::new(open.client());
    let cleared = match write::plan(&writes, &places, now, &mut trip).await {
        Ok(cleared) => {
            trip.command("COMMIT");
            cleared
        }
        Err(fault) => {
            drop(trip);
            return Err(roll_back(open, fault).await);
        }
    };
    match trip.run().await {
        Ok(answers) => {
            open.done();
            let rows = cleared.and_then(|at| answers.get(at)).map_or(&[][..], |answered| &answered.rows);
            // It is committed: what cannot be read here only makes the holders learn of it later.
            Ok(write::steps_over(rows).unwrap_or_default())
        }
        // The COMMIT came behind the statement that failed, and so was a rollback; this one only makes sure that the
        // connection still answers.
        Err(fault) => Err(roll_back(open, fault).await),
    }
}

/// Keeps the connection if it still answers, and can do what it is for.
async fn roll_back(open: Open, fault: Fault) -> Fault {
    let serves = !open.client().is_closed() && !fault.is_read_only();
    if serves && open.client().batch_execute("ROLLBACK").await.is_ok() {
        open.done();
    }
    fault
}
