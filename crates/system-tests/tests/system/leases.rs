//! Order, fencing, leases and sessions with running parts: rules W2, W4, W6 to W10, W13, W15, W35.

use std::time::{Duration, Instant};

use everstep::{Error, Registry, Retry, Step, Workflow, embedded::Embedded};
use everstep_broker::Outgoing;
use everstep_protocol::{
    Attempt, Call, CallKind, CallName, CoordinatorId, Epoch, Fingerprint, Millis, Payload, Position, StepKey,
    journal::{Fact, Outcome},
    message::{
        AttemptEnd, AttemptOutcome, CoordinatorItem, FenceReason, Grant, Held, Report, RunTask, Taken, Then,
        WorkerItem,
    },
    topology, wire,
};
use everstep_store::StatusWord;
use everstep_system_tests::{DEADLINE, Gate, Log, Way, World, name, on_both, within};

/// One step that logs the worker it runs in, and waits at the gate.
fn work(log: &Log, gate: &Gate, place: &'static str) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("work", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let step = cx.step("work", (), move |_: Step, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    log.push(place);
                    gate.pass().await;
                    Ok::<_, Error>(place.to_owned())
                }
            });
            step.retry(Retry::constant("10ms")).await
        }
    })
}

/// Waits until an unroutable inbox may end every session early: they were heard since the way was opened (rule W9).
async fn settled(world: &World, lease: Millis) {
    world
        .eventually("every session was heard", async || {
            let sessions = world.store().sessions().await.expect("the store answers");
            let sessions: Vec<_> = sessions.into_iter().map(|session| session.open.session).collect();
            let observed = world.store().observed(&sessions, lease).await.expect("the store answers");
            !observed.is_empty() && observed.len() == sessions.len()
        })
        .await;
}

/// The report that a worker under this grant would send for the one step of `work`.
fn report(grant: &Grant, number: u64, output: &str) -> WorkerItem {
    let call = Call { kind: CallKind::Step, name: CallName::new("work").expect("a valid name"), count: 1 };
    let key = StepKey::derive(grant.instance.0, grant.generation.0, "step", "work", 1, &Payload::null())
        .expect("canonical");
    WorkerItem::Report(Report {
        instance: grant.instance,
        epoch: grant.epoch,
        number,
        seen: grant.last,
        results: vec![AttemptEnd {
            call,
            attempt: Attempt(1),
            called_after: Position(1),
            ran_for: Millis(1),
            key,
            input: Fingerprint::of(&Payload::null()).expect("canonical"),
            policy: everstep::Policy::default(),
            outcome: AttemptOutcome::Succeeded(Payload::encode(output).expect("it has a JSON form")),
            progress: None,
            marks: everstep_protocol::journal::Marks::default(),
            reference: None,
        }],
        opened: Vec::new(),
        closed: Vec::new(),
        then: Then::Continue,
        folded: false,
        cached: false,
        state: None,
        attributes: Vec::new(),
        compensated: None,
        ledger: Vec::new(),
    })
}

fn held(grant: &Grant) -> Held {
    Held {
        instance: grant.instance,
        epoch: grant.epoch,
        position: grant.last,
        run: Some(grant.run),
        reports: Some(grant.reports),
    }
}

on_both! {
    async fn w02_a_worker_that_was_away_longer_than_its_lease_is_fenced(setup) {
        let (log, first, second) = (Log::new(), Gate::closed(), Gate::closed());
        let mut world = setup.serve(work(&log, &first, "first")).await;
        world.begin("work", "one", &()).await;
        log.reached("first", 1).await;
        let before = world.view("work", "one").await.expect("it exists");
        // Frozen: connected and silent, as a stopped process.
        world.worker_way(0, Way::Frozen);
        world.add_worker(work(&log, &second, "second")).await;
        log.reached("second", 1).await;
        let after = world.view("work", "one").await.expect("it exists");
        assert!(after.epoch > before.epoch);
        // The old one finishes its step and comes back with a result that nobody wants any more.
        first.open();
        world.worker_way(0, Way::Open);
        world.eventually("the old worker has opened a new session", async || {
            world.store().sessions().await.expect("the store answers").len() == 2
        }).await;
        second.open();
        assert_eq!(world.end("work", "one").await.output::<String>(), "second");
        let outputs: Vec<_> = world.attempts("work", "one").await.into_iter().filter_map(|(_, attempt)| match attempt.outcome {
            Outcome::Succeeded(output) => Some(output),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        }).collect();
        assert_eq!(outputs.len(), 1, "{}", world.report("work", "one").await);
    }

    async fn w02_reports_of_older_epochs_are_refused_and_of_newer_ones_never_taken(setup) {
        let world = setup.start().await;
        world.begin("work", "one", &()).await;
        let uid = world.view("work", "one").await.expect("it exists").uid;
        let (mut one, mut two) = (world.stub("work").await, world.stub("work").await);
        one.open().await;
        let old = one.claim(uid).await.expect("nobody holds it");
        assert!(two.open_claim(uid).await.is_none(), "it is held");
        one.report(WorkerItem::GiveBack { instance: uid, epoch: old.epoch }).await;
        let new = within("a grant", DEADLINE, async {
            loop {
                if let Some(grant) = two.claim(uid).await {
                    return grant;
                }
            }
        }).await;
        assert!(new.epoch > old.epoch);
        one.report(report(&old, 1, "stale")).await;
        let why = one.until("a fence", |item| match item {
            CoordinatorItem::Fence { epoch, why, .. } if *epoch == old.epoch => Some(*why),
            _ => None,
        }).await;
        assert_eq!(why, FenceReason::Stale);
        let future = Grant { epoch: Epoch(new.epoch.0 + 5), ..new.clone() };
        two.report(report(&future, 1, "future")).await;
        two.report(report(&new, 1, "good")).await;
        let ack = two.until("an ack", |item| if let CoordinatorItem::Ack(ack) = item { Some(*ack) } else { None }).await;
        assert_eq!((ack.number, ack.taken), (1, Taken::Whole));
        // W4: the same report again is known, not a second entry.
        two.report(report(&new, 1, "good")).await;
        two.until("an ack", |item| if let CoordinatorItem::Ack(ack) = item { Some(*ack) } else { None }).await;
        let attempts = world.attempts("work", "one").await;
        assert_eq!(attempts.len(), 1, "{}", world.report("work", "one").await);
        assert!(matches!(&attempts[0].1.outcome, Outcome::Succeeded(output) if output.as_str() == "\"good\""));
    }

    async fn w06_a_grant_that_its_worker_never_confirms_is_repeated_and_then_ended(setup) {
        let world = setup.start().await;
        let mut stub = world.stub("work").await;
        stub.open().await;
        stub.beat(&[], 0).await;
        stub.beat(&[], 1).await;
        world.begin("work", "one", &()).await;
        let uid = world.view("work", "one").await.expect("it exists").uid;
        let grant = |item: &CoordinatorItem| match item {
            CoordinatorItem::Grant(grant) if grant.instance == uid => Some(grant.clone()),
            _ => None,
        };
        let first = stub.until("a direct grant", grant).await;
        assert!(first.direct);
        // Heartbeats that do not name it: it was lost.
        stub.beat(&[], 0).await;
        stub.beat(&[], 0).await;
        let again = stub.until("the grant again", grant).await;
        assert_eq!(again.epoch, first.epoch);
        for _ in 0..3 {
            stub.beat(&[], 0).await;
        }
        let view = world.until("work", "one", "free again", |view| view.status == StatusWord::Queued).await;
        assert!(view.holder.is_none());
        let answer = stub.beat(&[held(&first)], 0).await;
        assert!(matches!(answer, CoordinatorItem::Heard(heard) if heard.not_yours == [(uid, first.epoch)]), "it is told what it no longer owns");
    }

    async fn w06_the_answer_to_a_heartbeat_gives_what_the_holder_lacks(setup) {
        let world = setup.start().await;
        world.begin("work", "one", &()).await;
        let uid = world.view("work", "one").await.expect("it exists").uid;
        let mut stub = world.stub("work").await;
        let grant = stub.open_claim(uid).await.expect("nobody holds it");
        stub.report(report(&grant, 1, "good")).await;
        stub.until("an ack", |item| if let CoordinatorItem::Ack(ack) = item { Some(*ack) } else { None }).await;
        // By its heartbeat neither the ack nor anything else has come.
        stub.beat_only(&[held(&grant)]).await;
        let (mut acked, mut came) = (None, None);
        while acked.is_none() || came.is_none() {
            let item = stub.until("what it lacks", |item| match item {
                CoordinatorItem::Ack(_) | CoordinatorItem::Entries(_) => Some(item.clone()),
                _ => None,
            }).await;
            match item {
                CoordinatorItem::Ack(ack) => acked = Some(ack),
                CoordinatorItem::Entries(entries) => came = Some(entries),
                _ => {}
            }
        }
        let (acked, came) = (acked.expect("it came"), came.expect("it came"));
        assert_eq!((acked.epoch, acked.number, acked.taken, acked.after), (grant.epoch, 1, Taken::Before, Position(2)));
        assert_eq!((came.instance, came.epoch, came.last), (uid, grant.epoch, Position(2)));
        assert_eq!(came.entries, world.journal("work", "one").await[1..]);
        // With everything there, nothing is sent but the answer.
        let up_to_date = Held { position: Position(2), reports: Some(1), ..held(&grant) };
        for _ in 0..2 {
            stub.beat_only(&[up_to_date]).await;
            let item = stub.until("an item", |item| Some(item.clone())).await;
            assert!(matches!(item, CoordinatorItem::Heard(_)), "{item:?}");
        }
    }

    async fn w06_entries_whose_push_was_lost_come_with_the_next_heartbeat(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let (told, held) = (log.clone(), gate.clone());
        let registry = Registry::new().workflow_fn("race", move |cx: Workflow, (): ()| {
            let (log, gate) = (told.clone(), held.clone());
            async move {
                let step = cx.step("work", (), move |_: Step, (): ()| {
                    let (log, gate) = (log.clone(), gate.clone());
                    async move {
                        log.push("runs");
                        gate.pass().await;
                        Ok::<_, Error>(())
                    }
                });
                let nap = cx.sleep("nap", Duration::from_millis(1_500));
                futures::future::select(nap, step).await;
                Ok::<_, Error>(())
            }
        });
        let setup = setup.coordinator(|settings| {
            settings.lease = Millis(20_000);
            settings.unroutable = Millis(15_000);
        });
        let world = setup.serve(registry).await;
        world.begin("race", "one", &()).await;
        log.reached("runs", 1).await;
        world.eventually("the sleep is opened", async || world.opened("race", "one").await.len() == 1).await;
        // With the connection goes the inbox, and what is sent to it meanwhile.
        world.worker_way(0, Way::Cut);
        world.eventually("the sleep is over", async || {
            world.journal("race", "one").await.iter().any(|entry| matches!(entry.fact, Fact::Fired { .. }))
        }).await;
        world.worker_way(0, Way::Open);
        // Its step still runs, and nothing else happens to it.
        assert_eq!(world.end("race", "one").await.status, "complete");
        assert_eq!(log.count("runs"), 1, "the same lease went on");
    }

    async fn w12_a_work_loop_that_stands_still_is_seen(setup) {
        let world = setup.start().await;
        let mut stub = world.stub("work").await;
        stub.open().await;
        let still = || {
            let families = world.handle().metrics().gather();
            let family = families.iter().find(|family| family.name() == "everstep_sessions_standing_still");
            family.expect("it is counted").get_metric()[0].get_gauge().get_value()
        };
        let seen = async |wanted: f64| {
            world.eventually("the metric follows", async || (still() - wanted).abs() < 0.5).await;
        };
        for (turned, wanted) in [(60_000, 1.0), (200, 0.0), (6_000, 1.0)] {
            stub.turned = Millis(turned);
            stub.beat(&[], 0).await;
            seen(wanted).await;
        }
        world.store().end_session(stub.session, true).await.expect("the store answers");
        seen(0.0).await;
    }

    async fn w10_an_ended_session_never_comes_back_and_its_worker_opens_a_new_one(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(work(&log, &gate, "here")).await;
        world.begin("work", "one", &()).await;
        log.reached("here", 1).await;
        let (session, ..) = world.until("work", "one", "held", |view| view.holder.is_some()).await.holder.expect("it is held");
        world.store().end_session(session, true).await.expect("the store answers");
        log.reached("here", 2).await;
        gate.open();
        assert_eq!(world.end("work", "one").await.output::<String>(), "here");
        let sessions = world.store().sessions().await.expect("the store answers");
        assert_eq!(sessions.len(), 1);
        assert_ne!(sessions[0].open.session, session);
        let mut stub = world.stub("work").await;
        assert_eq!(stub.beat(&[], 0).await, CoordinatorItem::UnknownSession);
        stub.open().await;
        assert!(matches!(stub.beat(&[], 0).await, CoordinatorItem::Heard(_)));
        world.store().end_session(stub.session, true).await.expect("the store answers");
        assert_eq!(stub.beat(&[], 0).await, CoordinatorItem::UnknownSession);
    }

    async fn w08_a_broker_that_is_away_for_longer_than_the_lease_expires_nobody(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let setup = setup.coordinator(|settings| {
            settings.lease = Millis(1_500);
            settings.heartbeat = Millis(300);
        });
        let world = setup.serve(work(&log, &gate, "here")).await;
        for number in 0..5 {
            world.begin("work", &format!("w-{number}"), &()).await;
        }
        log.reached("here", 5).await;
        let session = world.store().sessions().await.expect("the store answers")[0].open.session;
        settled(&world, Millis(1_500)).await;
        world.every_way(Way::Cut);
        // The outage itself: longer than lease and gap. Nothing signals the absence of an expiry.
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.every_way(Way::Open);
        gate.open();
        within("five ends", DEADLINE, world.ends().count(5)).await;
        assert_eq!(log.count("here"), 5, "nothing ran twice");
        let sessions = world.store().sessions().await.expect("the store answers");
        assert_eq!(sessions.iter().map(|open| open.open.session).collect::<Vec<_>>(), [session]);
        for number in 0..5 {
            let journal = world.journal("work", &format!("w-{number}")).await;
            assert!(!journal.iter().any(|entry| matches!(entry.fact, Fact::Lost(_))), "{number}");
        }
    }

    async fn w09_the_work_of_a_dead_worker_goes_on_long_before_its_lease_ends(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        // All of this is within the first lease after the coordinator began: the worker was heard since.
        let lease = Millis(60_000);
        let setup = setup.coordinator(|settings| settings.lease = lease);
        let mut world = setup.serve(work(&log, &gate, "first")).await;
        world.begin("work", "one", &()).await;
        log.reached("first", 1).await;
        settled(&world, lease).await;
        world.crash_worker(0).await;
        let crashed = Instant::now();
        gate.open();
        world.add_worker(work(&log, &gate, "second")).await;
        log.reached("second", 1).await;
        let healed = crashed.elapsed();
        assert!(healed < Duration::from_millis(4_500), "healed after {healed:?}, the lease is {lease:?}");
        println!("w09 {:?}: healed after {healed:?}", world.kind());
        assert_eq!(world.end("work", "one").await.output::<String>(), "second");
    }

    async fn w09_a_worker_that_reconnects_keeps_its_session_and_its_work(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let setup = setup.coordinator(|settings| {
            settings.lease = Millis(6_000);
            settings.unroutable = Millis(4_000);
        });
        let world = setup.serve(work(&log, &gate, "here")).await;
        world.begin("work", "one", &()).await;
        log.reached("here", 1).await;
        let before = world.store().sessions().await.expect("the store answers").remove(0).open;
        world.worker_way(0, Way::Cut);
        world.worker_way(0, Way::Open);
        world.eventually("a new inbox is registered", async || {
            let sessions = world.store().sessions().await.expect("the store answers");
            sessions.iter().any(|now| now.open.session == before.session && now.open.inbox != before.inbox)
        }).await;
        gate.open();
        assert_eq!(world.end("work", "one").await.output::<String>(), "here");
        assert_eq!(log.count("here"), 1);
        world.begin("work", "two", &()).await;
        world.end("work", "two").await;
    }

    async fn w10_a_worker_whose_session_ended_while_it_was_away_works_again(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let world = setup.serve(work(&log, &gate, "here")).await;
        world.begin("work", "one", &()).await;
        log.reached("here", 1).await;
        let before = world.store().sessions().await.expect("the store answers").remove(0).open.session;
        world.worker_way(0, Way::Frozen);
        world.eventually("the silent session is ended", async || {
            let sessions = world.store().sessions().await.expect("the store answers");
            !sessions.iter().any(|now| now.open.session == before)
        }).await;
        world.worker_way(0, Way::Open);
        log.reached("here", 2).await;
        gate.open();
        world.begin("work", "two", &()).await;
        world.end("work", "one").await;
        world.end("work", "two").await;
    }

    async fn w10_a_worker_that_is_not_heard_starts_nothing_more(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let (told, held) = (log.clone(), gate.clone());
        let registry = Registry::new().workflow_fn("pair", move |cx: Workflow, (): ()| {
            let (log, gate) = (told.clone(), held.clone());
            async move {
                let step = |name: &'static str| {
                    let (log, gate) = (log.clone(), gate.clone());
                    let step = cx.step(name, (), move |_: Step, (): ()| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push(name);
                            gate.pass().await;
                            Ok::<_, Error>(())
                        }
                    });
                    step.retry(Retry::constant("10ms"))
                };
                let (a, b) = futures::future::join(step("a"), step("b")).await;
                a?;
                b
            }
        });
        let setup = setup.coordinator(|settings| settings.lease = Millis(9_000)).worker(|settings| settings.slots = 1);
        let world = setup.serve(registry).await;
        world.begin("pair", "one", &()).await;
        log.reached("a", 1).await;
        world.worker_way(0, Way::Frozen);
        let frozen = Instant::now();
        // Two thirds of the lease, by the worker's own clock: nothing else tells that it has passed.
        tokio::time::sleep(Duration::from_millis(6_700)).await;
        gate.open();
        let started = tokio::time::timeout(Duration::from_millis(500), log.reached("b", 1)).await;
        assert!(started.is_err(), "it started a step {:?} after its last answer", frozen.elapsed());
        world.worker_way(0, Way::Open);
        world.end("pair", "one").await;
    }

    async fn w02_reports_that_prove_lost_history_are_kept_once(setup) {
        let world = setup.start().await;
        let mut stub = world.stub("work").await;
        world.begin("work", "one", &()).await;
        let uid = world.view("work", "one").await.expect("it exists").uid;
        let mut grant = stub.open_claim(uid).await.expect("it is granted");
        grant.epoch = Epoch(9);
        for _ in 0..3 {
            stub.report(report(&grant, 1, "\"from a later epoch\"")).await;
        }
        let incarnation = stub.incarnation.replace(everstep_protocol::Incarnation(99));
        for _ in 0..3 {
            stub.report(report(&grant, 2, "\"from another life\"")).await;
        }
        stub.incarnation = incarnation;
        let namespace = everstep_protocol::Namespace::default();
        let kept = async || world.store().rejected(&namespace, 10).await.expect("the store answers");
        world.eventually("both are kept", async || kept().await.len() >= 2).await;
        // Whatever is sent later is settled after them.
        stub.report(WorkerItem::Claim { instance: uid, have: None }).await;
        let mut codes: Vec<_> = kept().await.into_iter().map(|kept| (kept.code, kept.body.contains("from a"))).collect();
        codes.sort();
        assert_eq!(codes, [("epoch".to_owned(), true), ("incarnation".to_owned(), true)]);
        let reports = topology::report_queue(topology::report_index(uid, if world.kind() == everstep_system_tests::Kind::Fleet { 4 } else { 1 }));
        world.eventually("all are settled", async || {
            world.broker().depth(&reports).await.expect("the broker answers") == Some(0)
        }).await;
        assert_eq!(kept().await.len(), 2);
    }

    async fn w15_w35_without_direct_grants_everything_goes_by_task_and_claim(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        gate.open();
        let setup = setup.coordinator(|settings| {
            settings.direct_grants = false;
            settings.window = 3;
        });
        let mut world = setup.start().await;
        for number in 0..40 {
            world.begin("work", &format!("w-{number}"), &()).await;
        }
        world.add_worker(work(&log, &gate, "here")).await;
        world.add_worker(work(&log, &gate, "there")).await;
        within("40 ends", DEADLINE, world.ends().count(40)).await;
        assert_eq!(log.lines().len(), 40);
        world.begin("work", "late", &()).await;
        world.end("work", "late").await;
    }

    async fn w35_workers_with_room_for_one_carry_many(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        gate.open();
        let mut world = setup.worker(|settings| settings.instances = 1).serve(work(&log, &gate, "here")).await;
        world.add_worker(work(&log, &gate, "there")).await;
        for number in 0..30 {
            world.begin("work", &format!("w-{number}"), &()).await;
        }
        within("30 ends", DEADLINE, world.ends().count(30)).await;
        assert_eq!(log.lines().len(), 30, "none ran twice");
    }

    async fn w35_a_grant_that_nobody_wants_is_given_back_and_goes_to_another(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        gate.open();
        let mut world = setup.start().await;
        let mut stub = world.stub("work").await;
        stub.open().await;
        stub.beat(&[], 0).await;
        stub.beat(&[], 1).await;
        world.begin("work", "one", &()).await;
        let grant = stub.until("a direct grant", |item| if let CoordinatorItem::Grant(grant) = item { Some(grant.clone()) } else { None }).await;
        world.add_worker(work(&log, &gate, "here")).await;
        stub.report(WorkerItem::GiveBack { instance: grant.instance, epoch: grant.epoch }).await;
        assert_eq!(world.end("work", "one").await.output::<String>(), "here");
    }

    async fn w12_a_body_that_blocks_ends_its_worker_and_everything_else_goes_on_elsewhere(setup) {
        fn registry(log: &Log, gate: &Gate, blocks: bool) -> Registry {
            work(log, gate, "work").workflow_fn("blocks", move |_: Workflow, (): ()| async move {
                std::future::ready(()).await;
                if blocks {
                    std::thread::sleep(Duration::from_secs(3));
                }
                Ok::<_, Error>(())
            })
        }
        let (log, gate) = (Log::new(), Gate::closed());
        let setup = setup.worker(|settings| settings.poll_limit = Duration::from_millis(600));
        let mut world = setup.serve(registry(&log, &gate, true)).await;
        world.begin("work", "other", &()).await;
        log.reached("work", 1).await;
        world.begin("blocks", "one", &()).await;
        let ended = world.worker(0).ended().await.expect_err("it ends because it is stuck");
        assert!(ended.contains("blocks") && ended.contains("one"), "it names the body: {ended}");
        world.add_worker(registry(&log, &gate, false)).await;
        log.reached("work", 2).await;
        gate.open();
        world.end("work", "other").await;
        world.end("blocks", "one").await;
        let counted: Vec<_> = world.journal("blocks", "one").await.iter().filter_map(|entry| if let Fact::Lost(lost) = &entry.fact { Some(lost.counts) } else { None }).collect();
        assert!(counted.len() <= 1, "{counted:?}");
    }
}

/// A worker that nobody has heard since a gap has its whole lease to come back, though its inbox cannot be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w09_a_worker_that_was_not_heard_after_a_gap_keeps_its_whole_lease() {
    let (log, gate) = (Log::new(), Gate::closed());
    let lease = Millis(5_000);
    let setup = everstep_system_tests::Setup::new(everstep_system_tests::Kind::Fleet)
        .coordinator(|settings| settings.lease = lease);
    let mut world = setup.serve(work(&log, &gate, "first")).await;
    world.begin("work", "one", &()).await;
    log.reached("first", 1).await;
    world.crash_coordinator(0).await;
    world.crash_worker(0).await;
    // What it said before was not heard, and then for a while nobody could have heard anything.
    world.purge_those(&["everstep.sessions"]);
    world.store().beat(CoordinatorId::generate(), Millis(1)).await.expect("the store answers");
    let gap = Instant::now();
    gate.open();
    world.add_coordinator().await;
    world.add_worker(work(&log, &gate, "second")).await;
    log.reached("second", 1).await;
    let healed = gap.elapsed();
    assert!(healed >= lease.to_std(), "healed after {healed:?}, within the lease");
    assert_eq!(world.end("work", "one").await.output::<String>(), "second");
}

/// The report of a result waits in the queue while no coordinator runs; purged, it is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w07_a_report_that_was_lost_is_sent_again() {
    let setup = everstep_system_tests::Setup::new(everstep_system_tests::Kind::Fleet);
    let (log, gate) = (Log::new(), Gate::closed());
    let mut world = setup.serve(work(&log, &gate, "here")).await;
    world.begin("work", "one", &()).await;
    log.reached("here", 1).await;
    let uid = world.view("work", "one").await.expect("it exists").uid;
    world.crash_coordinator(0).await;
    gate.open();
    let queue = topology::report_queue(topology::report_index(uid, 4));
    world
        .eventually("the report is in the queue", async || {
            matches!(world.broker().depth(&queue).await, Ok(Some(1..)))
        })
        .await;
    world.purge();
    world.add_coordinator().await;
    assert_eq!(world.end("work", "one").await.output::<String>(), "here");
    assert_eq!(log.count("here"), 1, "the result was not made again");
}

/// Claims are lost: nobody reads them, and the queue is purged. A claim is sent again until it is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w07_a_claim_that_was_lost_is_sent_again() {
    let setup = everstep_system_tests::Setup::new(everstep_system_tests::Kind::Fleet);
    let (log, gate) = (Log::new(), Gate::closed());
    gate.open();
    let setup = setup.coordinator(|settings| {
        settings.direct_grants = false;
        // A task is offered once only, within the time of this test.
        settings.offer_again = Millis(60_000);
    });
    let mut world = setup.start().await;
    let worker = world.add_worker(work(&log, &gate, "here")).await;
    world
        .eventually("the worker has its session", async || {
            world.store().sessions().await.expect("the store answers").len() == 1
        })
        .await;
    world.worker_way(worker, Way::Frozen);
    world.begin("work", "one", &()).await;
    let uid = world.view("work", "one").await.expect("it exists").uid;
    world.until("work", "one", "committed", |view| view.status == StatusWord::Queued).await;
    let incarnation = world.store().incarnation().await.expect("the store answers");
    world.crash_coordinator(0).await;
    // It may have died between its commit and its task: the worker is told here that there is work.
    let task = wire::encode(&RunTask { incarnation, instance: uid });
    let name = name("work", "one");
    let run_queue = topology::run_queue(&name.namespace, &name.workflow);
    world.broker().send(vec![Outgoing::to_queue(run_queue, task)]).await.expect("the broker takes it");
    world.worker_way(worker, Way::Open);
    let queue = topology::report_queue(topology::report_index(uid, 4));
    world
        .eventually("the claim is in the queue", async || {
            matches!(world.broker().depth(&queue).await, Ok(Some(1..)))
        })
        .await;
    world.purge_those(&["everstep.report."]);
    world.add_coordinator().await;
    assert_eq!(world.end("work", "one").await.output::<String>(), "here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w13_an_embedded_file_has_one_opener_and_goes_on_at_once_after_a_crash() {
    let setup = everstep_system_tests::Setup::new(everstep_system_tests::Kind::Embedded);
    let (log, gate) = (Log::new(), Gate::closed());
    let lease = Millis(30_000);
    let setup = setup.coordinator(|settings| settings.lease = lease);
    let mut world = setup.serve(work(&log, &gate, "first")).await;
    world.begin("work", "one", &()).await;
    log.reached("first", 1).await;
    let second =
        Embedded::open(world.file()).start().await.expect_err("a second opener is refused").to_string();
    assert!(second.contains("open") || second.contains("use"), "it says why: {second}");
    world.crash_worker(0).await;
    world.crash_coordinator(0).await;
    gate.open();
    let reopened = Instant::now();
    world.add_coordinator().await;
    world.add_worker(work(&log, &gate, "second")).await;
    assert_eq!(world.end("work", "one").await.output::<String>(), "second");
    assert!(
        reopened.elapsed() < Duration::from_secs(10),
        "at once, not after the lease: {:?}",
        reopened.elapsed()
    );
    // Its worker died with the process, so it is an attempt, as any death of a worker (rule W11).
    let journal = world.journal("work", "one").await;
    let lost: Vec<_> = journal
        .iter()
        .filter_map(|entry| if let Fact::Lost(lost) = &entry.fact { Some(lost.counts) } else { None })
        .collect();
    assert_eq!(lost, [true]);
}

/// The facade itself: dropped without a word it stops safely, and the next one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w13_the_embedded_facade_goes_on_where_the_last_one_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("everstep.db");
    let (log, gate) = (Log::new(), Gate::closed());
    let open = |place| {
        Embedded::open(&path)
            .registry(work(&log, &gate, place))
            .worker(|settings| settings.shutdown_grace = Duration::ZERO)
    };
    let first = open("first").start().await.expect("it opens");
    first.start_instance("work", Some("one"), &()).await.expect("it is started");
    log.reached("first", 1).await;
    drop(first);
    let second = within("the file is free", DEADLINE, async {
        loop {
            match open("second").start().await {
                Ok(second) => return second,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    log.reached("second", 1).await;
    let mut ended = second.ended().await.expect("the broker is there");
    gate.open();
    let end = within("the end", DEADLINE, ended.next()).await;
    assert_eq!((end.id.as_str(), end.output()), ("one", Some("\"second\"")));
    second.stop().await.expect("it stops");
}
