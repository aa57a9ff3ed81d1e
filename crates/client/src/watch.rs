//! Streams of events, read as they come. Where one breaks, whatever it was, it is taken up again behind the last event that was read:
//! the server tells nothing twice and skips nothing.

use std::time::{Duration, Instant};

use everstep_protocol::{InstanceId, WorkflowName};
use reqwest::{Response, StatusCode, Url};

use crate::{api::Api, error::Error};

/// The server says something at least every 15 s: after this there is nobody any more.
const SILENCE: Duration = Duration::from_secs(45);
/// How long it is tried to come back.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(2);
/// A stream that was open for so long was no failure: whoever comes again after it need not wait.
const LASTED: Duration = Duration::from_secs(5);
/// More than an entry of a journal can be: what is longer comes from nobody that is known.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// Which ends are told.
#[derive(Clone, Debug, Default)]
pub struct EndsOf {
    /// Only of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only with this end.
    pub status: Option<String>,
    /// Only what has these attributes, each as `name=value`.
    pub attributes: Vec<String>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is, such as `entry`.
    pub kind: String,
    /// Where a stream goes on after it.
    pub id: Option<String>,
    /// Its JSON text.
    pub data: String,
}

/// A stream of events.
#[derive(Debug)]
pub struct Watch {
    api: Api,
    url: Url,
    cursor: Option<String>,
    open: Option<Response>,
    bytes: Vec<u8>,
    is_over: bool,
    heard: Instant,
    opened: Instant,
    pause: Duration,
    patience: Duration,
}

impl Api {
    /// What goes on in an instance, after the id of an event or from `now` on; else its current run from the beginning. It is over
    /// after `end` or `deleted`.
    #[must_use]
    pub fn watch(&self, workflow: &WorkflowName, id: &InstanceId, after: Option<&str>) -> Watch {
        let mut url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str(), "watch"]);
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        Watch::new(self.clone(), url)
    }

    /// Instances that end, after the id of an event or from the `beginning`; else from now on. It is never over by itself.
    #[must_use]
    pub fn watch_ends(&self, ends: &EndsOf, after: Option<&str>) -> Watch {
        let mut url = self.url(&["instances:watch"]);
        let workflow = ends.workflow.as_ref().map(WorkflowName::as_str);
        let fields = [("workflow", workflow), ("status", ends.status.as_deref()), ("after", after)];
        for (name, value) in fields {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        for attribute in &ends.attributes {
            url.query_pairs_mut().append_pair("attribute", attribute);
        }
        Watch::new(self.clone(), url)
    }
}

impl Watch {
    fn new(api: Api, url: Url) -> Self {
        let (bytes, heard) = (Vec::new(), Instant::now());
        Self {
            api,
            url,
            cursor: None,
            open: None,
            bytes,
            is_over: false,
            heard,
            opened: heard,
            pause: PAUSE_FIRST,
            patience: PATIENCE,
        }
    }

    /// How long it tries to come back where nobody answers; default one minute.
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where it goes on: the id of the last event that was read.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next event; none after the last. Dropping the future loses nothing.
    ///
    /// Errors: what is asked for is refused, or nobody has answered for as long as [`Watch::patient_for`] says.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.take() {
                match event.kind.as_str() {
                    // The server wants to be asked again.
                    "interrupted" | "dropped" => {
                        self.broke();
                        let pause = self.pause_after(self.opened.elapsed());
                        tokio::time::sleep(pause).await;
                    }
                    "end" | "deleted" => {
                        self.is_over = true;
                        return Ok(Some(event));
                    }
                    "" => {}
                    _ => return Ok(Some(event)),
                }
                continue;
            }
            if self.is_over {
                return Ok(None);
            }
            match self.read().await {
                Ok(()) => self.heard = Instant::now(),
                Err(error) if error.is_retry_safe() && self.heard.elapsed() < self.patience => {
                    let lasted = self.open.as_ref().map_or(Duration::ZERO, |_| self.opened.elapsed());
                    self.broke();
                    let pause = self.pause_after(lasted);
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// How long to wait before it is opened again. What each stream begins with is no sign that it goes on: a server that interrupts each
    /// one at once is asked ever more rarely.
    fn pause_after(&mut self, lasted: Duration) -> Duration {
        if lasted >= LASTED {
            self.pause = PAUSE_FIRST;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_LAST);
        pause
    }

    /// Nothing of an event that has not come whole counts.
    fn broke(&mut self) {
        self.open = None;
        self.bytes.clear();
    }

    /// Some more bytes, from a stream that is opened if there is none.
    async fn read(&mut self) -> Result<(), Error> {
        if self.open.is_none() {
            self.open = self.api.open(self.url.clone(), self.cursor.as_deref()).await?;
            self.opened = Instant::now();
            // Everything was read before.
            self.is_over = self.open.is_none();
            return Ok(());
        }
        let Some(response) = &mut self.open else { return Ok(()) };
        let broken = |reason: String| self.api.broken(reason);
        let chunk = tokio::time::timeout(SILENCE, response.chunk()).await;
        let chunk = chunk.map_err(|_| broken("the stream of events fell silent".to_owned()))?;
        match chunk.map_err(|error| broken(error.to_string()))? {
            Some(chunk) if self.bytes.len() + chunk.len() <= EVENT_BYTES_MAX => {
                self.bytes.extend_from_slice(&chunk);
            }
            Some(_) => return Err(self.api.alien(200, "an event is too large".to_owned())),
            None => return Err(broken("the stream of events broke off".to_owned())),
        }
        Ok(())
    }

    /// The next event that has come whole.
    fn take(&mut self) -> Option<Event> {
        let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
        let text = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..end + 2);
        let event = event(&text);
        if event.id.is_some() {
            self.cursor.clone_from(&event.id);
        }
        Some(event)
    }
}

fn event(text: &str) -> Event {
    let (mut kind, mut id, mut data) = (String::new(), None, Vec::new());
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut kind),
            "id" => id = Some(value.to_owned()),
            "data" => data.push(value),
            // A comment, or what this version does not know.
            _ => {}
        }
    }
    Event { kind, id, data: data.join("\n") }
}

impl Api {
    /// Opens a stream; none if there is nothing more to come.
    async fn open(&self, url: Url, after: Option<&str>) -> Result<Option<Response>, Error> {
        let response = self.begin(url, after).await?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => Ok(Some(response)),
            _ => Err(self.refusal(response).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_interrupts_each_stream_is_asked_ever_more_rarely() {
        let api = Api::new("http://127.0.0.1:1", "default".parse().expect("a valid name"))
            .expect("a valid address");
        let mut watch = api.watch_ends(&EndsOf::default(), None);
        // What a server sends before it interrupts: the pause does not begin anew because of it.
        watch.bytes.extend_from_slice(b"id: 1.2.3\nevent: open\ndata: {}\n\n");
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert_eq!(watch.take().map(|event| event.kind).as_deref(), Some("open"));
            watch.bytes.extend_from_slice(b"id: 1.2.3\nevent: open\ndata: {}\n\n");
            pauses.push(watch.pause_after(Duration::from_millis(3)).as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 2_000]);
        assert_eq!(
            watch.pause_after(Duration::from_mins(1)).as_millis(),
            100,
            "one that lasted was no failure"
        );
    }

    #[test]
    fn an_event_is_read_by_lines() {
        let read = event("id: 1.2\nevent: entry\ndata: {\ndata: }\n: comment\ncolour: red");
        let expected =
            Event { kind: "entry".to_owned(), id: Some("1.2".to_owned()), data: "{\n}".to_owned() };
        assert_eq!(read, expected);
        assert_eq!(event(": still here").kind, "");
    }
}
