//! Guides whose samples stand word for word in code that compiles.

/// Fails if a sample of the guide stands nowhere in the code, or if there are fewer than `at_least`, so that none is missed.
pub(crate) fn every_sample_is_in(guide: &str, code: &[&str], at_least: usize) {
    let code = code.iter().map(|text| lines(text)).collect::<Vec<_>>().join("\n");
    let samples: Vec<&str> =
        guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(samples.len() >= at_least, "{}", samples.len());
    for sample in samples {
        assert!(code.contains(&lines(sample)), "no compiled code has this sample:\n{sample}");
    }
}

/// Without indentation, so that a sample may stand deeper in the code than on the page.
fn lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}
