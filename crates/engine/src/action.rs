//! The audit log: who did what, when, to what, and what came of it (rule A6). A record is made here, of what was asked for and how it was
//! decided, and written in the transaction that does it. It tells no payload and no secret, and is bounded whatever was asked for.
//!
//! Not to be confused with the auditor, which looks for what is wrong with instances ([`audit`](crate::audit)).

use everstep_protocol::{AccessTokenId, InstanceId, Namespace, Pin, ScheduleId, Scope, journal::QuestionId};

use crate::{
    access::{Asker, Grant},
    bulk::Bulk,
    decide::{Rekeying, Resolution, Unparking},
    effect::{Answer, Operated},
    head::Head,
    input::What,
    rows::Rows,
    transition::Operation,
};

/// The longest text of a record, in characters: what is longer ends there.
pub const TEXT_CHARS_MAX: usize = 1_000;

/// What somebody did, or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Who.
    pub by: Asker,
    /// Who asked for it as the request says; nobody has checked that.
    pub named: Option<String>,
    /// In which namespace; all for what belongs to none.
    pub scope: Scope,
    /// To what: see [`Target`].
    pub target: String,
    /// What was done, in a word.
    pub operation: &'static str,
    /// What came of it.
    pub outcome: Came,
    /// What more there is to say of what was asked for.
    pub detail: Option<String>,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was done.
    Done,
    /// There was nothing to do.
    Unchanged,
    /// It was refused, and nothing changed.
    Refused(String),
}

impl Came {
    /// As it is kept and shown.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Done => "done".to_owned(),
            Self::Unchanged => "unchanged".to_owned(),
            Self::Refused(why) => format!("refused: {why}"),
        }
    }
}

/// To what something was done, as one text by which it is found. A workflow's name holds no slash, so that no two are the same.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An instance.
    Instance(&'a Head),
    /// A schedule.
    Schedule(&'a ScheduleId),
    /// An operation on many instances.
    Bulk(&'a InstanceId),
    /// An access token.
    AccessToken(AccessTokenId),
    /// The installation itself.
    Installation,
}

impl Target<'_> {
    /// The text.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Instance(head) => format!("instance/{}/{}", head.workflow, head.id),
            Self::Schedule(id) => format!("schedule/{id}"),
            Self::Bulk(id) => format!("bulk/{id}"),
            Self::AccessToken(id) => format!("access-token/{id}"),
            Self::Installation => "installation".to_owned(),
        }
    }
}

impl Action {
    /// Something that was done to what is no instance.
    #[must_use]
    pub fn done(by: &Asker, scope: Scope, target: Target<'_>, operation: &'static str) -> Self {
        let (named, detail) = (None, None);
        Self { by: by.clone(), named, scope, target: target.text(), operation, outcome: Came::Done, detail }
    }

    /// With what more there is to say.
    #[must_use]
    pub fn saying(self, detail: Option<String>) -> Self {
        Self { detail: detail.map(short), ..self }
    }

    /// With who asks as the request says.
    #[must_use]
    pub fn naming(self, named: Option<&str>) -> Self {
        Self { named: named.map(|named| short(named.to_owned())), ..self }
    }

    /// A bulk operation begins.
    #[must_use]
    pub fn bulk_begun(by: &Asker, namespace: &Namespace, id: &InstanceId, bulk: &Bulk) -> Self {
        let scope = Scope::Of(namespace.clone());
        Self::done(by, scope, Target::Bulk(id), "begin").saying(Some(bulk.to_text()))
    }

    /// A bulk operation is stopped.
    #[must_use]
    pub fn bulk_stopped(by: &Asker, namespace: &Namespace, id: &InstanceId) -> Self {
        Self::done(by, Scope::Of(namespace.clone()), Target::Bulk(id), "stop")
    }

    /// An access token is made.
    #[must_use]
    pub fn token_made(by: &Asker, id: AccessTokenId, name: &str, grant: &Grant) -> Self {
        let detail = format!("{name}: {}", grant.role);
        Self::done(by, grant.scope.clone(), Target::AccessToken(id), "create").saying(Some(detail))
    }

    /// An access token is revoked; where it counts the store knows.
    #[must_use]
    pub fn token_revoked(by: &Asker, scope: Scope, id: AccessTokenId) -> Self {
        Self::done(by, scope, Target::AccessToken(id), "revoke")
    }

    /// What somebody asks to be done to an instance, before it is decided; none if it is no operation, or one that was answered before.
    pub(crate) fn asked(by: &Asker, head: &Head, what: &What, rows: &Rows) -> Option<Self> {
        let asked = Asked::of(what)?;
        if rows.operations.contains_key(&(head.uid, asked.id.to_owned())) {
            return None;
        }
        let scope = Scope::Of(head.namespace.clone());
        let action = Self::done(by, scope, Target::Instance(head), asked.word);
        Some(action.naming(asked.named).saying(asked.detail))
    }

    /// With how it was decided; none if it was not, and will come again.
    pub(crate) fn came_to(self, answer: &Answer) -> Option<Self> {
        let refused = |why: &str| Came::Refused(why.to_owned());
        let outcome = match (answer, answer.operated()) {
            (Answer::Nothing, _) => Came::Unchanged,
            (_, Some(Operated::Done)) => Came::Done,
            (_, Some(Operated::NotAllowed(status))) => Came::Refused(format!("it is {status}")),
            (_, Some(Operated::NotParked)) => refused("it is not parked"),
            (_, Some(Operated::NotAsked)) => refused("the question is not open"),
            (_, Some(Operated::NotFound)) => refused("there is no such instance"),
            (_, Some(Operated::Moved)) => return None,
            (_, None) => refused("the decision failed, and the instance is parked"),
        };
        Some(Self { outcome, ..self })
    }
}

/// What is told of an operation on an instance.
struct Asked<'a> {
    /// By what a repetition is known.
    id: &'a str,
    word: &'static str,
    named: Option<&'a str>,
    detail: Option<String>,
}

impl<'a> Asked<'a> {
    fn of(what: &'a What) -> Option<Self> {
        let plain = |id: &'a String, operation: Operation, detail| {
            Some(Self { id, word: operation.word(), named: None, detail })
        };
        match what {
            What::Pause { operation } => plain(operation, Operation::Pause, None),
            What::Resume { operation } => plain(operation, Operation::Resume, None),
            What::Retry { operation } => plain(operation, Operation::Retry, None),
            What::Terminate { operation, reason } | What::Abandon { operation, reason } => {
                plain(operation, Operation::Terminate, because(reason.as_deref()))
            }
            What::Rollback { operation, reason } => {
                plain(operation, Operation::Rollback, because(reason.as_deref()))
            }
            What::Cancel { operation, reason, within, rollback } => {
                let rollback = rollback.then(|| "with a rollback".to_owned());
                let said = [Some(format!("within {within}")), rollback, because(reason.as_deref())];
                plain(operation, Operation::Cancel, listed(said))
            }
            What::Restart { operation, prepared } => {
                let kept = prepared.as_ref().map(|prepared| prepared.entries.len());
                plain(
                    operation,
                    Operation::Restart,
                    kept.map(|kept| format!("with {kept} entries of before")),
                )
            }
            What::Delete { operation, terminate } => {
                plain(operation, Operation::Delete, terminate.then(|| "terminated first".to_owned()))
            }
            What::Pin { operation, pin } => {
                let to = pin.as_ref().map_or("any build", Pin::as_str);
                plain(operation, Operation::Pin, Some(format!("to {to}")))
            }
            What::Rekey { operation, rekeying } => Some(Self::rekeyed(operation, rekeying)),
            What::Resolve { operation, resolution } => Some(Self::resolved(operation, resolution)),
            What::Claim { .. }
            | What::Report { .. }
            | What::GiveBack { .. }
            | What::Due { .. }
            | What::LeaseEnded { .. }
            | What::StepClaim { .. }
            | What::StepReport { .. }
            | What::StepLeaseEnded { .. }
            | What::Event(_)
            | What::Payload(_)
            | What::Letter(_)
            | What::Overdue
            | What::Expire
            | What::Breach(_)
            | What::Unwritable { .. } => None,
        }
    }

    /// The output or failure that somebody gives is a payload, and is not told.
    fn resolved(id: &'a str, resolution: &'a Resolution) -> Self {
        let Resolution { question, choice, by, why, .. } = resolution;
        let detail = answered(*question, choice.word(), why.as_deref());
        Self { id, word: "resolve", named: by.as_deref(), detail }
    }

    fn rekeyed(id: &'a str, rekeying: &'a Rekeying) -> Self {
        let Rekeying { question, choice, by, why } = rekeying;
        let word = match choice {
            Unparking::Key(key) => key.word(),
            Unparking::Retry => Operation::Retry.word(),
            Unparking::Terminate => Operation::Terminate.word(),
        };
        Self { id, word: "resolve", named: by.as_deref(), detail: answered(*question, word, why.as_deref()) }
    }
}

fn answered(question: QuestionId, choice: &str, why: Option<&str>) -> Option<String> {
    listed([Some(format!("question {question}")), Some(choice.to_owned()), because(why)])
}

fn because(reason: Option<&str>) -> Option<String> {
    reason.map(|reason| format!("reason: {reason}"))
}

fn listed<const N: usize>(said: [Option<String>; N]) -> Option<String> {
    Some(said.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

fn short(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    //! Proves what is told of an operation. That it is told once, and with what it does, the store's suite says.
    use everstep_protocol::{
        Failure, FailureKind, InstanceUid, Millis, Payload, Position, Run, Timestamp,
        journal::{Choice, KeyChoice},
    };

    use super::*;
    use crate::{Status, decide::Prepared};

    const SECRET: &str = "4111-1111";

    fn ann() -> Asker {
        Asker { who: "ann".to_owned(), from: "here".to_owned() }
    }

    fn head() -> Head {
        let (namespace, workflow) = ("shop".parse().unwrap(), "orders".parse().unwrap());
        Head::new(InstanceUid::generate(), namespace, workflow, "o-1".parse().unwrap(), Timestamp(1))
    }

    fn id() -> String {
        "op-1".to_owned()
    }

    fn resolve(choice: Choice) -> What {
        let question = QuestionId { run: Run(2), position: Position(7) };
        let (by, why) = (Some("eve".to_owned()), Some("the bank says so".to_owned()));
        What::Resolve {
            operation: id(),
            resolution: Box::new(Resolution { question, call: None, choice, by, why }),
        }
    }

    fn rekey(choice: Unparking) -> What {
        let question = QuestionId { run: Run(2), position: Position(7) };
        What::Rekey {
            operation: id(),
            rekeying: Box::new(Rekeying { question, choice, by: None, why: None }),
        }
    }

    fn asked(what: &What) -> Option<Action> {
        Action::asked(&ann(), &head(), what, &Rows::default())
    }

    #[test]
    fn a06_what_is_told_has_no_payload() {
        let reason = Some("old".to_owned());
        let prepared = Some(Prepared { from: Run(1), seen: Position(3), entries: Vec::new() });
        let output = Payload::from_text(&format!("\"{SECRET}\"")).unwrap();
        let failure = Failure::new(FailureKind::Error, SECRET);
        let within = Millis(60_000);
        let cases = [
            (What::Pause { operation: id() }, "pause", None),
            (What::Resume { operation: id() }, "resume", None),
            (What::Retry { operation: id() }, "retry", None),
            (What::Terminate { operation: id(), reason: None }, "terminate", None),
            (What::Terminate { operation: id(), reason: reason.clone() }, "terminate", Some("reason: old")),
            (What::Abandon { operation: id(), reason: reason.clone() }, "terminate", Some("reason: old")),
            (What::Rollback { operation: id(), reason: reason.clone() }, "rollback", Some("reason: old")),
            (
                What::Cancel { operation: id(), reason, within, rollback: false },
                "cancel",
                Some("within 1m, reason: old"),
            ),
            (What::Restart { operation: id(), prepared: None }, "restart", None),
            (What::Restart { operation: id(), prepared }, "restart", Some("with 0 entries of before")),
            (What::Delete { operation: id(), terminate: true }, "delete", Some("terminated first")),
            (What::Pin { operation: id(), pin: None }, "pin", Some("to any build")),
            (resolve(Choice::Done(output)), "resolve", Some("question 2.7, done, reason: the bank says so")),
            (resolve(Choice::Fail(failure)), "resolve", Some("question 2.7, fail, reason: the bank says so")),
            (rekey(Unparking::Key(KeyChoice::OldKey)), "resolve", Some("question 2.7, old_key")),
            (rekey(Unparking::Terminate), "resolve", Some("question 2.7, terminate")),
        ];
        for (what, operation, detail) in cases {
            let action = asked(&what).unwrap();
            assert_eq!((action.operation, action.detail.as_deref()), (operation, detail), "{what:?}");
            assert_eq!((action.target.as_str(), &action.by), ("instance/orders/o-1", &ann()));
            assert_eq!(action.scope, "shop".parse().unwrap());
            assert!(!format!("{action:?}").contains(SECRET), "{action:?}");
        }
        assert_eq!(asked(&resolve(Choice::Again)).unwrap().named.as_deref(), Some("eve"));
    }

    #[test]
    fn a06_what_the_engine_does_by_itself_is_no_action() {
        for what in [What::Overdue, What::Expire, What::Unwritable { message: "x".to_owned() }] {
            assert_eq!(asked(&what), None, "{what:?}");
        }
    }

    #[test]
    fn a06_an_outcome_says_whether_anything_changed() {
        let came = |answer: Answer| {
            let action = asked(&What::Pause { operation: id() }).unwrap();
            action.came_to(&answer).map(|action| action.outcome.text())
        };
        for (answer, told) in [
            (Answer::Done, Some("done")),
            (Answer::Nothing, Some("unchanged")),
            (Answer::Refused(Status::Complete), Some("refused: it is complete")),
            (Answer::NotParked, Some("refused: it is not parked")),
            (Answer::NotAsked, Some("refused: the question is not open")),
            (Answer::Parked, Some("refused: the decision failed, and the instance is parked")),
            // It is prepared again, and comes under the same id.
            (Answer::Moved, None),
        ] {
            assert_eq!(came(answer).as_deref(), told);
        }
    }

    #[test]
    fn a06_texts_are_cut_at_their_bound() {
        assert_eq!(short("💳".repeat(TEXT_CHARS_MAX)).chars().count(), TEXT_CHARS_MAX);
        assert_eq!(short("💳".repeat(TEXT_CHARS_MAX + 1)), "💳".repeat(TEXT_CHARS_MAX));
    }
}
