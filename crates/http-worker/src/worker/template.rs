//! URLs with places for the step's key and for values of the body.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Everything but what RFC 3986 calls unreserved: a value never becomes a path, a query or a host of its own.
pub(super) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether it has the step's key.
pub(super) fn has_key(url: &str) -> bool {
    url.contains("{key}")
}

/// Puts in what the places stand for. The error says what is wrong, and not which value.
pub(super) fn expand(url: &str, key: &str, body: Option<&Value>) -> Result<String, String> {
    let mut out = String::with_capacity(url.len());
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((place, after)) = after.split_once('}') else {
            return Err("the URL has a { without a }".to_owned());
        };
        match place.strip_prefix("body:") {
            None if place == "key" => out.push_str(key),
            Some(pointer) => out.extend(utf8_percent_encode(&value(pointer, body)?, ESCAPED)),
            None => {
                return Err(format!(
                    "the URL has the place {{{place}}}, which is neither {{key}} nor {{body:/..}}"
                ));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn value(pointer: &str, body: Option<&Value>) -> Result<String, String> {
    let place = format!("the place {{body:{pointer}}} of the URL");
    let body = body.ok_or_else(|| format!("{place} needs a JSON body"))?;
    let text = match body.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
            return Err(format!("{place} stands for no text, number or bool"));
        }
        None => return Err(format!("{place} finds nothing in the body")),
    };
    // A path takes these away, or goes up with them.
    if matches!(&*text, "" | "." | "..") {
        Err(format!("{place} stands for an empty value or dots"))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l03_places_in_a_url_are_filled_and_escaped() {
        let body = serde_json::json!({"order": {"id": "a/b?c=d#e ü"}, "n": 7, "none": null, "up": ".."});
        let expand = |url| expand(url, "0123", Some(&body));
        assert_eq!(expand("https://a/x").unwrap(), "https://a/x");
        assert_eq!(expand("https://a/{key}?k={key}").unwrap(), "https://a/0123?k=0123");
        assert_eq!(
            expand("https://a/{body:/order/id}/{body:/n}").unwrap(),
            "https://a/a%2Fb%3Fc%3Dd%23e%20%C3%BC/7"
        );
        for (url, says) in [
            ("https://a/{key", "without a }"),
            ("https://a/{secret:X}", "neither"),
            ("https://a/{body:/none}", "no text"),
            ("https://a/{body:/other}", "finds nothing"),
            ("https://a/{body:/up}", "dots"),
        ] {
            assert!(expand(url).unwrap_err().contains(says), "{url}");
        }
        assert!(super::expand("https://a/{body:/n}", "k", None).unwrap_err().contains("needs a JSON body"));
    }
}
