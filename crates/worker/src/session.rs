//! One session as the link keeps it: opening, heartbeats, answers. Pure; the link sends and receives.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use everstep_protocol::{
    Incarnation, SessionId,
    message::{Heartbeat, OpenSession, Opened, SessionMessage},
};

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
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            id: SessionId::generate(),
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
    pub(crate) fn heartbeat(&mut self, account: impl FnOnce() -> Account, now: Instant) -> Option<(SessionMessage, Duration)> {
        let (_, opened) = self.opened?;
        if self.next_heartbeat.is_none_or(|at| now < at) {
            return None;
        }
        let interval = opened.heartbeat.to_std().max(Duration::from_millis(10));
        self.next_heartbeat = Some(now + interval);
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
            inbox: self.inbox.clone()?,
            held: account.held,
            steps: account.steps,
            running: account.running,
            credits: account.credits,
        };
        Some((SessionMessage::Heartbeat(heartbeat), interval))
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
