//! One session as the link keeps it: opening, heartbeats, answers. Pure; the link sends and receives.

use std::{collections::VecDeque, time::Duration};

use everstep_protocol::{
    Incarnation, SessionId,
    message::{Heartbeat, OpenSession, Opened, SessionMessage},
};
use tokio::time::Instant;

use crate::{board::Account, clock::Resend};

/// So many heartbeats are remembered until their answers come.
const REMEMBERED: usize = 8;

/// What is the same in every session of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The opening message; session and inbox are set for each.
    pub(crate) open: OpenSession,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    inbox: Option<String>,
    opened: Option<(Incarnation, Opened)>,
    open_resend: Option<Resend>,
    number: u64,
    answered: u64,
    /// Numbers of the latest heartbeats, and when they were sent.
    sent: VecDeque<(u64, Instant)>,
    /// When the last heartbeat that was answered had been sent.
    confirmed: Instant,
    next_heartbeat: Option<Instant>,
    paused: bool,
}

impl Session {
    pub(crate) fn new(id: SessionId, now: Instant) -> Self {
        Self {
            id,
            inbox: None,
            opened: None,
            open_resend: None,
            number: 0,
            answered: 0,
            sent: VecDeque::new(),
            confirmed: now,
            next_heartbeat: None,
            paused: false,
        }
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.opened.map(|(incarnation, _)| incarnation)
    }

    /// The inbox is there, for the first time or after a reconnect: it is registered at once.
    pub(crate) fn connected(&mut self, inbox: String, now: Instant) {
        self.inbox = Some(inbox);
        self.open_resend = Some(Resend::begin(now));
    }

    /// The inbox has gone. No heartbeat is sent until there is one again: nobody could answer it, and a session that is
    /// heard has an inbox (rule W9).
    pub(crate) fn disconnected(&mut self) {
        self.inbox = None;
    }

    /// The session is open. Whether that is news.
    pub(crate) fn opened(&mut self, incarnation: Incarnation, opened: Opened, now: Instant) -> bool {
        self.open_resend = None;
        self.confirmed = now;
        let news = self.opened.is_none();
        self.opened = Some((incarnation, opened));
        if news {
            self.next_heartbeat = Some(now);
        }
        news
    }

    /// The message that opens the session, or registers its new inbox.
    pub(crate) fn open(&self, profile: &Profile) -> Option<SessionMessage> {
        let inbox = self.inbox.clone()?;
        Some(SessionMessage::Open(OpenSession { session: self.id, inbox, ..profile.open.clone() }))
    }

    /// The opening is due to be sent again; gives its life.
    pub(crate) fn open_due(&mut self, now: Instant) -> Option<Duration> {
        let resend = self.open_resend.as_mut()?;
        resend.is_due(now).then(|| resend.interval())
    }

    /// A heartbeat, if one is due, with its life.
    pub(crate) fn heartbeat(
        &mut self,
        account: impl FnOnce() -> Account,
        now: Instant,
    ) -> Option<(SessionMessage, Duration)> {
        let (_, opened) = self.opened?;
        if self.next_heartbeat.is_none_or(|at| now < at) {
            return None;
        }
        let interval = opened.heartbeat.to_std().max(Duration::from_millis(10));
        self.next_heartbeat = Some(now + interval);
        let inbox = self.inbox.clone()?;
        self.number += 1;
        let account = account();
        self.sent.push_back((self.number, now));
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        let heartbeat = Heartbeat {
            session: self.id,
            number: self.number,
            answered: self.answered,
            inbox,
            held: account.held,
            steps: account.steps,
            running: account.running,
            turned: Some(account.turned),
            credits: account.credits,
            progress: account.progress,
        };
        // Longer than a coordinator's own: where both wait in a queue, the way is taken for closed before anybody is taken for silent.
        Some((SessionMessage::Heartbeat(heartbeat), (interval * 3).min(opened.lease.to_std())))
    }

    /// A heartbeat was answered: the session lived when it was sent.
    pub(crate) fn heard(&mut self, number: u64) {
        self.answered = self.answered.max(number);
        if let Some((_, at)) = self.sent.iter().find(|(sent, _)| *sent == number) {
            self.confirmed = self.confirmed.max(*at);
        }
    }

    /// Whether the worker must start nothing more, if that changed: unanswered for two thirds of the lease (rule W10).
    pub(crate) fn pause(&mut self, now: Instant) -> Option<bool> {
        let (_, opened) = self.opened?;
        let silent = now.saturating_duration_since(self.confirmed) > opened.lease.to_std() * 2 / 3;
        (std::mem::replace(&mut self.paused, silent) != silent).then_some(silent)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.next_heartbeat, self.open_resend.as_ref().map(Resend::at)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    //! Proves when a session opens, beats and pauses. Not: what a coordinator makes of it.
    use everstep_protocol::{Millis, limits::Limits};

    use super::*;

    fn account() -> Account {
        Account {
            held: Vec::new(),
            steps: Vec::new(),
            running: 0,
            credits: Vec::new(),
            turned: Millis(3),
            progress: Vec::new(),
        }
    }

    fn open(session: &mut Session, now: Instant) {
        let opened = Opened { lease: Millis(9000), heartbeat: Millis(2000), limits: Limits::default() };
        session.opened(Incarnation(1), opened, now);
    }

    #[test]
    fn w07_opening_is_repeated_until_it_is_answered() {
        let begin = Instant::now();
        let mut session = Session::new(SessionId::generate(), begin);
        assert_eq!(session.deadline(), None);
        session.connected("inbox.1".to_owned(), begin);
        assert_eq!(session.open_due(begin + Duration::from_millis(999)), None);
        assert!(session.open_due(begin + Duration::from_secs(1)).is_some());
        open(&mut session, begin + Duration::from_secs(2));
        assert_eq!(session.open_due(begin + Duration::from_mins(1)), None);
        // A reconnect registers the new inbox in the same way.
        session.connected("inbox.2".to_owned(), begin + Duration::from_mins(1));
        assert!(session.open_due(begin + Duration::from_mins(2)).is_some());
    }

    #[test]
    fn w06_heartbeats_are_numbered_and_say_which_was_answered() {
        let begin = Instant::now();
        let mut session = Session::new(SessionId::generate(), begin);
        session.connected("inbox".to_owned(), begin);
        assert!(session.heartbeat(account, begin).is_none());
        open(&mut session, begin);
        let beat = |session: &mut Session, at: u64| {
            session.heartbeat(account, begin + Duration::from_millis(at)).map(|(message, _)| match message {
                SessionMessage::Heartbeat(heartbeat) => (heartbeat.number, heartbeat.answered),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(beat(&mut session, 0), Some((1, 0)));
        assert_eq!(beat(&mut session, 1999), None);
        session.heard(1);
        assert_eq!(beat(&mut session, 2000), Some((2, 1)));
    }

    #[test]
    fn w09_without_an_inbox_nothing_is_said() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut session = Session::new(SessionId::generate(), begin);
        session.connected("inbox.1".to_owned(), begin);
        open(&mut session, begin);
        let (_, life) = session.heartbeat(account, begin).expect("it is due");
        assert_eq!(life, Duration::from_secs(6), "three times as long as a coordinator's own");
        session.disconnected();
        assert!(session.heartbeat(account, at(2000)).is_none());
        assert_eq!(session.deadline(), Some(at(4000)), "it does not spin");
        session.connected("inbox.2".to_owned(), at(2500));
        let (message, _) = session.heartbeat(account, at(4000)).unwrap();
        let SessionMessage::Heartbeat(heartbeat) = message else { panic!("{message:?}") };
        assert_eq!((heartbeat.number, heartbeat.inbox.as_str()), (2, "inbox.2"));
    }

    #[test]
    fn w12_a_heartbeat_says_when_the_work_loop_last_came_round() {
        let begin = Instant::now();
        let mut session = Session::new(SessionId::generate(), begin);
        session.connected("inbox".to_owned(), begin);
        open(&mut session, begin);
        let (message, _) = session.heartbeat(account, begin).unwrap();
        assert!(
            matches!(message, SessionMessage::Heartbeat(heartbeat) if heartbeat.turned == Some(Millis(3)))
        );
    }

    #[test]
    fn w10_it_pauses_after_two_thirds_of_the_lease_and_goes_on_when_answered() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut session = Session::new(SessionId::generate(), begin);
        session.connected("inbox".to_owned(), begin);
        open(&mut session, begin);
        session.heartbeat(account, begin);
        assert_eq!(session.pause(at(6000)), None);
        assert_eq!(session.pause(at(6001)), Some(true));
        assert_eq!(session.pause(at(7000)), None);
        session.heartbeat(account, at(7000));
        // The answer to an old heartbeat says nothing about now.
        session.heard(1);
        assert_eq!(session.pause(at(7001)), None);
        session.heard(2);
        assert_eq!(session.pause(at(7002)), Some(false));
    }
}
