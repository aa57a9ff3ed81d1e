//! A person: answers questions by what the services know, lets parked and paused instances go on, and sometimes interferes.

use std::time::Duration;

use everstep_coordinator::{Decision, Handle};
use everstep_engine::{
    bulk::{Act, Again, Bulk, Statuses, Which},
    rows::Question,
    start::NameKey,
    status::StatusWord,
};
use everstep_protocol::{
    Call, Failure, FailureKind, InstanceId, Namespace, Payload, Pin, Position,
    journal::{Choice, QuestionId},
};
use everstep_store::{AskedView, AttentionFilter, AttentionView, Filter, Range};
use tokio::time::sleep;

use super::{build, effects::Books, name, outside::Outside};
use crate::faults::Faults;

/// How often the list of questions is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(700);

/// What the person knows.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) outside: Outside,
    pub(crate) books: Books,
    pub(crate) faults: std::sync::Arc<Faults>,
    /// So many builds have workers.
    pub(crate) builds: usize,
    /// Those that may be interfered with.
    pub(crate) names: Vec<NameKey>,
    /// How often, once in so many looks; never, if zero.
    pub(crate) interferes: u64,
}

impl Person {
    /// Works to the end of the run.
    pub(crate) async fn works(self) {
        let mut number = 0;
        loop {
            sleep(LOOKS_EVERY).await;
            number += 1;
            let Some(desk) = self.outside.desks.any(&self.outside.draws) else { continue };
            desk.answers(self.looks(&desk.handle, number)).await;
        }
    }

    async fn looks(&self, desk: &Handle, number: u64) {
        let filter = AttentionFilter::default();
        for asked in desk.store().attention(&filter, None, 50).await.unwrap_or_default() {
            self.answers(desk, &asked).await;
        }
        if self.faults.have_ceased() {
            self.lets_go_on(desk).await;
        } else if self.interferes > 0 && self.draw(self.interferes) == 0 {
            self.interferes(desk, number).await;
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.outside.draws.draw(|draws| draws.below(below))
    }

    /// What comes of it the next look shows.
    async fn answers(&self, desk: &Handle, asked: &AttentionView) {
        let operation = format!("{}-{}-{}", asked.uid, asked.run, asked.since);
        match &asked.asked {
            AskedView::Parked(_) => drop(desk.retry(asked.name.clone(), operation).await),
            AskedView::Unknown(call, question) => {
                let id = QuestionId { run: asked.run, position: question.position };
                let decision = Decision {
                    choice: self.decides(call, question),
                    by: Some("the simulator".to_owned()),
                    why: Some("by the books of the service".to_owned()),
                };
                let operation = format!("{operation}-{id}");
                drop(desk.resolve(asked.name.clone(), operation, id, decision).await);
            }
        }
    }

    fn decides(&self, call: &Call, question: &Question) -> Choice {
        let books = self.books.read();
        let what = books.by_key.get(&question.key.to_string());
        match what.filter(|what| books.times(what) > 0) {
            Some(what) => Payload::encode(what).map_or(Choice::Again, Choice::Done),
            None if self.draw(8) == 0 => {
                Choice::Fail(Failure::new(FailureKind::Error, format!("nothing came of {call}")))
            }
            None => Choice::Again,
        }
    }

    async fn lets_go_on(&self, desk: &Handle) {
        for status in [StatusWord::Paused, StatusWord::Pausing] {
            let filter = Filter { status: Some(status), ..Filter::default() };
            let Ok(page) = desk.store().instances(&filter, None, 1_000).await else { continue };
            for view in page.rows {
                drop(desk.resume(name(view.id.as_str()), format!("calm-{}", self.draw(u64::MAX))).await);
            }
        }
    }

    async fn interferes(&self, desk: &Handle, number: u64) {
        let name = self.names[self.draw(self.names.len() as u64) as usize].clone();
        let operation = format!("person-{number}");
        let kind = self.draw(16);
        self.outside.trace.note("person", format_args!("does {kind} to {}", name.id));
        // An answer that is lost leaves it to chance whether it was done.
        let _ = match kind {
            0 | 1 => desk.pause(name, operation).await,
            2 | 3 => desk.resume(name, operation).await,
            4 => desk.cancel(name, operation, None, None).await,
            5 => desk.terminate(name, operation, None).await,
            6 => desk.restart(name, operation, None).await,
            7 => desk.restart_and_reuse(name, operation).await,
            8 | 9 => {
                let Some(call) = self.some_step(desk, &name).await else { return };
                desk.restart(name, operation, Some(call)).await
            }
            10 => desk.cancel_and_roll_back(name, operation, None, None).await,
            11 => desk.roll_back(name, operation, None).await,
            12 | 13 => return self.pins(desk, name, &operation).await,
            _ => return self.many(desk, operation).await,
        };
    }

    /// A step that the instance has called in its current run.
    async fn some_step(&self, desk: &Handle, name: &NameKey) -> Option<Call> {
        let view = desk.store().instance(name).await.ok()??;
        let range = Range { uid: view.uid, run: view.run, after: Position(0) };
        let entries = desk.store().journal(vec![range], 1 << 20).await.ok()?.pop()?;
        let calls: Vec<_> = entries.iter().filter_map(|entry| entry.fact.call()).collect();
        if calls.is_empty() { None } else { Some(calls[self.draw(calls.len() as u64) as usize].clone()) }
    }

    /// Pins or unpins one; or some of those that wait to be taken up, whose tasks are out under the pin that they had.
    async fn pins(&self, desk: &Handle, name: NameKey, operation: &str) {
        let mut names = if self.draw(2) == 0 { Vec::new() } else { self.some_queued(desk).await };
        if names.is_empty() {
            names.push(name);
        }
        let pin = self.some_pin();
        for (number, name) in names.into_iter().enumerate() {
            drop(desk.pin(name, format!("{operation}-{number}"), pin.clone()).await);
        }
    }

    async fn some_queued(&self, desk: &Handle) -> Vec<NameKey> {
        let filter = Filter { status: Some(StatusWord::Queued), ..Filter::default() };
        let page = desk.store().instances(&filter, None, 1 + self.draw(20) as u32).await;
        page.map_or(Vec::new(), |page| page.rows).iter().map(|view| super::name(view.id.as_str())).collect()
    }

    fn some_pin(&self) -> Option<Pin> {
        match self.draw(3) {
            0 => None,
            1 => Some(Pin::First),
            _ => Some(Pin::Build(build(self.draw(self.builds as u64) as usize))),
        }
    }

    /// An operation on many, which goes on by itself; some are stopped on the way.
    async fn many(&self, desk: &Handle, operation: String) {
        let act = match self.draw(6) {
            0 | 1 => Act::Pause,
            2 => Act::Resume,
            3 => Act::Retry,
            4 => Act::Cancel { reason: None, within: None, rollback: self.draw(2) == 0 },
            _ => Act::Restart { how: if self.draw(2) == 0 { Again::Whole } else { Again::Reuse } },
        };
        let status = (self.draw(2) == 0).then_some(Statuses::Only(StatusWord::Waiting));
        let bulk = Bulk { act, which: Which { status, ..Which::default() } };
        let (namespace, Ok(id)) = (Namespace::default(), InstanceId::new(operation)) else { return };
        let _ = desk.begin_bulk(&namespace, &id, &bulk).await;
        if self.draw(4) == 0 {
            let _ = desk.stop_bulk(&namespace, &id).await;
        }
    }
}
