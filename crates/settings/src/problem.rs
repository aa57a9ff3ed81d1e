//! What is said of settings that cannot be read: where, what is expected, and where it comes from. A value is shown only where it can be
//! no secret: where the default is a number, a bool or a list. A text may be a URL with a password, and in place of a table it may be
//! the URL that belongs into that table.

use figment::{
    Error,
    error::{Actual, Kind},
    value::{Dict, Value},
};

const MASK: &str = "***";
/// Shorter texts stand in any sentence, and are not looked for.
const SOUGHT_MIN: usize = 4;

/// One line for each problem. `known` are the defaults, `given` what was to be read.
pub(crate) fn told(error: Error, known: &Dict, given: &Dict) -> Vec<String> {
    error.into_iter().map(|error| line(&error, known, given)).collect()
}

fn line(error: &Error, known: &Dict, given: &Dict) -> String {
    let what = if error.path.is_empty() {
        of_a_source(&error.kind)
    } else {
        let is_shown = may_be_shown(known, &error.path);
        let values = values_at(given, &error.path);
        format!("{}: {}", error.path.join("."), of_a_value(&error.kind, is_shown, &values))
    };
    match error.metadata.as_ref().map(|metadata| (&metadata.source, &metadata.name)) {
        Some((Some(source), name)) => format!("{what} in {source} {name}"),
        Some((None, name)) => format!("{what} in {name}"),
        None => what,
    }
}

/// A source that cannot be read at all. What follows the first line shows the text that does not fit.
fn of_a_source(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.lines().next().unwrap_or_default().to_owned(),
        other => of_a_value(other, false, &[]),
    }
}

fn of_a_value(kind: &Kind, is_shown: bool, values: &[String]) -> String {
    match kind {
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            let found = match (is_shown, actual) {
                (true, Actual::Str(text)) if text.contains('@') => kind_of(actual),
                (true, actual) => actual.to_string(),
                (false, actual) => kind_of(actual),
            };
            format!("expected {}, found {found}", in_words(expected))
        }
        Kind::Message(message) => masked(message, is_shown, values),
        Kind::Unsupported(actual) | Kind::UnsupportedKey(actual, _) => {
            format!("{} cannot be used here", kind_of(actual))
        }
        Kind::UnknownVariant(_, expected) if !is_shown => format!("expected one of {}", expected.join(", ")),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "the number is out of range".to_owned(),
        Kind::UnknownVariant(..)
        | Kind::InvalidLength(..)
        | Kind::UnknownField(..)
        | Kind::MissingField(_)
        | Kind::DuplicateField(_) => kind.to_string(),
    }
}

fn in_words(expected: &str) -> &str {
    if expected.starts_with("struct ") || expected == "a map" { "a table" } else { expected }
}

fn kind_of(actual: &Actual) -> String {
    match actual {
        Actual::Bool(_) => "a bool",
        Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) => "a number",
        Actual::Char(_) | Actual::Str(_) | Actual::Bytes(_) => "a text",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
    .to_owned()
}

/// What a type itself says of a value, which may repeat it.
fn masked(message: &str, is_shown: bool, values: &[String]) -> String {
    let mut text = message.to_owned();
    // A text with an @ may be a URL with a password, wherever it was given.
    for value in values.iter().filter(|value| !is_shown || value.contains('@')) {
        text = text.replace(&format!("{value:?}"), MASK);
        if value.len() >= SOUGHT_MIN {
            text = text.replace(value.as_str(), MASK);
        }
    }
    text
}

/// By the default: only numbers, bools and lists are no secrets. Nothing is known of what has no default.
fn may_be_shown(known: &Dict, path: &[String]) -> bool {
    let mut table = known;
    for name in path {
        match table.get(name) {
            Some(Value::Dict(_, inner)) => table = inner,
            Some(Value::Num(..) | Value::Bool(..) | Value::Array(..)) => return true,
            Some(Value::String(..) | Value::Char(..) | Value::Empty(..)) | None => return false,
        }
    }
    false
}

/// All texts and numbers that were given there, longest first: one may be a part of another.
fn values_at(given: &Dict, path: &[String]) -> Vec<String> {
    let mut values = Vec::new();
    let mut table = given;
    for name in path {
        match table.get(name) {
            Some(Value::Dict(_, inner)) => table = inner,
            Some(value) => {
                collect(value, &mut values);
                break;
            }
            None => break,
        }
    }
    if values.is_empty() {
        for value in table.values() {
            collect(value, &mut values);
        }
    }
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

fn collect(value: &Value, values: &mut Vec<String>) {
    match value {
        Value::String(_, text) => values.push(text.clone()),
        Value::Dict(_, inner) => {
            for value in inner.values() {
                collect(value, values);
            }
        }
        Value::Array(_, inner) => {
            for value in inner {
                collect(value, values);
            }
        }
        Value::Num(_, number) => {
            let whole = number.to_u128().map(|number| number.to_string());
            let number = whole.or_else(|| number.to_i128().map(|number| number.to_string()));
            values.extend(number);
        }
        Value::Char(..) | Value::Bool(..) | Value::Empty(..) => {}
    }
}
