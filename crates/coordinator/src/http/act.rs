//! What is to be done to many instances, as a request says it (rule P33): the same words as those of the routes of one instance.

use everstep_engine::bulk::{Act, Again};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    control::{FromCall, call, checked, read_within},
    problem::Refusal,
    view::CallView,
};

/// The operation and its options, as read.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) operation: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) within: Option<String>,
    pub(super) terminate: bool,
    pub(super) rollback: bool,
    pub(super) from: Option<FromCall>,
    pub(super) reuse: bool,
}

impl Wish {
    /// Checks it. An option that the operation does not take is refused, as it would be passed over otherwise.
    pub(super) fn read(self) -> Result<Act, Refusal> {
        self.takes_its_options()?;
        let reason = checked(self.reason)?;
        Ok(match self.operation.unwrap_or_default().as_str() {
            "pause" => Act::Pause,
            "resume" => Act::Resume,
            "cancel" => {
                let within = self.within.map(|text| read_within(&text)).transpose()?;
                Act::Cancel { reason, within, rollback: self.rollback }
            }
            "terminate" => Act::Terminate { reason, rollback: self.rollback },
            "retry" => Act::Retry,
            "restart" => Act::Restart { how: how(self.from, self.reuse)? },
            "delete" => Act::Delete { terminate: self.terminate },
            other => {
                return Err(Refusal::Body(format!(
                    "operation {other:?} is refused, it must be one of pause, resume, cancel, terminate, retry, restart, delete"
                )));
            }
        })
    }

    fn takes_its_options(&self) -> Result<(), Refusal> {
        let operation = self.operation.as_deref().unwrap_or_default();
        let taken: &[&str] = match operation {
            "cancel" => &["reason", "within", "rollback"],
            "terminate" => &["reason", "rollback"],
            "restart" => &["from", "reuse"],
            "delete" => &["terminate"],
            _ => &[],
        };
        let given = [
            ("reason", self.reason.is_some()),
            ("within", self.within.is_some()),
            ("terminate", self.terminate),
            ("rollback", self.rollback),
            ("from", self.from.is_some()),
            ("reuse", self.reuse),
        ];
        match given.iter().find(|(field, given)| *given && !taken.contains(field)) {
            Some((field, _)) => {
                Err(Refusal::Body(format!("{field} is refused, {operation} does not take it")))
            }
            None => Ok(()),
        }
    }
}

/// What of the earlier run a restart keeps.
pub(super) fn how(from: Option<FromCall>, reuse: bool) -> Result<Again, Refusal> {
    match (from, reuse) {
        (None, false) => Ok(Again::Whole),
        (None, true) => Ok(Again::Reuse),
        (Some(from), false) => Ok(Again::From(call(from)?)),
        (Some(_), true) => Err(Refusal::Body(
            "reuse true is refused together with from: a restart from a step keeps what came before it"
                .to_owned(),
        )),
    }
}

/// The options that were given, as they are shown.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = OperationOptions)]
pub(super) struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    terminate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<CallView>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reuse: bool,
}

impl From<Act> for Options {
    fn from(act: Act) -> Self {
        let none = Self::default();
        match act {
            Act::Pause | Act::Resume | Act::Retry | Act::Restart { how: Again::Whole } => none,
            Act::Cancel { reason, within, rollback } => {
                Self { reason, within: within.map(|within| within.to_string()), rollback, ..none }
            }
            Act::Terminate { reason, rollback } => Self { reason, rollback, ..none },
            Act::Restart { how: Again::From(call) } => Self { from: Some(CallView::from(&call)), ..none },
            Act::Restart { how: Again::Reuse } => Self { reuse: true, ..none },
            Act::Delete { terminate } => Self { terminate, ..none },
        }
    }
}

#[cfg(test)]
mod tests {
    use everstep_protocol::Millis;

    use super::*;

    fn wish(operation: &str) -> Wish {
        Wish { operation: Some(operation.to_owned()), ..Wish::default() }
    }

    #[test]
    fn p33_each_operation_takes_its_own_options() {
        let from = || serde_json::from_str::<FromCall>(r#"{"name":"charge"}"#).ok();
        let why = || Some("old".to_owned());
        let given = [
            ("reason", Wish { reason: why(), ..Wish::default() }),
            ("within", Wish { within: Some("1 s".to_owned()), ..Wish::default() }),
            ("terminate", Wish { terminate: true, ..Wish::default() }),
            ("rollback", Wish { rollback: true, ..Wish::default() }),
            ("from", Wish { from: from(), ..Wish::default() }),
            ("reuse", Wish { reuse: true, ..Wish::default() }),
        ];
        let mut accepted = Vec::new();
        for operation in ["pause", "resume", "cancel", "terminate", "retry", "restart", "delete"] {
            assert_eq!(wish(operation).read().unwrap().word(), operation);
            for (field, wish) in &given {
                let Wish { operation: _, reason, within, terminate, rollback, from: _, reuse } = wish;
                let asked = Wish {
                    operation: Some(operation.to_owned()),
                    reason: reason.clone(),
                    within: within.clone(),
                    from: if *field == "from" { from() } else { None },
                    ..Wish { terminate: *terminate, rollback: *rollback, reuse: *reuse, ..Wish::default() }
                };
                match asked.read() {
                    Ok(_) => accepted.push(format!("{operation} {field}")),
                    Err(refusal) => {
                        let detail = refusal.to_string();
                        assert_eq!(detail, format!("{field} is refused, {operation} does not take it"));
                    }
                }
            }
        }
        let expected = [
            "cancel reason",
            "cancel within",
            "cancel rollback",
            "terminate reason",
            "terminate rollback",
            "restart from",
            "restart reuse",
            "delete terminate",
        ];
        assert_eq!(accepted, expected);
        let both = Wish { from: from(), reuse: true, ..wish("restart") };
        assert!(both.read().unwrap_err().to_string().contains("together with from"));
        let cancel = Wish { within: Some("2 min".to_owned()), rollback: true, ..wish("cancel") };
        let expected = Act::Cancel { reason: None, within: Some(Millis(120_000)), rollback: true };
        assert_eq!(cancel.read().unwrap(), expected);
    }

    #[test]
    fn p33_the_options_are_shown_as_they_were_given() {
        let shown = |act: Act| serde_json::to_value(Options::from(act)).unwrap();
        let from = FromCall { name: "charge".to_owned(), count: Some(2), kind: None };
        let restart = Act::Restart { how: how(Some(from), false).unwrap() };
        assert_eq!(
            shown(restart),
            serde_json::json!({"from": {"kind": "step", "name": "charge", "count": 2}})
        );
        let roll_back = Act::Terminate { reason: Some("old".to_owned()), rollback: true };
        assert_eq!(shown(roll_back), serde_json::json!({"reason": "old", "rollback": true}));
        assert_eq!(shown(Act::Pause), serde_json::json!({}));
    }
}
