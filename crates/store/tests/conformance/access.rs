//! Access tokens as they are kept: exactly, found by their ids, revoked once. Not: what they open; see the engine and the HTTP tests.

use std::sync::Arc;

use everstep_engine::access::{Asker, Denied, Grant, admit};
use everstep_protocol::{AccessHash, AccessTokenId, Millis, Role, Scope};
use everstep_store::{AccessRow, ErrorKind, NewAccess, Store};
use uuid::Uuid;

fn asker(who: &str) -> Asker {
    Asker { who: who.to_owned(), from: "127.0.0.1".to_owned() }
}

fn id(number: u128) -> AccessTokenId {
    AccessTokenId(Uuid::from_u128(number))
}

fn new(number: u128, scope: &str, lasts: Option<Millis>) -> NewAccess {
    NewAccess {
        id: id(number),
        name: "build robot 🤖".parse().unwrap(),
        hash: AccessHash([number as u8; 32]),
        grant: Grant { role: Role::Operator, scope: scope.parse().unwrap() },
        lasts,
    }
}

async fn made(store: &Arc<dyn Store>, new: &NewAccess) -> AccessRow {
    store.create_access_token(new, &asker("ann")).await.unwrap()
}

pub(crate) async fn a01_a_token_is_kept_exactly_and_given_once(store: Arc<dyn Store>) {
    let row = made(&store, &new(1, "a", Some(Millis(60_000)))).await;
    assert_eq!((row.id, row.name.as_str()), (id(1), "build robot 🤖"));
    assert_eq!(row.kept.hash, AccessHash([1; 32]));
    assert_eq!(row.kept.grant, Grant { role: Role::Operator, scope: "a".parse().unwrap() });
    assert_eq!(row.kept.expires_at, Some(row.created_at.plus(Millis(60_000))));
    assert_eq!((row.created_by.as_str(), row.kept.revoked_at, row.used_at), ("ann", None, None));
    let read = store.access_token(id(1)).await.unwrap();
    assert_eq!(read.what.as_ref(), Some(&row));
    assert!(read.now >= row.created_at);
    assert_eq!(store.access_token(id(2)).await.unwrap().what, None);
    let again = store.create_access_token(&new(1, "b", None), &asker("bob")).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict, "{again}");
    assert_eq!(store.access_token(id(1)).await.unwrap().what, Some(row));
    assert_eq!(made(&store, &new(3, "*", None)).await.kept.expires_at, None);
}

pub(crate) async fn a03_a_token_is_revoked_once_and_opens_nothing_then(store: Arc<dyn Store>) {
    made(&store, &new(1, "a", None)).await;
    made(&store, &new(2, "*", None)).await;
    let (a, b) = ("a".parse::<Scope>().unwrap(), "b".parse::<Scope>().unwrap());
    for (within, number) in [(&b, 1), (&a, 2), (&Scope::All, 3)] {
        let revoked = store.revoke_access_token(within, id(number), &asker("eve")).await.unwrap();
        assert_eq!(revoked, None, "{within} {number}");
    }
    let revoked = store.revoke_access_token(&a, id(1), &asker("ann")).await.unwrap().unwrap();
    assert_eq!(revoked.revoked_by.as_deref(), Some("ann"));
    let again = store.revoke_access_token(&Scope::All, id(1), &asker("bob")).await.unwrap().unwrap();
    assert_eq!(again, revoked, "the first one stays");
    let read = store.access_token(id(1)).await.unwrap();
    let kept = read.what.map(|row| row.kept);
    assert_eq!(admit(kept.as_ref(), &AccessHash([1; 32]), read.now), Err(Denied::Revoked));
    let other = store.access_token(id(2)).await.unwrap().what.unwrap();
    assert_eq!((other.kept.revoked_at, other.revoked_by), (None, None));
}

pub(crate) async fn a03_tokens_are_listed_newest_first_within_their_scope(store: Arc<dyn Store>) {
    for (number, scope) in [(1, "a"), (2, "b"), (3, "*"), (4, "a")] {
        made(&store, &new(number, scope, None)).await;
    }
    let list = async |within: &str, before: Option<u128>, limit| {
        let found = store.access_tokens(&within.parse().unwrap(), before.map(id), limit).await.unwrap();
        found.what.iter().map(|row| row.id.0.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(list("*", None, 9).await, [4, 3, 2, 1]);
    assert_eq!(list("*", Some(4), 2).await, [3, 2]);
    assert_eq!(list("a", None, 9).await, [4, 1], "what counts everywhere is not a's to see");
    assert_eq!(list("a", Some(4), 9).await, [1]);
    assert_eq!(list("c", None, 9).await, [0; 0]);
}

pub(crate) async fn a03_the_use_of_a_token_is_noted_and_young_ones_are_not_cleaned(store: Arc<dyn Store>) {
    made(&store, &new(1, "a", Some(Millis(0)))).await;
    store.revoke_access_token(&Scope::All, id(1), &asker("ann")).await.unwrap();
    store.used_access_token(id(1)).await.unwrap();
    store.used_access_token(id(2)).await.unwrap();
    store.clean(100).await.unwrap();
    let row = store.access_token(id(1)).await.unwrap().what.unwrap();
    assert!(row.used_at >= row.kept.revoked_at && row.used_at.is_some(), "{row:?}");
    assert_eq!(store.access_token(id(2)).await.unwrap().what, None);
}
