//! Streams of events on a fleet: that whoever goes on at another coordinator, with the id of the last event, skips nothing and reads
//! nothing twice, and that the command shows what happens and ends as the instance does.

use serde_json::Value;

use crate::fleet::Fleet;

/// The ids of the entries that `watch` tells, in order, and how it ended.
fn watched(fleet: &Fleet, coordinator: usize, more: &[&str]) -> (Vec<String>, Vec<Value>) {
    let url = format!("http://{}", fleet.coordinators[coordinator].0);
    let watch = ["instances", "watch", "echo3", "w", "--url", &url, "--output", "json"];
    let told = fleet.run(&[&watch[..], more].concat()).succeeded();
    let events: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let entries = events.iter().filter(|event| event["event"] == "entry");
    (entries.map(|event| event["id"].as_str().expect("an id").to_owned()).collect(), events)
}

#[test]
fn a_watch_goes_on_at_another_coordinator() {
    let fleet = Fleet::start(2, 1);
    fleet.run(&["start", "echo3", "--id", "w", "--wait", "--input", r#"{"text":"w"}"#]).succeeded();
    let (whole, events) = watched(&fleet, 0, &[]);
    assert!(whole.len() >= 5 && whole[0].starts_with("1.1."), "{whole:?}");
    assert_eq!(events.last().expect("an end")["event"], "end");
    for (at, cursor) in whole.iter().enumerate() {
        let (rest, events) = watched(&fleet, 1, &["--after", cursor]);
        assert_eq!(rest, whole[at + 1..], "after {cursor}");
        assert_eq!(events.last().expect("an end")["data"]["status"], "complete");
    }
    let shown = fleet.run(&["instances", "watch", "echo3", "w"]).succeeded();
    assert!(shown.contains("started") && shown.trim_end().ends_with("= complete"), "{shown}");
    let told = fleet.run(&["instances", "watch", "echo3", "nobody"]).failed(1);
    assert!(told.contains("nobody"), "{told}");
}

#[test]
fn a_watch_of_an_instance_that_does_not_complete_says_so() {
    let fleet = Fleet::start(1, 0);
    fleet.run(&["start", "echo3", "--id", "w", "--input", r#"{"text":"w"}"#]).succeeded();
    fleet.run(&["instances", "terminate", "echo3", "w", "--reason", "enough"]).succeeded();
    let told = fleet.run(&["instances", "watch", "echo3", "w"]).failed(4);
    assert!(told.contains("terminated"), "{told}");
}
