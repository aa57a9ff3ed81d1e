//! What stands before and behind the routes: that no foreign web page calls, and problems in place of plain errors. Who may call is in
//! `access`.
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

/// Refuses what a foreign web page has sent, where no access token is demanded: a page of another origin; and on loopback also what
/// calls this host by another name than a loopback one.
pub(super) fn no_foreign_page(uri: &Uri, headers: &HeaderMap, is_loopback: bool) -> Result<(), Refusal> {
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().unwrap_or_default(),
        None => uri.authority().map_or("", |authority| authority.as_str()),
    };
    if is_loopback && !names_loopback(host) {
        return Err(Refusal::NotFromHere(format!("the request is for host {host:?}")));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, host)| host);
    // A page that this very address has served, if any.
    let is_same = !is_loopback && !from.is_empty() && from.eq_ignore_ascii_case(host);
    if is_same || (is_loopback && names_loopback(from)) {
        Ok(())
    } else {
        Err(Refusal::NotFromHere(format!("the request comes from {origin:?}")))
    }
}

/// Whether `host`, with or without a port, names this host by itself.
fn names_loopback(host: &str) -> bool {
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

/// What serves the page of the document says nothing where it has nothing.
pub(super) async fn no_such_page(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    if response.status() == StatusCode::NOT_FOUND {
        return Refusal::NoSuchRoute(path).into_response();
    }
    response
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
            assert!(names_loopback(host), "{host}");
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
            assert!(!names_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_web_page_from_elsewhere_is_refused() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7070".parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            no_foreign_page(&Uri::from_static("/"), &headers, true).is_ok()
        };
        assert!(check("http://localhost:3000"));
        assert!(!check("https://evil.example"));
        assert!(!check("null"));
    }

    #[test]
    fn elsewhere_only_pages_of_the_same_origin_are_let_in() {
        let check = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            no_foreign_page(&Uri::from_static("/"), &headers, false).is_ok()
        };
        assert!(check("engine.example:7070", None));
        assert!(check("engine.example:7070", Some("http://engine.example:7070")));
        for origin in ["http://evil.example", "http://localhost", "null", ""] {
            assert!(!check("engine.example:7070", Some(origin)), "{origin}");
        }
    }
}
