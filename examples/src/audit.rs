//! Reads a payment ledger after the fact and counts who was charged, and who twice.
//!
//! The ledger is the file that the payment server appends to, one JSON object a line. Reading it needs no server and
//! trusts nothing but the file.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    order: String,
}

/// How many orders the ledger shows as charged, and how many of them with more than one charge over all keys.
///
/// A last line without its line end is a charge that was never answered, cut off by a crash: it does not count.
/// Any other line that cannot be read is an error.
pub fn charged_twice(ledger: &Path) -> anyhow::Result<(usize, usize)> {
    let charges = charges(ledger)?;
    let twice = charges.values().filter(|&&count| count > 1).count();
    Ok((charges.len(), twice))
}

/// How often each order was charged, over all keys. What is no whole line is taken as by [`charged_twice`].
pub fn charges(ledger: &Path) -> anyhow::Result<HashMap<String, usize>> {
    let bytes = std::fs::read(ledger).with_context(|| format!("reading the ledger {}", ledger.display()))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut charges: HashMap<String, usize> = HashMap::new();
    for (index, text) in
        bytes[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, text)| !text.is_empty())
    {
        let line: Line = serde_json::from_slice(text)
            .with_context(|| format!("reading line {} of {}", index + 1, ledger.display()))?;
        *charges.entry(line.order).or_default() += 1;
    }
    Ok(charges)
}

#[cfg(test)]
mod tests {
    //! Pure: what the counts are for a given file. Nothing about how the file came to be.

    use std::path::PathBuf;

    use super::charged_twice;

    fn ledger(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("everstep-audit-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path
    }

    fn count(name: &str, text: &str) -> anyhow::Result<(usize, usize)> {
        let path = ledger(name, text);
        let counts = charged_twice(&path);
        std::fs::remove_file(path).expect("the ledger is still there");
        counts
    }

    #[test]
    fn orders_are_counted_once_each() {
        let text = "{\"order\":\"a\",\"key\":\"1\",\"cents\":5,\"currency\":\"EUR\"}\n{\"order\":\"b\",\"key\":\"2\",\"cents\":5,\"currency\":\"EUR\"}\n";
        assert_eq!(count("once", text).expect("readable"), (2, 0));
    }

    #[test]
    fn a_second_charge_counts_whatever_its_key() {
        let text = "{\"order\":\"a\",\"key\":\"1\"}\n{\"order\":\"a\",\"key\":\"2\"}\n{\"order\":\"b\",\"key\":\"3\"}\n{\"order\":\"b\",\"key\":\"3\"}\n{\"order\":\"b\",\"key\":\"4\"}\n{\"order\":\"c\",\"key\":\"5\"}\n";
        assert_eq!(count("twice", text).expect("readable"), (3, 2));
    }

    #[test]
    fn an_empty_ledger_charged_nobody() {
        assert_eq!(count("empty", "").expect("readable"), (0, 0));
    }

    #[test]
    fn a_torn_last_line_was_never_answered() {
        let text = "{\"order\":\"a\",\"key\":\"1\"}\n{\"order\":\"b\",\"ke";
        assert_eq!(count("torn", text).expect("readable"), (1, 0));
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error_that_names_it() {
        let text = "{\"order\":\"a\",\"key\":\"1\"}\n{\"ord\n{\"order\":\"b\",\"key\":\"2\"}\n";
        let error = count("broken", text).expect_err("line 2 is no JSON");
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn a_missing_ledger_is_an_error() {
        assert!(charged_twice(&std::env::temp_dir().join("everstep-audit-nowhere")).is_err());
    }
}
