//! What the step gets: an output, or an error with a name, a message and what is known of the call.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use everstep_protocol::{Failure, Millis, Payload};
use everstep_sdk::Error;
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde_json::value::RawValue;

use super::{
    answer,
    exchange::{Answer, Fault, joined},
    plan::Refusal,
    redact::Redactor,
};
use crate::{Body, CallError, Response, Sent, name};

const EXCERPT_BYTES: usize = 1 << 10;

/// The request was refused here.
pub(super) fn refused(refusal: Refusal) -> Error {
    let (message, name) = match refusal {
        Refusal::Invalid(reason) => (format!("the request cannot be made: {reason}"), name::INVALID),
        Refusal::NotAllowed(reason) => (format!("the request is not allowed: {reason}"), name::NOT_ALLOWED),
    };
    marked(Error::permanent(message).named(name), CallError::new(Sent::No))
}

/// Nothing was sent, and it may be otherwise the next time.
pub(super) fn not_sent(what: &str, reason: &str) -> Error {
    let message = format!("{what} was not sent: {reason}; trying again is safe");
    marked(Error::failed(message).named(name::NOT_SENT), CallError::new(Sent::No))
}

/// No answer.
pub(super) fn fault(what: &str, fault: Fault, redactor: &Redactor) -> Error {
    let unknown = |status: Option<StatusCode>| CallError {
        status: status.map(|status| status.as_u16()),
        ..CallError::new(if status.is_some() { Sent::Answered } else { Sent::Unknown })
    };
    let after = |status: Option<StatusCode>| match status {
        Some(status) => format!("{what} was answered {status}, but"),
        None => format!("{what} may have arrived;"),
    };
    match fault {
        Fault::NotAllowed(reason) => refused(Refusal::NotAllowed(reason)),
        Fault::NotSent(reason) => not_sent(what, &redactor.text(&reason)),
        Fault::TimedOut(status) => {
            let message = format!("{} the answer did not come in time", after(status));
            marked(Error::failed(message).named(name::TIMED_OUT), unknown(status))
        }
        Fault::Broken(status, reason) => {
            let message = format!("{} the connection broke: {}", after(status), redactor.text(&reason));
            marked(Error::failed(message).named(name::BROKEN), unknown(status))
        }
        Fault::TooLarge(status) => too_large(what, status),
    }
}

/// An answer that is no output.
pub(super) fn refusal(what: &str, answer: &Answer, again: bool, redactor: &Redactor, max: Millis) -> Error {
    let message = format!("{what} was answered {}", answer.status);
    let error = if again { Error::failed(message) } else { Error::permanent(message) };
    let error = marked(error.named(name::STATUS), answered(answer, redactor));
    match answer::retry_after(&answer.headers, max).filter(|_| again) {
        Some(delay) => error.retry_after(delay),
        None => error,
    }
}

/// A redirect that is not followed.
pub(super) fn redirect(what: &str, answer: &Answer, why: &str, redactor: &Redactor) -> Error {
    let message = format!("{what} was answered {}, a redirect, which {why}", answer.status);
    marked(Error::permanent(message).named(name::REDIRECT), answered(answer, redactor))
}

/// A look before the call failed: the call itself was not made.
pub(super) fn look_failed(error: &Error) -> Error {
    let (permanent, retry_after, message) =
        (error.is_permanent(), error.as_ref().retry_after, error.message().to_owned());
    let call = CallError { sent: Sent::No, ..CallError::of(error).unwrap_or(CallError::new(Sent::No)) };
    let message = format!("the look before the call failed, so the call was not made: {message}");
    let name =
        if matches!(error.name(), name::INVALID | name::NOT_ALLOWED) { error.name() } else { name::NOT_SENT };
    let again = if permanent { Error::permanent(message) } else { Error::failed(message) };
    let again = marked(again.named(name), call);
    match retry_after {
        Some(delay) => again.retry_after(delay),
        None => again,
    }
}

/// The one place that says of an error whether anything was sent: in its data, for the workflow, and by the mark that lets a step that is
/// called at most once be tried again (rule L9).
fn marked(error: Error, call: CallError) -> Error {
    let is_unsent = call.sent == Sent::No;
    let failure = Failure::from(error.with_data(call));
    Error::from_failure(if is_unsent { failure.not_sent() } else { failure })
}

fn answered(answer: &Answer, redactor: &Redactor) -> CallError {
    CallError {
        sent: Sent::Answered,
        status: Some(answer.status.as_u16()),
        body: excerpt(&redactor.beginning(&answer.body, answer.is_cut)),
    }
}

/// The beginning of a body that is text.
fn excerpt(body: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // Cut in the middle of a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&body[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let mut end = text.len().min(EXCERPT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (end > 0).then(|| text[..end].to_owned())
}

fn too_large(what: &str, status: StatusCode) -> Error {
    let message = format!(
        "{what} was answered {status}, with more than the worker takes (calls.response_bytes, calls.output_bytes); \
         the callee has done its work"
    );
    let call = CallError { status: Some(status.as_u16()), ..CallError::new(Sent::Answered) };
    marked(Error::permanent(message).named(name::TOO_LARGE), call)
}

/// The output.
pub(super) fn response(
    what: &str,
    answer: &Answer,
    keep: &[HeaderName],
    redactor: &Redactor,
    output_bytes: u64,
) -> Result<Response, Error> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&redactor.bytes(&bytes)).into_owned();
    let kept: BTreeMap<_, _> = keep
        .iter()
        .filter_map(|name| Some((name.as_str().to_owned(), text(joined(&answer.headers, name)?))))
        .collect();
    let body = body(&answer.headers, &redactor.bytes(&answer.body));
    let response = Response { status: answer.status.as_u16(), headers: kept, body, found: false };
    // By the text that is recorded: escapes and base64 make it longer than what was read.
    match Payload::encode(&response) {
        Ok(output) if output.len() as u64 <= output_bytes => Ok(response),
        Ok(_) | Err(_) => Err(too_large(what, answer.status)),
    }
}

fn body(headers: &HeaderMap, bytes: &[u8]) -> Body {
    if bytes.is_empty() {
        return Body::Empty;
    }
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|_| !encoded) else {
        return Body::Base64(STANDARD.encode(bytes));
    };
    match raw(text).filter(|_| is_json(headers)) {
        Some(json) => Body::Json(json),
        None => Body::Text(text.to_owned()),
    }
}

/// JSON that the journal takes; what only calls itself JSON stays text.
fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(Payload::from_text(text).ok()?.as_str().to_owned()).ok()
}

/// `application/json`, `application/problem+json` and the like.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(content_type: &str, bytes: &[u8]) -> &'static str {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
        match body(&headers, bytes) {
            Body::Empty => "empty",
            Body::Json(_) => "json",
            Body::Text(_) => "text",
            Body::Base64(_) => "base64",
        }
    }

    #[test]
    fn l03_a_body_is_what_it_is_and_not_what_it_says() {
        for (content_type, bytes, expected) in [
            ("application/json", &b""[..], "empty"),
            ("application/json; charset=utf-8", b"{\"a\":1}", "json"),
            ("application/problem+json", b"1", "json"),
            ("application/json", b"{\"a\":", "text"),
            ("application/json", b"1e999", "text"),
            ("text/plain", b"{\"a\":1}", "text"),
            ("image/png", b"\x89PNG", "base64"),
            ("text/plain", b"\xff", "base64"),
        ] {
            assert_eq!(kind(content_type, bytes), expected, "{content_type} {bytes:?}");
        }
    }

    #[test]
    fn an_excerpt_is_text_and_short() {
        assert_eq!(excerpt(b""), None);
        assert_eq!(excerpt(b"\x89PNG\xff"), None);
        assert_eq!(excerpt("no\u{fc}".as_bytes()).unwrap(), "no\u{fc}");
        assert_eq!(excerpt(&"no\u{fc}".as_bytes()[..3]).unwrap(), "no");
        let long = "\u{fc}".repeat(EXCERPT_BYTES);
        assert_eq!(excerpt(long.as_bytes()).unwrap().len(), EXCERPT_BYTES);
    }
}
