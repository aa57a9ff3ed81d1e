//! What stands before and behind the routes: who may call at all, and problems in place of plain errors.
//!
//! Loopback is no protection against the user's own browser: a web page may post to `127.0.0.1` blindly, or make its own
//! domain point there (DNS rebinding). The first is told by `Origin` and the media type, the second by `Host`.

use axum::{
    extract::Request,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::problem::{PROBLEM_JSON, Refusal};

/// Lets a request pass if it calls this host by a loopback name and no foreign web page sent it.
pub(super) async fn only_from_here(request: Request, next: Next) -> Response {
    match check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().unwrap_or_default(),
        None => uri.authority().map_or("", |authority| authority.as_str()),
    };
    if !is_loopback(host) {
        return Err(Refusal::NotFromHere(format!("the request is for host {host:?}")));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, host)| host);
    if is_loopback(from) {
        Ok(())
    } else {
        Err(Refusal::NotFromHere(format!("the request comes from {origin:?}")))
    }
}

/// Whether `host`, with or without a port, names this host by itself.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    matches!(name.to_ascii_lowercase().as_str(), "localhost" | "127.0.0.1" | "[::1]")
}

/// The answer where nothing is.
pub(super) async fn no_such_route(uri: Uri) -> Refusal {
    Refusal::NoSuchRoute(uri.path().to_owned())
}

/// The answer where only other methods are; axum adds `Allow`.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    Refusal::WrongMethod(format!("{method} is not possible at {}", uri.path()))
}

/// The limit's own answer is plain text.
pub(super) async fn body_too_large(response: Response) -> Response {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE && !is_problem {
        return Refusal::BodyTooLarge.into_response();
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_this_host() {
        for host in ["localhost", "LOCALHOST:7070", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:7070"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:7070",
            "127.0.0.1.evil.example",
            "::1",
            "[::2]:1",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_web_page_from_elsewhere_is_refused() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7070".parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            check(&Uri::from_static("/"), &headers).is_ok()
        };
        assert!(check("http://localhost:3000"));
        assert!(!check("https://evil.example"));
        assert!(!check("null"));
    }
}
