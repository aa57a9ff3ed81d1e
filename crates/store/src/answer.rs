//! How an answer is kept: as a stable word, with the stored status's number where it has one. Kept answers outlive the
//! version that gave them, so words never change.

use everstep_engine::{Answer, Status, StatusWord};
use everstep_protocol::{InstanceId, WorkflowName, journal::Other};

/// The text of an answer.
pub(crate) fn encode(answer: &Answer) -> String {
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::Nothing => "nothing".to_owned(),
        Answer::Granted => "granted".to_owned(),
        Answer::NotGranted => "not_granted".to_owned(),
        Answer::Taken => "taken".to_owned(),
        Answer::Fenced => "fenced".to_owned(),
        Answer::FromTheFuture => "from_the_future".to_owned(),
        Answer::Parked => "parked".to_owned(),
        Answer::Refused(status) => format!("refused:{}", status.code()),
        Answer::Forbidden(status) => format!("forbidden:{}", status.word()),
        Answer::Moved => "moved".to_owned(),
        Answer::NotParked => "not_parked".to_owned(),
        Answer::NotFound => "not_found".to_owned(),
        Answer::Created => "created".to_owned(),
        Answer::Exists(status) => format!("exists:{}", status.code()),
        Answer::Conflict(status) => format!("conflict:{}", status.code()),
        Answer::NotServed => "not_served".to_owned(),
        Answer::EventIdTaken => "event_id_taken".to_owned(),
        Answer::MailboxFull => "mailbox_full".to_owned(),
        Answer::HookHeld(owner) => format!("hook_held:{}/{}", owner.workflow, owner.id),
        Answer::HookRetention => "hook_retention".to_owned(),
        Answer::NotAsked => "not_asked".to_owned(),
    }
}

/// The answer of a text; none if this version does not know it.
pub(crate) fn decode(text: &str) -> Option<Answer> {
    // It has outlived the instance that it met.
    let text = text.strip_prefix("was:").unwrap_or(text);
    if let Some(word) = text.strip_prefix("forbidden:") {
        return StatusWord::parse(word).map(Answer::Forbidden);
    }
    if let Some(owner) = text.strip_prefix("hook_held:") {
        let (workflow, id) = owner.split_once('/')?;
        let owner = Other { workflow: WorkflowName::new(workflow).ok()?, id: InstanceId::new(id).ok()? };
        return Some(Answer::HookHeld(owner));
    }
    if let Some((word, code)) = text.split_once(':') {
        let status = Status::from_code(code.parse().ok()?)?;
        return match word {
            "refused" => Some(Answer::Refused(status)),
            "exists" => Some(Answer::Exists(status)),
            "conflict" => Some(Answer::Conflict(status)),
            _ => None,
        };
    }
    match text {
        "done" => Some(Answer::Done),
        "nothing" => Some(Answer::Nothing),
        "granted" => Some(Answer::Granted),
        "not_granted" => Some(Answer::NotGranted),
        "taken" => Some(Answer::Taken),
        "fenced" => Some(Answer::Fenced),
        "from_the_future" => Some(Answer::FromTheFuture),
        "parked" => Some(Answer::Parked),
        "moved" => Some(Answer::Moved),
        "not_parked" => Some(Answer::NotParked),
        "not_found" => Some(Answer::NotFound),
        "created" => Some(Answer::Created),
        "not_served" => Some(Answer::NotServed),
        "event_id_taken" => Some(Answer::EventIdTaken),
        "mailbox_full" => Some(Answer::MailboxFull),
        "hook_retention" => Some(Answer::HookRetention),
        "not_asked" => Some(Answer::NotAsked),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_comes_back() {
        let mut answers = vec![
            Answer::Done,
            Answer::Nothing,
            Answer::Granted,
            Answer::NotGranted,
            Answer::Taken,
            Answer::Fenced,
            Answer::FromTheFuture,
            Answer::Parked,
            Answer::Moved,
            Answer::NotParked,
            Answer::NotFound,
            Answer::Created,
            Answer::NotServed,
            Answer::EventIdTaken,
            Answer::MailboxFull,
            Answer::HookRetention,
            Answer::NotAsked,
            Answer::HookHeld(Other {
                workflow: WorkflowName::new("fulfil").unwrap(),
                id: InstanceId::new("a:b").unwrap(),
            }),
        ];
        for status in Status::ALL {
            answers.extend([Answer::Refused(status), Answer::Exists(status), Answer::Conflict(status)]);
        }
        answers.extend(StatusWord::ALL.map(Answer::Forbidden));
        for answer in answers {
            assert_eq!(decode(&format!("was:{}", encode(&answer))), Some(answer.clone()));
            assert_eq!(decode(&encode(&answer)), Some(answer));
        }
        for text in
            ["", "exists", "exists:", "exists:9", "done:1", "refused:x", "hook_held:a", "hook_held:A/b"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
