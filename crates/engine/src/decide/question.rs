//! Questions about attempts of which nobody knows whether they took effect (rules L7, L8): asked by an entry and a wait without a
//! time; decided by a person, which is an entry too; what a worker says of one too late stands with it and decides nothing.

use everstep_protocol::{
    BuildName, Call, CallHash, Class, SessionId,
    journal::{Attempted, Choice, Entry, Fact, KeyChoice, Outcome, QuestionId, Resolved},
    message::{AttemptOutcome, Report},
};

use super::Draft;
use crate::{
    effect::{Answer, Change},
    rows::{EVIDENCE_BYTES, Evidence, Question, Subject, Told, WaitKind, WaitRow},
};

/// What a person has decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Which question.
    pub question: QuestionId,
    /// The call that it is about; none if it was not found open.
    pub call: Option<CallHash>,
    /// The decision.
    pub choice: Choice,
    /// Who decided.
    pub by: Option<String>,
    /// Why.
    pub why: Option<String>,
}

/// What a person has decided about a step whose input has changed (rule P8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rekeying {
    /// Which question.
    pub question: QuestionId,
    /// The decision.
    pub choice: Unparking,
    /// Who decided.
    pub by: Option<String>,
    /// Why.
    pub why: Option<String>,
}

/// What becomes of an instance that is parked for a step whose input has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparking {
    /// It goes on under this key.
    Key(KeyChoice),
    /// It goes on as it is: with the first input, or parked again.
    Retry,
    /// It ends.
    Terminate,
}

/// Whether an attempt asks a person.
pub(super) const fn asks(attempted: &Attempted) -> bool {
    matches!(attempted.outcome, Outcome::Unknown { asks: true, .. })
}

/// What an entry asks; none if it asks nothing.
pub(crate) fn of(entry: &Entry, attempted: &Attempted) -> Option<WaitRow> {
    let Outcome::Unknown { failure, asks: true, epoch } = &attempted.outcome else { return None };
    if everstep_protocol::planted("nobody_asked") {
        return None;
    }
    let question = Question {
        position: entry.position,
        attempt: attempted.attempt,
        epoch: *epoch,
        key: attempted.key,
        failure: failure.clone(),
        sensitive: attempted.marks.sensitive,
        evidence: None,
    };
    Some(WaitRow {
        call: attempted.call.clone(),
        kind: WaitKind::Person,
        since: entry.at,
        due_at: None,
        awaited: None,
        question: Some(Box::new(question)),
    })
}

/// A person decides. The same operation gets its first answer (rule W4); a question that is not open, or no longer, is refused.
pub(super) fn resolve(draft: &mut Draft<'_>, operation: &str, resolution: &Resolution) -> Answer {
    if let Some(answer) = super::control::first_answer(draft, operation) {
        return answer;
    }
    let answer = decided(draft, resolution);
    draft.changes.push(Change::Operation(operation.to_owned(), answer.clone()));
    answer
}

fn decided(draft: &mut Draft<'_>, resolution: &Resolution) -> Answer {
    let open = resolution.call.and_then(|call| draft.context.rows.waits.get(&(draft.uid(), call)));
    let is_meant = |wait: &&WaitRow| {
        wait.question.as_ref().is_some_and(|question| question.position == resolution.question.position)
    };
    let open = open.filter(is_meant).filter(|_| draft.head.run == resolution.question.run).cloned();
    let Some((wait, question)) = open.and_then(|wait| Some((wait.clone(), wait.question?))) else {
        return Answer::NotAsked;
    };
    let choice = match &resolution.choice {
        Choice::Fail(failure) => Choice::Fail(failure.clone().of_sensitive(question.sensitive)),
        choice => choice.clone(),
    };
    draft.append(Fact::Resolved(Resolved {
        call: wait.call.clone(),
        attempt: question.attempt,
        choice,
        by: resolution.by.clone(),
        why: resolution.why.clone(),
        sensitive: question.sensitive,
    }));
    draft.head.deaths = 0;
    let call = wait.call.hash();
    draft.changes.push(Change::WaitEnd(call));
    let is_remote = draft.context.rows.remotes.contains_key(&(draft.uid(), call));
    match (&resolution.choice, is_remote) {
        (Choice::Again, true) => {
            draft.run_again(&wait.call);
            if draft.lease().is_some() {
                draft.wake();
            }
            return Answer::Done;
        }
        (Choice::Again, false) => {}
        (Choice::Done(_) | Choice::Fail(_), _) => draft.count_step(&wait.call),
    }
    if is_remote {
        draft.changes.push(Change::RemoteEnd(call));
    }
    draft.head.waits = draft.head.waits.saturating_sub(1);
    draft.wake();
    Answer::Done
}

/// A report of a lease that is over may say what came of an attempt that a person is asked about. The first word stands.
pub(super) fn evidence(draft: &mut Draft<'_>, (session, build): (SessionId, &BuildName), report: &Report) {
    for end in report.results.iter().filter(|end| end.policy.class == Class::AtMostOnce) {
        let about = About { call: end.call.hash(), attempt: Some(end.attempt), epoch: report.epoch };
        draft.attach(&about, (session, build), &end.outcome);
    }
}

/// Which attempt a late report is about.
pub(super) struct About {
    pub(super) call: CallHash,
    /// None where the lease is of one attempt alone.
    pub(super) attempt: Option<everstep_protocol::Attempt>,
    pub(super) epoch: everstep_protocol::Epoch,
}

impl Draft<'_> {
    /// A person is asked: the call waits for the answer.
    pub(super) fn ask(&mut self, entry: &Entry, attempted: &Attempted) {
        if let Some(wait) = of(entry, attempted) {
            self.open_wait(wait);
        }
    }

    /// Keeps what a late report says with the question that is open about its attempt, if there is one.
    pub(super) fn attach(
        &mut self,
        about: &About,
        (session, build): (SessionId, &BuildName),
        outcome: &AttemptOutcome,
    ) {
        let Some(wait) = self.context.rows.waits.get(&(self.uid(), about.call)) else { return };
        let is_meant = |question: &&Question| {
            question.epoch == about.epoch
                && about.attempt.is_none_or(|attempt| attempt == question.attempt)
                && question.evidence.is_none()
        };
        let Some(question) = wait.question.as_deref().filter(is_meant) else { return };
        let told = match outcome {
            AttemptOutcome::Succeeded(output) if output.len() > EVIDENCE_BYTES => {
                Told::Large(output.len() as u64)
            }
            AttemptOutcome::Succeeded(output) => Told::Succeeded(output.clone()),
            AttemptOutcome::Failed { failure, .. } | AttemptOutcome::Unknown { failure, .. } => {
                Told::Failed(failure.clone())
            }
        };
        let evidence = Evidence { at: self.context.now, session, build: build.clone(), told };
        let question = Box::new(Question { evidence: Some(evidence), ..question.clone() });
        let wait = WaitRow { question: Some(question), ..wait.clone() };
        self.changes.push(Change::WaitEnd(about.call));
        self.changes.push(Change::Wait(wait));
    }

    /// A remote step is offered once more, or is at the resume of a paused instance.
    fn run_again(&mut self, call: &Call) {
        let hash = call.hash();
        let Some(row) = self.context.rows.remotes.get(&(self.uid(), hash)) else { return };
        let pool = row.remote.pool.clone();
        self.changes.push(Change::Wait(WaitRow {
            call: call.clone(),
            kind: WaitKind::Remote,
            since: self.context.now,
            due_at: self.is_paused().then_some(self.context.now),
            awaited: None,
            question: None,
        }));
        if !self.is_paused() {
            self.changes.push(Change::Ready(Subject::step(hash), Some(pool.clone())));
            self.offer_step(hash, pool);
        }
    }
}
