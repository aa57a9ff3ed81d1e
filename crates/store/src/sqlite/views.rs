//! What API and CLI show: an instance's status is derived from its head and side rows in one read.

mod lists;

use async_trait::async_trait;
use everstep_engine::{
    Head, Status,
    hook::ReplyKey,
    rows::{Control, Lease, Subject, WaitKind, WaitRow},
    start::NameKey,
    status::Sides,
};
use everstep_protocol::{
    Attribute, AttributeValue, BuildName, InstanceUid, Namespace, Payload, Position, SessionId, Timestamp,
    Token, WorkflowName,
    journal::{Compensated, End, Fact, Parked},
};
use rusqlite::{Connection, params};

use super::{
    SqliteStore, attention, column, events, fault, hooks, journal, ledger, letters, load, sessions,
    transaction,
};
use crate::{
    AttentionCount, AttentionFilter, AttentionMark, AttentionView, Cursor, END_PAGE_BYTES, EndMark, EndPage,
    Ends, Error, Filter, HookView, InstanceView, LedgerCall, LedgerSearch, OPEN_COUNTED, OpenCount, Page,
    RejectedView, Replied, Session, StatusWord, UnreadView, Views, WaitView,
};

const OPEN_COUNTS: &str = include_str!("open_counts.sql");
const ENDS: &str = "SELECT uid, number FROM ended
    WHERE number > ?2 AND number <= ?3 AND namespace = ?1 AND (?4 IS NULL OR workflow = ?4) AND (?5 = 0 OR status = ?5)
    ORDER BY number LIMIT ?6";
const ENDS_NOW: &str = "SELECT ends FROM installation";
const SESSION: &str = "SELECT inbox, open FROM session WHERE session = ?1";
const READY: &str = "SELECT ready_at FROM ready WHERE uid = ?1 AND subject = ?2";
const PARKED: &str = "SELECT at, code, message, changed FROM attention WHERE uid = ?1";
const WAITS: &str =
    "SELECT kind, since, due_at, call_kind, call_name, call_count, awaited FROM wait WHERE uid = ?1
    ORDER BY kind <> 7, due_at IS NULL, due_at, since LIMIT ?2";
const ATTRIBUTES: &str = "SELECT name, value FROM attribute WHERE uid = ?1 ORDER BY name";
const PUBLISHED: &str = "SELECT at, state FROM published WHERE uid = ?1";
const ANY_LEASE: &str = "SELECT 1 FROM lease WHERE uid = ?1";
const WAITS_COUNT: &str = "SELECT count(*) FROM wait WHERE uid = ?1";
const STATUS: &str = "SELECT status FROM instance_name JOIN instance ON instance.uid = instance_name.uid
    WHERE instance_name.namespace = ?1 AND instance_name.workflow = ?2 AND instance_name.id = ?3";
/// SQLite's `substr` of an empty blob is null.
const REJECTED: &str =
    "SELECT at, code, reason, message_id, headers, coalesce(substr(body, 1, 65536), x''), body_bytes FROM rejected
    WHERE namespace = ?1 ORDER BY number DESC LIMIT ?2";

/// How many waits of one instance are shown.
const WAITS_MAX: u32 = 100;

#[async_trait]
impl Views for SqliteStore {
    async fn instance(&self, name: &NameKey) -> Result<Option<InstanceView>, Error> {
        let name = name.clone();
        let work = move |connection: &Connection| match transaction::find(connection, &name)? {
            Some(uid) => Ok(Some(one(connection, uid)?)),
            None => Ok(None),
        };
        self.viewer.read("reading an instance", work).await
    }

    async fn status(&self, name: &NameKey) -> Result<Option<Status>, Error> {
        let name = name.clone();
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(STATUS)?;
            let mut rows =
                statement.query([name.namespace.as_str(), name.workflow.as_str(), name.id.as_str()])?;
            rows.next()?.map(|row| column::code(row, 0, Status::from_code)).transpose()
        };
        self.viewer.read("reading an instance's status", work).await
    }

    async fn instances(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page, Error> {
        if filter.contradicts_itself() {
            return Ok(Page::default());
        }
        let (filter, cursor) = (filter.clone(), cursor.copied());
        let work = move |connection: &Connection| page(connection, &filter, cursor, limit);
        self.viewer.read("listing instances", work).await
    }

    async fn ends(&self, ends: &Ends, after: &EndMark, limit: u32) -> Result<EndPage, Error> {
        let (ends, after) = (ends.clone(), *after);
        let work = move |connection: &Connection| end_page(connection, &ends, after, limit);
        self.viewer.read("reading ends", work).await
    }

    async fn ends_now(&self) -> Result<EndMark, Error> {
        self.viewer.read("reading ends", ends_now).await
    }

    async fn hook(&self, namespace: &Namespace, token: &Token) -> Result<Option<HookView>, Error> {
        let (namespace, token, now) = (namespace.clone(), token.clone(), self.clock.now());
        let work =
            move |connection: &Connection| hooks::shown(connection, &namespace, ("", Some(&token)), 1, now);
        Ok(self.viewer.read("looking a hook up", work).await?.pop())
    }

    async fn reply(&self, to: &ReplyKey) -> Result<Replied, Error> {
        let to = to.clone();
        let work = move |connection: &Connection| events::replied(connection, &to);
        self.viewer.read("looking for the answer of a webhook", work).await
    }

    async fn hooks(
        &self,
        namespace: &Namespace,
        after: Option<&Token>,
        limit: u32,
    ) -> Result<Vec<HookView>, Error> {
        let (namespace, now) = (namespace.clone(), self.clock.now());
        let after = after.map_or(String::new(), Token::to_string);
        let work =
            move |connection: &Connection| hooks::shown(connection, &namespace, (&after, None), limit, now);
        self.viewer.read("listing hooks", work).await
    }

    async fn attention(
        &self,
        filter: &AttentionFilter,
        after: Option<&AttentionMark>,
        limit: u32,
    ) -> Result<Vec<AttentionView>, Error> {
        let (filter, after, now) = (filter.clone(), after.copied(), self.clock.now());
        let work = move |connection: &Connection| attention::list(connection, &filter, now, after, limit);
        self.viewer.read("listing questions", work).await
    }

    async fn attention_counts(&self) -> Result<Vec<AttentionCount>, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| attention::counts(connection, now);
        self.viewer.read("counting questions", work).await
    }

    async fn ledger(&self, search: &LedgerSearch, limit: u32) -> Result<Vec<LedgerCall>, Error> {
        let (search, now) = (search.clone(), self.clock.now());
        let work = move |connection: &Connection| ledger::search(connection, &search, now, limit);
        self.viewer.read("searching the ledger", work).await
    }

    async fn open_counts(&self) -> Result<Vec<OpenCount>, Error> {
        let work = |connection: &Connection| {
            let mut statement = connection.prepare_cached(OPEN_COUNTS)?;
            let mut rows = statement.query([OPEN_COUNTED as i64])?;
            let mut counts = Vec::new();
            while let Some(row) = rows.next()? {
                let (status, code): (String, Option<String>) = (row.get(0)?, row.get(1)?);
                let count = OpenCount::of(&status, code.as_deref(), row.get(2)?, column::count(row, 3)?);
                let count = count.ok_or_else(|| fault::Fault::corrupt("open instances", status))?;
                counts.extend((count.instances > 0).then_some(count));
            }
            Ok(counts)
        };
        self.viewer.read("counting open instances", work).await
    }

    async fn rejected(&self, namespace: &Namespace, limit: u32) -> Result<Vec<RejectedView>, Error> {
        let namespace = namespace.clone();
        let work = move |connection: &Connection| rejected(connection, &namespace, limit);
        self.viewer.read("listing rejected messages", work).await
    }
}

/// There is one writer: what it has counted is committed in that order.
fn ends_now(connection: &Connection) -> fault::Result<EndMark> {
    let commit = connection
        .prepare_cached(ENDS_NOW)?
        .query_row([], |row| row.get::<_, i64>(0).map(|ends| ends as u64))?;
    Ok(EndMark { commit, ..EndMark::default() })
}

fn end_page(connection: &Connection, ends: &Ends, after: EndMark, limit: u32) -> fault::Result<EndPage> {
    let now = ends_now(connection)?;
    let workflow = ends.workflow.as_ref().map(WorkflowName::as_str);
    let status = ends.status.map_or(0, Status::code);
    let (commit, until) = (after.commit as i64, now.commit as i64);
    let mut statement = connection.prepare_cached(ENDS)?;
    let mut found =
        statement.query(params![ends.namespace.as_str(), commit, until, workflow, status, limit])?;
    let live = sessions::live(connection)?;
    let mut rows = Vec::new();
    let (mut last, mut bytes, mut is_all) = (after, 0, false);
    while bytes < END_PAGE_BYTES {
        let Some(row) = found.next()? else {
            is_all = rows.len() < limit as usize;
            break;
        };
        let uid = column::uid(row, 0)?;
        last = EndMark { commit: column::count(row, 1)?, ..EndMark::default() };
        let mut view = InstanceView { holder: None, ..view(connection, uid, 1, &live)? };
        view.end = end(connection, &view)?;
        bytes += crate::view::end_bytes(&view);
        rows.push((last, view));
    }
    let next = if is_all { now.max(after) } else { last };
    Ok(EndPage { rows, next, more: !is_all })
}

fn one(connection: &Connection, uid: InstanceUid) -> fault::Result<InstanceView> {
    let live = sessions::live(connection)?;
    let mut view = view(connection, uid, WAITS_MAX, &live)?;
    if view.ended_at.is_some() {
        view.end = end(connection, &view)?;
        view.compensated = compensated(connection, &view)?;
    }
    let unread = events::unread(connection, uid)?.into_iter();
    // What hooks were resumed with has a type that nobody knows.
    let unread = unread.filter(|(kind, _, _)| kind.hook().is_none());
    view.unread = unread.map(|(kind, count, since)| UnreadView { kind, count, since }).collect();
    view.never_sent = events::never_sent(connection, uid)?;
    view.never_sent.retain(|kind| kind.hook().is_none());
    view.state = state(connection, uid)?;
    view.parent = letters::parent(connection, uid)?;
    (view.children, view.children_total) = letters::children(connection, uid)?;
    Ok(view)
}

/// An end is the last entry of its run.
fn end(connection: &Connection, view: &InstanceView) -> fault::Result<Option<End>> {
    let last = journal::one(connection, view.uid, view.run, view.position)?;
    Ok(match last {
        Some(Fact::Ended(end)) => Some(end),
        _ => None,
    })
}

/// How compensations ended is the entry before the end.
fn compensated(connection: &Connection, view: &InstanceView) -> fault::Result<Option<Compensated>> {
    if matches!(view.end, None | Some(End::Complete(_))) {
        return Ok(None);
    }
    let before = Position(view.position.0.saturating_sub(1));
    Ok(match journal::compensated(connection, view.uid, view.run, before)? {
        Some(Fact::Compensated(compensated)) => Some(compensated),
        _ => None,
    })
}

fn view(
    connection: &Connection,
    uid: InstanceUid,
    waits_max: u32,
    live: &[Session],
) -> fault::Result<InstanceView> {
    let (head, lease, control) = head(connection, uid)?;
    let key = uid.0.as_bytes();
    let leased = lease.is_some();
    let holder = lease.map(|lease| holder(connection, lease.session)).transpose()?.flatten();
    let mut statement = connection.prepare_cached(READY)?;
    let mut rows = statement.query(params![key, Subject::INSTANCE.0])?;
    let ready_at = rows.next()?.map(|row| column::time(row, 0)).transpose()?;
    let parked = parked(connection, uid)?;
    let waits = connection.prepare_cached(WAITS_COUNT)?.query_row([key], |row| row.get(0))?;
    let paused = control.paused_at.is_some();
    let waiting = waiting(connection, uid, waits_max)?;
    let sides = Sides {
        leased,
        ready: ready_at.is_some(),
        parked: parked.is_some(),
        // Questions come first.
        asks: waiting.first().is_some_and(|wait| wait.kind == WaitKind::Person),
        paused,
        steps_leased: paused && connection.prepare_cached(ANY_LEASE)?.exists([key])?,
    };
    Ok(InstanceView {
        uid,
        run: head.run,
        generation: head.generation,
        status: StatusWord::derive(head.status, sides),
        created_at: head.created_at,
        ended_at: head.ended_at,
        position: head.position,
        steps: head.steps,
        epoch: head.epoch,
        holder,
        ready_at,
        served: serves(live, &head),
        pin: head.pin.clone(),
        waiting,
        waits,
        events: head.events,
        unread: Vec::new(),
        never_sent: Vec::new(),
        control,
        parked,
        end: None,
        compensated: None,
        attributes: attributes(connection, uid)?,
        state: None,
        parent: None,
        children: Vec::new(),
        children_total: 0,
        namespace: head.namespace,
        workflow: head.workflow,
        id: head.id,
    })
}

fn attributes(connection: &Connection, uid: InstanceUid) -> fault::Result<Vec<Attribute>> {
    let mut statement = connection.prepare_cached(ATTRIBUTES)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    let mut attributes = Vec::new();
    while let Some(row) = rows.next()? {
        let value = AttributeValue::from_json(column::text(row, 1)?);
        let value =
            value.map_err(|error| fault::Fault::corrupt("reading an attribute", error.to_string()))?;
        attributes.push(Attribute { name: column::name(row, 0)?, value: Some(value) });
    }
    Ok(attributes)
}

fn state(connection: &Connection, uid: InstanceUid) -> fault::Result<Option<(Timestamp, Payload)>> {
    let mut statement = connection.prepare_cached(PUBLISHED)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    match rows.next()? {
        Some(row) => Ok(Some((column::time(row, 0)?, Payload::from_trusted(row.get(1)?)))),
        None => Ok(None),
    }
}

fn head(connection: &Connection, uid: InstanceUid) -> fault::Result<(Head, Option<Lease>, Control)> {
    let mut statement = connection.prepare_cached(load::HEAD)?;
    let mut rows = statement.query([uid.0.as_bytes(), &Subject::INSTANCE.0])?;
    let row =
        rows.next()?.ok_or_else(|| fault::Fault::corrupt("reading a head", "a name has no instance"))?;
    Ok((load::head(uid, row)?, load::held(row)?, load::control(row)?))
}

/// Who that is, as far as the session is known.
fn holder(
    connection: &Connection,
    session: SessionId,
) -> fault::Result<Option<(SessionId, BuildName, String)>> {
    let mut statement = connection.prepare_cached(SESSION)?;
    let mut rows = statement.query([session.0.as_bytes()])?;
    let open = rows.next()?.map(|row| sessions::open(row, 0)).transpose()?;
    Ok(open.map(|open| (session, open.build, open.host)))
}

fn parked(connection: &Connection, uid: InstanceUid) -> fault::Result<Option<(Timestamp, Parked)>> {
    let mut statement = connection.prepare_cached(PARKED)?;
    let mut rows = statement.query([uid.0.as_bytes()])?;
    rows.next()?.map(|row| Ok((column::time(row, 0)?, load::parked(row, 1, 3)?))).transpose()
}

fn waiting(connection: &Connection, uid: InstanceUid, limit: u32) -> fault::Result<Vec<WaitView>> {
    let mut statement = connection.prepare_cached(WAITS)?;
    let mut rows = statement.query(params![uid.0.as_bytes(), limit])?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        let WaitRow { call, kind, since, due_at, awaited, question } = load::wait(row)?;
        waiting.push(WaitView { call, kind, since, due_at, awaited, question });
    }
    Ok(waiting)
}

fn serves(live: &[Session], head: &Head) -> bool {
    live.iter().map(|session| &session.open).any(|open| {
        open.namespace == head.namespace
            && open.workflows.contains(&head.workflow)
            && head.pinned_to().is_none_or(|build| *build == open.build)
    })
}

fn page(connection: &Connection, filter: &Filter, cursor: Option<Cursor>, limit: u32) -> fault::Result<Page> {
    let limited = limit as usize + 1;
    let prefixed = match &filter.id_prefix {
        Some(prefix) => lists::begun(connection, filter, prefix, cursor, limited)?,
        None => None,
    };
    let mut uids = match prefixed {
        Some(uids) => uids,
        None => lists::listed(connection, filter, cursor, limited as u64)?,
    };
    let more = uids.len() > limit as usize;
    uids.truncate(limit as usize);
    let (next, looked_at) = (uids.last().filter(|_| more).copied().map(Cursor), uids.len());
    let live = sessions::live(connection)?;
    let mut rows = Vec::with_capacity(uids.len());
    for uid in uids {
        let mut view = InstanceView { holder: None, ..view(connection, uid, 1, &live)? };
        if filter.id_prefix.is_some() && !filter.fits(&view) {
            continue;
        }
        if filter.ends && view.ended_at.is_some() {
            view.end = end(connection, &view)?;
        }
        rows.push(view);
    }
    Ok(Page { rows, next, looked_at })
}

fn rejected(connection: &Connection, namespace: &Namespace, limit: u32) -> fault::Result<Vec<RejectedView>> {
    let mut statement = connection.prepare_cached(REJECTED)?;
    let mut found = statement.query(params![namespace.as_str(), limit])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(RejectedView {
            at: column::time(row, 0)?,
            code: row.get(1)?,
            reason: row.get(2)?,
            message_id: row.get(3)?,
            headers: row.get(4)?,
            body: String::from_utf8_lossy(column::bytes(row, 5)?).into_owned(),
            body_bytes: column::count(row, 6)?,
        });
    }
    Ok(rows)
}
