//! Locks the heads of a batch and loads what it needs, in one round trip.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Object;
use everstep_engine::{
    batch::Loaded,
    rows::{Lease, Needs, Subject},
    start::{Decided, Existing, MessageKey, NameKey},
};
use everstep_protocol::{CallHash, Epoch, Fingerprint, InstanceUid, Position, SessionId, journal::Entry};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    audits, events,
    fault::Fault,
    hooks, letters,
    rows::{self, Clock, Tid, clean},
    statements as sql,
    trip::{Trip, params},
};
use crate::{answer, fact};

/// Where the locked heads lie.
pub(super) type Places = HashMap<InstanceUid, Tid>;

/// Begins a transaction and loads.
pub(super) async fn load(client: &Object, mut needs: Needs) -> Result<(Loaded, Places), Fault> {
    dedupe(&mut needs);
    let mut trip = Trip::new(client);
    trip.command("BEGIN");
    let heads = ids(&needs.heads);
    let about_instances = !heads.is_empty();
    if about_instances {
        trip.rows(sql::LOCK_HEADS, params![heads.clone()]).await?;
        trip.rows(sql::SIDES, params![heads, ids(&needs.runnable)]).await?;
    } else {
        trip.rows(sql::CLOCK, params![]).await?;
    }
    if !needs.waits.is_empty() {
        let (instances, calls): (Vec<Uuid>, Vec<&[u8]>) =
            needs.waits.iter().map(|(uid, call)| (uid.0, &call.0[..])).unzip();
        trip.rows(sql::CALLS, params![instances, calls]).await?;
    }
    if !needs.operations.is_empty() {
        let (instances, operations): (Vec<Uuid>, Vec<_>) =
            needs.operations.iter().map(|(uid, operation)| (uid.0, clean(operation))).unzip();
        trip.rows(sql::OPERATIONS, params![instances, operations]).await?;
    }
    if !needs.firsts.is_empty() {
        trip.rows(sql::FIRSTS, params![ids(&needs.firsts)]).await?;
    }
    if !needs.expiries.is_empty() {
        trip.rows(sql::EXPIRIES, params![ids(&needs.expiries)]).await?;
    }
    if !needs.tallies.is_empty() {
        trip.rows(audits::TALLIES, params![ids(&needs.tallies)]).await?;
    }
    if !needs.names.is_empty() {
        let columns = Names::of(&needs.names);
        trip.rows(sql::NAMES, params![columns.namespaces, columns.workflows, columns.ids]).await?;
    }
    if !needs.messages.is_empty() {
        let columns = Messages::of(&needs.messages);
        trip.rows(
            sql::MESSAGES,
            params![columns.namespaces, columns.workflows, columns.app_ids, columns.message_ids],
        )
        .await?;
    }
    let events = events::plan(&needs, &mut trip).await?;
    letters::plan(&needs, &mut trip).await?;
    hooks::plan(&needs, &mut trip).await?;
    let mut answers = trip.run().await?.into_iter().map(|answered| answered.rows).skip(1);
    let mut next = |wanted: bool| if wanted { answers.next().unwrap_or_default() } else { Vec::new() };

    let mut loaded = Loaded::default();
    let mut places = Places::new();
    for row in next(true) {
        let Clock(now) = row.try_get(0)?;
        loaded.now = loaded.now.max(now);
        if about_instances {
            let head = rows::head(&row)?;
            places.insert(head.uid, row.try_get(1)?);
            loaded.heads.insert(head.uid, head);
        }
    }
    for row in next(about_instances) {
        side(&row, &mut loaded)?;
    }
    for row in next(!needs.waits.is_empty()) {
        beside_call(&row, needs.waits[nth(&row)?], &mut loaded)?;
    }
    for row in next(!needs.operations.is_empty()) {
        let answer = kept(row.try_get(1)?)?;
        loaded.rows.operations.insert(needs.operations[nth(&row)?].clone(), answer);
    }
    for row in next(!needs.firsts.is_empty()) {
        begun(&row, &mut loaded)?;
    }
    for row in next(!needs.expiries.is_empty()) {
        loaded.rows.expiries.insert(rows::uid(&row, 0)?, rows::time(&row, 1)?);
    }
    for row in next(!needs.tallies.is_empty()) {
        let noted = |uid| loaded.heads.get(&uid).map(|head: &everstep_engine::Head| head.waits);
        let counted = audits::tally(&row, noted)?;
        loaded.rows.tallies.extend(counted);
    }
    for row in next(!needs.names.is_empty()) {
        loaded.names.insert(needs.names[nth(&row)?].clone(), existing(&row)?);
    }
    for row in next(!needs.messages.is_empty()) {
        let decided = Decided { id: rows::name(&row, 1)?, answer: kept(row.try_get(2)?)? };
        loaded.messages.insert(needs.messages[nth(&row)?].clone(), decided);
    }
    events.read(&needs, &mut next, &mut loaded)?;
    letters::read(&needs, &mut next, &mut loaded)?;
    hooks::read(&needs, &mut next, &mut loaded)?;
    if loaded.heads.len() < needs.heads.len() {
        look_up(client, &needs.heads, &mut loaded).await?;
    }
    Ok((loaded, places))
}

/// Heads that did not come back are locked elsewhere, or there are none (rule W19).
async fn look_up(client: &Object, heads: &[InstanceUid], loaded: &mut Loaded) -> Result<(), Fault> {
    let missing: Vec<Uuid> =
        heads.iter().filter(|uid| !loaded.heads.contains_key(uid)).map(|uid| uid.0).collect();
    let rows = super::rows_of(client, sql::ELSEWHERE, params![missing]).await?;
    for row in rows {
        if loaded.heads.is_empty() {
            let Clock(now) = row.try_get(0)?;
            loaded.now = loaded.now.max(now);
        }
        let found: Vec<Uuid> = row.try_get(1)?;
        loaded.elsewhere = found.into_iter().map(InstanceUid).collect();
    }
    Ok(())
}

fn side(row: &Row, loaded: &mut Loaded) -> Result<(), Fault> {
    let uid = rows::uid(row, 1)?;
    match row.try_get::<_, i16>(0)? {
        1 => {
            let lease =
                Lease { session: SessionId(row.try_get(2)?), epoch: Epoch(row.try_get::<_, i64>(3)? as u64) };
            loaded.rows.leases.insert((uid, Subject::INSTANCE), lease);
        }
        2 => {
            loaded.rows.ready.insert((uid, Subject::INSTANCE), rows::time(row, 3)?);
        }
        4 => {
            let control = rows::control(row.try_get(3)?, row, 6)?;
            loaded.rows.controls.insert(uid, control);
        }
        _ => {
            loaded.rows.parked.insert(uid, rows::parked(row, 4, 10)?);
        }
    }
    Ok(())
}

fn existing(row: &Row) -> Result<Existing, Fault> {
    let fingerprint: [u8; 32] = row.try_get::<_, &[u8]>(2)?.try_into().map_err(Fault::corrupt)?;
    Ok(Existing {
        uid: rows::uid(row, 1)?,
        fingerprint: Fingerprint::from_bytes(fingerprint),
        status: rows::status(row.try_get(3)?)?,
    })
}

/// The first entry of a run, or what somebody decided in it about a key.
fn begun(row: &Row, loaded: &mut Loaded) -> Result<(), Fault> {
    let uid = rows::uid(row, 0)?;
    let fact = fact::join(row.try_get(2)?, row.try_get(3)?)?;
    let position = Position(row.try_get::<_, i64>(5)? as u64);
    let entry = Entry { position, at: rows::time(row, 1)?, fact };
    if position > Position(1) {
        loaded.rows.keys.entry(uid).or_default().push(entry);
        return Ok(());
    }
    loaded.rows.firsts.insert(uid, entry);
    if row.try_get(4)? {
        loaded.rows.attributed.insert(uid);
    }
    Ok(())
}

fn beside_call(row: &Row, key: (InstanceUid, CallHash), loaded: &mut Loaded) -> Result<(), Fault> {
    let (uid, call) = key;
    let subject = Subject::step(call);
    if let Some(wait) = rows::wait(row)? {
        loaded.rows.waits.insert(key, wait);
    }
    if let Some(remote) = rows::remote(row)? {
        loaded.rows.remotes.insert(key, remote);
    }
    if let Some(session) = row.try_get::<_, Option<Uuid>>(12)? {
        let lease = Lease { session: SessionId(session), epoch: Epoch(row.try_get::<_, i64>(13)? as u64) };
        loaded.rows.leases.insert((uid, subject), lease);
    }
    if let Some(ready_at) = rows::time_if_any(row, 14)? {
        loaded.rows.ready.insert((uid, subject), ready_at);
    }
    Ok(())
}

/// The place of a row's key among those asked for.
fn nth(row: &Row) -> Result<usize, Fault> {
    Ok(row.try_get::<_, i64>(0)? as usize - 1)
}

fn kept(text: &str) -> Result<everstep_engine::Answer, Fault> {
    answer::decode(text).ok_or_else(|| Fault::corrupt(format!("unknown answer {text:?}")))
}

/// Each key once, in order. Waits and remote steps are looked up together, since an input names both or neither.
fn dedupe(needs: &mut Needs) {
    fn sorted<T: Ord>(keys: &mut Vec<T>) {
        keys.sort_unstable();
        keys.dedup();
    }
    sorted(&mut needs.heads);
    sorted(&mut needs.runnable);
    needs.waits.append(&mut needs.remotes);
    sorted(&mut needs.waits);
    sorted(&mut needs.operations);
    sorted(&mut needs.firsts);
    sorted(&mut needs.expiries);
    sorted(&mut needs.tallies);
    sorted(&mut needs.names);
    sorted(&mut needs.messages);
    sorted(&mut needs.event_ids);
    sorted(&mut needs.letters);
    sorted(&mut needs.parents);
    sorted(&mut needs.lasts);
    sorted(&mut needs.tokens);
    sorted(&mut needs.tokens_of);
    sorted(&mut needs.start_hooks);
    if needs.heads.is_empty() {
        return;
    }
    // Rows of heads that are not locked could change before they are used.
    let heads: HashSet<InstanceUid> = needs.heads.iter().copied().collect();
    needs.runnable.retain(|uid| heads.contains(uid));
}

pub(super) fn ids(uids: &[InstanceUid]) -> Vec<Uuid> {
    uids.iter().map(|uid| uid.0).collect()
}

struct Names<'a> {
    namespaces: Vec<&'a str>,
    workflows: Vec<&'a str>,
    ids: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn of(keys: &'a [NameKey]) -> Self {
        Self {
            namespaces: keys.iter().map(|key| key.namespace.as_ref()).collect(),
            workflows: keys.iter().map(|key| key.workflow.as_ref()).collect(),
            ids: keys.iter().map(|key| key.id.as_ref()).collect(),
        }
    }
}

struct Messages<'a> {
    namespaces: Vec<&'a str>,
    workflows: Vec<&'a str>,
    app_ids: Vec<std::borrow::Cow<'a, str>>,
    message_ids: Vec<std::borrow::Cow<'a, str>>,
}

impl<'a> Messages<'a> {
    fn of(keys: &'a [MessageKey]) -> Self {
        Self {
            namespaces: keys.iter().map(|key| key.namespace.as_ref()).collect(),
            workflows: keys.iter().map(|key| key.workflow.as_ref()).collect(),
            app_ids: keys.iter().map(|key| clean(&key.app_id)).collect(),
            message_ids: keys.iter().map(|key| clean(&key.message_id)).collect(),
        }
    }
}
