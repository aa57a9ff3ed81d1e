//! Replaces the values of secrets by their references in what a callee sends.
//!
//! A callee writes a value as it is, or as its formats want it: with escapes of JSON or of URLs, in any mixture and one around the
//! other, or in base64. So it is looked for as it is, and then in what is left when escapes are undone.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{
    Engine,
    engine::{
        GeneralPurpose,
        general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
    },
};

/// Escapes around escapes: JSON in a text of JSON, a URL in a query.
const LAYERS: usize = 2;
/// No escape is longer, also one that is escaped itself.
const ESCAPE_BYTES: usize = 12;

/// Replaces the values of secrets by their references.
#[derive(Default)]
pub(super) struct Redactor {
    /// What is looked for, and what is put there, longest first: a secret may be a part of another.
    needles: Vec<Needle>,
}

struct Needle {
    as_is: Vec<u8>,
    unescaped: Vec<u8>,
    reference: String,
}

/// A text with a layer of escapes undone.
struct Undone {
    text: Vec<u8>,
    /// In their order.
    escapes: Vec<Escape>,
}

struct Escape {
    /// Which byte of the text it stands for.
    at: usize,
    /// Where it stood before.
    from: usize,
    to: usize,
}

impl Redactor {
    /// Looks for this value from now on.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        let reference = format!("{{secret:{name}}}");
        for as_is in std::iter::once(value.as_bytes().to_vec()).chain(in_base64(value.as_bytes())) {
            if self.needles.iter().any(|known| known.as_is == as_is) {
                continue;
            }
            let mut unescaped = as_is.clone();
            for _ in 0..LAYERS {
                unescaped = undone(&unescaped).text;
            }
            self.needles.push(Needle { as_is, unescaped, reference: reference.clone() });
        }
        self.needles.sort_by_key(|needle| std::cmp::Reverse(needle.as_is.len()));
    }

    #[cfg(test)]
    pub(super) const fn is_idle(&self) -> bool {
        self.needles.is_empty()
    }

    pub(super) fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.needles.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let bytes = self.replaced(Cow::Borrowed(bytes), 0);
        (1..=LAYERS).fold(bytes, |bytes, layers| self.replaced(bytes, layers))
    }

    pub(super) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// The same for a text that may have been cut: what may be the beginning of a secret is left out at its end.
    pub(super) fn beginning<'a>(&self, bytes: &'a [u8], is_cut: bool) -> Cow<'a, [u8]> {
        if !is_cut || self.needles.is_empty() {
            return self.bytes(bytes);
        }
        // An escape that is cut itself is no beginning of anything that is looked for.
        let tail = bytes.len().saturating_sub(ESCAPE_BYTES);
        let escape = bytes[tail..].iter().position(|byte| matches!(byte, b'%' | b'\\'));
        let bytes = &bytes[..escape.map_or(bytes.len(), |at| tail + at)];
        let mut end = bytes.len();
        for layers in 0..=LAYERS {
            let layers = peeled(bytes, layers);
            for needle in &self.needles {
                let sought = needle.at_layer(layers.len());
                if let Some(at) = begun(innermost(bytes, &layers), sought) {
                    end = end.min(origin(&layers, at).0);
                }
            }
        }
        self.bytes(&bytes[..end])
    }

    /// With what is found when so many layers of escapes are undone.
    fn replaced<'a>(&self, bytes: Cow<'a, [u8]>, layers: usize) -> Cow<'a, [u8]> {
        if layers > 0 && !bytes.iter().any(|byte| matches!(byte, b'%' | b'\\' | b'+')) {
            return bytes;
        }
        let layers = peeled(&bytes, layers);
        // By where it begins; no two overlap.
        let mut found: BTreeMap<usize, (usize, &str)> = BTreeMap::new();
        for needle in &self.needles {
            let sought = needle.at_layer(layers.len());
            for at in finds(innermost(&bytes, &layers), sought) {
                let (from, to) = (origin(&layers, at).0, origin(&layers, at + sought.len() - 1).1);
                if found.range(..to).next_back().is_none_or(|(_, (end, _))| *end <= from) {
                    found.insert(from, (to, &needle.reference));
                }
            }
        }
        if found.is_empty() {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = 0;
        for (from, (to, reference)) in found {
            out.extend_from_slice(&bytes[rest..from]);
            out.extend_from_slice(reference.as_bytes());
            rest = to;
        }
        out.extend_from_slice(&bytes[rest..]);
        Cow::Owned(out)
    }
}

impl Needle {
    fn at_layer(&self, layer: usize) -> &[u8] {
        if layer == 0 { &self.as_is } else { &self.unescaped }
    }
}

impl Undone {
    /// Where the byte at this place of the text stood before.
    fn origin(&self, at: usize) -> (usize, usize) {
        let after = self.escapes.partition_point(|escape| escape.at <= at);
        match after.checked_sub(1).map(|index| &self.escapes[index]) {
            None => (at, at + 1),
            Some(escape) if escape.at == at => (escape.from, escape.to),
            Some(escape) => {
                let from = escape.to + (at - escape.at - 1);
                (from, from + 1)
            }
        }
    }
}

/// So many layers, each undone from the one before.
fn peeled(bytes: &[u8], layers: usize) -> Vec<Undone> {
    let mut peeled: Vec<Undone> = Vec::with_capacity(layers);
    for _ in 0..layers {
        let next = undone(innermost(bytes, &peeled));
        peeled.push(next);
    }
    peeled
}

fn innermost<'a>(bytes: &'a [u8], layers: &'a [Undone]) -> &'a [u8] {
    layers.last().map_or(bytes, |layer| &layer.text)
}

/// Where a byte of the innermost text stands in the outermost.
fn origin(layers: &[Undone], at: usize) -> (usize, usize) {
    layers.iter().rev().fold((at, at + 1), |(from, to), layer| (layer.origin(from).0, layer.origin(to - 1).1))
}

/// The forms of a value in base64: by itself and inside of something longer, with what stands before it, and what is after it,
/// taking a part of its first and last characters.
fn in_base64(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    const ALPHABETS: [GeneralPurpose; 2] = [STANDARD_NO_PAD, URL_SAFE_NO_PAD];
    ALPHABETS.into_iter().flat_map(move |alphabet| {
        [(0, 0), (1, 2), (2, 3)].into_iter().flat_map(move |(before, partial)| {
            let text = alphabet.encode([&vec![0; before], value].concat());
            let inside = text.as_bytes()[partial..(before + value.len()) * 8 / 6].to_vec();
            [text.as_bytes()[partial..].to_vec(), inside]
        })
    })
}

/// With one layer of escapes undone: `%2B` in any case, `\u002b`, `\/`, `\"` and `\\`. A blank and a plus become one, since forms write
/// the one for the other.
fn undone(bytes: &[u8]) -> Undone {
    let mut text = Vec::with_capacity(bytes.len());
    let mut escapes = Vec::new();
    let mut from = 0;
    while let Some(byte) = bytes.get(from) {
        let digits = |begin: usize, end: usize| number(bytes.get(from + begin..from + end)?);
        let escape = match (byte, bytes.get(from + 1)) {
            (b'%', _) => digits(1, 3).map(|byte| (byte, 3)),
            (b'\\', Some(b'u')) => digits(2, 6).map(|byte| (byte, 6)),
            (b'\\', Some(byte @ (b'/' | b'"' | b'\\'))) => Some((*byte, 2)),
            _ => None,
        };
        let (byte, length) = escape.unwrap_or((*byte, 1));
        if length > 1 {
            escapes.push(Escape { at: text.len(), from, to: from + length });
        }
        text.push(if byte == b' ' { b'+' } else { byte });
        from += length;
    }
    Undone { text, escapes }
}

/// What hexadecimal digits stand for, if it is one byte.
fn number(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u8::try_from(u32::from_str_radix(digits, 16).ok()?).ok()
}

/// Where the end of a text is the beginning of what is looked for.
fn begun(text: &[u8], sought: &[u8]) -> Option<usize> {
    let first = text.len().saturating_sub(sought.len().saturating_sub(1));
    (first..text.len()).find(|at| sought.starts_with(&text[*at..]))
}

/// Where a text stands in another, without overlaps.
fn finds<'a>(bytes: &'a [u8], sought: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let first = sought.first()?;
        loop {
            let at = from + bytes.get(from..)?.iter().position(|byte| byte == first)?;
            if bytes[at..].starts_with(sought) {
                from = at + sought.len();
                return Some(at);
            }
            from = at + 1;
        }
    })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const SECRET: &str = "s3cr\"t/va+lue\\ Z";

    fn noted() -> Redactor {
        let mut redactor = Redactor::default();
        redactor.note("A", SECRET);
        redactor.note("AB", &format!("{SECRET}-longer"));
        redactor
    }

    #[test]
    fn l03_secrets_are_replaced_by_their_references_in_every_form() {
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let quoted = json(SECRET);
        let quoted = quoted.trim_matches('"');
        let twice = json(quoted);
        let unicode = SECRET.bytes().map(|byte| format!("\\u{byte:04X}")).collect::<Vec<_>>().concat();
        let upper_and_lower = |(at, byte): (usize, u8)| {
            if at % 2 == 0 { format!("%{byte:02x}") } else { format!("%{byte:02X}") }
        };
        let mixed = SECRET.bytes().enumerate().map(upper_and_lower).collect::<Vec<_>>().concat();
        let cases: &[(&str, &str)] = &[
            ("no secrets", "no secrets"),
            (&format!("x {SECRET} y"), "x {secret:A} y"),
            (&format!("{SECRET}-longer"), "{secret:AB}"),
            (&format!("{SECRET}{SECRET}"), "{secret:A}{secret:A}"),
            (&format!("{{\"echo\":\"{quoted}\"}}"), r#"{"echo":"{secret:A}"}"#),
            (&twice, r#""{secret:A}""#),
            (&quoted.replace('/', "\\/").replace('+', "\\u002B"), "{secret:A}"),
            (&unicode, "{secret:A}"),
            (&unicode.to_lowercase().replace("\\u005a", "Z"), "{secret:A}"),
            ("?q=s3cr%22t%2Fva%2Blue%5C%20Z&", "?q={secret:A}&"),
            ("?q=s3cr%22t%2fva%2Blue%5c+Z&", "?q={secret:A}&"),
            ("?q=s3cr%2522t%252Fva%252Blue%255C%2520Z&", "?q={secret:A}&"),
            (&mixed, "{secret:A}"),
            ("%2%41%zz\\u00", "%2%41%zz\\u00"),
        ];
        for (text, redacted) in cases {
            assert_eq!(noted().text(text), *redacted, "{text}");
        }
    }

    #[test]
    fn l03_a_secret_in_base64_is_replaced_wherever_it_stands() {
        for before in ["", "u", "us", "usr", "user"] {
            for after in ["", ":", ":x", ":xy"] {
                let text = format!("{before}{SECRET}{after}");
                for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text), STANDARD_NO_PAD.encode(&text)]
                {
                    let echo = format!("<{}>", encoded.replace('/', "\\/"));
                    let redacted = noted().text(&echo);
                    assert!(redacted.contains("{secret:A}"), "{text}: {redacted}");
                    let left = redacted.replace("{secret:A}", "").len();
                    assert!(left <= before.len() * 2 + after.len() * 2 + 8, "{text}: {redacted}");
                }
            }
        }
    }

    #[test]
    fn l03_of_a_text_that_is_cut_no_beginning_of_a_secret_is_left() {
        let whole = format!("sent: {SECRET}");
        let in_json = format!("sent: {}", SECRET.replace('/', "\\/").replace('"', "\\\""));
        let in_url = "sent: s3cr%22t%2Fva%2Blue%5C%20Z";
        for text in [&*whole, &in_json, in_url] {
            for end in "sent: ".len()..text.len() {
                let left =
                    String::from_utf8(noted().beginning(&text.as_bytes()[..end], true).into_owned()).unwrap();
                assert_eq!(left, "sent: ", "{}", &text[..end]);
            }
        }
        assert_eq!(&*noted().beginning(b"sent: s3cr", false), b"sent: s3cr", "nothing more was to come");
        assert_eq!(&*Redactor::default().beginning(b"sent: s3cr", true), b"sent: s3cr");
    }
}
