//! Who may ask: access tokens where they are demanded, and elsewhere whoever is on this host.
//!
//! A token comes in the header `Authorization` and nowhere else: not in a query, which stands in logs, and not in a cookie, which a
//! browser sends for whichever page asks it to.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::RequestExt as _;
use axum::{
    extract::{ConnectInfo, MatchedPath, RawPathParams, Request, State, connect_info::Connected},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
    serve::IncomingStream,
};
use everstep_engine::access::Asker;
use everstep_protocol::{AccessToken, Namespace, Role, Scope};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::{
    guard,
    needs::{self, Need},
    pace::{Asking, Pace},
    pass::{Pass, while_it_holds},
    problem::Refusal,
    tls::TlsListener,
};
use crate::{Handle, access::Caller};

/// When requests need an access token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// Unless the API listens on loopback, where only this host can ask.
    #[default]
    UnlessLoopback,
    /// Always.
    Always,
    /// Never: whoever reaches the port may do everything.
    Never,
}

impl Demand {
    /// Whether an API that listens there demands tokens.
    #[must_use]
    pub fn holds_at(self, listen: SocketAddr) -> bool {
        match self {
            Self::UnlessLoopback => !listen.ip().to_canonical().is_loopback(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// What stands before the routes of one listener.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) handle: Handle,
    /// Requests need a token.
    pub(super) demands: bool,
    /// Only this host can ask, so that what names another one was sent by a web page that a browser was tricked with.
    pub(super) is_loopback: bool,
    /// How fast one caller may ask; none for as fast as they like.
    pub(super) pace: Option<Arc<Pace>>,
}

/// Lets a request pass if it may, and notes who asks.
pub(super) async fn admitted(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    match gate.check(&mut request).await {
        Ok((who, pass)) => {
            let from = peer(&request).map_or_else(|| "http".to_owned(), |address| address.to_string());
            request.extensions_mut().insert(Asker { who, from });
            let response = next.run(request).await;
            match pass {
                Some(pass) => while_it_holds(response, pass),
                None => response,
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(Peer(addr))| addr.ip())
}

impl Gate {
    /// Who asks, and what lets them in, where something has to.
    async fn check(&self, request: &mut Request) -> Result<(String, Option<Pass>), Refusal> {
        self.count(request)?;
        if !self.demands {
            guard::no_foreign_page(request.uri(), request.headers(), self.is_loopback)?;
        }
        let route = route(request).map(str::to_owned);
        let need = route.as_deref().map(|route| needs::of(request.method().as_str(), route));
        if need == Some(Need::Nothing) {
            return Ok((Caller::anonymous().who, None));
        }
        if !self.demands {
            // Whoever has a token all the same is known by it.
            let caller = self.caller(request.headers()).await;
            let caller = caller.map_or_else(|_| Caller::anonymous(), |(caller, _)| caller);
            return Ok((caller.who, None));
        }
        let (caller, token) = self.caller(request.headers()).await?;
        // Where nothing is, whoever has a token may know.
        let Some(Need::Role(role)) = need else { return Ok((caller.who, None)) };
        let scope = scope(request).await;
        if !caller.allows(role, &scope) {
            return Err(forbidden(&caller, role, &scope));
        }
        Ok((caller.who, Some(Pass { handle: self.handle.clone(), token, role, scope })))
    }

    /// Before anything else is looked at: what is too much is to cost nothing. A probe is asked by whoever keeps this alive.
    fn count(&self, request: &Request) -> Result<(), Refusal> {
        let Some(pace) =
            self.pace.as_ref().filter(|_| !matches!(route(request), Some("/healthz" | "/readyz")))
        else {
            return Ok(());
        };
        let token = presented(request.headers()).ok().and_then(|text| text.parse::<AccessToken>().ok());
        let token = token.filter(|token| self.handle.knows(token));
        let asking = token.map_or_else(|| Asking::at(peer(request)), |token| Asking::Token(token.id()));
        pace.count(asking).map_err(|wait| {
            self.handle.limited(asking.word());
            Refusal::TooFast { wait }
        })
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<(Caller, AccessToken), Refusal> {
        let token: AccessToken =
            presented(headers)?.parse().map_err(|error: everstep_protocol::AccessError| {
                Refusal::Unauthenticated { is_given: true, detail: error.to_string() }
            })?;
        match self.handle.admit(&token).await? {
            Ok(caller) => Ok((caller, token)),
            Err(denied) => Err(Refusal::Unauthenticated { is_given: true, detail: denied.to_string() }),
        }
    }
}

fn route(request: &Request) -> Option<&str> {
    request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)
}

/// The text of the token in the one header `Authorization: Bearer ...`.
fn presented(headers: &HeaderMap) -> Result<&str, Refusal> {
    let refused = |detail: &str| Refusal::Unauthenticated { is_given: true, detail: detail.to_owned() };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        let detail = "the request has no access token".to_owned();
        return Err(Refusal::Unauthenticated { is_given: false, detail });
    };
    if values.next().is_some() {
        return Err(refused("the header Authorization is given more than once"));
    }
    let text = value.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused("the header Authorization must be Bearer and an access token"));
    }
    Ok(token.trim_matches(' '))
}

/// Where a role must count for this request: in the namespace of its path. What names none, or no possible one, belongs to all.
async fn scope(request: &mut Request) -> Scope {
    let Ok(params) = request.extract_parts::<RawPathParams>().await else { return Scope::All };
    let namespace = params.iter().find(|(name, _)| *name == "namespace");
    namespace.and_then(|(_, value)| Namespace::new(value).ok()).map_or(Scope::All, Scope::Of)
}

fn forbidden(caller: &Caller, role: Role, scope: &Scope) -> Refusal {
    let has: Vec<_> =
        caller.grants.iter().map(|grant| format!("{} in {}", grant.role, grant.scope)).collect();
    let has = if has.is_empty() { "nothing".to_owned() } else { has.join(", ") };
    Refusal::Forbidden(format!("this needs the role {role} in {scope}, and {} has {has}", caller.who))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_needs_no_token_unless_it_is_said() {
        let loopback = ["127.0.0.1:7070", "127.9.0.1:1", "[::1]:7070", "[::ffff:127.0.0.1]:1"];
        let wider = ["0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "192.168.1.1:80"];
        for (addrs, unless_loopback) in [(loopback, false), (wider, true)] {
            for addr in addrs {
                let at = |demand: Demand| demand.holds_at(addr.parse().unwrap());
                let asked = (at(Demand::UnlessLoopback), at(Demand::Always), at(Demand::Never));
                assert_eq!(asked, (unless_loopback, true, false), "{addr}");
            }
        }
        assert_eq!(Demand::default(), Demand::UnlessLoopback);
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_in_one_header_of_one_scheme() {
        for good in ["Bearer x", "bearer x", "BEARER  x", "Bearer x "] {
            assert_eq!(presented(&headers(&[good])).unwrap(), "x", "{good}");
        }
        assert!(matches!(presented(&headers(&[])), Err(Refusal::Unauthenticated { is_given: false, .. })));
        for bad in
            [&["Basic x"][..], &["x"], &["Bearerx"], &["Bearer x", "Bearer x"], &["Bearer x", "Basic y"]]
        {
            let headers = headers(bad);
            let refused = presented(&headers);
            assert!(matches!(refused, Err(Refusal::Unauthenticated { is_given: true, .. })), "{bad:?}");
        }
        // No text of a token: refused where it is read.
        for empty in ["Bearer", "Bearer ", "bearer"] {
            assert_eq!(presented(&headers(&[empty])).unwrap(), "", "{empty}");
        }
    }
}
