//! From a request to a payload: which headers the code gets, and what the body is.
//!
//! Headers are let through but for a list, since senders sign their requests in headers of their own. Not let through is what says who
//! may do what, since payloads are shown to whoever may look at the instance, and what belongs to the way that the request took.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use everstep_protocol::{
    Fingerprint, Payload,
    event::check_payload,
    hook::{BodyEncoding, Carried, WebhookRequest},
    payload::PayloadError,
};
use serde_json::value::RawValue;

use super::{super::hook::Sent, WebhookCall};

/// The most bytes of headers that the code gets.
const HEADER_BYTES: usize = 16 << 10;

/// Headers that say who may do what.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-token",
    "x-csrf-token",
];
/// Headers of one hop, of the connection, and of proxies on the way.
const OF_THE_WAY: [&str; 22] = [
    "accept-encoding",
    "cf-connecting-ip",
    "cf-ray",
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "origin",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "via",
    "x-client-ip",
    "x-real-ip",
    "x-request-start",
];
const FORWARDED: &str = "x-forwarded-";

/// Why the body or the head of a request cannot be a payload. The same request is refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncarried {
    /// The body says that it is JSON, and is none that can be kept.
    #[error("the payload is not acceptable: {0}")]
    Json(PayloadError),
    /// The webhook takes JSON or text, and the body is neither.
    #[error("the body is neither JSON nor text in UTF-8")]
    NoText,
    /// The headers are too large.
    #[error("the headers are {0} bytes, of which a webhook takes {HEADER_BYTES}")]
    Headers(usize),
    /// All together are too large.
    #[error("the payload is {bytes} bytes of JSON, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// The payload that a webhook is resumed with.
pub(super) fn carry(call: &WebhookCall, carries: Carried, limit: u64) -> Result<Sent, Uncarried> {
    let sent = match carries {
        Carried::Body => {
            let payload = if is_json(call) { json(&call.body)? } else { text(&call.body)? };
            let fingerprint = Fingerprint::of(&payload).map_err(Uncarried::Json)?;
            Sent { checked: Ok(payload.clone()), payload, fingerprint }
        }
        Carried::Request => request(call, true)?,
        Carried::RawRequest => request(call, false)?,
    };
    let bytes = sent.payload.len() as u64;
    match check_payload(&sent.payload, limit) {
        Ok(()) => Ok(sent),
        Err(_) => Err(Uncarried::TooLarge { bytes, limit }),
    }
}

fn request(call: &WebhookCall, reads_json: bool) -> Result<Sent, Uncarried> {
    let (encoding, body) = if call.body.is_empty() {
        (None, None)
    } else if reads_json && is_json(call) {
        (Some(BodyEncoding::Json), Some(json(&call.body)?))
    } else if std::str::from_utf8(&call.body).is_ok() {
        (Some(BodyEncoding::Text), Some(text(&call.body)?))
    } else {
        let body = Payload::encode(&STANDARD.encode(&call.body)).map_err(Uncarried::Json)?;
        (Some(BodyEncoding::Base64), Some(body))
    };
    // What a schema is about: a raw body that says that it is JSON is looked at as such, and kept as it came.
    let checked = match &body {
        Some(_) if !reads_json && is_json(call) => json(&call.body)?,
        Some(body) => body.clone(),
        None => Payload::null(),
    };
    let body = body.map(|body| RawValue::from_string(body.as_str().to_owned())).transpose();
    let request = WebhookRequest {
        id: call.id.clone(),
        method: call.method,
        query: call.query.clone(),
        headers: headers(&call.headers)?,
        body: body.map_err(|_| Uncarried::NoText)?,
        encoding,
    };
    let fingerprint = request.fingerprint().map_err(Uncarried::Json)?;
    let payload = Payload::encode(&request).map_err(Uncarried::Json)?;
    Ok(Sent { payload, fingerprint, checked: Ok(checked) })
}

fn json(body: &[u8]) -> Result<Payload, Uncarried> {
    if body.is_empty() {
        return Ok(Payload::null());
    }
    let text = std::str::from_utf8(body).map_err(|_| Uncarried::NoText)?;
    Payload::from_text(text).map_err(Uncarried::Json)
}

fn text(body: &[u8]) -> Result<Payload, Uncarried> {
    let text = std::str::from_utf8(body).map_err(|_| Uncarried::NoText)?;
    Payload::encode(text).map_err(Uncarried::Json)
}

fn is_json(call: &WebhookCall) -> bool {
    let kind = call.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let kind = kind.map_or("", |(_, kind)| kind).split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// The headers that the code gets, by their names in small letters. What `connection` names belongs to one hop too.
fn headers(all: &[(String, String)]) -> Result<BTreeMap<String, String>, Uncarried> {
    let of_hop = |name: &str| {
        let connection = all.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        connection
            .flat_map(|(_, names)| names.split(','))
            .any(|other| other.trim().eq_ignore_ascii_case(name))
    };
    let mut kept = BTreeMap::<String, String>::new();
    for (name, value) in all {
        let name = name.to_ascii_lowercase();
        let is_left_out = SECRET.contains(&name.as_str())
            || OF_THE_WAY.contains(&name.as_str())
            || name.starts_with(FORWARDED)
            || of_hop(&name);
        if is_left_out {
            continue;
        }
        kept.entry(name)
            .and_modify(|values| {
                values.push_str(", ");
                values.push_str(value);
            })
            .or_insert_with(|| value.clone());
    }
    let bytes: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADER_BYTES { Err(Uncarried::Headers(bytes)) } else { Ok(kept) }
}

#[cfg(test)]
mod tests {
    //! Proves what the code gets of a request. Not: that it gets it.
    use bytes::Bytes;
    use everstep_protocol::hook::Method;

    use super::*;

    fn call(headers: &[(&str, &str)], body: &[u8]) -> WebhookCall {
        WebhookCall {
            namespace: "default".parse().unwrap(),
            token: "t".parse().unwrap(),
            id: "1".to_owned(),
            method: Method::Post,
            query: vec![("a".to_owned(), "1 2".to_owned())],
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: Bytes::copy_from_slice(body),
        }
    }

    fn got(call: &WebhookCall, carries: Carried) -> String {
        match carry(call, carries, 1 << 20) {
            Ok(sent) => sent.payload.as_str().to_owned(),
            Err(uncarried) => panic!("{uncarried}"),
        }
    }

    #[test]
    fn h58_credentials_and_what_belongs_to_the_way_do_not_get_to_the_code() {
        let call = call(
            &[
                ("Stripe-Signature", "t=1"),
                ("X-Trace", "a"),
                ("x-trace", "b"),
                ("Authorization", "Bearer secret"),
                ("Cookie", "secret"),
                ("X-Api-Key", "secret"),
                ("X-Forwarded-For", "secret"),
                ("Connection", "close, X-Hop"),
                ("X-Hop", "secret"),
                ("Host", "secret"),
            ],
            b"",
        );
        let text = got(&call, Carried::Request);
        let expected = concat!(
            r#"{"id":"1","method":"POST","query":[["a","1 2"]],"#,
            r#""headers":{"stripe-signature":"t=1","x-trace":"a, b"}}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn h58_a_body_is_json_text_or_bytes_and_says_which() {
        let json = [("content-type", "application/vnd.x+json; charset=utf-8")];
        let body = |call: &WebhookCall, carries| {
            let value: serde_json::Value = serde_json::from_str(&got(call, carries)).unwrap();
            (value["encoding"].clone(), value["body"].clone())
        };
        let of = |encoding: &str, body: serde_json::Value| (serde_json::Value::from(encoding), body);
        let typed = call(&json, b"{ \"a\": 1 }");
        assert_eq!(body(&typed, Carried::Request), of("json", serde_json::json!({ "a": 1 })));
        assert_eq!(body(&typed, Carried::RawRequest), of("text", "{ \"a\": 1 }".into()));
        assert_eq!(got(&typed, Carried::Body), r#"{"a":1}"#);
        assert_eq!(body(&call(&[], "grün".as_bytes()), Carried::Request), of("text", "grün".into()));
        assert_eq!(body(&call(&[], &[0xff, 0]), Carried::Request), of("base64", "/wA=".into()));
        let wrong = |call: &WebhookCall, carries| carry(call, carries, 1 << 20).err();
        assert!(matches!(wrong(&call(&json, b"{"), Carried::Request), Some(Uncarried::Json(_))));
        assert_eq!(wrong(&call(&[], &[0xff]), Carried::Body), Some(Uncarried::NoText));
        let large = "x".repeat(20 << 10);
        assert!(matches!(
            wrong(&call(&[("x-a", &large)], b""), Carried::Request),
            Some(Uncarried::Headers(_))
        ));
        let long = carry(&call(&[], large.as_bytes()), Carried::Request, 1 << 10).err();
        assert!(matches!(long, Some(Uncarried::TooLarge { limit: 1024, .. })));
    }
}
