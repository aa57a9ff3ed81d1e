//! Ends sessions that are silent, or whose inbox is gone (rules W8, W9), and hands the leases of ended sessions on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use everstep_protocol::{
    Millis, SessionId, Timestamp,
    crash::around,
    message::{CoordinatorItem, OpenSession, ToWorker},
    wire,
};
use everstep_store::LeaseRow;
use tokio::time::Instant;

use super::{duties::WATCH, sessions};
use crate::{arrival::Arrival, shared::Shared};

const EVERY: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;
/// Where so many inboxes vanish together, and they are a quarter of all, a node of the broker has gone with them: workers do not die like that,
/// but for those of one machine, and they are found out by their silence.
const MANY: usize = 3;
const ONE_OF: usize = 4;
/// A heartbeat that was sent before the broker went is noted by then.
const UNDER_WAY: Millis = Millis::from_secs(1);

/// What pings of inboxes have shown.
#[derive(Debug, Default)]
struct Inboxes {
    /// Since when each cannot be reached.
    since: HashMap<SessionId, Instant>,
    /// The connection by which the pings go.
    generation: Option<u64>,
    /// Since when it does, or since when many inboxes are gone at once.
    renewed: Option<Instant>,
    /// Those that were there since: reached, or heard after `heard_from`.
    reached: HashSet<SessionId>,
    /// By the store's time.
    heard_from: Timestamp,
    /// The inboxes that are meant.
    names: HashMap<SessionId, String>,
}

impl Inboxes {
    /// The next pings go by this connection. Where the broker was away, its workers may take longer to come back than this
    /// coordinator did, however short that was: an inbox that was not there since then says nothing for a whole lease. A coordinator that has
    /// just begun does not know whether the broker was away. True if it is another connection.
    fn by(&mut self, generation: u64, now: Instant) -> bool {
        let is_another = self.generation.replace(generation) != Some(generation);
        if is_another && !everstep_protocol::planted("reconnect_unnoticed") {
            self.renewed = Some(now);
            self.since.clear();
            self.reached.clear();
        }
        is_another
    }

    /// A session that has registered another inbox has come back: nothing is known of that one yet.
    fn named(&mut self, live: &[Arc<OpenSession>]) {
        self.names.retain(|session, _| live.iter().any(|open| open.session == *session));
        for open in live {
            let before = self.names.insert(open.session, open.inbox.clone());
            if before.is_some_and(|before| before != open.inbox) {
                self.since.remove(&open.session);
            }
        }
    }

    /// Those of which is awaited that they come back.
    fn awaited(&self, live: &[(SessionId, bool)], lease: Duration, now: Instant) -> Vec<SessionId> {
        let is_new = self.renewed.is_some_and(|renewed| now.duration_since(renewed) < lease);
        let waits = |(session, is_reached): &&(SessionId, bool)| {
            is_new && !is_reached && !self.reached.contains(session)
        };
        live.iter().filter(waits).map(|(session, _)| *session).collect()
    }

    /// Where a node of the broker has gone, those whose inboxes went with it have a whole lease to come back.
    fn vanished(&mut self, live: &[(SessionId, bool)], now: Instant) -> bool {
        let gone: Vec<_> = live
            .iter()
            .filter(|(session, is_reached)| !is_reached && self.reached.contains(session))
            .map(|(session, _)| *session)
            .collect();
        let is_broker = gone.len() >= MANY && gone.len() * ONE_OF >= live.len();
        if is_broker && !everstep_protocol::planted("reconnect_unnoticed") {
            self.renewed = Some(now);
            for session in &gone {
                self.reached.remove(session);
                self.since.remove(session);
            }
        }
        is_broker
    }

    /// Some of these cannot be reached. Gives those for which that has been so for long enough.
    fn pinged(
        &mut self,
        live: impl Iterator<Item = (SessionId, bool)>,
        (unroutable, lease): (Duration, Duration),
        now: Instant,
    ) -> Vec<SessionId> {
        let is_new = self.renewed.is_some_and(|renewed| now.duration_since(renewed) < lease);
        let mut since = HashMap::new();
        let mut over = Vec::new();
        for (session, is_reached) in live {
            if is_reached {
                self.reached.insert(session);
                continue;
            }
            let first = self.since.get(&session).copied().unwrap_or(now);
            since.insert(session, first);
            let is_awaited = is_new && !self.reached.contains(&session);
            if now.duration_since(first) + Duration::from_millis(50) >= unroutable && !is_awaited {
                over.push(session);
            }
        }
        self.since = since;
        over
    }
}

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut inboxes = Inboxes::default();
    loop {
        let publisher = shared.broker.health().borrow().publisher;
        // What is heard from the beginning on is heard by a connection that there is.
        let under_way =
            if inboxes.generation.is_none_or(|before| before == 0) { Millis::ZERO } else { UNDER_WAY };
        if inboxes.by(publisher, Instant::now()) {
            inboxes.heard_from = shared.clock.estimate().plus(under_way);
        }
        if shared.has_duty(WATCH) {
            if let Err(error) = silent(&shared).await {
                tracing::warn!(%error, "silent sessions were not read; no session ends meanwhile");
            }
            if let Err(error) = gone(&shared, &mut inboxes).await {
                tracing::debug!(%error, "inboxes were not probed; no session ends early meanwhile");
                inboxes.since.clear();
            }
        } else {
            inboxes.since.clear();
        }
        hand_on(&shared).await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            () = shared.orphans.notified() => {}
        }
    }
}

async fn silent(shared: &Shared) -> Result<(), crate::Error> {
    if everstep_protocol::planted("silent_for_ever") {
        return Ok(());
    }
    let lease = shared.settings.lease;
    for session in shared.store.silent(lease).await? {
        // It may have been heard since.
        if around("commit.session_end", shared.store.end_silent(session, lease)).await? {
            ended(shared, session, "silent");
        }
    }
    Ok(())
}

/// Pings every inbox; one that is unroutable for long enough ends its session. Not so within a lease after a gap, in which
/// nobody could observe it, unless the session was heard since: then it was there after the gap; nor within a lease after the own
/// connection was made, or a node of the broker went, unless it was there since.
async fn gone(shared: &Shared, inboxes: &mut Inboxes) -> Result<(), crate::Error> {
    let live = shared.sessions();
    if live.is_empty() {
        inboxes.since.clear();
        return Ok(());
    }
    let queues = live.iter().map(|open| open.inbox.clone()).collect();
    let ping = ToWorker {
        incarnation: shared.incarnation,
        coordinator: shared.id,
        session: live[0].session,
        items: vec![CoordinatorItem::Ping],
    };
    let unroutable = around("publish.ping", shared.broker.unroutable(queues, wire::encode(&ping))).await?;
    let limits = (shared.settings.unroutable.to_std(), shared.settings.lease.to_std());
    inboxes.named(&live);
    let reached: Vec<_> = live.iter().map(|open| (open.session, !unroutable.contains(&open.inbox))).collect();
    let now = Instant::now();
    if inboxes.vanished(&reached, now) {
        inboxes.heard_from = shared.clock.estimate().plus(UNDER_WAY);
    }
    let awaited = inboxes.awaited(&reached, limits.1, now);
    if !awaited.is_empty() {
        inboxes.reached.extend(shared.store.heard_since(&awaited, inboxes.heard_from).await?);
    }
    let over = inboxes.pinged(reached.into_iter(), limits, now);
    if over.is_empty() {
        return Ok(());
    }
    let lease =
        if everstep_protocol::planted("ended_unobserved") { Millis::ZERO } else { shared.settings.lease };
    let observed = shared.store.observed(&over, lease).await?;
    for open in live.iter().filter(|open| observed.contains(&open.session)) {
        inboxes.since.remove(&open.session);
        // It may have come back with another inbox since the ping, and a gap may have come.
        let ending = shared.store.end_unreachable(open.session, &open.inbox, lease);
        if around("commit.session_end", ending).await? {
            ended(shared, open.session, "unroutable");
        }
    }
    Ok(())
}

fn ended(shared: &Shared, session: SessionId, cause: &'static str) {
    tracing::warn!(%session, cause, "a session is ended");
    shared.metrics.sessions_ended.with_label_values(&[cause]).inc();
    shared.forget(session);
}

/// Ends the leases of ended sessions, page by page. Any coordinator does it: the decisions check again.
async fn hand_on(shared: &Arc<Shared>) {
    let mut before = Vec::new();
    loop {
        if everstep_protocol::planted("orphans_left") {
            return;
        }
        let orphans = match shared.store.orphans(PAGE).await {
            Ok(orphans) => orphans,
            Err(error) => {
                tracing::warn!(%error, "leases of ended sessions were not read; tried again in a second");
                return;
            }
        };
        // What has not gone by a decision goes by none that follows at once.
        let leases: Vec<LeaseRow> = orphans.iter().map(|orphan| orphan.lease).collect();
        if orphans.is_empty() || leases == before {
            return;
        }
        before = leases;
        let sessions: HashSet<_> = orphans.iter().map(|orphan| orphan.open.session).collect();
        let sessions: Vec<_> = sessions.into_iter().collect();
        let progress = match shared.store.kept_progress(&sessions).await {
            Ok(progress) => progress,
            Err(error) => {
                tracing::warn!(%error, "the progress of lost attempts was not read; tried again in a second");
                return;
            }
        };
        let full = orphans.len() == PAGE as usize;
        let mut answers = Vec::with_capacity(orphans.len());
        for orphan in orphans {
            let told = progress.get(&orphan.open.session).map_or(&[][..], Vec::as_slice);
            let of = if orphan.lease.subject.call().is_some() { "step" } else { "instance" };
            shared.metrics.leases_lost.with_label_values(&[of]).inc_by(u64::from(orphan.counts));
            let input = sessions::end_input(&orphan.open, &orphan.lease, None, orphan.counts, told);
            let (arrival, answer) = Arrival::answered(input);
            shared.submit(arrival);
            answers.push(answer);
        }
        for answer in answers {
            drop(answer.await);
        }
        if !full {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves when sessions end, and that their leases are handed on. Not: that pings find out who is there, which system tests prove.
    use everstep_engine::{Input, What};
    use everstep_protocol::Millis;

    use super::*;
    use crate::rehearsal::{Hand, Rehearsal};

    const GAP: Millis = Millis(3_000);

    const LIMITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

    #[test]
    fn w08_an_inbox_that_was_not_there_since_the_coordinators_reconnect_waits_a_whole_lease() {
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut inboxes = Inboxes::default();
        inboxes.by(1, at(0));
        assert_eq!(inboxes.pinged([(one, true)].into_iter(), LIMITS, at(0)), []);
        assert_eq!(inboxes.pinged([(one, false)].into_iter(), LIMITS, at(0)), []);
        assert_eq!(inboxes.pinged([(one, false)].into_iter(), LIMITS, at(2)), [one], "the first connection");
        inboxes.by(2, at(3));
        // One has come back and goes; the other has not come back yet.
        assert_eq!(inboxes.pinged([(one, true), (other, false)].into_iter(), LIMITS, at(3)), []);
        assert_eq!(inboxes.pinged([(one, false), (other, false)].into_iter(), LIMITS, at(4)), []);
        assert_eq!(inboxes.pinged([(one, false), (other, false)].into_iter(), LIMITS, at(6)), [one]);
        assert_eq!(inboxes.pinged([(other, false)].into_iter(), LIMITS, at(12)), []);
        assert_eq!(inboxes.pinged([(other, false)].into_iter(), LIMITS, at(13)), [other]);
    }

    #[test]
    fn w08_a_coordinator_that_has_just_begun_waits_a_whole_lease_for_what_it_has_never_seen() {
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut inboxes = Inboxes::default();
        assert!(inboxes.by(1, at(0)));
        let neither = [(one, false), (other, false)];
        assert_eq!(inboxes.pinged(neither.into_iter(), LIMITS, at(0)), []);
        assert_eq!(inboxes.pinged(neither.into_iter(), LIMITS, at(3)), [], "the broker may have been away");
        assert_eq!(inboxes.awaited(&neither, LIMITS.1, at(3)), [one, other]);
        // One is heard, so it was back; then it dies.
        inboxes.reached.insert(one);
        assert_eq!(inboxes.pinged(neither.into_iter(), LIMITS, at(4)), [one]);
        assert_eq!(inboxes.pinged([(other, false)].into_iter(), LIMITS, at(10)), [other]);
    }

    #[test]
    fn w08_sessions_whose_inboxes_vanish_together_have_a_whole_lease_to_come_back() {
        let all: Vec<_> = (0..8).map(|_| SessionId::generate()).collect();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut inboxes = Inboxes::default();
        inboxes.by(1, at(0));
        let mut look = |gone: &[usize], second| {
            let live: Vec<_> =
                all.iter().enumerate().map(|(nth, session)| (*session, !gone.contains(&nth))).collect();
            inboxes.vanished(&live, at(second));
            inboxes.pinged(live.into_iter(), LIMITS, at(second))
        };
        look(&[], 20);
        // One that dies, and another one beside it, are found out after two seconds.
        for (second, over) in [(21, vec![]), (22, vec![]), (23, vec![all[0], all[1]])] {
            assert_eq!(look(&[0, 1], second), over, "after {second} s");
        }
        look(&[], 24);
        // A node goes: the first is seen gone a second before the others. One of them comes back and dies.
        assert_eq!(look(&[2], 30), []);
        for second in 31..34 {
            assert_eq!(look(&[2, 3, 4], second), [], "after {second} s");
        }
        assert_eq!(look(&[3, 4], 34), [], "one is back");
        assert_eq!(look(&[2, 3, 4], 35), []);
        assert_eq!(look(&[2, 3, 4], 37), [all[2]], "it was there since");
        let mut over = look(&[3, 4], 41);
        over.sort_unstable();
        let mut expected = vec![all[3], all[4]];
        expected.sort_unstable();
        assert_eq!(over, expected, "and the others have had their lease");
    }

    #[test]
    fn w09_a_session_with_another_inbox_begins_anew() {
        let rehearsal = SessionId::generate();
        let open = crate::rehearsal::open(rehearsal);
        let again = OpenSession { inbox: format!("{}.2", open.inbox), ..open.clone() };
        let began = Instant::now();
        let mut inboxes = Inboxes::default();
        let (open, again) = (Arc::new(open), Arc::new(again));
        let mut look = |open: &Arc<OpenSession>, second| {
            inboxes.named(std::slice::from_ref(open));
            inboxes.reached.insert(open.session);
            inboxes.pinged([(open.session, false)].into_iter(), LIMITS, began + Duration::from_secs(second))
        };
        assert_eq!(look(&open, 0), []);
        assert_eq!(look(&again, 2), [], "it is another inbox that is not there");
        assert_eq!(look(&again, 4), [rehearsal]);
    }

    #[tokio::test]
    async fn w08_a_session_that_is_silent_for_a_lease_is_ended() {
        let hand = Hand::default();
        let coordinator = Rehearsal::at(&hand);
        let (shared, session) = (&coordinator.shared, coordinator.opens().await);
        for second in 0..=10 {
            shared.store.beat(shared.id, GAP).await.expect("it is noted");
            silent(shared).await.expect("the store answers");
            assert_eq!(coordinator.lives(session).await, second < 10, "after {second} s");
            hand.moves(1);
        }
    }

    #[tokio::test]
    async fn w09_after_a_gap_an_inbox_that_is_not_there_ends_nothing() {
        let hand = Hand::default();
        let coordinator = Rehearsal::at(&hand);
        let (shared, session) = (&coordinator.shared, coordinator.opens().await);
        shared.store.beat(shared.id, GAP).await.expect("it is noted");
        hand.moves(12);
        for second in 0..=10 {
            shared.store.beat(shared.id, GAP).await.expect("it is noted");
            let since = HashMap::from([(session, Instant::now() - Duration::from_secs(5))]);
            let mut inboxes = Inboxes { since, ..Inboxes::default() };
            gone(shared, &mut inboxes).await.expect("the broker answers");
            assert_eq!(coordinator.lives(session).await, second < 10, "{second} s after the gap");
            hand.moves(1);
        }
    }

    #[tokio::test]
    async fn w10_the_leases_of_an_ended_session_are_handed_on() {
        let mut coordinator = Rehearsal::at(&Hand::default());
        let (uid, session) = (coordinator.start("one", None).await, coordinator.opens().await);
        coordinator.leases(uid, session).await;
        coordinator.shared.store.end_session(session, true).await.expect("it is noted");
        let shared = Arc::clone(&coordinator.shared);
        let handing = tokio::spawn(async move { hand_on(&shared).await });
        let next = tokio::time::timeout(Duration::from_secs(5), coordinator.next()).await;
        let Input::On { instance, what: What::LeaseEnded { session: of, .. } } =
            next.expect("the lease ends").input
        else {
            panic!("something else comes first")
        };
        assert_eq!((instance, of), (uid, session));
        handing.abort();
    }

    #[test]
    fn w09_an_inbox_that_comes_back_begins_anew() {
        let (one, began) = (SessionId::generate(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut inboxes = Inboxes::default();
        for (second, is_reached) in [(0, false), (1, true), (2, false), (3, false)] {
            assert_eq!(inboxes.pinged([(one, is_reached)].into_iter(), LIMITS, at(second)), []);
        }
        assert_eq!(inboxes.pinged([(one, false)].into_iter(), LIMITS, at(4)), [one]);
    }
}
