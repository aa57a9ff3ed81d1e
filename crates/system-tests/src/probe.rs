//! What steps tell a test, and what holds them.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{DEADLINE, within};

/// Lines that steps append: their effects in the world. Clones are the same log.
#[derive(Clone, Debug)]
pub struct Log(Arc<watch::Sender<Vec<String>>>);

impl Default for Log {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl Log {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a line.
    pub fn push(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// How often a line was appended.
    pub fn count(&self, line: &str) -> usize {
        self.0.borrow().iter().filter(|other| *other == line).count()
    }

    /// Waits until a line was appended so often.
    pub async fn reached(&self, line: &str, times: usize) {
        let mut lines = self.0.subscribe();
        let reached = lines.wait_for(|lines| lines.iter().filter(|other| *other == line).count() >= times);
        let reached = tokio::time::timeout(DEADLINE, reached).await.is_ok();
        assert!(reached, "{times} times {line:?}: not within {DEADLINE:?}; the log is {:?}", self.lines());
    }

    /// Waits until so many lines were appended.
    pub async fn grown(&self, lines: usize) {
        let mut all = self.0.subscribe();
        within("lines in the log", DEADLINE, all.wait_for(|all| all.len() >= lines))
            .await
            .expect("the sender lives in self");
    }
}

/// What holds a step until the test opens it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self::default()
    }

    /// Lets everybody pass from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let mut open = self.0.subscribe();
        drop(open.wait_for(|open| *open).await);
    }
}
