//! What a test sees.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use everstep_protocol::{
    Position,
    journal::{Attempted, Entry, Fact, Opened},
};
use everstep_store::{InstanceView, Range};

use super::{World, name};
use crate::{DEADLINE, End, ends::Ends, within};

/// What a test sees.
impl World {
    /// Instances that ended.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Waits until an instance has ended; a test that waits too long fails with its journal.
    pub async fn end(&self, workflow: &str, id: &str) -> End {
        let ended = tokio::time::timeout(DEADLINE, self.ends.of(workflow, id)).await;
        let Ok(end) = ended else {
            panic!("{workflow} {id} has not ended within {DEADLINE:?}\n{}", self.report(workflow, id).await);
        };
        end
    }

    /// What the store says of an instance.
    pub async fn view(&self, workflow: &str, id: &str) -> Option<InstanceView> {
        self.store().instance(&name(workflow, id)).await.expect("the store answers")
    }

    /// Waits until what the store says of an instance is as wanted.
    pub async fn until(
        &self,
        workflow: &str,
        id: &str,
        what: &str,
        wanted: impl Fn(&InstanceView) -> bool,
    ) -> InstanceView {
        let began = Instant::now();
        loop {
            if let Some(view) = self.view(workflow, id).await
                && wanted(&view)
            {
                return view;
            }
            let late = began.elapsed() > DEADLINE;
            assert!(
                !late,
                "{workflow} {id}: {what}: not within {DEADLINE:?}\n{}",
                self.report(workflow, id).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until something that can only be asked is true.
    pub async fn eventually(&self, what: &str, mut ask: impl AsyncFnMut() -> bool) {
        within(what, DEADLINE, async {
            while !ask().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// The journal of an instance.
    pub async fn journal(&self, workflow: &str, id: &str) -> Vec<Entry> {
        let view = self.view(workflow, id).await.expect("it exists");
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(Position(0), |entry| entry.position);
            let range = Range { uid: view.uid, run: view.run, after };
            let part = self.store().journal(vec![range], 1 << 20).await.expect("the store answers").remove(0);
            if part.is_empty() {
                return entries;
            }
            entries.extend(part);
        }
    }

    /// The ended attempts in the journal of an instance.
    pub async fn attempts(&self, workflow: &str, id: &str) -> Vec<(Entry, Attempted)> {
        let journal = self.journal(workflow, id).await;
        let attempts = journal.into_iter().filter_map(|entry| match &entry.fact {
            Fact::Attempted(attempted) => Some((entry.clone(), attempted.clone())),
            _ => None,
        });
        attempts.collect()
    }

    /// The waits in the journal of an instance.
    pub async fn opened(&self, workflow: &str, id: &str) -> Vec<Opened> {
        let journal = self.journal(workflow, id).await;
        let opened = journal.into_iter().filter_map(|entry| match entry.fact {
            Fact::Opened(opened) => Some(opened),
            _ => None,
        });
        opened.collect()
    }

    /// View and journal as text, for a test that failed.
    pub async fn report(&self, workflow: &str, id: &str) -> String {
        if self.observer.is_none() && self.coordinators.iter().flatten().next().is_none() {
            return "no coordinator runs".to_owned();
        }
        let Some(view) = self.view(workflow, id).await else { return "it does not exist".to_owned() };
        let mut text = format!("{view:#?}\n");
        for entry in self.journal(workflow, id).await {
            let fact: String = format!("{:?}", entry.fact).chars().take(500).collect();
            let _ = writeln!(text, "{} {} {fact}", entry.position, entry.at);
        }
        text
    }
}
