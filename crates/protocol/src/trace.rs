//! Which trace an instance belongs to, as the W3C writes it ("Trace Context", level 1): the header `traceparent`, and `tracestate`
//! as its vendors wrote it. It is handed on and never decided by: what is not readable is left out, as the standard asks, and no
//! start is refused for it.

use serde::{Deserialize, Serialize};

/// The header that names the trace and the span before.
pub const TRACEPARENT: &str = "traceparent";
/// The header in which vendors keep what is theirs.
pub const TRACESTATE: &str = "tracestate";

/// The longest `tracestate` that is handed on: what the standard asks for at least.
const STATE_BYTES_MAX: usize = 512;

/// The trace of a message or a request, with the span that everything caused by it has for a parent.
///
/// ```
/// use everstep_protocol::TraceContext;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let trace = TraceContext::read(text, Some("vendor=1")).unwrap();
/// assert_eq!((trace.parent(), trace.state()), (text, Some("vendor=1")));
/// assert!(TraceContext::read("00-0-0-01", None).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    parent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl TraceContext {
    /// Reads the two headers. None where `traceparent` breaks the standard; a `tracestate` that is too long is left out.
    #[must_use]
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim();
        if !is_parent(parent) {
            return None;
        }
        // White space around a header is spaces and tabs, and nothing else is white space in it.
        let state = state.map(|state| state.trim_matches([' ', '\t'])).filter(|state| {
            !state.is_empty()
                && state.len() <= STATE_BYTES_MAX
                && state.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        });
        Some(Self { parent: parent.to_owned(), state: state.map(str::to_owned) })
    }

    /// The value of `traceparent`.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The value of `tracestate`, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The 32 hexadecimal digits of the trace.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.parent.get(3..35).unwrap_or_default()
    }

    /// The 16 hexadecimal digits of the span.
    #[must_use]
    pub fn span_id(&self) -> &str {
        self.parent.get(36..52).unwrap_or_default()
    }

    /// Whether whoever began the trace records it.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.parent
            .get(53..55)
            .and_then(|flags| u8::from_str_radix(flags, 16).ok())
            .is_some_and(|flags| flags & 1 == 1)
    }
}

/// `version-trace-span-flags`: of a later version what follows the flags is ignored, as the standard asks.
fn is_parent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|part| part.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)))
    };
    let is_some = |from: usize, to: usize| {
        digits(from, to) && bytes.get(from..to).is_some_and(|part| part.iter().any(|byte| *byte != b'0'))
    };
    let dashes = [2, 35, 52].into_iter().all(|at| bytes.get(at) == Some(&b'-'));
    let ends = match bytes.get(..2) {
        Some(b"00") => bytes.len() == 55,
        Some(b"ff") | None => false,
        Some(_) => bytes.len() == 55 || bytes.get(55) == Some(&b'-') && bytes.len() <= STATE_BYTES_MAX,
    };
    dashes && ends && text.is_ascii() && digits(0, 2) && is_some(3, 35) && is_some(36, 52) && digits(53, 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_the_standard_allows_is_read() {
        let trace = TraceContext::read(GOOD, None).unwrap();
        assert_eq!(trace.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(trace.span_id(), "b7ad6b7169203331");
        assert!(trace.is_sampled());
        let unsampled = TraceContext::read(&GOOD.replace("-01", "-00"), Some(" ")).unwrap();
        assert!(!unsampled.is_sampled() && unsampled.state().is_none());
        let later = format!("01{}-more", &GOOD[2..]);
        assert!(TraceContext::read(&later, None).is_some(), "of a later version what follows is ignored");
        assert_eq!(TraceContext::read(GOOD, Some(&"a".repeat(513))).unwrap().state(), None);
        assert_eq!(TraceContext::read(GOOD, Some("a=\n")).unwrap().state(), None);
    }

    #[test]
    fn what_it_forbids_is_left_out() {
        let zero = "0".repeat(32);
        for bad in [
            "",
            "00",
            "\u{fc}",
            &format!("ff{}", &GOOD[2..]),
            &format!("{GOOD}-more"),
            &GOOD.to_uppercase(),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &zero),
            &GOOD.replace("b7ad6b7169203331", "0000000000000000"),
            &GOOD.replace("b7ad6b7169203331", "b7ad6b716920333\u{e9}"),
            &GOOD.replace('-', "_"),
            &GOOD[..54],
        ] {
            assert_eq!(TraceContext::read(bad, None), None, "{bad:?}");
        }
    }

    #[test]
    fn it_is_written_with_named_fields() {
        let trace = TraceContext::read(GOOD, None).unwrap();
        assert_eq!(serde_json::to_string(&trace).unwrap(), format!(r#"{{"parent":"{GOOD}"}}"#));
    }
}
