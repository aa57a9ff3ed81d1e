//! Tokens over the deaths of coordinators, and between several that live: real processes, so that nothing is shared but the servers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Told, of_kind, until},
    fuse::Fuse,
};

/// The steps of a story in which the coordinator dies, and at how many places in each.
const DEATHS: [(Chapter, u32); 5] = [
    (Chapter::Admission, 5),
    (Chapter::Resume, 5),
    (Chapter::Takeover, 14),
    (Chapter::Dispose, 8),
    (Chapter::End, 5),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chapter {
    Admission,
    Resume,
    Takeover,
    Dispose,
    End,
}

/// A fleet whose one coordinator may die at any question, and is replaced then.
struct Mortal {
    fleet: Fleet,
    fuse: Fuse,
    deaths: usize,
}

impl Mortal {
    fn start() -> Self {
        let fleet = Fleet::start(0, 1);
        let fuse = Fuse::to(&fleet.installation.postgres);
        let mut mortal = Self { fleet, fuse, deaths: 0 };
        mortal.add_coordinator();
        mortal
    }

    fn add_coordinator(&mut self) {
        let url = self.fuse.url(&self.fleet.installation.postgres);
        self.fleet.add_coordinator_to(&url);
    }

    /// The coordinator dies at this piece of what it says to its database and hears from it, from now on.
    fn arm(&self, left: u32) {
        self.fuse.arm(self.fleet.coordinators[0].1.pid(), left);
    }

    /// Asks, and asks the next coordinator if this one died of it.
    fn ask(&mut self, arguments: &[&str]) -> Told {
        loop {
            let told = self.fleet.run(arguments);
            // It may have died after its answer: then the next question finds it dead.
            if told.code != 3 || !self.fuse.has_burnt() {
                return told;
            }
            self.heal();
        }
    }

    /// If the coordinator has died, another one takes its place.
    fn heal(&mut self) {
        if !self.fuse.has_burnt() {
            return;
        }
        self.deaths += 1;
        self.fleet.coordinators.clear();
        self.fuse.mend();
        self.add_coordinator();
    }

    fn json(&mut self, arguments: &[&str]) -> Value {
        let told = self.ask(&[arguments, &["--output", "json"]].concat()).succeeded();
        serde_json::from_str(&told).expect("it prints JSON")
    }

    fn start_with(&mut self, workflow: &str, id: &str, token: &str) -> Told {
        let input = json!(token).to_string();
        self.ask(&["start", workflow, "--id", id, "--input", &input, "--hook", token])
    }

    fn resume(&mut self, token: &str, id: &str, payload: u64) -> Told {
        self.ask(&["hooks", "resume", token, "--id", id, "--payload", &payload.to_string()])
    }

    fn until_owner(&mut self, token: &str, owner: &str) {
        until(&format!("{owner} has {token}"), || {
            let told = self.ask(&["hooks", "get", token, "--output", "json"]);
            let hook: Value = serde_json::from_str(&told.stdout).ok()?;
            (hook["id"] == owner).then_some(())
        });
    }

    fn until_free(&mut self, token: &str) {
        until(&format!("{token} is free"), || {
            let told = self.ask(&["hooks", "get", token]);
            (told.code == 1 && told.stderr.contains("hook_not_found")).then_some(())
        });
    }

    /// Its output, and its journal.
    fn completes(&mut self, workflow: &str, id: &str) -> (Value, Vec<Value>) {
        let told = until(&format!("{id} is complete"), || {
            let told = self.json(&["instances", "get", workflow, id, "--journal"]);
            (told["instance"]["status"] == "complete").then_some(told)
        });
        (told["instance"]["output"].clone(), told["journal"].as_array().expect("a journal").clone())
    }
}

/// One token: two starters, payloads, a takeover, a dispose, a second owner and its end. Whatever dies, it comes to the same.
fn story(mortal: &mut Mortal, number: usize, dies_in: Chapter, at: u32) {
    let name = |what: &str| format!("{what}-{number}");
    let (token, first, loser, taker, last) =
        (name("token"), name("first"), name("loser"), name("taker"), name("last"));
    let begin = |mortal: &Mortal, chapter: Chapter| {
        if chapter == dies_in {
            mortal.arm(at);
        }
    };

    begin(mortal, Chapter::Admission);
    mortal.start_with("keeper", &first, &token).succeeded();
    mortal.start_with("keeper", &first, &token).succeeded();
    let refused = mortal.start_with("keeper", &loser, &token).failed(1);
    assert!(refused.contains("hook_held") && refused.contains(&first), "{refused}");

    begin(mortal, Chapter::Resume);
    for _ in 0..2 {
        mortal.resume(&token, "one", 1).succeeded();
        mortal.resume(&token, "two", 2).succeeded();
    }
    let refused = mortal.resume(&token, "two", 3).failed(1);
    assert!(refused.contains("resume_id_taken"), "{refused}");

    begin(mortal, Chapter::Takeover);
    let input = json!(token).to_string();
    mortal.ask(&["start", "taker", "--id", &taker, "--input", &input]).succeeded();
    mortal.until_owner(&token, &taker);
    let (kept, journal) = mortal.completes("keeper", &first);
    assert_eq!(kept, json!({ "got": [1, 2], "taken_by": taker }));
    let counts = ["received", "taken_over"].map(|kind| of_kind(&journal, kind).len());
    assert_eq!(counts, [2, 1], "{journal:?}");

    begin(mortal, Chapter::Dispose);
    mortal.resume(&token, "three", 9).succeeded();
    mortal.until_free(&token);
    mortal.start_with("keeper", &last, &token).succeeded();
    mortal.until_owner(&token, &last);
    let open = mortal.json(&["instances", "get", "taker", &taker]);
    assert!(open["status"] == "waiting" || open["status"] == "running", "H22: both live: {open}");
    mortal.resume(&token, "four", 4).succeeded();

    begin(mortal, Chapter::End);
    let told = mortal.ask(&["instances", "terminate", "keeper", &last]);
    assert!(told.code == 0 || told.stderr.contains("has ended"), "{}", told.stderr);
    mortal.until_free(&token);
    mortal.ask(&["events", "send", "taker", &taker, "go", "--id", "go", "--payload", "null"]).succeeded();
    let (took, journal) = mortal.completes("taker", &taker);
    assert_eq!((took, of_kind(&journal, "received").len()), (json!(9), 1), "{journal:?}");
}

#[test]
fn h04_h21_h35_h45_h48_h59_h66_a_coordinator_killed_between_any_two_steps_of_a_hook_loses_and_doubles_nothing()
 {
    let mut mortal = Mortal::start();
    let deaths: Vec<(Chapter, u32)> =
        DEATHS.iter().flat_map(|(chapter, places)| (0..*places).map(|at| (*chapter, at))).collect();
    for (number, (chapter, at)) in deaths.iter().enumerate() {
        story(&mut mortal, number, *chapter, *at);
        until(&format!("it has died of {chapter:?} {at}"), || {
            mortal.heal();
            (mortal.deaths == number + 1).then_some(())
        });
    }
    for table in ["hook", "mailbox"] {
        until(&format!("no {table} is left"), || {
            let count = mortal.fleet.installation.sql(&format!("SELECT count(*) FROM {table}"));
            (count.expect("the database answers") == "0").then_some(())
        });
    }
    let instances = mortal.fleet.count("true");
    assert_eq!(instances, 3 * deaths.len(), "H3: a loser leaves nothing");
}

/// 64 starters ask three coordinators for 200 tokens, one of which is killed in the middle and started again. Each token has one owner,
/// whom every loser names; what is not known is asked again, elsewhere.
#[test]
fn h02_h27_h32_h36_of_sixty_four_starters_at_three_coordinators_one_gets_each_token() {
    const STARTERS: usize = 64;
    const TOKENS: usize = 200;
    let mut fleet = Fleet::start(3, 0);
    let urls: Vec<String> =
        fleet.coordinators.iter().map(|(address, _)| format!("http://{address}")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let starters: Vec<_> = (0..STARTERS)
        .map(|starter| runtime.spawn(starts(http.clone(), urls.clone(), starter, TOKENS)))
        .collect();
    until("half of the tokens are taken", || (fleet.count("true") >= TOKENS / 2).then_some(()));
    fleet.coordinators[0].1.kill().expect("it is killed");
    let mut named: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for starter in starters {
        for (token, owner) in runtime.block_on(starter).expect("it ends") {
            named.entry(token).or_default().push(owner);
        }
    }
    assert_eq!(named.len(), TOKENS);
    for (token, owners) in &named {
        assert_eq!(owners.len(), STARTERS);
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{token}: {owners:?}");
    }
    for table in ["instance", "instance_name", "hook", "journal", "ready"] {
        let count = fleet.installation.sql(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(count.expect("the database answers"), TOKENS.to_string(), "H3: {table}");
    }
}

/// Asks for every token, each starter in an order of its own; answers with the owner of each.
async fn starts(
    http: reqwest::Client,
    urls: Vec<String>,
    starter: usize,
    tokens: usize,
) -> Vec<(usize, String)> {
    let mut owners = Vec::with_capacity(tokens);
    for token in (0..tokens).map(|token| (token + 3 * starter) % tokens) {
        let id = format!("s-{starter}-{token}");
        let body = json!({ "id": id, "input": null, "hook": { "token": format!("t-{token}") } }).to_string();
        let mut coordinator = starter + token;
        let owner = loop {
            let url = format!("{}/v1/default/workflows/nobody/instances", urls[coordinator % urls.len()]);
            coordinator += 1;
            let sent = http.post(url).header("content-type", "application/json").body(body.clone()).send();
            // Dead, or dead since: whether it was done is not known.
            let Ok(answer) = sent.await else { continue };
            let status = answer.status().as_u16();
            let Ok(text) = answer.text().await else { continue };
            let answer: Value = serde_json::from_str(&text).expect("it answers JSON");
            match status {
                200 | 201 => break id,
                409 => break answer["owner"]["id"].as_str().expect("H32: the owner's id").to_owned(),
                503 => {}
                _ => panic!("{status}: {text}"),
            }
        };
        owners.push((token, owner));
    }
    owners
}
