//! The service: what it is asked to do it does once per idempotency key, or once per call. It counts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use tokio::net::TcpListener;

/// One in so many calls fails before it takes effect, and one in so many after it.
const FAILS: u32 = 50;

/// What can be known of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The service honours keys.
    Keyed,
    /// The service can be asked.
    Lookup,
    /// Neither.
    Once,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::Keyed, Self::Lookup, Self::Once];

    /// The class of a step, by turns.
    pub(crate) const fn of(number: u32) -> Self {
        Self::ALL[number as usize % Self::ALL.len()]
    }

    /// The name of the step, and a part of the service's path.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Lookup => "lookup",
            Self::Once => "once",
        }
    }
}

/// How often each effect came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    by_effect: HashMap<String, u32>,
    /// Keys that were honoured.
    keys: HashMap<String, String>,
}

impl Effects {
    /// How often this effect came.
    pub(crate) fn count(&self, effect: &str) -> u32 {
        self.counts().by_effect.get(effect).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until the runtime ends; answers with the URL.
    pub(crate) async fn serve(&self) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/{class}/{effect}", post(act).get(look)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

async fn act(
    State(effects): State<Effects>,
    Path((class, effect)): Path<(String, String)>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if rand::random_ratio(1, FAILS) {
        return (StatusCode::SERVICE_UNAVAILABLE, String::new());
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    {
        let mut counts = effects.counts();
        let is_known = class == Class::Keyed.word() && counts.keys.contains_key(key);
        if !is_known {
            *counts.by_effect.entry(effect.clone()).or_default() += 1;
            counts.keys.insert(key.to_owned(), effect.clone());
        }
    }
    if rand::random_ratio(1, FAILS) {
        return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
    }
    (StatusCode::OK, effect)
}

async fn look(
    State(effects): State<Effects>,
    Path((class, effect)): Path<(String, String)>,
) -> (StatusCode, String) {
    if class == Class::Lookup.word() && effects.count(&effect) > 0 {
        return (StatusCode::OK, effect);
    }
    (StatusCode::NOT_FOUND, String::new())
}
