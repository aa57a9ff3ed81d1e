//! Schedules: what becomes of due times, one turn after another. Proves the rules S1 to S12 of what is decided. Not: which moments a cron expression
//! names (the calendar's tests), that a start is made once (the system tests).

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use everstep_engine::schedule::{
    ActionKind, CatchUp, Definition, Due, DueKind, Look, OperateError, Outcome, Overlap, Run, State, Turn,
    When, Which, instance_id, next_runs, triggered_id,
};
use everstep_protocol::{Millis, Payload, ScheduleId, Timestamp};
use proptest::prelude::*;

const MINUTE: i64 = 60;

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

fn nightly() -> ScheduleId {
    "nightly".parse().unwrap()
}

/// Every minute.
fn minutely() -> Definition {
    Definition {
        workflow: "report".parse().unwrap(),
        input: Payload::null(),
        retention: everstep_engine::retention::Own::default(),
        pin: None,
        strict: None,
        attributes: Vec::new(),
        when: When::Every { every: Millis::from_secs(60), offset: Millis::ZERO },
        from: None,
        until: None,
        limit: None,
        jitter: Millis::ZERO,
        overlap: Overlap::Allow,
        catch_up: CatchUp::default(),
    }
}

/// A schedule and a clock that is moved by hand.
struct Scene {
    definition: Definition,
    state: State,
    wake_at: Option<Timestamp>,
    now: i64,
}

impl Scene {
    fn new(definition: Definition, now: i64) -> Self {
        let mut scene = Self { definition, state: State::default(), wake_at: None, now };
        let created = scene.look().created().unwrap();
        scene.keep(created);
        scene
    }

    fn look(&self) -> Look<'_> {
        static ID: std::sync::LazyLock<ScheduleId> = std::sync::LazyLock::new(nightly);
        Look { id: &ID, definition: &self.definition, times: &(), now: at(self.now) }
    }

    fn keep(&mut self, turn: Turn) {
        (self.state, self.wake_at) = (turn.state, turn.wake_at);
    }

    /// A turn in which every start succeeds; the due times that were started, in seconds.
    fn turn(&mut self, now: i64, ended: &[i64]) -> Vec<i64> {
        self.now = now;
        let workflow = self.definition.workflow.clone();
        let ended: Vec<_> =
            ended.iter().map(|due| (workflow.clone(), instance_id(&nightly(), at(*due)))).collect();
        let turn = self.look().turn(&self.state, &ended);
        self.keep(turn);
        let pending = self.state.pending.clone();
        let outcomes = pending.iter().map(|due| (*due, Outcome::Started)).collect();
        let settled = self.look().settle(&self.state, outcomes);
        self.keep(settled);
        assert!(self.state.pending.is_empty());
        pending.iter().map(|due| due.at.0 / 1_000_000).collect()
    }

    fn happened(&self) -> Vec<(ActionKind, i64, u64)> {
        let of = |action: &everstep_engine::schedule::Action| {
            (action.kind, action.due.map_or(-1, |due| due.0 / 1_000_000), action.times.unwrap_or(1))
        };
        self.state.recent.iter().map(of).collect()
    }
}

#[test]
fn s05_the_id_of_an_instance_is_the_schedules_with_the_due_time() {
    let due = at(1_764_469_800);
    assert_eq!(instance_id(&nightly(), due).as_str(), "nightly:20251130T023000Z");
    let longest = "z".repeat(60).parse().unwrap();
    assert!(instance_id(&longest, due).as_str().len() <= 100);
    let by_hand = triggered_id(&nightly(), "key-1");
    assert_eq!(by_hand, triggered_id(&nightly(), "key-1"));
    assert_ne!(by_hand, triggered_id(&nightly(), "key-2"));
    assert_eq!(by_hand.as_str(), "nightly:by-hand-3803edeb4f445d66", "it never changes");
}

#[test]
fn s01_what_cannot_be_meant_is_refused_by_field() {
    let every = |every, offset| When::Every { every: Millis(every), offset: Millis(offset) };
    let good = minutely();
    assert_eq!(good.check(), Ok(()));
    for (definition, field) in [
        (Definition { when: every(0, 0), ..good.clone() }, "every"),
        (Definition { when: every(1_500, 0), ..good.clone() }, "every"),
        (Definition { when: every(367 * 86_400_000, 0), ..good.clone() }, "every"),
        (Definition { when: every(60_000, 60_000), ..good.clone() }, "offset"),
        (Definition { when: every(60_000, 1), ..good.clone() }, "offset"),
        (Definition { when: When::At { at: Timestamp(1) }, ..good.clone() }, "at"),
        (Definition { jitter: Millis::from_secs(86_401), ..good.clone() }, "jitter"),
        (Definition { overlap: Overlap::Queue { max: 0 }, ..good.clone() }, "queue_max"),
        (Definition { overlap: Overlap::Queue { max: 1_001 }, ..good.clone() }, "queue_max"),
        (Definition { limit: Some(0), ..good.clone() }, "limit"),
        (Definition { from: Some(at(5)), until: Some(at(5)), ..good.clone() }, "until"),
        (
            Definition {
                catch_up: CatchUp { which: Which::All, within: Millis::from_secs(367 * 86_400) },
                ..good.clone()
            },
            "catch_up_within",
        ),
        (
            Definition {
                attributes: vec![everstep_protocol::Attribute::from_words("everstep.schedule=x").unwrap()],
                ..good.clone()
            },
            "attributes",
        ),
    ] {
        assert_eq!(definition.check().map_err(|error| error.field), Err(field));
    }
}

#[test]
fn s01_what_is_kept_is_read_back_and_of_a_newer_definition_nothing_is_passed_over() {
    let definition = Definition {
        input: Payload::from_text(r#"{"n":1.10,"zero":"\u0000"}"#).unwrap(),
        attributes: vec![everstep_protocol::Attribute::from_words("vip=true").unwrap()],
        when: When::Cron { expression: "0 9 * * *".to_owned(), zone: "Europe/Berlin".to_owned() },
        retention: everstep_engine::retention::Own { complete: Some(Millis(5)), failed: None },
        pin: Some(everstep_protocol::Pin::First),
        strict: Some(true),
        from: Some(at(1)),
        until: Some(at(2)),
        limit: Some(3),
        overlap: Overlap::Queue { max: 7 },
        ..minutely()
    };
    let text = definition.to_text();
    assert_eq!(Definition::from_text(&text).unwrap(), definition, "{text}");
    let newer = text.replacen('{', r#"{"of_tomorrow":1,"#, 1);
    assert!(Definition::from_text(&newer).is_err(), "it would start something else");
    let mut scene = Scene::new(Definition { overlap: Overlap::QueueOne, ..minutely() }, 0);
    scene.turn(60, &[]);
    scene.turn(120, &[]);
    scene.state = scene.look().paused(&scene.state, Some("why".to_owned())).state;
    assert_eq!(State::from_text(&scene.state.to_text()).unwrap(), scene.state);
    assert_eq!(State::from_text("{}").unwrap(), State::default());
}

#[test]
fn s04_an_interval_counts_from_1970_and_a_single_moment_comes_once() {
    let every = Definition {
        when: When::Every { every: Millis::from_secs(3_600), offset: Millis::from_secs(600) },
        ..minutely()
    };
    let runs = next_runs(&every, &nightly(), &(), at(1_000), 3);
    assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), [at(4_200), at(7_800), at(11_400)]);
    let once = Definition { when: When::At { at: at(500) }, ..minutely() };
    assert_eq!(next_runs(&once, &nightly(), &(), at(0), 5).len(), 1);
    let mut scene = Scene::new(once, 100);
    assert_eq!(scene.wake_at, Some(at(500)));
    assert_eq!(scene.turn(500, &[]), [500]);
    assert_eq!(scene.wake_at, None, "nothing is to come");
    assert_eq!(scene.turn(501, &[]), [] as [i64; 0]);
}

#[test]
fn s06_bounds_and_limit_end_a_schedule() {
    let definition = Definition { from: Some(at(120)), until: Some(at(240)), ..minutely() };
    let mut scene = Scene::new(definition, 0);
    assert_eq!(scene.wake_at, Some(at(120)), "the first moment is in it");
    assert_eq!(scene.turn(120, &[]), [120]);
    assert_eq!(scene.turn(180, &[]), [180]);
    assert_eq!(scene.wake_at, None, "the last one is not");

    let mut scene = Scene::new(Definition { limit: Some(2), overlap: Overlap::Skip, ..minutely() }, 0);
    assert_eq!(scene.turn(60, &[]), [60]);
    assert_eq!(scene.turn(120, &[]), [] as [i64; 0], "it is skipped, and what is skipped does not count");
    assert_eq!(scene.turn(180, &[60]), [180]);
    assert_eq!((scene.wake_at, scene.state.taken), (None, 2));
    assert_eq!(scene.turn(240, &[180]), [] as [i64; 0]);
}

#[test]
fn s07_jitter_is_the_same_whoever_asks_and_keeps_the_order() {
    let definition = Definition { jitter: Millis::from_secs(3_600), ..minutely() };
    let runs = next_runs(&definition, &nightly(), &(), at(0), 200);
    assert_eq!(runs, next_runs(&definition, &nightly(), &(), at(0), 200));
    for pair in runs.windows(2) {
        let [(due, starts_at), (next, next_starts_at)] = pair else { unreachable!() };
        assert!(due <= starts_at && starts_at < next && starts_at < next_starts_at);
    }
    let spread: std::collections::BTreeSet<_> =
        runs.iter().map(|(due, starts_at)| starts_at.since(*due)).collect();
    assert!(spread.len() > 150, "{spread:?}");
    let other = next_runs(&definition, &"other".parse().unwrap(), &(), at(0), 200);
    assert_ne!(runs, other);
    let mut scene = Scene::new(definition, 0);
    let starts_at = runs[0].1;
    assert_eq!(scene.wake_at, Some(starts_at));
    assert_eq!(scene.turn(60, &[]), [] as [i64; 0]);
    assert_eq!(scene.turn(starts_at.0 / 1_000_000 + 1, &[]), [60]);
}

#[test]
fn s07_what_waits_for_its_jitter_is_kept_by_a_change_and_a_pause() {
    let hourly = Definition {
        when: When::Every { every: Millis::from_secs(3_600), offset: Millis::ZERO },
        jitter: Millis::from_secs(3_599),
        ..minutely()
    };
    let mut scene = Scene::new(hourly.clone(), 0);
    let start_at = scene.wake_at.unwrap();
    assert!(start_at > at(3_700), "it waits for so long: {start_at}");
    scene.now = 3_601;
    // A change: what waits is started when it would have been, as it is asked for now.
    let before = scene.look().kept(&scene.state);
    scene.definition.limit = Some(9);
    let changed = scene.look().replaced(&hourly, &before).unwrap();
    let due = Due { at: at(3_600), start_at, kind: DueKind::Planned };
    assert_eq!(
        (&changed.state.queue[..], changed.state.taken, changed.wake_at),
        (&[due][..], 1, Some(start_at))
    );
    // A pause: it goes on waiting.
    let paused = scene.look().paused(&scene.state, None);
    scene.keep(paused);
    assert_eq!((&scene.state.queue[..], scene.wake_at), (&[due][..], None));
    scene.now = 3_602;
    let resumed = scene.look().resumed(&scene.state);
    scene.keep(resumed);
    assert_eq!((scene.wake_at, scene.turn(3_603, &[])), (Some(start_at), vec![]), "not before its time");
    assert_eq!(scene.turn(start_at.0 / 1_000_000 + 1, &[]), [3_600]);
    // What would be skipped is skipped.
    let skips = Definition { overlap: Overlap::Skip, ..hourly };
    let mut scene = Scene::new(skips, 0);
    scene.state.open.push(Run {
        workflow: "report".parse().unwrap(),
        id: "open".parse().unwrap(),
        since: at(0),
    });
    scene.now = 3_601;
    let kept = scene.look().kept(&scene.state);
    assert_eq!((kept.queue.len(), kept.counts.skipped), (0, 1));
}

#[test]
fn s08_each_policy_of_overlap_does_what_it_says() {
    // Five due times while the first is open until after the last.
    type Row = (Overlap, &'static [i64], &'static [(ActionKind, i64, u64)], &'static [i64]);
    let table: [Row; 6] = [
        (Overlap::Skip, &[60], &[(ActionKind::Started, 60, 1), (ActionKind::Overlap, 300, 4)], &[]),
        (Overlap::QueueOne, &[60], &[(ActionKind::Started, 60, 1), (ActionKind::QueueFull, 300, 3)], &[120]),
        (
            Overlap::Queue { max: 2 },
            &[60],
            &[(ActionKind::Started, 60, 1), (ActionKind::QueueFull, 300, 2)],
            &[120, 180],
        ),
        (
            Overlap::CancelOther,
            &[60],
            &[
                (ActionKind::Started, 60, 1),
                (ActionKind::Replaced, 120, 1),
                (ActionKind::Replaced, 180, 1),
                (ActionKind::Replaced, 240, 1),
            ],
            &[300],
        ),
        (Overlap::TerminateOther, &[60, 120, 180, 240, 300], &[], &[]),
        (Overlap::Allow, &[60, 120, 180, 240, 300], &[], &[]),
    ];
    for (overlap, started, happened, waits) in table {
        let mut scene = Scene::new(Definition { overlap, ..minutely() }, 0);
        let mut all = Vec::new();
        for minute in 1..=5 {
            all.extend(scene.turn(minute * MINUTE, &[]));
        }
        assert_eq!(all, started, "{overlap:?}");
        if !happened.is_empty() {
            assert_eq!(scene.happened(), happened, "{overlap:?}");
        }
        let queue: Vec<_> = scene.state.queue.iter().map(|due| due.at.0 / 1_000_000).collect();
        assert_eq!(queue, waits, "{overlap:?}");
        let is_asked_to_end = matches!(overlap, Overlap::CancelOther | Overlap::TerminateOther);
        assert_eq!(!scene.state.stopping.is_empty(), is_asked_to_end, "{overlap:?}");
        assert_eq!(scene.state.open.is_empty(), overlap == Overlap::Allow, "{overlap:?}");
        if let [first, ..] = waits {
            assert!(
                scene.wake_at.unwrap() > at(300) && scene.wake_at.unwrap() <= at(330),
                "it looks whether it has ended"
            );
            assert_eq!(scene.turn(301, &[60]), [*first], "{overlap:?}");
        }
    }
}

#[test]
fn s08_what_is_to_end_is_looked_after_until_it_has_ended() {
    for overlap in [Overlap::CancelOther, Overlap::TerminateOther] {
        let mut scene = Scene::new(Definition { overlap, ..minutely() }, 0);
        scene.turn(60, &[]);
        scene.turn(120, &[]);
        for now in [121, 140] {
            let first = instance_id(&nightly(), at(60));
            assert_eq!(scene.state.stopping, [first], "{overlap:?}");
            assert!(scene.wake_at.is_some_and(|wake_at| wake_at < at(180)), "{overlap:?}: it is asked again");
            scene.turn(now, &[]);
        }
        scene.turn(141, &[60]);
        assert!(scene.state.stopping.is_empty());
    }
}

#[test]
fn s08_a_changed_policy_counts_for_what_is_being_asked_to_end() {
    let mut scene = Scene::new(Definition { overlap: Overlap::CancelOther, ..minutely() }, 0);
    scene.turn(60, &[]);
    scene.turn(120, &[]);
    let before = scene.definition.clone();
    scene.definition.overlap = Overlap::TerminateOther;
    let turn = scene.look().replaced(&before, &scene.state).unwrap();
    assert_eq!((turn.state.stopping.len(), turn.wake_at), (1, Some(at(120))), "it is asked at once");
    scene.definition.overlap = Overlap::Skip;
    let turn = scene.look().replaced(&before, &scene.state).unwrap();
    assert_eq!((turn.state.stopping.len(), turn.state.queue.len()), (0, 1), "nobody is to end any more");
}

#[test]
fn s08_what_waits_is_started_in_order_one_after_the_other() {
    let mut scene =
        Scene::new(Definition { overlap: Overlap::Queue { max: 9 }, limit: Some(3), ..minutely() }, 0);
    for minute in 1..=5 {
        scene.turn(minute * MINUTE, &[]);
    }
    assert_eq!(scene.turn(310, &[60]), [120]);
    assert_eq!(scene.turn(320, &[]), [] as [i64; 0], "that one is open now");
    assert_eq!(scene.turn(330, &[120]), [180]);
    assert_eq!(scene.turn(340, &[180]), [] as [i64; 0], "the limit counts what waits");
    assert_eq!(scene.wake_at, None);
}

#[test]
fn s09_what_was_missed_is_caught_up_as_asked() {
    let caught_up = |which, within: u64, now| {
        let catch_up = CatchUp { which, within: Millis::from_secs(within) };
        let mut scene = Scene::new(Definition { catch_up, ..minutely() }, 0);
        (scene.turn(now, &[]), scene.state.counts.missed)
    };
    // Ten minutes down. At 605 the last one is five seconds late, which is no delay; at 630 all are late.
    assert_eq!(caught_up(Which::Latest, 86_400, 605), (vec![600], 9));
    assert_eq!(caught_up(Which::Latest, 86_400, 630), (vec![600], 9));
    assert_eq!(caught_up(Which::None, 86_400, 605), (vec![600], 9));
    assert_eq!(caught_up(Which::None, 86_400, 630), (vec![], 10));
    assert_eq!(caught_up(Which::All, 86_400, 630), ((1..=10).map(|minute| minute * 60).collect(), 0));
    assert_eq!(caught_up(Which::All, 200, 630), (vec![480, 540, 600], 7));
    assert_eq!(caught_up(Which::Latest, 20, 630), (vec![], 10));
}

#[test]
fn s09_a_year_of_missed_seconds_stops_nothing() {
    let year = 365 * 86_400;
    for which in Which::ALL {
        let definition = Definition {
            when: When::Every { every: Millis::from_secs(1), offset: Millis::ZERO },
            catch_up: CatchUp { which, within: Millis::from_secs(3_600) },
            ..minutely()
        };
        let mut scene = Scene::new(definition, 0);
        let (mut turns, mut started) = (0, 0);
        while scene.wake_at.is_some_and(|wake_at| wake_at <= at(year)) {
            let some = scene.turn(year, &[]);
            assert!(some.len() <= 100, "a turn is bounded");
            started += some.len();
            turns += 1;
        }
        // Exactly those that were due within ten seconds are in time: from year - 10 to year.
        let (expected, most) = match which {
            Which::All => (3_601, 40),
            Which::Latest | Which::None => (11, 6),
        };
        assert_eq!(started, expected, "{which:?}");
        assert!(turns <= most, "{which:?} took {turns} turns");
        assert_eq!(scene.wake_at, Some(at(year + 1)));
    }
}

#[test]
fn s09_jitter_starts_nothing_outside_of_the_window_however_many_were_missed() {
    for (every, which) in [(1, Which::All), (1, Which::Latest), (7, Which::All)] {
        let definition = Definition {
            when: When::Every { every: Millis::from_secs(every), offset: Millis::ZERO },
            jitter: Millis::from_secs(3_600),
            catch_up: CatchUp { which, within: Millis::from_secs(600) },
            ..minutely()
        };
        let (now, mut started) = (100_000, Vec::new());
        let mut scene = Scene::new(definition, 0);
        while scene.wake_at.is_some_and(|wake_at| wake_at <= at(now)) {
            started.extend(scene.turn(now, &[]));
        }
        let every = i64::try_from(every).unwrap();
        let outside: Vec<_> = started.iter().filter(|due| **due + every < now - 600).collect();
        assert_eq!(outside, [] as [&i64; 0], "{which:?}");
        let most = if which == Which::All { 600 / every } else { 10 };
        assert!((most - 2..=most + 2).contains(&i64::try_from(started.len()).unwrap()), "{}", started.len());
    }
}

#[test]
fn s06_what_is_refused_does_not_count_against_the_limit() {
    let mut scene = Scene::new(Definition { limit: Some(1), ..minutely() }, 0);
    let refused = Outcome::Refused { code: "not_served".to_owned(), message: "no worker".to_owned() };
    for minute in [1, 2] {
        scene.now = minute * MINUTE + 1;
        let turn = scene.look().turn(&scene.state, &[]);
        let due = turn.state.pending[0];
        let settled = scene.look().settle(&turn.state, vec![(due, refused.clone())]);
        scene.keep(settled);
        assert_eq!((scene.state.taken, scene.wake_at), (0, Some(at((minute + 1) * MINUTE))));
    }
    assert_eq!((scene.turn(181, &[]), scene.wake_at), (vec![180], None), "one was started");
}

#[test]
fn s05_what_another_has_noted_is_noted_once() {
    let mut scene = Scene::new(Definition { overlap: Overlap::Skip, ..minutely() }, 0);
    scene.now = 60;
    let turn = scene.look().turn(&scene.state, &[]);
    let due = turn.state.pending[0];
    let noted = scene.look().settle(&turn.state, vec![(due, Outcome::Started)]).state;
    let again = scene.look().settle(&noted, vec![(due, Outcome::Existed)]).state;
    assert_eq!(again, noted);
    // It has ended meanwhile: nobody keeps it open again.
    let ended = scene.look().turn(&noted, &[("report".parse().unwrap(), instance_id(&nightly(), at(60)))]);
    assert_eq!(scene.look().settle(&ended.state, vec![(due, Outcome::Existed)]).state, ended.state);
}

#[test]
fn s10_a_start_of_which_nobody_knows_is_pending_and_a_refused_one_is_said_and_passed() {
    let mut scene = Scene::new(minutely(), 0);
    scene.now = 60;
    let turn = scene.look().turn(&scene.state, &[]);
    scene.keep(turn);
    let due = Due { at: at(60), start_at: at(60), kind: DueKind::Planned };
    assert_eq!(
        (&scene.state.pending[..], scene.wake_at),
        (&[due][..], Some(at(65))),
        "somebody else goes on"
    );
    let unknown = scene.look().settle(&scene.state, vec![(due, Outcome::Unknown)]);
    assert_eq!((&unknown.state, unknown.wake_at), (&scene.state, Some(at(61))));
    let refused = Outcome::Refused { code: "not_served".to_owned(), message: "no worker".to_owned() };
    let settled = scene.look().settle(&scene.state, vec![(due, refused)]);
    scene.keep(settled);
    assert_eq!(scene.happened(), [(ActionKind::Refused, 60, 1)]);
    assert_eq!(scene.state.failing().and_then(|action| action.code.as_deref()), Some("not_served"));
    assert_eq!(scene.wake_at, Some(at(120)), "it goes on");
    assert_eq!(scene.turn(120, &[]), [120]);
    assert_eq!(scene.state.failing(), None);
    let existed = Outcome::Existed;
    scene.now = 180;
    let turn = scene.look().turn(&scene.state, &[]);
    let settled = scene.look().settle(&turn.state, vec![(turn.state.pending[0], existed)]);
    assert_eq!((settled.state.counts.started, settled.state.counts.existed), (1, 1));
}

#[test]
fn s11_a_pause_passes_due_times_over_and_keeps_what_waits() {
    let mut scene = Scene::new(Definition { overlap: Overlap::QueueOne, ..minutely() }, 0);
    scene.turn(60, &[]);
    scene.turn(120, &[]);
    scene.now = 130;
    let paused = scene.look().paused(&scene.state, Some("the bank is down".to_owned()));
    scene.keep(paused);
    assert_eq!(scene.wake_at, None);
    assert_eq!(scene.turn(400, &[60]), [] as [i64; 0], "nor does what waits begin");
    let again = scene.look().paused(&scene.state, None).state.paused.unwrap();
    assert_eq!((again.since, again.note), (at(130), None));
    scene.now = 410;
    let resumed = scene.look().resumed(&scene.state);
    scene.keep(resumed);
    assert_eq!(scene.turn(410, &[]), [120], "what had waited is started");
    assert_eq!(
        (scene.state.counts.missed, scene.wake_at),
        (0, Some(at(420))),
        "what was due meanwhile is passed over"
    );
    let resumed = scene.look().resumed(&scene.state);
    assert_eq!(resumed.state, scene.state, "resuming what is not paused changes nothing");
}

#[test]
fn s12_a_span_is_made_up_for_one_after_the_other_or_side_by_side() {
    let mut scene = Scene::new(Definition { overlap: Overlap::Skip, ..minutely() }, 3_600);
    let backfill = |scene: &Scene, beside| {
        let operation = if beside == Some(true) { "op-beside" } else { "op-1" };
        scene.look().backfilled(&scene.state, operation, (at(60), at(240)), beside)
    };
    let one = backfill(&scene, None).unwrap();
    scene.keep(one);
    assert_eq!(scene.wake_at, Some(at(3_600)), "at once");
    assert_eq!(backfill(&scene, None).unwrap().state, scene.state, "the same request is one");
    assert_eq!(scene.turn(3_600, &[]), [60]);
    assert_eq!(scene.turn(3_601, &[]), [] as [i64; 0]);
    assert_eq!(scene.turn(3_602, &[60]), [120]);
    assert_eq!(scene.turn(3_603, &[120]), [180]);
    assert_eq!(scene.turn(3_604, &[180]), [] as [i64; 0]);
    assert_eq!((scene.state.backfills.len(), scene.wake_at), (0, Some(at(3_660))));
    let beside = backfill(&scene, Some(true)).unwrap();
    scene.keep(beside);
    assert_eq!(scene.turn(3_605, &[]), [60, 120, 180]);
    assert!(scene.state.open.is_empty(), "nothing waits for them");

    // Also of one that is paused; what is to come is not in it.
    let paused = scene.look().paused(&scene.state, None);
    scene.keep(paused);
    let to_come = scene.look().backfilled(&scene.state, "op-2", (at(3_540), at(9_000)), Some(true)).unwrap();
    scene.keep(to_come);
    assert_eq!(scene.turn(3_606, &[]), [3_540, 3_600]);
    let empty = scene.look().backfilled(&scene.state, "op-3", (at(3_606), at(9_000)), None);
    assert!(matches!(empty, Err(OperateError::EmptySpan { .. })), "{empty:?}");
    let many = (0..=10).try_fold(scene.state.clone(), |state, number| {
        scene
            .look()
            .backfilled(&state, &format!("many-{number}"), (at(0), at(60)), None)
            .map(|turn| turn.state)
    });
    assert_eq!(many, Err(OperateError::TooManyBackfills));
}

#[test]
fn s12_a_span_is_bounded_known_when_it_is_done_and_can_be_stopped() {
    let mut scene = Scene::new(Definition { overlap: Overlap::Skip, ..minutely() }, 60 * 20_000);
    let span = |scene: &Scene, operation: &str, until| {
        scene.look().backfilled(&scene.state, operation, (at(60), at(until)), None)
    };
    assert_eq!(
        span(&scene, "long", 60 * 10_002),
        Err(OperateError::SpanTooLong { from: at(60), until: at(60 * 10_002) })
    );
    assert!(span(&scene, "long", 60 * 10_001).is_ok(), "10,000 are not too many");
    let now = 60 * 20_000;
    let begun = span(&scene, "op-1", 180).unwrap();
    scene.keep(begun);
    assert_eq!((scene.turn(now, &[]), scene.turn(now, &[60])), (vec![60], vec![120]));
    assert_eq!(scene.turn(now, &[120]), [] as [i64; 0]);
    let again = span(&scene, "op-1", 180).unwrap();
    assert_eq!((again.state.backfills.len(), again.state), (0, scene.state.clone()), "it is done, and known");

    for operation in ["op-2", "op-3"] {
        let begun = span(&scene, operation, 180).unwrap();
        scene.keep(begun);
    }
    let one = scene.look().given_up(&scene.state, Some("op-2"));
    assert_eq!(one.state.backfills.iter().map(|b| b.operation.as_str()).collect::<Vec<_>>(), ["op-3"]);
    assert_eq!(scene.turn(now, &[]), [60], "one is under way");
    let all = scene.look().given_up(&scene.state, None);
    scene.keep(all);
    assert_eq!(scene.turn(now, &[60]), [] as [i64; 0], "what was started stays, and nothing more is");
    assert_eq!(span(&scene, "op-3", 180).unwrap().state, scene.state, "what was given up is not begun again");
}

#[test]
fn s12_a_long_span_side_by_side_is_started_in_bounded_turns() {
    let mut scene = Scene::new(minutely(), 60 * 1_000);
    let turn = scene.look().backfilled(&scene.state, "op", (at(0), at(60 * 250)), None).unwrap();
    scene.keep(turn);
    let turns: Vec<_> = (0..4).map(|_| scene.turn(60 * 1_000, &[]).len()).collect();
    assert_eq!(turns, [100, 100, 50, 0]);
}

#[test]
fn s13_a_start_by_hand_is_noted_once_and_counts_as_open() {
    let mut scene = Scene::new(Definition { overlap: Overlap::Skip, ..minutely() }, 0);
    let id = triggered_id(&nightly(), "key-1");
    for outcome in [Outcome::Started, Outcome::Existed] {
        let turn = scene.look().triggered(&scene.state, &id, &outcome);
        scene.keep(turn);
    }
    assert_eq!(scene.happened(), [(ActionKind::Started, -1, 1)]);
    let mine = Run { workflow: scene.definition.workflow.clone(), id, since: at(0) };
    assert_eq!(scene.state.open, std::slice::from_ref(&mine));
    assert_eq!(scene.turn(60, &[]), [] as [i64; 0], "the next due time finds it open");
    let turn = scene.look().turn(&scene.state, &[(mine.workflow, mine.id)]);
    assert_eq!(turn.state.open, []);
}

#[test]
fn s14_a_change_counts_from_now_and_what_never_comes_is_refused() {
    let mut scene = Scene::new(minutely(), 0);
    let before = scene.definition.clone();
    scene.now = 7_000;
    scene.definition.when = When::Every { every: Millis::from_secs(3_600), offset: Millis::ZERO };
    let turn = scene.look().replaced(&before, &scene.state).unwrap();
    assert_eq!((turn.state.settled, turn.wake_at), (at(7_000), Some(at(7_200))), "nothing is made up for");
    let same = scene.look().replaced(&scene.definition, &scene.state).unwrap();
    assert_eq!(same.state, scene.state, "the same again changes nothing");
    for definition in [
        Definition { when: When::At { at: at(7_000) }, ..minutely() },
        Definition { until: Some(at(7_000)), ..minutely() },
    ] {
        scene.definition = definition;
        let nothing = OperateError::NothingToCome { now: at(7_000) };
        assert_eq!(scene.look().created(), Err(nothing.clone()));
        assert_eq!(scene.look().replaced(&before, &scene.state), Err(nothing));
        assert!(
            scene.look().replaced(&scene.definition, &scene.state).is_ok(),
            "a single moment that was is no change"
        );
    }
}

proptest! {
    /// Whenever it is looked at, and however long nobody looked: with room for all, each due time is started exactly once, in order.
    #[test]
    fn s05_each_due_time_is_started_once_in_order(
        every in 1_u64..100, jitter in 0_u64..200, pauses in proptest::collection::vec(0_i64..2_000, 1..40),
    ) {
        let definition = Definition {
            when: When::Every { every: Millis::from_secs(every), offset: Millis::ZERO },
            jitter: Millis::from_secs(jitter),
            catch_up: CatchUp { which: Which::All, within: Millis::from_secs(86_400) },
            ..minutely()
        };
        let mut scene = Scene::new(definition, 0);
        let (mut now, mut started) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            while scene.wake_at.is_some_and(|wake_at| wake_at <= at(now)) {
                started.extend(scene.turn(now, &[]));
            }
        }
        let every = i64::try_from(every).unwrap();
        let expected: Vec<i64> = (1..=i64::try_from(started.len()).unwrap()).map(|nth| nth * every).collect();
        prop_assert_eq!(&started, &expected);
        // All whose time had come but for the jitter.
        let most = every.min(i64::try_from(jitter).unwrap() + 1);
        prop_assert!(started.last().copied().unwrap_or(0) + every + most > now, "{:?} at {}", started.last(), now);
    }
}
