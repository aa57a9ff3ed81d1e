//! What an answer means: by its status, and by what it says of when to come again.

use everstep_protocol::Millis;
use http::{HeaderMap, StatusCode, header};

/// What a status means for the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The output.
    Done,
    /// The callee may do it the next time.
    Again,
    /// It is somewhere else.
    Elsewhere,
    /// The callee will not do it the next time either.
    No,
}

/// What a status means, where these are expected, or none are named.
pub(super) fn meaning(status: StatusCode, expect: &[u16]) -> Meaning {
    let done = if expect.is_empty() { status.is_success() } else { expect.contains(&status.as_u16()) };
    match status.as_u16() {
        _ if done => Meaning::Done,
        408 | 425 | 429 | 500..=599 => Meaning::Again,
        301 | 302 | 303 | 307 | 308 => Meaning::Elsewhere,
        _ => Meaning::No,
    }
}

/// When the callee wants to be asked again, by its `Retry-After`, at most `max`. A moment is taken against the callee's own
/// `Date`, so no two clocks need to agree; without that one it says nothing. Nor does zero, be it the header's or `max`, which ignores the header: then the policy decides.
pub(super) fn retry_after(headers: &HeaderMap, max: Millis) -> Option<Millis> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are longer than any limit.
        text.parse().map_or(max, |seconds: u64| Millis(seconds.saturating_mul(1_000)))
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        let now = httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()?;
        Millis(u64::try_from(at.duration_since(now).ok()?.as_millis()).unwrap_or(u64::MAX))
    };
    (delay.min(max).0 > 0).then(|| delay.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l03_every_status_has_a_meaning() {
        for status in 100..1000 {
            let status = StatusCode::from_u16(status).unwrap();
            let expected = match status.as_u16() {
                200..=299 => Meaning::Done,
                301 | 302 | 303 | 307 | 308 => Meaning::Elsewhere,
                408 | 425 | 429 | 500..=599 => Meaning::Again,
                _ => Meaning::No,
            };
            assert_eq!(meaning(status, &[]), expected, "{status}");
            assert_eq!(meaning(status, &[status.as_u16()]), Meaning::Done);
        }
        assert_eq!(meaning(StatusCode::OK, &[201]), Meaning::No);
    }

    #[test]
    fn l03_retry_after_is_read_in_both_forms_and_capped() {
        let max = Millis(3_600_000);
        let check = |value: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(header::DATE, date.parse().unwrap());
            }
            retry_after(&headers, max).map(|delay| delay.0)
        };
        let date = Some("Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(check("7", None), Some(7_000));
        assert_eq!(check("0", None), None);
        assert_eq!(check("99999", None), Some(max.0));
        assert_eq!(check("99999999999999999999999999", None), Some(max.0));
        assert_eq!(check("Wed, 21 Oct 2026 07:30:00 GMT", date), Some(120_000));
        assert_eq!(check("Thu, 21 Oct 2027 07:30:00 GMT", date), Some(max.0));
        assert_eq!(check("Wed, 21 Oct 2026 07:30:00 GMT", None), None, "nobody's clock to compare with");
        assert_eq!(check("Wed, 21 Oct 2026 07:27:00 GMT", date), None, "past");
        assert_eq!(check("soon", date), None);
        assert_eq!(check("-1", date), None);
        assert_eq!(retry_after(&HeaderMap::new(), max), None);
        let seven = HeaderMap::from_iter([(header::RETRY_AFTER, "7".parse().unwrap())]);
        assert_eq!(retry_after(&seven, Millis(0)), None, "the header is ignored, and not an order to hurry");
    }
}
