//! What requests about schedules say.

use std::collections::BTreeMap;

use everstep_engine::schedule::{CatchUp, Definition, DefinitionError, Overlap, When, Which};
use everstep_protocol::{Millis, Pin, Timestamp, WorkflowName, duration::IntoMillis, start::Retention};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    super::{document::shapes, extract::moment, instances::read_input, problem::Refusal},
    NOTE_CHARS_MAX,
};

/// A schedule as it is asked for.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = WantedSchedule)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ScheduleBody<'a> {
    workflow: Option<String>,
    #[serde(borrow)]
    #[schema(value_type = Option<Value>)]
    input: Option<&'a RawValue>,
    #[schema(value_type = Option<shapes::Retention>)]
    retention: Retention,
    #[schema(value_type = Option<shapes::Pin>)]
    pin: Option<Pin>,
    strict: Option<bool>,
    #[schema(value_type = shapes::Attributes)]
    attributes: BTreeMap<String, serde_json::Value>,
    cron: Option<String>,
    zone: Option<String>,
    every: Option<String>,
    offset: Option<String>,
    at: Option<String>,
    from: Option<String>,
    until: Option<String>,
    limit: Option<u64>,
    jitter: Option<String>,
    overlap: Option<String>,
    queue_max: Option<u32>,
    catch_up: Option<String>,
    catch_up_within: Option<String>,
}

impl ScheduleBody<'_> {
    pub(super) fn definition(self, input_limit: u64) -> Result<Definition, Refusal> {
        let workflow = self.workflow.ok_or_else(|| refused("workflow", "it is missing"))?;
        let when = when(self.cron, self.zone, self.every, self.offset, self.at)?;
        let point = |field, text: Option<String>| {
            text.map(|text| moment(field, &text)).transpose().map_err(Refusal::Schedule)
        };
        let definition = Definition {
            workflow: WorkflowName::new(workflow)?,
            input: read_input(self.input, input_limit)?,
            retention: self.retention,
            pin: self.pin,
            strict: self.strict,
            attributes: everstep_protocol::attribute::read(&self.attributes)?,
            when,
            from: point("from", self.from)?,
            until: point("until", self.until)?,
            limit: self.limit,
            jitter: span("jitter", self.jitter)?.unwrap_or_default(),
            overlap: overlap(self.overlap.as_deref(), self.queue_max)?,
            catch_up: catch_up(self.catch_up.as_deref(), self.catch_up_within)?,
        };
        definition.check().map_err(|error: DefinitionError| Refusal::Schedule(error.to_string()))?;
        Ok(definition)
    }
}

fn refused(field: &str, why: &str) -> Refusal {
    Refusal::Schedule(format!("{field} is refused: {why}"))
}

fn span(field: &'static str, text: Option<String>) -> Result<Option<Millis>, Refusal> {
    let read = |text: String| text.as_str().into_millis();
    text.map(read).transpose().map_err(|error| Refusal::Schedule(format!("{field}: {error}")))
}

fn when(
    cron: Option<String>,
    zone: Option<String>,
    every: Option<String>,
    offset: Option<String>,
    at: Option<String>,
) -> Result<When, Refusal> {
    if zone.is_some() && cron.is_none() {
        return Err(refused("zone", "it goes with cron alone"));
    }
    if offset.is_some() && every.is_none() {
        return Err(refused("offset", "it goes with every alone"));
    }
    match (cron, span("every", every)?, at) {
        (Some(expression), None, None) => {
            Ok(When::Cron { expression, zone: zone.unwrap_or_else(|| "UTC".to_owned()) })
        }
        (None, Some(every), None) => {
            Ok(When::Every { every, offset: span("offset", offset)?.unwrap_or_default() })
        }
        (None, None, Some(text)) => Ok(When::At { at: moment("at", &text).map_err(Refusal::Schedule)? }),
        _ => Err(refused("the schedule", "it must have one of cron, every and at")),
    }
}

fn overlap(word: Option<&str>, queue_max: Option<u32>) -> Result<Overlap, Refusal> {
    let read = word.map_or_else(|| Some(Overlap::default()), |word| Overlap::parse(word, queue_max));
    let read = read.ok_or_else(|| {
        refused(
            "overlap",
            &format!("{:?} is none of {}", word.unwrap_or_default(), Overlap::WORDS.join(", ")),
        )
    })?;
    if queue_max.is_some() && !matches!(read, Overlap::Queue { .. }) {
        return Err(refused("queue_max", "it goes with the overlap queue alone"));
    }
    Ok(read)
}

fn catch_up(word: Option<&str>, within: Option<String>) -> Result<CatchUp, Refusal> {
    let default = CatchUp::default();
    let which = match word {
        None => default.which,
        Some(word) => Which::ALL.into_iter().find(|which| which.word() == word).ok_or_else(|| {
            refused("catch_up", &format!("{word:?} is none of {}", Which::ALL.map(Which::word).join(", ")))
        })?,
    };
    Ok(CatchUp { which, within: span("catch_up_within", within)?.unwrap_or(default.within) })
}

/// Why a schedule is paused or resumed.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = ScheduleNote)]
#[serde(deny_unknown_fields)]
pub(super) struct NoteBody {
    #[serde(default)]
    note: Option<String>,
}

impl NoteBody {
    pub(super) fn checked(self) -> Result<Option<String>, Refusal> {
        if self.note.as_ref().is_some_and(|note| note.chars().count() > NOTE_CHARS_MAX || note.contains('\0'))
        {
            return Err(refused(
                "note",
                &format!("it must be at most {NOTE_CHARS_MAX} characters without NUL"),
            ));
        }
        Ok(self.note)
    }
}

/// Which backfill is stopped.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = BackfillStop)]
#[serde(deny_unknown_fields)]
pub(super) struct StopBody {
    /// The `id` by which `backfills` shows it; all of them if absent.
    #[serde(default)]
    #[schema(pattern = r"^[\x21-\x7e]{1,100}$")]
    id: Option<String>,
}

impl StopBody {
    pub(super) fn checked(self) -> Result<Option<String>, Refusal> {
        let is_good = |id: &String| (1..=100).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        match self.id {
            Some(id) if !is_good(&id) => Err(refused("id", "it must be 1 to 100 visible ASCII characters")),
            id => Ok(id),
        }
    }
}

/// A span that is to be made up for.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = Backfill)]
#[serde(deny_unknown_fields)]
pub(super) struct BackfillBody {
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    until: Option<String>,
    #[serde(default)]
    side_by_side: Option<bool>,
}

impl BackfillBody {
    pub(super) fn checked(self) -> Result<(Timestamp, Timestamp, Option<bool>), Refusal> {
        let point = |field: &str, text: Option<String>| {
            let text = text.ok_or_else(|| refused(field, "it is missing"))?;
            moment(field, &text).map_err(Refusal::Schedule)
        };
        Ok((point("from", self.from)?, point("until", self.until)?, self.side_by_side))
    }
}

#[cfg(test)]
mod tests {
    //! Proves what a body comes to. What becomes of it is tested in tests/http and in the system tests.
    use super::*;

    fn read(text: &str) -> Result<Definition, String> {
        let body: ScheduleBody<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        body.definition(100).map_err(|error| error.to_string())
    }

    #[test]
    fn s01_a_body_says_what_is_started_and_when() {
        let read_one = read(
            r#"{"workflow":"report","input":{"n": 1},"retention":"1 day","pin":"v-7","strict":true,"attributes":{"vip":true},
            "cron":"0 9 * * MON-FRI","zone":"Europe/Berlin","from":"2026-01-01T00:00:00Z","until":"2027-01-01T00:00:00Z",
            "limit":5,"jitter":"30 s","overlap":"queue","queue_max":7,"catch_up":"all","catch_up_within":"2 hours"}"#,
        );
        let at = |text| moment("", text).unwrap();
        let expected = Definition {
            workflow: "report".parse().unwrap(),
            input: everstep_protocol::Payload::from_text(r#"{"n":1}"#).unwrap(),
            retention: Retention::of_both(Millis(86_400_000)),
            pin: Some(Pin::Build("v-7".parse().unwrap())),
            strict: Some(true),
            attributes: vec![everstep_protocol::Attribute::from_words("vip=true").unwrap()],
            when: When::Cron { expression: "0 9 * * MON-FRI".to_owned(), zone: "Europe/Berlin".to_owned() },
            from: Some(at("2026-01-01T00:00:00Z")),
            until: Some(at("2027-01-01T00:00:00Z")),
            limit: Some(5),
            jitter: Millis(30_000),
            overlap: Overlap::Queue { max: 7 },
            catch_up: CatchUp { which: Which::All, within: Millis(7_200_000) },
        };
        assert_eq!(read_one, Ok(expected));
        let least = read(r#"{"workflow":"report","every":"1 hour"}"#).unwrap();
        assert_eq!((least.overlap, least.catch_up.which), (Overlap::Skip, Which::Latest));
        assert_eq!(least.when, When::Every { every: Millis(3_600_000), offset: Millis(0) });
        let once = read(r#"{"workflow":"report","at":"2026-01-01T00:00:00Z"}"#).unwrap();
        assert_eq!(once.when, When::At { at: at("2026-01-01T00:00:00Z") });
    }

    #[test]
    fn s01_what_is_wrong_is_named() {
        for (text, part) in [
            (r#"{"every":"1 h"}"#, "workflow is refused"),
            (r#"{"workflow":"No","every":"1 h"}"#, "workflow name"),
            (r#"{"workflow":"w"}"#, "one of cron, every and at"),
            (r#"{"workflow":"w","every":"1 h","cron":"* * * * *"}"#, "one of cron, every and at"),
            (r#"{"workflow":"w","every":"1 h","zone":"UTC"}"#, "zone"),
            (r#"{"workflow":"w","cron":"* * * * *","offset":"1 min"}"#, "offset"),
            (r#"{"workflow":"w","every":"5"}"#, "every"),
            (r#"{"workflow":"w","every":"10 ms"}"#, "every 10ms is refused"),
            (r#"{"workflow":"w","at":"tomorrow"}"#, "at \"tomorrow\""),
            (r#"{"workflow":"w","every":"1 h","from":"now"}"#, "from \"now\""),
            (r#"{"workflow":"w","every":"1 h","jitter":"2 days"}"#, "jitter 2d is refused"),
            (
                r#"{"workflow":"w","every":"1 h","overlap":"replace"}"#,
                "\"replace\" is none of skip, queue_one",
            ),
            (r#"{"workflow":"w","every":"1 h","queue_max":5}"#, "queue_max"),
            (r#"{"workflow":"w","every":"1 h","catch_up":"some"}"#, "none of all, latest, none"),
            (r#"{"workflow":"w","every":"1 h","hook":{}}"#, "hook"),
            (r#"{"workflow":"w","every":"1 h","attributes":{"vip":null}}"#, "\"vip\""),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
