//! The journals that a coordinator streams, one JSON value a line, put together to the texts that [`saved`](crate::saved)
//! reads:
//!
//! | line | |
//! | --- | --- |
//! | `{"instance": {...}, "cursor": "..."}` | an instance begins; its journal follows |
//! | `{"journal": [...]}` | the next entries of it |
//! | `{"done": {"next": "..."}}` | the last line: the answer is whole. `next` is where the next one begins, if there is one |
//! | `{"failed": "..."}` | the last line of an answer that could not be finished |

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One line.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    instance: Option<Box<RawValue>>,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    journal: Option<Vec<Box<RawValue>>>,
    #[serde(default)]
    done: Option<Done>,
    #[serde(default)]
    failed: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Done {
    #[serde(default)]
    next: Option<String>,
}

/// By what an instance is known.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
}

/// An instance with its journal, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Which.
    pub named: Named,
    /// What [`Saved::read`](crate::saved::Saved::read) reads.
    pub text: String,
}

#[derive(Serialize)]
struct Text<'a> {
    instance: &'a RawValue,
    journal: &'a [Box<RawValue>],
}

/// An instance of which more may come.
#[derive(Debug)]
struct Part {
    instance: Box<RawValue>,
    journal: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

/// Puts lines together.
#[derive(Debug, Default)]
pub struct Lines {
    part: Option<Part>,
    last: Option<String>,
    done: Option<Done>,
}

impl Lines {
    /// Takes the next line. Gives the instance that is whole with it, if one is.
    pub fn take(&mut self, line: &str) -> Result<Option<Whole>, String> {
        let line: Line =
            serde_json::from_str(line).map_err(|error| format!("a line is not understood: {error}"))?;
        if let Some(failed) = line.failed {
            return Err(failed);
        }
        if let Some(instance) = line.instance {
            let begun = Part { instance, journal: Vec::new(), cursor: line.cursor };
            let whole = self.finish()?;
            self.part = Some(begun);
            return Ok(whole);
        }
        if let Some(entries) = line.journal {
            let part = self.part.as_mut().ok_or("entries came before their instance")?;
            part.journal.extend(entries);
            return Ok(None);
        }
        if let Some(done) = line.done {
            let whole = self.finish()?;
            self.done = Some(done);
            return Ok(whole);
        }
        // A newer coordinator may say more.
        Ok(None)
    }

    /// Where the next answer begins, if this one is whole and there is a next one. An error if it is not whole.
    pub fn end(&self) -> Result<Option<&str>, String> {
        match &self.done {
            Some(done) => Ok(done.next.as_deref()),
            None => Err("the answer broke off".to_owned()),
        }
    }

    /// After which instance to go on when the answer broke off.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// One that was deleted while it was read has no journal, and is passed over.
    fn finish(&mut self) -> Result<Option<Whole>, String> {
        let Some(Part { instance, journal, cursor }) = self.part.take() else { return Ok(None) };
        self.last = cursor.or(self.last.take());
        if journal.is_empty() {
            return Ok(None);
        }
        let said = |error: serde_json::Error| format!("an instance is not understood: {error}");
        let named = serde_json::from_str(instance.get()).map_err(said)?;
        let text = serde_json::to_string(&Text { instance: &instance, journal: &journal }).map_err(said)?;
        Ok(Some(Whole { named, text }))
    }
}

#[cfg(test)]
mod tests {
    //! Proves how lines become instances. What a coordinator streams is tested there.
    #![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]
    use super::*;

    const ONE: &str =
        r#"{"instance":{"namespace":"default","workflow":"w","id":"1","more":1},"cursor":"c1"}"#;
    const TWO: &str = r#"{"instance":{"namespace":"default","workflow":"w","id":"2"},"cursor":"c2"}"#;

    #[test]
    fn p40_lines_become_instances() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(ONE).unwrap(), None);
        assert_eq!(lines.take(r#"{"journal":[{"position":1}]}"#).unwrap(), None);
        assert_eq!(lines.take(r#"{"journal":[{"position":2}]}"#).unwrap(), None);
        let whole = lines.take(TWO).unwrap().unwrap();
        assert_eq!(whole.named.id, "1");
        assert!(whole.text.ends_with(r#""journal":[{"position":1},{"position":2}]}"#), "{}", whole.text);
        assert_eq!((lines.last(), lines.end().is_err()), (Some("c1"), true));
        // The second one was deleted meanwhile.
        assert_eq!(lines.take(r#"{"done":{"next":"c2"}}"#).unwrap(), None);
        assert_eq!((lines.last(), lines.end()), (Some("c2"), Ok(Some("c2"))));
    }

    #[test]
    fn p40_what_is_no_stream_is_refused() {
        assert!(Lines::default().take("nonsense").is_err());
        assert!(Lines::default().take(r#"{"journal":[1]}"#).is_err());
        assert_eq!(Lines::default().take(r#"{"failed":"the store"}"#), Err("the store".to_owned()));
        assert_eq!(Lines::default().take(r#"{"new":1}"#), Ok(None));
        let mut nameless = Lines::default();
        nameless.take(r#"{"instance":{"id":"1"}}"#).unwrap();
        nameless.take(r#"{"journal":[{}]}"#).unwrap();
        assert!(nameless.take(r#"{"done":{}}"#).is_err());
    }
}
