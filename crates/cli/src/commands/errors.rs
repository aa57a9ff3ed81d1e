//! `everstep errors`: what a code means, from the pages of docs/errors, which are part of this program.

use serde_json::json;

use super::print;
use crate::{args::Format, failure::Failure, yaml};

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

const INDEX: &str = "README";

pub(super) fn run(format: Format, code: Option<&str>) -> Result<(), Failure> {
    let Some(code) = code else { return list(format) };
    let text = explained(code)
        .ok_or_else(|| Failure::Usage(format!("no code {code:?} is known; `everstep errors` lists all")))?;
    shown(format, &json!({ "code": code, "text": text }), &text)
}

fn list(format: Format) -> Result<(), Failure> {
    let rows: Vec<_> = index().collect();
    let json: Vec<_> = rows.iter().map(|row| json!({ "code": row.code, "meaning": row.meaning })).collect();
    let width = rows.iter().map(|row| row.code.len()).max().unwrap_or_default();
    let mut lines: Vec<_> =
        rows.iter().map(|row| format!("{:width$}  {}\n", row.code, row.meaning)).collect();
    lines.sort();
    lines.dedup();
    shown(format, &json!({ "errors": json }), &lines.concat())
}

fn shown(format: Format, json: &serde_json::Value, text: &str) -> Result<(), Failure> {
    match format {
        Format::Table => print(text),
        Format::Json => print(&format!("{json}\n")),
        Format::Yaml => print(&yaml::of_json(&json.to_string())?),
    }
}

fn page(name: &str) -> Option<&'static str> {
    PAGES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The page of a code; of one that has none, what the index says.
fn explained(code: &str) -> Option<String> {
    if let Some(page) = page(code).filter(|_| code != INDEX) {
        return Some(page.to_owned());
    }
    let row = index().find(|row| row.code == code)?;
    Some(match row.page.and_then(page) {
        Some(page) => page.to_owned(),
        None => format!("# {}\n\n{}\n", row.code, row.meaning),
    })
}

/// A code of the index.
struct Row {
    code: &'static str,
    page: Option<&'static str>,
    meaning: String,
}

/// The rows of the index: the first cell names codes, with a link to their page where there is one, the last says what they mean.
fn index() -> impl Iterator<Item = Row> {
    let lines = page(INDEX).unwrap_or_default().lines();
    lines.filter(|line| line.starts_with("| ") && line.contains('`')).flat_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let first = cells.first().copied().unwrap_or_default();
        let page = first.split_once("](").and_then(|(_, rest)| rest.split_once(".md")).map(|(name, _)| name);
        let meaning = without_links(cells.last().copied().unwrap_or_default());
        let names = first.split_once("](").map_or(first, |(names, _)| names);
        let codes: Vec<_> = names.split('`').skip(1).step_by(2).collect();
        codes.into_iter().map(move |code| Row { code, page, meaning: meaning.clone() })
    })
}

/// `[text](page)` as its text.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((words, after)) = link.split_once("](") else { break };
        plain.push_str(words);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_index_is_explained() {
        let rows: Vec<_> = index().collect();
        assert!(rows.len() > 60, "{}", rows.len());
        for Row { code, page: of, meaning } in &rows {
            assert!(!meaning.is_empty() && !meaning.contains("]("), "{code}: {meaning}");
            assert!(of.is_none_or(|of| page(of).is_some()), "{code} has no page {of:?}");
            assert!(explained(code).is_some_and(|text| text.starts_with("# ")), "{code}");
        }
        // And every page is of some code.
        for (name, _) in PAGES.iter().filter(|(name, _)| *name != INDEX) {
            assert!(page(INDEX).is_some_and(|index| index.contains(&format!("({name}.md)"))), "{name}");
        }
        assert!(explained("nothing-of-that-kind").is_none());
    }
}
