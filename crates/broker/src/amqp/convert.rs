//! Between the port's messages and lapin's.

use std::collections::BTreeMap;

use bytes::Bytes;
use lapin::message::Delivery;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, ErrorKind};

use crate::{Error, HeaderValue, Message, Properties};

/// A text of at most 255 bytes.
pub(super) fn short(text: &str) -> Result<ShortString, Error> {
    ShortString::try_new(text).map_err(Error::refused)
}

/// What a caller should do about lapin's error.
pub(super) fn classify(error: &lapin::Error) -> Error {
    let refused = match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(soft) => !matches!(soft, AMQPSoftError::RESOURCELOCKED),
            AMQPErrorKind::Hard(hard) => matches!(hard, AMQPHardError::NOTALLOWED),
        },
        ErrorKind::SerialisationError(_) | ErrorKind::AuthProviderError(_) => true,
        _ => false,
    };
    if refused { Error::refused(error) } else { Error::unavailable(error) }
}

/// Whether the broker closed a channel for this reason.
pub(super) fn is_soft(error: &lapin::Error, reason: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if matches!(error.kind(), AMQPErrorKind::Soft(soft) if soft == reason))
}

pub(super) fn to_amqp(properties: &Properties) -> Result<BasicProperties, Error> {
    let mut amqp = BasicProperties::default().with_delivery_mode(if properties.persistent { 2 } else { 1 });
    if let Some(text) = &properties.message_id {
        amqp = amqp.with_message_id(short(text)?);
    }
    if let Some(text) = &properties.app_id {
        amqp = amqp.with_app_id(short(text)?);
    }
    if let Some(text) = &properties.content_type {
        amqp = amqp.with_content_type(short(text)?);
    }
    if let Some(text) = &properties.correlation_id {
        amqp = amqp.with_correlation_id(short(text)?);
    }
    if let Some(text) = &properties.reply_to {
        amqp = amqp.with_reply_to(short(text)?);
    }
    if let Some(ms) = properties.expiration_ms {
        amqp = amqp.with_expiration(short(&ms.to_string())?);
    }
    if !properties.headers.is_empty() {
        let mut headers = FieldTable::default();
        for (key, value) in &properties.headers {
            headers.insert(short(key)?, header_to_amqp(value));
        }
        amqp = amqp.with_headers(headers);
    }
    Ok(amqp)
}

fn header_to_amqp(value: &HeaderValue) -> AMQPValue {
    match value {
        HeaderValue::Text(text) => AMQPValue::LongString(text.as_str().into()),
        HeaderValue::Int(number) => AMQPValue::LongLongInt(*number),
        HeaderValue::Bool(truth) => AMQPValue::Boolean(*truth),
    }
}

pub(super) fn message(delivery: Delivery) -> Message {
    Message {
        body: Bytes::from(delivery.data),
        properties: from_amqp(&delivery.properties),
        routing_key: delivery.routing_key.into(),
        exchange: delivery.exchange.into(),
        redelivered: delivery.redelivered,
    }
}

fn from_amqp(amqp: &BasicProperties) -> Properties {
    let text = |value: &Option<ShortString>| value.as_ref().map(ToString::to_string);
    Properties {
        message_id: text(amqp.message_id()),
        app_id: text(amqp.app_id()),
        content_type: text(amqp.content_type()),
        correlation_id: text(amqp.correlation_id()),
        reply_to: text(amqp.reply_to()),
        persistent: *amqp.delivery_mode() == Some(2),
        expiration_ms: amqp.expiration().as_ref().and_then(|text| text.as_str().parse().ok()),
        headers: amqp.headers().as_ref().map(headers_from_amqp).unwrap_or_default(),
    }
}

fn headers_from_amqp(headers: &FieldTable) -> BTreeMap<String, HeaderValue> {
    headers.inner().iter().map(|(key, value)| (key.to_string(), header_from_amqp(value))).collect()
}

fn header_from_amqp(value: &AMQPValue) -> HeaderValue {
    match value {
        AMQPValue::Boolean(truth) => HeaderValue::Bool(*truth),
        AMQPValue::ShortShortInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::ShortShortUInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::ShortInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::ShortUInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::LongInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::LongUInt(number) => HeaderValue::Int((*number).into()),
        AMQPValue::LongLongInt(number) => HeaderValue::Int(*number),
        other => HeaderValue::Text(render(other)),
    }
}

/// Kinds without a place in the port, for a person to read.
fn render(value: &AMQPValue) -> String {
    match value {
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::LongString(text) => text_of(text),
        AMQPValue::ByteArray(bytes) => String::from_utf8_lossy(bytes.as_slice()).into_owned(),
        AMQPValue::Boolean(truth) => truth.to_string(),
        AMQPValue::Float(number) => number.to_string(),
        AMQPValue::Double(number) => number.to_string(),
        AMQPValue::Timestamp(seconds) => seconds.to_string(),
        AMQPValue::DecimalValue(decimal) => format!("{}e-{}", decimal.value, decimal.scale),
        AMQPValue::Void => "null".to_owned(),
        AMQPValue::FieldArray(values) => {
            let values: Vec<_> = values.as_slice().iter().map(render).collect();
            format!("[{}]", values.join(", "))
        }
        AMQPValue::FieldTable(table) => {
            let fields: Vec<_> =
                table.inner().iter().map(|(key, value)| format!("{key}: {}", render(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        number => match header_from_amqp(number) {
            HeaderValue::Int(number) => number.to_string(),
            HeaderValue::Text(text) => text,
            HeaderValue::Bool(truth) => truth.to_string(),
        },
    }
}

fn text_of(text: &LongString) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_out_comes_back() {
        let headers = [
            ("traceparent".to_owned(), HeaderValue::from("00-ab-cd-01")),
            ("count".to_owned(), HeaderValue::Int(-7)),
            ("last".to_owned(), HeaderValue::Bool(true)),
        ];
        let properties = Properties {
            message_id: Some("m".to_owned()),
            app_id: Some("a".to_owned()),
            content_type: Some("application/json".to_owned()),
            correlation_id: Some("c".to_owned()),
            reply_to: Some("r".to_owned()),
            persistent: true,
            expiration_ms: Some(1500),
            headers: headers.into(),
        };
        let amqp = to_amqp(&properties).expect("all texts are short");
        assert_eq!(from_amqp(&amqp), properties);
    }

    #[test]
    fn foreign_header_kinds_become_text() {
        let mut inner = FieldTable::default();
        inner.insert("queue".into(), AMQPValue::LongString("q".into()));
        inner.insert("count".into(), AMQPValue::LongLongInt(2));
        for (value, text) in [
            (AMQPValue::FieldArray(vec![AMQPValue::FieldTable(inner)].into()), "[{count: 2, queue: q}]"),
            (AMQPValue::Double(1.5), "1.5"),
            (AMQPValue::Void, "null"),
            (AMQPValue::Timestamp(12), "12"),
            (AMQPValue::LongString(vec![0xff, b'a'].into()), "\u{fffd}a"),
        ] {
            assert_eq!(header_from_amqp(&value), HeaderValue::from(text));
        }
    }

    #[test]
    fn a_long_text_is_refused_not_a_panic() {
        let properties = Properties { message_id: Some("x".repeat(256)), ..Properties::default() };
        assert!(matches!(to_amqp(&properties), Err(Error::Refused { .. })));
    }
}
