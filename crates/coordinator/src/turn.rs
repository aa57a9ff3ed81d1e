//! One turn: a batch becomes one transaction, then its messages leave, then its inputs are settled.

mod count;
mod refused;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use everstep_engine::{
    Answer, Effect, Input, What, Writes,
    batch::{Batch, Loaded, Verdict},
    rows::Needs,
};
use everstep_protocol::{InstanceId, InstanceUid, Run, SessionId, crash::around, message::WorkerItem};
use everstep_store::ErrorKind;
use everstep_telemetry::trace::OUTCOME;

use crate::{
    arrival::{Arrival, Debt, Told},
    reply::{self, Replies, UNSENT_PAUSE},
    sender,
    service::rejections,
    shared::Shared,
};

use self::{
    count::Counts,
    refused::{culprit, event_code, refused_event, refused_start},
};

/// After so many conflicts a batch is run in halves.
const CONFLICTS_MAX: u32 = 10;

/// Why a start is rejected whose decision panicked.
const BROKEN: &str = "the decision on this start failed, which is a bug of the engine; nothing was created";

/// What the loop needs to know of a finished turn.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// The instances of the batch.
    pub(crate) instances: HashSet<InstanceUid>,
    /// Inputs that go to the next batch: their heads were locked elsewhere.
    pub(crate) again: Vec<Arrival>,
}

/// What came of deciding a batch, inside its transaction.
#[derive(Debug, Default)]
struct Decided {
    verdicts: Vec<Verdict>,
    effects: Vec<Effect>,
    credits: Vec<everstep_protocol::SessionId>,
    sent: Vec<(InstanceUid, Run)>,
    near: Vec<(everstep_protocol::Timestamp, InstanceUid, everstep_protocol::CallHash)>,
    lifecycles: Vec<everstep_engine::lifecycle::Lifecycle>,
    /// How many calls became questions for a person.
    questions: u64,
    held_back: bool,
    /// Waits became due that a scan has passed.
    resumed: bool,
    /// Letters were written.
    mail: bool,
    counts: Counts,
}

/// Runs a batch to its end: repeated while the store is away, in halves when the store refuses it (rule W20).
pub(crate) async fn turn(shared: Arc<Shared>, batch: Vec<Arrival>) -> Finished {
    let instances = batch.iter().filter_map(|arrival| arrival.input.instance()).collect();
    let mut finished = Finished { instances, again: Vec::new() };
    let mut batch = batch;
    for arrival in &mut batch {
        if everstep_protocol::planted("settled_before_commit")
            && let Some(message) = arrival.debt.message.take()
        {
            message.done();
        }
    }
    let (inputs, debts): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|arrival| (arrival.input, (arrival.debt, arrival.held))).unzip();
    let mut parts = vec![(Arc::new(inputs), debts)];
    while let Some((inputs, debts)) = parts.pop() {
        match commit(&shared, &inputs).await {
            Ok(decided) => conclude(&shared, &inputs, debts, decided, &mut finished).await,
            Err(_) if inputs.len() > 1 => {
                // The second half is pushed first, so that inputs of one head keep their order.
                let mut debts = debts;
                let right = debts.split_off(inputs.len() / 2);
                let (one, other) = inputs.split_at(inputs.len() / 2);
                parts.push((Arc::new(other.to_vec()), right));
                parts.push((Arc::new(one.to_vec()), debts));
            }
            Err(message) => culprit(&shared, &inputs[0], debts, "unwritable", &message),
        }
    }
    finished
}

/// One transaction. An error means that the store will never take these rows; what may be repeated is repeated here.
async fn commit(shared: &Arc<Shared>, inputs: &Arc<Vec<Input>>) -> Result<Decided, String> {
    let mut pause = Duration::from_millis(50);
    let mut conflicts = 0_u32;
    loop {
        let mut needs = Needs::default();
        for input in inputs.iter() {
            input.needs(&mut needs);
        }
        let out = Arc::new(Mutex::new(Decided::default()));
        let decide = decide(Arc::clone(shared), Arc::clone(inputs), Arc::clone(&out));
        let timer = shared.metrics.commit_seconds.start_timer();
        let result = around("commit.turn", shared.store.transact(needs, decide)).await;
        timer.observe_duration();
        let mut decided = std::mem::take(&mut *out.lock().unwrap_or_else(PoisonError::into_inner));
        let error = match result {
            Ok(over) => {
                shared.metrics.batch_inputs.observe(inputs.len() as f64);
                decided
                    .effects
                    .extend(over.iter().map(|step| Effect::step_over(step.uid, step.call, step.lease)));
                return Ok(decided);
            }
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Unavailable && everstep_protocol::planted("unknown_taken_for_done") {
            return Ok(decided);
        }
        undo(shared, &decided);
        shared.metrics.batch_failures.with_label_values(&[kind_word(error.kind())]).inc();
        match error.kind() {
            ErrorKind::Conflict if conflicts < 5 => conflicts += 1,
            // Whatever goes on conflicting waits by itself, and holds up nobody else's work.
            ErrorKind::Conflict if conflicts >= CONFLICTS_MAX && inputs.len() > 1 => {
                return Err(error.to_string());
            }
            ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::NotMigrated | ErrorKind::InUse => {
                conflicts += u32::from(error.kind() == ErrorKind::Conflict);
                tracing::warn!(%error, inputs = inputs.len(), "a batch was not committed, it is run again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            ErrorKind::Refused | ErrorKind::Corrupt => return Err(error.to_string()),
        }
    }
}

/// The decisions of a batch, called inside its transaction.
fn decide(shared: Arc<Shared>, inputs: Arc<Vec<Input>>, out: Arc<Mutex<Decided>>) -> everstep_store::Decide {
    Box::new(move |loaded: Loaded| {
        shared.clock.read(loaded.now);
        let (ready, now) = (count::ready(&inputs, &loaded), loaded.now);
        let mut room = shared.room();
        let mut batch = Batch::new(loaded, shared.rules.clone());
        let verdicts: Vec<_> = inputs.iter().map(|input| batch.apply(input, &mut room)).collect();
        let (mut writes, effects, credits) = batch.finish(&mut room);
        drop(room);
        writes.sent = shared.take_sent();
        let mut counts = Counts::of(&shared.metrics, (&writes, now), &effects);
        counts.waited(&shared.metrics, (&inputs, &verdicts), (&ready, now));
        let decided = Decided {
            verdicts,
            effects,
            credits,
            sent: writes.sent.clone(),
            near: near(&writes),
            questions: questions(&writes),
            lifecycles: writes.outbox.clone(),
            held_back: writes.ready.iter().any(|row| !row.offered),
            resumed: !writes.waits_due.is_empty(),
            mail: writes.writes_mail(),
            counts,
        };
        *out.lock().unwrap_or_else(PoisonError::into_inner) = decided;
        writes
    })
}

fn near(writes: &Writes) -> Vec<(everstep_protocol::Timestamp, InstanceUid, everstep_protocol::CallHash)> {
    let due = writes.waits.iter().filter_map(|(uid, wait)| Some((wait.due_at?, *uid, wait.call.hash())));
    due.collect()
}

/// What a worker attached to an open question asks nothing new.
fn questions(writes: &Writes) -> u64 {
    let asked = writes.waits.iter().filter_map(|(_, wait)| wait.question.as_ref());
    asked.filter(|question| question.evidence.is_none()).count() as u64
}

/// The batch did not commit: what it took in memory is given back.
fn undo(shared: &Shared, decided: &Decided) {
    let mut room = shared.room();
    for session in &decided.credits {
        room.give_back(*session);
    }
    drop(room);
    shared.add_sent(decided.sent.clone());
}

/// After the commit: send, then settle and answer.
async fn conclude(
    shared: &Arc<Shared>,
    inputs: &[Input],
    debts: Vec<(Debt, u8)>,
    decided: Decided,
    finished: &mut Finished,
) {
    decided.counts.count(&shared.metrics);
    shared.metrics.questions.inc_by(decided.questions);
    if !decided.near.is_empty() {
        shared.near.lock().unwrap_or_else(PoisonError::into_inner).extend(&decided.near);
        shared.near_changed.notify_one();
    }
    if decided.resumed {
        shared.near_changed.notify_one();
    }
    if decided.mail {
        shared.mail.notify_one();
    }
    if decided.held_back {
        shared.backlog.notify_one();
    }
    let handed_over = sender::send(shared, decided.effects).await;
    if !handed_over {
        // The messages come again at once; without a pause they would do so as fast as the store can answer.
        tokio::time::sleep(UNSENT_PAUSE).await;
    }
    for lifecycle in decided.lifecycles {
        if shared.lifecycles.send(lifecycle).is_err() {
            tracing::debug!("a lifecycle message stays in the outbox: the coordinator is stopping");
        }
    }
    let mut replies = Replies::default();
    for ((input, (debt, held)), verdict) in inputs.iter().zip(debts).zip(decided.verdicts) {
        match verdict {
            Verdict::Held => {
                finished.again.push(Arrival { input: input.clone(), debt, held: held.saturating_add(1) });
            }
            Verdict::Decided(answer) => {
                if let (Answer::Granted, Some(instance)) = (&answer, input.instance()) {
                    shared.later.claimed(instance);
                }
                settle(shared, input, debt, Told { answer, id: None }, handed_over, &mut replies);
            }
            Verdict::Started(started) => {
                let told = Told { answer: started.answer, id: Some(started.id) };
                settle(shared, input, debt, told, handed_over, &mut replies);
            }
            Verdict::Broken => culprit(shared, input, vec![(debt, held)], "broken", BROKEN),
        }
    }
    replies.hand_over(shared).await;
}

fn settle(
    shared: &Shared,
    input: &Input,
    mut debt: Debt,
    told: Told,
    handed_over: bool,
    replies: &mut Replies,
) {
    let answer = told.answer.clone();
    shared.metrics.answers.inc(answer_word(&answer));
    if let Some(span) = debt.span.take() {
        span.say(OUTCOME, answer_word(&answer));
        if let Some(code) = reply::start_code(&answer) {
            span.failed(code);
        }
    }
    if answer == Answer::FromTheFuture {
        tracing::error!(instance = ?input.instance(), "an epoch that was never given: the database has lost history");
        if let Some((session, report)) = reported(input) {
            return rejections::set_aside(shared, "epoch", session, &report, debt.message);
        }
    }
    let reply = match (debt.reply_to.take(), input) {
        (Some(to), Input::Start(start)) => {
            let id = told.id.as_ref().map(InstanceId::as_str);
            let reply = reply::start(&answer, start.name.workflow.as_str(), id);
            Some((to, reply))
        }
        (Some(to), Input::On { .. }) => debt.event_to.as_ref().map(|name| (to, reply::event(&answer, name))),
        _ => None,
    };
    if let Some(reply) = debt.reply {
        // Whoever asked may have gone; the decision stands all the same.
        drop(reply.send(Ok(told)));
    }
    if let (Some(code), Input::Start(start)) = (reply::start_code(&answer), input)
        && debt.message.is_some()
    {
        return refused_start(shared, start, (code, &answer), debt.message, reply);
    }
    if let (Some(name), Some(reason), Input::On { what: What::Event(event), .. }) =
        (&debt.event_to, reply::refused_event(&answer), input)
    {
        return refused_event(shared, name, event, event_code(&answer), reason, debt.message, reply);
    }
    match (debt.message, reply) {
        (Some(share), Some((to, reply))) if handed_over => {
            replies.replies.push(reply::message(&to, &reply));
            replies.messages.push(share);
        }
        (Some(share), None) if handed_over => share.done(),
        (Some(share), _) => share.again(),
        (None, _) => {}
    }
}

/// The report that an input is, as it was sent.
fn reported(input: &Input) -> Option<(SessionId, WorkerItem)> {
    let Input::On { instance, what } = input else { return None };
    match what {
        What::Report { session, report, .. } => Some((*session, WorkerItem::Report(report.clone()))),
        What::StepReport { session, call, epoch, ran_for, outcome, progress, found, reference, .. } => {
            let (instance, call, epoch, ran_for) = (*instance, *call, *epoch, *ran_for);
            let (outcome, progress, found) = (outcome.clone(), progress.clone(), *found);
            let reference = reference.clone();
            let item = WorkerItem::StepReport {
                instance,
                call,
                epoch,
                ran_for,
                outcome,
                progress,
                found,
                reference,
            };
            Some((*session, item))
        }
        _ => None,
    }
}

const fn kind_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Refused => "refused",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::NotMigrated => "not_migrated",
        ErrorKind::InUse => "in_use",
    }
}

/// Every word of [`answer_word`].
pub(crate) const ANSWERS: [&str; 21] = [
    "done",
    "nothing",
    "granted",
    "not_granted",
    "taken",
    "fenced",
    "from_the_future",
    "parked",
    "refused",
    "moved",
    "not_parked",
    "not_found",
    "created",
    "exists",
    "conflict",
    "not_served",
    "event_id_taken",
    "mailbox_full",
    "hook_held",
    "hook_retention",
    "not_asked",
];

const fn answer_word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Done => "done",
        Answer::Nothing => "nothing",
        Answer::Granted => "granted",
        Answer::NotGranted => "not_granted",
        Answer::Taken => "taken",
        Answer::Fenced => "fenced",
        Answer::FromTheFuture => "from_the_future",
        Answer::Parked => "parked",
        Answer::Refused(_) | Answer::Forbidden(_) => "refused",
        Answer::Moved => "moved",
        Answer::NotParked => "not_parked",
        Answer::NotFound => "not_found",
        Answer::Created => "created",
        Answer::Exists(_) => "exists",
        Answer::Conflict(_) => "conflict",
        Answer::NotServed => "not_served",
        Answer::EventIdTaken => "event_id_taken",
        Answer::MailboxFull => "mailbox_full",
        Answer::HookHeld(_) => "hook_held",
        Answer::HookRetention => "hook_retention",
        Answer::NotAsked => "not_asked",
    }
}

#[cfg(test)]
mod tests {
    //! Proves what whoever waits in this process learns of an input that can never be decided, and of one that the store goes on refusing.
    use everstep_broker::{Consume, Incoming, MemoryBroker, Outgoing, QueueDeclaration, QueueKind};
    use everstep_engine::batch::NameRow;
    use everstep_protocol::Incarnation;
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::{
        Settings, SystemChance,
        rehearsal::{self, Rehearsal},
    };
    use crate::{arrival::Share, error::Error};

    /// A name that nobody can be looked up by is taken all the same: the store's conflict never ends.
    #[tokio::test]
    async fn w20_what_goes_on_conflicting_waits_alone_and_the_rest_of_its_batch_is_committed() {
        let coordinator = Rehearsal::new();
        let ghost = rehearsal::start("ghost", None);
        let (key, fingerprint) = (ghost.name.clone(), ghost.fingerprint);
        let names = vec![NameRow { key, uid: InstanceUid::generate(), fingerprint }];
        coordinator.write(Writes { names, ..Writes::default() }).await;
        let one = rehearsal::start("one", None);
        let (ghost, mut conflicting) = Arrival::answered(Input::Start(Box::new(ghost)));
        let (one, created) = Arrival::answered(Input::Start(Box::new(one)));
        let turning = tokio::spawn(turn(Arc::clone(&coordinator.shared), vec![one, ghost]));
        let told = tokio::time::timeout(Duration::from_secs(20), created).await.expect("it is not held up");
        assert_eq!(told.expect("it is answered").expect("it is decided").answer, Answer::Created);
        let failures = coordinator.shared.metrics.batch_failures.with_label_values(&["conflict"]).get();
        assert!(failures > u64::from(CONFLICTS_MAX), "so often it was tried whole, at least: {failures}");
        assert!(conflicting.try_recv().is_err() && !turning.is_finished());
        turning.abort();
    }

    #[tokio::test]
    async fn w20_a_message_is_settled_after_its_commit() {
        let coordinator = Rehearsal::new();
        let broker = coordinator.shared.broker.clone();
        let queue = QueueDeclaration::new("q", QueueKind::Classic);
        broker.declare(vec![queue.into()]).await.expect("it is declared");
        broker.send(vec![Outgoing::to_queue("q", "start")]).await.expect("it is sent");
        let mut consumer = broker.consume(Consume::new("q", 1)).await.expect("it is there");
        let settle = loop {
            if let Incoming::Delivery(delivery) = consumer.next().await {
                break delivery.split().1;
            }
        };
        let ghost = rehearsal::start("ghost", None);
        let (key, fingerprint) = (ghost.name.clone(), ghost.fingerprint);
        let names = vec![NameRow { key, uid: InstanceUid::generate(), fingerprint }];
        coordinator.write(Writes { names, ..Writes::default() }).await;
        let share = Share::divide(settle, 1).pop().expect("there is one");
        let arrival = Arrival::from_message(Input::Start(Box::new(ghost)), share);
        // The store never takes it.
        let mut turning = tokio::spawn(turn(Arc::clone(&coordinator.shared), vec![arrival]));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut turning).await.is_err());
        drop(consumer);
        turning.abort();
        assert!(turning.await.is_err());
        assert_eq!(broker.depth("q").await.expect("the broker answers"), Some(1), "it comes again");
    }

    #[tokio::test]
    async fn w20_a_caller_is_told_that_its_input_is_the_culprit() {
        let dir = std::env::temp_dir().join(format!("everstep-turn-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let broker = Arc::new(MemoryBroker::new().connection());
        let (shared, _ends) =
            Shared::new(store, broker, Settings::default(), Incarnation(1), Arc::new(SystemChance));
        let what = What::Terminate { operation: "o".to_owned(), reason: None };
        let input = Input::On { instance: InstanceUid::generate(), what };
        let (arrival, answer) = Arrival::answered(input.clone());
        culprit(&shared, &input, vec![(arrival.debt, 0)], "unwritable", "a NUL");
        let told = answer.await.expect("it is answered");
        let Err(Error::Undecided { code, reason }) = told else { panic!("{told:?}") };
        assert_eq!((code.as_str(), reason.as_str()), ("unwritable", "a NUL"));
        drop(std::fs::remove_dir_all(dir));
    }
}
