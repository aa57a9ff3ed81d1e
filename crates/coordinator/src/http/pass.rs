//! What goes on for long goes on for as long as whoever opened it may: a stream ends soon after its access token (rule A3).
//!
//! Only streams are looked after. Every other answer is made at once, and what was allowed when it was asked for was allowed.

use std::{io, time::Duration};

use axum::{
    body::{Body, BodyDataStream},
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use everstep_protocol::{AccessToken, Role, Scope};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::stream::interrupted;
use crate::Handle;

/// How often it is asked whether a stream may go on. The answer is itself a few seconds old at most.
const EVERY: Duration = Duration::from_secs(1);
/// For whoever reads the stream.
const OVER: &str = "the access token that opened the stream opens nothing any more";

/// What let a request in.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) handle: Handle,
    pub(super) token: AccessToken,
    pub(super) role: Role,
    pub(super) scope: Scope,
}

impl Pass {
    /// While the store is away nobody knows, and there is nothing to be told either.
    async fn holds(&self) -> bool {
        match self.handle.admit(&self.token).await {
            Ok(admitted) => admitted.is_ok_and(|caller| caller.allows(self.role, &self.scope)),
            Err(_) => true,
        }
    }
}

/// Ends a stream that goes on when its pass does not hold any more.
pub(super) fn while_it_holds(response: Response, pass: Pass) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let last: fn() -> io::Result<Bytes> = match kind {
        Some(b"text/event-stream") => || Ok(interrupted(OVER)),
        // Whoever reads lines knows by the missing last one that there would be more.
        Some(b"application/x-ndjson") => || Err(io::Error::new(io::ErrorKind::PermissionDenied, OVER)),
        _ => return response,
    };
    response.map(|body| lasting(body, pass, last))
}

struct Open {
    body: BodyDataStream,
    pass: Pass,
    ask_at: Instant,
}

fn lasting(body: Body, pass: Pass, last: fn() -> io::Result<Bytes>) -> Body {
    let open = Open { body: body.into_data_stream(), pass, ask_at: Instant::now() + EVERY };
    Body::from_stream(stream::unfold(Some(open), move |open| async move {
        let mut open = open?;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(open.ask_at) => {
                    if !open.pass.holds().await {
                        return Some((last(), None));
                    }
                    open.ask_at = Instant::now() + EVERY;
                }
                chunk = open.body.next() => {
                    return chunk.map(|chunk| (chunk.map_err(io::Error::other), Some(open)));
                }
            }
        }
    }))
}
