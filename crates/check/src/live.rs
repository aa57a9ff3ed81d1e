//! Asks a coordinator for the journals of its open instances, and goes on where an answer broke off.

use std::time::Duration;

use reqwest::{Client, Response, Url};

use crate::stream::{Lines, Whole};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The longest silence between two parts of an answer.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// How often in a row an answer may break off without an instance more.
const TRIES_MAX: u32 = 3;

/// Which journals to ask for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where the HTTP API is.
    pub url: String,
    /// The namespace.
    pub namespace: String,
    /// Only this workflow.
    pub workflow: Option<String>,
    /// With the seeds of the instances, so that draws come out as they did.
    pub seeds: bool,
}

/// Why journals could not be read. Asking again is safe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// The URL is no URL.
    #[error("the URL {url:?} is refused: {reason}")]
    Url {
        /// What was given.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server could not be reached, or its answer was lost.
    #[error("no answer from {url}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server refused, or answers what is not understood.
    #[error("{0}")]
    Refused(String),
}

/// The journals of open instances, one after the other.
#[derive(Debug)]
pub struct Live {
    http: Client,
    base: Url,
    asked: Asked,
    cursor: Option<String>,
    answer: Option<Answer>,
    failures: u32,
    over: bool,
}

#[derive(Debug)]
struct Answer {
    response: Response,
    bytes: Vec<u8>,
    /// So many of the bytes are known to hold no end of a line.
    looked: usize,
    lines: Lines,
}

/// What the next part of an answer is.
enum Part {
    Instance(Whole),
    /// The answer is whole.
    End(Option<String>),
    Nothing,
}

impl Live {
    /// Nothing is asked before the first [`next`](Self::next).
    pub fn new(asked: Asked) -> Result<Self, LiveError> {
        let refused = |reason: String| LiveError::Url { url: asked.url.clone(), reason };
        let base = Url::parse(&asked.url).map_err(|error| refused(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(refused("it must begin with http:// or https://".to_owned()));
        }
        let http = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENCE_MAX)
            // The API is asked directly: a proxy for the web has no business between.
            .no_proxy()
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self { http, base, asked, cursor: None, answer: None, failures: 0, over: false })
    }

    /// The next instance with its journal; none after the last.
    pub async fn next(&mut self) -> Result<Option<Whole>, LiveError> {
        while !self.over {
            let part = match self.part().await {
                Ok(part) => part,
                Err(error) => {
                    self.broke_off(error)?;
                    continue;
                }
            };
            match part {
                Part::Instance(whole) => {
                    self.failures = 0;
                    return Ok(Some(whole));
                }
                Part::End(next) => {
                    self.answer = None;
                    self.over = next.is_none();
                    self.cursor = next;
                }
                Part::Nothing => {}
            }
        }
        Ok(None)
    }

    /// What was read stays read: the next answer begins after the last whole instance.
    fn broke_off(&mut self, error: LiveError) -> Result<(), LiveError> {
        let broken = self.answer.take();
        self.failures += 1;
        if broken.is_none() || self.failures >= TRIES_MAX {
            return Err(error);
        }
        if let Some(last) = broken.and_then(|answer| answer.lines.last().map(ToOwned::to_owned)) {
            self.cursor = Some(last);
        }
        Ok(())
    }

    async fn part(&mut self) -> Result<Part, LiveError> {
        let Some(answer) = &mut self.answer else {
            self.answer = Some(self.ask().await?);
            return Ok(Part::Nothing);
        };
        let rest = answer.bytes.get(answer.looked..).unwrap_or_default();
        if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = answer.bytes.drain(..=answer.looked + end).collect();
            answer.looked = 0;
            let whole = answer.lines.take(&String::from_utf8_lossy(&line)).map_err(LiveError::Refused)?;
            return Ok(whole.map_or(Part::Nothing, Part::Instance));
        }
        answer.looked = answer.bytes.len();
        let chunk = answer.response.chunk().await;
        if let Some(chunk) = chunk.map_err(|error| unreachable(&self.asked.url, &error))? {
            answer.bytes.extend_from_slice(&chunk);
            return Ok(Part::Nothing);
        }
        let next = answer.lines.end().map_err(LiveError::Refused)?;
        Ok(Part::End(next.map(ToOwned::to_owned)))
    }

    async fn ask(&self) -> Result<Answer, LiveError> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["v1", &self.asked.namespace, "journals"]);
        }
        let seeds = self.asked.seeds.then(|| "true".to_owned());
        let fields = [("workflow", &self.asked.workflow), ("cursor", &self.cursor), ("seeds", &seeds)];
        for (name, value) in fields {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        let response =
            self.http.get(url).send().await.map_err(|error| unreachable(&self.asked.url, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Answer { response, bytes: Vec::new(), looked: 0, lines: Lines::default() });
        }
        let text = response.text().await.map_err(|error| unreachable(&self.asked.url, &error))?;
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        Err(LiveError::Refused(match problem["detail"].as_str() {
            Some(detail) => detail.to_owned(),
            None => format!("{} answered {status}; is it an everstep coordinator?", self.asked.url),
        }))
    }
}

/// The error that caused all the others says it best: "connection refused".
fn unreachable(url: &str, error: &reqwest::Error) -> LiveError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let reason = if error.is_timeout() { "it took too long".to_owned() } else { cause.to_string() };
    LiveError::Unreachable { url: url.to_owned(), reason }
}
