//! What API and CLI show. Lists are read in two statements of one snapshot: which instances, then what they are.

mod by_id;
mod lists;
mod row;

use std::collections::HashMap;

use async_trait::async_trait;
use deadpool_postgres::Object;
use everstep_engine::{Status, hook::ReplyKey, start::NameKey};
use everstep_protocol::{Attribute, AttributeValue, InstanceUid, Namespace, Payload, Timestamp, Token, wire};
use tokio_postgres::Row;
use uuid::Uuid;

pub use self::lists::{attribute_list, ended_lists, ends_list, open_list, prefix_list};
use self::{lists::by_age, row::views};
use super::{
    PostgresStore, attention, events,
    fault::Fault,
    hooks, ledger, letters,
    rows::{self, clean, name, time, uid},
    rows_of, statements as sql,
    transaction::{Open, over},
    trip::params,
};
use crate::{
    AttentionCount, AttentionFilter, AttentionMark, AttentionView, Cursor, END_PAGE_BYTES, EndMark, EndPage,
    Ends, Error, Filter, HookView, InstanceView, LedgerCall, LedgerSearch, OPEN_COUNTED, OpenCount, Page,
    RejectedView, Replied, StatusWord, UnreadView, Views,
};

const HOOKS: &str = include_str!("sql/hooks_shown.sql");
const VIEW: &str = include_str!("sql/view.sql");
const ATTRIBUTES: &str = "SELECT instance, name, value FROM attribute WHERE instance = ANY($1::uuid[])
    ORDER BY instance, name";
const PUBLISHED: &str = "SELECT at, state FROM published WHERE instance = $1::uuid";
const CHILDREN: &str = include_str!("sql/children_shown.sql");
const EVENTS: &str = include_str!("sql/events_shown.sql");
const OPEN_COUNTS: &str = include_str!("sql/open_counts.sql");
const ENDS: &str = include_str!("sql/ends.sql");
/// The oldest transaction that may still write: what older ones have written is there, and what newer ones will write comes later.
const OLDEST: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
const FIND: &str = "SELECT instance FROM instance_name
    WHERE namespace = $1::text AND workflow = $2::text AND id = $3::text";
/// Indexes: `instance_name_pkey`, `instance_pkey`.
const STATUS: &str = "SELECT i.status FROM instance_name n JOIN instance i ON i.id = n.instance
    WHERE n.namespace = $1::text AND n.workflow = $2::text AND n.id = $3::text";
const REJECTED: &str =
    "SELECT at, code, reason, message_id, headers, substring(body FROM 1 FOR 65536), body_bytes
    FROM rejected WHERE namespace = $1::text ORDER BY at DESC LIMIT $2::bigint";
/// A list may take longer than what holds locks.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'";
/// Whole tables are read in their own order, and that may take longer still.
const BEGIN_COUNT: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = '60s'; \
    SET LOCAL enable_seqscan = on";
/// Waits shown of one instance.
const WAITS_MAX: i64 = 100;

#[async_trait]
impl Views for PostgresStore {
    async fn instance(&self, name: &NameKey) -> Result<Option<InstanceView>, Error> {
        const DOING: &str = "reading an instance";
        let client = self.client(DOING).await?;
        let views = async {
            let Some(uid) = find(&client, name).await? else {
                return Ok(Vec::new());
            };
            let mut views = views(&rows_of(&client, VIEW, params![vec![uid.0], WAITS_MAX, true]).await?)?;
            if let Some(view) = views.last_mut() {
                show_events(view, &rows_of(&client, EVENTS, params![uid.0]).await?)?;
                let published = rows_of(&client, PUBLISHED, params![uid.0]).await?;
                view.state = published.first().map(state).transpose()?;
                show_ties(view, &client).await?;
            }
            show_attributes(&client, &mut views).await?;
            Ok(views)
        };
        views.await.map(|mut views| views.pop()).map_err(|fault: Fault| fault.into_error(DOING))
    }

    async fn status(&self, name: &NameKey) -> Result<Option<Status>, Error> {
        let params = params![name.namespace.as_str(), name.workflow.as_str(), name.id.as_str()];
        let read = |row: &Row| rows::status(row.try_get(0)?);
        let found = self.read("reading an instance's status", STATUS, params, read).await?;
        Ok(found.first().copied())
    }

    async fn instances(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page, Error> {
        const DOING: &str = "listing instances";
        if filter.contradicts_itself() {
            return Ok(Page::default());
        }
        let client = self.client(DOING).await?;
        let client = Open::new(client);
        let page = page(client.client(), filter, cursor, limit).await;
        over(client, page).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn ends(&self, ends: &Ends, after: &EndMark, limit: u32) -> Result<EndPage, Error> {
        const DOING: &str = "reading ends";
        let client = Open::new(self.client(DOING).await?);
        let page = end_page(client.client(), ends, after, limit).await;
        over(client, page).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn ends_now(&self) -> Result<EndMark, Error> {
        let oldest = self.read("reading ends", OLDEST, params![], oldest).await?;
        Ok(oldest.first().copied().unwrap_or_default())
    }

    async fn hook(&self, namespace: &Namespace, token: &Token) -> Result<Option<HookView>, Error> {
        let params = params![namespace.as_str(), token.as_str(), 1_i64, token.as_str(), ""];
        Ok(self.read("looking a hook up", HOOKS, params, hooks::shown).await?.pop())
    }

    async fn reply(&self, to: &ReplyKey) -> Result<Replied, Error> {
        let id = to.event_id();
        let params = params![to.instance.0, clean(&id.app_id).into_owned(), clean(&id.id).into_owned()];
        let found = self.read("looking for the answer of a webhook", sql::REPLY, params, |row| {
            let packed = row.try_get::<_, Option<&[u8]>>(0)?;
            let response = packed.map(|packed| wire::decode("answer", packed).map_err(Fault::corrupt));
            Ok(Replied::of(response.transpose()?, Some(rows::status(row.try_get(1)?)?)))
        });
        Ok(found.await?.pop().unwrap_or(Replied::Over))
    }

    async fn hooks(
        &self,
        namespace: &Namespace,
        after: Option<&Token>,
        limit: u32,
    ) -> Result<Vec<HookView>, Error> {
        let after = after.map_or("", Token::as_str);
        let params = params![namespace.as_str(), after, i64::from(limit), crate::view::last_token(), after];
        self.read("listing hooks", HOOKS, params, hooks::shown).await
    }

    async fn attention(
        &self,
        filter: &AttentionFilter,
        after: Option<&AttentionMark>,
        limit: u32,
    ) -> Result<Vec<AttentionView>, Error> {
        attention::list(self, filter, after, limit).await
    }

    async fn attention_counts(&self) -> Result<Vec<AttentionCount>, Error> {
        attention::counts(self).await
    }

    async fn ledger(&self, search: &LedgerSearch, limit: u32) -> Result<Vec<LedgerCall>, Error> {
        const DOING: &str = "searching the ledger";
        let client = Open::new(self.client(DOING).await?);
        let found = match client.client().batch_execute(BEGIN).await {
            Ok(()) => ledger::search(client.client(), search, limit).await,
            Err(error) => Err(error.into()),
        };
        over(client, found).await.map_err(|fault| fault.into_error(DOING))
    }

    async fn open_counts(&self) -> Result<Vec<OpenCount>, Error> {
        const DOING: &str = "counting open instances";
        let client = Open::new(self.client(DOING).await?);
        let found = match client.client().batch_execute(BEGIN_COUNT).await {
            Ok(()) => rows_of(client.client(), OPEN_COUNTS, params![OPEN_COUNTED as i64]).await,
            Err(error) => Err(error.into()),
        };
        let counts = over(client, found).await.and_then(|rows| rows.iter().map(open_count).collect());
        let counts: Vec<OpenCount> = counts.map_err(|fault: Fault| fault.into_error(DOING))?;
        Ok(counts.into_iter().filter(|count| count.instances > 0).collect())
    }

    async fn rejected(&self, namespace: &Namespace, limit: u32) -> Result<Vec<RejectedView>, Error> {
        let params = params![namespace.as_str(), i64::from(limit)];
        self.read("reading rejected messages", REJECTED, params, |row| {
            Ok(RejectedView {
                at: time(row, 0)?,
                code: row.try_get(1)?,
                reason: row.try_get(2)?,
                message_id: row.try_get(3)?,
                headers: row.try_get(4)?,
                body: String::from_utf8_lossy(row.try_get(5)?).into_owned(),
                body_bytes: row.try_get::<_, i64>(6)? as u64,
            })
        })
        .await
    }
}

fn open_count(row: &Row) -> Result<OpenCount, Fault> {
    let (status, code, kind): (&str, Option<&str>, Option<i16>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    OpenCount::of(status, code, kind, row.try_get::<_, i64>(3)? as u64)
        .ok_or_else(|| Fault::corrupt(format!("unknown status or reason {status:?} {code:?} {kind:?}")))
}

pub(super) async fn find(client: &Object, name: &NameKey) -> Result<Option<InstanceUid>, Fault> {
    let params = params![name.namespace.as_str(), name.workflow.as_str(), name.id.as_str()];
    let rows = rows_of(client, FIND, params).await?;
    rows.first().map(|row| uid(row, 0)).transpose()
}

fn show_events(view: &mut InstanceView, rows: &[Row]) -> Result<(), Fault> {
    for row in rows {
        match events::shown(row)? {
            // What hooks were resumed with has a type that nobody knows.
            (kind, _) if kind.hook().is_some() => {}
            (kind, Some((count, since))) => view.unread.push(UnreadView { kind, count, since }),
            (kind, None) => view.never_sent.push(kind),
        }
    }
    Ok(())
}

async fn show_ties(view: &mut InstanceView, client: &Object) -> Result<(), Fault> {
    let children = rows_of(client, CHILDREN, params![view.uid.0]).await?;
    view.children = children.iter().map(letters::child).collect::<Result<_, _>>()?;
    if let Some(row) = children.first() {
        view.children_total = row.try_get::<_, i64>(6)? as u64;
    }
    let parents = rows_of(client, sql::PARENTS, params![vec![view.uid.0]]).await?;
    view.parent = parents.first().map(letters::parent).transpose()?;
    Ok(())
}

async fn page(client: &Object, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page, Fault> {
    let before = cursor.map_or(Uuid::max(), |cursor| cursor.0.0);
    client.batch_execute(BEGIN).await?;
    // One more than asked for shows whether there is a next page.
    let limited = limit as usize + 1;
    let prefixed = match &filter.id_prefix {
        Some(prefix) => by_id::newest(client, filter, prefix, before, limited).await?,
        None => None,
    };
    let mut found = match prefixed {
        Some(ids) => ids.into_iter().map(|id| (id, true)).collect(),
        None => by_age(client, filter, before, limited).await?,
    };
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let looked_at = found.len();
    let next = found.last().filter(|_| more).map(|(id, _)| Cursor(InstanceUid(*id)));
    let ids: Vec<Uuid> = found.into_iter().filter(|(_, fits)| *fits).map(|(id, _)| id).collect();
    let mut rows = views(&rows_of(client, VIEW, params![ids, 1_i64, filter.ends]).await?)?;
    for view in &mut rows {
        view.holder = None;
    }
    show_attributes(client, &mut rows).await?;
    if filter.id_prefix.is_some() {
        rows.retain(|view| filter.fits(view));
    }
    Ok(Page { rows, next, looked_at })
}

/// Before everything that the oldest transaction under way, or a newer one, writes.
fn oldest(row: &Row) -> Result<EndMark, Fault> {
    Ok(EndMark { commit: row.try_get::<_, i64>(0)? as u64, ..EndMark::default() })
}

/// So many transactions are looked through at first for ends; more and more where there are none, which is how it gets over what was deleted.
const WINDOW: i64 = 64;
/// So many views are read at first; more and more as long as they are small.
const VIEWS_FIRST: usize = 4;

async fn end_page(client: &Object, ends: &Ends, after: &EndMark, limit: u32) -> Result<EndPage, Fault> {
    // One snapshot for what is looked for and what is found.
    client.batch_execute(BEGIN).await?;
    let oldest =
        rows_of(client, OLDEST, params![]).await?.first().map(oldest).transpose()?.unwrap_or_default();
    let marks = end_marks(client, ends, (after, &oldest), limit).await?;
    let (mut rows, mut bytes, mut some) = (Vec::with_capacity(marks.len()), 0, VIEWS_FIRST);
    let mut read = 0;
    while read < marks.len() && bytes < END_PAGE_BYTES {
        let part = &marks[read..marks.len().min(read + some)];
        let ids: Vec<Uuid> = part.iter().map(|mark| mark.uid.0).collect();
        let mut views = views(&rows_of(client, VIEW, params![ids, 1_i64, true]).await?)?;
        show_attributes(client, &mut views).await?;
        bytes += views.iter().map(crate::view::end_bytes).sum::<usize>();
        let mut views: HashMap<InstanceUid, InstanceView> =
            views.into_iter().map(|view| (view.uid, view)).collect();
        rows.extend(part.iter().filter_map(|mark| Some((*mark, views.remove(&mark.uid)?))));
        read += part.len();
        some *= 2;
    }
    let more = read < marks.len() || marks.len() == limit as usize;
    let next = marks[..read].last().copied().filter(|_| more).unwrap_or(oldest.max(*after));
    Ok(EndPage { rows, next, more })
}

/// The places of the next ends. Their index says where those of some transactions are, and not in which order: so a few transactions are
/// looked through at a time, and a million ends that come later cost nothing.
async fn end_marks(
    client: &Object,
    ends: &Ends,
    (after, oldest): (&EndMark, &EndMark),
    limit: u32,
) -> Result<Vec<EndMark>, Fault> {
    let workflow = ends.workflow.as_ref().map_or("", |workflow| workflow.as_str());
    let status = ends.status.map_or(0, Status::code);
    let place = |row: &Row| {
        let commit = row.try_get::<_, i64>(1)? as u64;
        Ok::<_, Fault>(EndMark { uid: uid(row, 0)?, commit })
    };
    let (mut marks, mut from, mut window) = (Vec::new(), *after, WINDOW);
    while from.commit < oldest.commit && marks.len() < limit as usize {
        let until = (from.commit as i64).saturating_add(window).min(oldest.commit as i64);
        let left = i64::from(limit) - marks.len() as i64;
        let (namespace, commit) = (ends.namespace.as_str(), from.commit as i64);
        let params = params![namespace, commit, from.uid.0, until, workflow, status, left];
        for row in rows_of(client, ENDS, params).await? {
            marks.push(place(&row)?);
        }
        from = EndMark { commit: until as u64, ..EndMark::default() };
        window = window.saturating_mul(2);
    }
    Ok(marks)
}

/// Reads the attributes of what is shown.
async fn show_attributes(client: &Object, views: &mut [InstanceView]) -> Result<(), Fault> {
    let ids: Vec<Uuid> = views.iter().map(|view| view.uid.0).collect();
    let places: HashMap<Uuid, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
    for row in rows_of(client, ATTRIBUTES, params![ids]).await? {
        let value = AttributeValue::from_json(row.try_get(2)?).map_err(Fault::corrupt)?;
        let attribute = Attribute { name: name(&row, 1)?, value: Some(value) };
        if let Some(place) = places.get(&row.try_get::<_, Uuid>(0)?) {
            views[*place].attributes.push(attribute);
        }
    }
    Ok(())
}

fn state(row: &Row) -> Result<(Timestamp, Payload), Fault> {
    Ok((time(row, 0)?, Payload::from_trusted(row.try_get(1)?)))
}
