//! The reference page of all metrics, from the code that counts: that the committed page is this one (`make metrics` writes it), and that
//! names follow the conventions.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::fmt::Write as _;

use everstep_metrics::{Described, Kind};

const HEAD: &str = "\
# Metrics

<!-- Written by `make metrics`. Change what the code says of them instead. -->

In Prometheus' text format, at `/metrics` of each process: of a coordinator and `everstep dev` at `metrics.listen`
([settings](settings.md#metrics)) and on the HTTP API, of a worker where it was asked to serve them
([a fleet](../guides/fleet.md#workers)), of `everstep-http-worker` at its own `metrics.listen`. Beside them stand `/healthz` (a restart helps
if it does not answer 200) and `/readyz` (the process can work). In embedded mode and `everstep dev` one process shows coordinator and worker.

Times are in seconds, sizes in bytes. A label value is a word of the code, or a name that passed a bound: a coordinator shows 200 workflows, 200
served queues (and 20 of those that nobody serves) and 500 pairs of workflow and step by name, a worker 500 pairs; workflows and steps that come
later are counted together as `other`. Who comes first is who has something committed first, be the workflow served or not. What is \"of the
coordinator that offers\" comes from the one that has the duty `dispatch`, and from no other: take the `max` over all.

What each means when it is wrong is in [the runbooks](../operations/runbooks/README.md).
";

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");

fn sections() -> [(&'static str, Vec<Described>); 3] {
    [
        ("Coordinator", everstep_coordinator::described_metrics()),
        ("Worker", everstep_worker::described_metrics()),
        ("everstep-http-worker", everstep_http::worker::described_metrics()),
    ]
}

/// The page, in Markdown.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, rows) in sections() {
        write!(page, "\n## {title}\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n")
            .unwrap();
        for Described { name, kind, labels, help } in rows {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            let help = help.replace('|', "\\|");
            writeln!(page, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
        }
    }
    page
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    if std::env::var_os("EVERSTEP_TEST_WRITE_PAGES").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let committed = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == page(),
        "docs/reference/metrics.md differs from the code; write it anew: make metrics"
    );
}

#[test]
fn names_and_texts_follow_the_conventions() {
    let all = sections().map(|(_, rows)| rows).concat();
    for Described { name, kind, help, .. } in &all {
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(name.starts_with("everstep_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        assert!(!name.contains("_ms") && !name.contains("millis"), "{name} is in seconds");
    }
    let mut names: Vec<_> = all.iter().map(|metric| &metric.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name is there once");
}
