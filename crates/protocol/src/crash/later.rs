//! What a later version may write: every struct of an envelope with a field that this version does not know (rule W25).

/// The field.
const NAME: &[u8] = b"\xabadded_later";
/// A map of its own: `{"deep": [1, nil]}`.
const VALUE: &[u8] = b"\x81\xa4deep\x92\x01\xc0";

/// The same `MessagePack` with the field in every map but those of one member, most of which say which variant of an enum follows.
pub(crate) fn written(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut out = Vec::with_capacity(bytes.len() * 2);
    while !rest.is_empty() {
        value(&mut rest, &mut out);
    }
    out
}

fn value(rest: &mut &[u8], out: &mut Vec<u8>) {
    let marker = rest[0];
    match marker {
        0x80..=0x8f => map(usize::from(marker & 0x0f), 1, rest, out),
        0xde => map(length(rest, 2), 3, rest, out),
        0xdf => map(length(rest, 4), 5, rest, out),
        0x90..=0x9f => list(usize::from(marker & 0x0f), 1, rest, out),
        0xdc => list(length(rest, 2), 3, rest, out),
        0xdd => list(length(rest, 4), 5, rest, out),
        0xa0..=0xbf => copy(1 + usize::from(marker & 0x1f), rest, out),
        0xc4 | 0xd9 => copy(2 + length(rest, 1), rest, out),
        0xc5 | 0xda => copy(3 + length(rest, 2), rest, out),
        0xc6 | 0xdb => copy(5 + length(rest, 4), rest, out),
        0xcc | 0xd0 => copy(2, rest, out),
        0xcd | 0xd1 => copy(3, rest, out),
        0xca | 0xce | 0xd2 => copy(5, rest, out),
        0xcb | 0xcf | 0xd3 => copy(9, rest, out),
        // Small numbers, nil, true and false. Envelopes have no extensions.
        _ => copy(1, rest, out),
    }
}

fn map(members: usize, header: usize, rest: &mut &[u8], out: &mut Vec<u8>) {
    if members < 2 {
        copy(header, rest, out);
    } else {
        *rest = &rest[header..];
        out.push(0xdf);
        out.extend(u32::try_from(members + 1).unwrap_or(u32::MAX).to_be_bytes());
        out.extend([NAME, VALUE].concat());
    }
    for _ in 0..2 * members {
        value(rest, out);
    }
}

fn list(items: usize, header: usize, rest: &mut &[u8], out: &mut Vec<u8>) {
    copy(header, rest, out);
    for _ in 0..items {
        value(rest, out);
    }
}

/// The number of so many bytes behind the marker.
fn length(rest: &[u8], bytes: usize) -> usize {
    rest[1..=bytes].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn copy(count: usize, rest: &mut &[u8], out: &mut Vec<u8>) {
    let (now, later) = rest.split_at(count);
    out.extend_from_slice(now);
    *rest = later;
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::wire::decode;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Item {
        One { left: String, right: Vec<(u32, i64)> },
        Two,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Envelope {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        items: Vec<Item>,
        number: f64,
        none: Option<u8>,
    }

    #[test]
    fn w25_what_a_later_version_writes_is_the_same_with_more_in_it() {
        let one = Item::One { left: "x".repeat(70_000), right: vec![(70_000, -70_000), (1, -1)] };
        let (bytes, items) = (vec![7; 300], vec![one, Item::Two]);
        let envelope = Envelope { bytes, items, number: 0.5, none: None };
        let now = rmp_serde::to_vec_named(&envelope).expect("it encodes");
        let later = written(&now);
        assert_eq!(decode::<Envelope>("envelope", &later).expect("it is read"), envelope);
        let added = later.windows(NAME.len()).filter(|window| *window == NAME).count();
        assert_eq!(added, 2, "in the envelope and in the struct of its item");
    }
}
