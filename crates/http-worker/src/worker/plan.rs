//! A request, checked as far as that needs nobody else: what is wrong with it is found before anything is looked up or sent.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, Method, Uri, header};
use serde_json::Value;
use std::time::Duration;
use url::Url;

use super::{Secrets, Settings, secrets::Template, template};
use crate::{Content, KeyHeader, LookFirst, Request, request::When};

const DEFAULT_KEY_HEADER: &str = "idempotency-key";
const AGENT: &str = concat!("everstep-http/", env!("CARGO_PKG_VERSION"));
const ALWAYS_KEPT: [HeaderName; 3] = [header::CONTENT_TYPE, header::ETAG, header::LOCATION];

/// The longest URL that can be sent.
const URL_BYTES_MAX: usize = 65_534;

/// What belongs to the connection, and what the worker writes itself.
const RESERVED: [HeaderName; 10] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
];

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) call: Outgoing,
    pub(super) look: Option<Look>,
    pub(super) expect: Vec<u16>,
    pub(super) redirects: u8,
    pub(super) keep: Vec<HeaderName>,
    pub(super) discard_body: bool,
    pub(super) timeout: Duration,
}

/// One call as it goes out, but for the secrets.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, Template)>,
    pub(super) body: Bytes,
}

#[derive(Debug)]
pub(super) struct Look {
    pub(super) call: Outgoing,
    pub(super) when: Option<Condition>,
}

#[derive(Debug)]
pub(super) struct Condition {
    pub(super) pointer: String,
    pub(super) equals: Option<Value>,
}

/// Why a request is not made. It would be the same the next time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Invalid(String),
    NotAllowed(String),
}

/// Checks a request. `key` is the step's.
pub(super) fn read(
    request: Request,
    key: &str,
    settings: &Settings,
    secrets: &Secrets,
) -> Result<Plan, Refusal> {
    let method = method(&request.method)?;
    let json = json_of(request.body.as_ref());
    let mut url = url(&request.url, key, json.as_ref())?;
    if !request.query.is_empty() {
        url.query_pairs_mut().extend_pairs(&request.query);
    }
    let mut headers = headers(&request.headers)?;
    match key_header(&request, &method)? {
        Some(name) if headers.iter().any(|(known, _)| *known == name) => {
            return Err(invalid(format!(
                "the header {name} is the step's key and cannot be set to something else"
            )));
        }
        Some(name) => headers.push((name, Template::read(key).map_err(invalid)?)),
        None => {}
    }
    let (content_type, body) = match request.body {
        Some(content) => {
            let (content_type, body) = carried(content)?;
            (Some(content_type), body)
        }
        None => (None, Bytes::new()),
    };
    if let Some(content_type) = content_type {
        put_default(&mut headers, header::CONTENT_TYPE, content_type)?;
    }
    let call = outgoing(method, url, headers, body, settings, secrets)?;
    let look = match request.look_first {
        Some(look) => Some(look_of(look, key, json.as_ref(), settings, secrets)?),
        None => None,
    };
    if let Some(bad) = request.expect.iter().find(|status| !(200..=599).contains(*status)) {
        return Err(invalid(format!("the expected status {bad} is not between 200 and 599")));
    }
    let mut keep = ALWAYS_KEPT.to_vec();
    for name in &request.keep_headers {
        keep.push(header_name(name)?);
    }
    let timeout = request.timeout_ms.unwrap_or(settings.timeout).min(settings.timeout_max).to_std();
    let (expect, redirects, discard_body) = (request.expect, request.redirects, request.discard_body);
    Ok(Plan { call, look, expect, redirects, keep, discard_body, timeout })
}

/// Whether the settings let this URL be called; also asked for each redirect.
pub(super) fn check_host(url: &Url, settings: &Settings) -> Result<(), Refusal> {
    if !settings.hosts.iter().any(|host| host.allows(url)) {
        return Err(Refusal::NotAllowed(format!(
            "the worker's setting calls.hosts does not allow {}",
            origin(url)
        )));
    }
    // Names are checked where they are resolved, but an address is not resolved.
    let address = match url.host() {
        Some(url::Host::Ipv4(four)) => four.into(),
        Some(url::Host::Ipv6(six)) => six.into(),
        Some(url::Host::Domain(_)) | None => return Ok(()),
    };
    if super::networks::permits(&settings.networks, address) {
        return Ok(());
    }
    Err(Refusal::NotAllowed(format!(
        "the worker's setting calls.networks does not allow the address {address}"
    )))
}

/// Scheme, host and port: as much of a URL as messages say, since the rest may hold what is nobody's business.
pub(super) fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Whether this URL can be sent at all: never, if it cannot be now. The error does not show it.
pub(super) fn check_sendable(url: &Url) -> Result<(), String> {
    let bytes = url.as_str().len();
    if bytes > URL_BYTES_MAX {
        return Err(format!("the URL has {bytes} bytes, the most is {URL_BYTES_MAX}"));
    }
    url.as_str().parse::<Uri>().map(drop).map_err(|_| "the URL cannot be sent".to_owned())
}

fn invalid(reason: String) -> Refusal {
    Refusal::Invalid(reason)
}

fn method(text: &str) -> Result<Method, Refusal> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) | Err(_) => {
            Err(invalid(format!("the method {text:?} cannot be called")))
        }
        Ok(method) => Ok(method),
    }
}

fn url(text: &str, key: &str, json: Option<&Value>) -> Result<Url, Refusal> {
    let text = template::expand(text, key, json).map_err(invalid)?;
    let mut url = Url::parse(&text).map_err(|error| invalid(format!("the URL cannot be read: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("the URL begins with {}:, not with https: or http:", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "the URL has a user or password; put it into a header, by reference to a secret";
        return Err(invalid(reason.to_owned()));
    }
    url.set_fragment(None);
    Ok(url)
}

fn json_of(body: Option<&Content>) -> Option<Value> {
    match body {
        Some(Content::Json(json)) => serde_json::from_str(json.get()).ok(),
        Some(Content::Text(_) | Content::Base64(_)) | None => None,
    }
}

fn carried(content: Content) -> Result<(&'static str, Bytes), Refusal> {
    Ok(match content {
        Content::Json(json) => ("application/json", Bytes::from(json.get().to_owned())),
        Content::Text(text) => ("text/plain; charset=utf-8", Bytes::from(text)),
        Content::Base64(text) => {
            let bytes = STANDARD.decode(text);
            let bytes = bytes.map_err(|error| invalid(format!("the body is no base64: {error}")))?;
            ("application/octet-stream", Bytes::from(bytes))
        }
    })
}

fn headers(given: &[(String, String)]) -> Result<Vec<(HeaderName, Template)>, Refusal> {
    let read = |(name, value): &(String, String)| {
        let name = header_name(name)?;
        if RESERVED.contains(&name) {
            return Err(invalid(format!("the header {name} is the connection's and cannot be set")));
        }
        let value = Template::read(value).map_err(|reason| invalid(format!("the header {name} {reason}")))?;
        Ok((name, value))
    };
    given.iter().map(read).collect()
}

fn header_name(name: &str) -> Result<HeaderName, Refusal> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid(format!("{name:?} is no name of a header")))
}

fn key_header(request: &Request, method: &Method) -> Result<Option<HeaderName>, Refusal> {
    let changes_nothing = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match &request.key_header {
        KeyHeader::Default => Ok(Some(HeaderName::from_static(DEFAULT_KEY_HEADER))),
        KeyHeader::Named(name) => {
            let name = header_name(name)?;
            if RESERVED.contains(&name) {
                return Err(invalid(format!("the step's key cannot travel as {name}")));
            }
            Ok(Some(name))
        }
        KeyHeader::LeftOut if changes_nothing || template::has_key(&request.url) => Ok(None),
        KeyHeader::LeftOut => Err(invalid(format!(
            "a {method} goes with the step's key, in a header or as {{key}} in the URL: a retry could do its work twice"
        ))),
    }
}

fn put_default(
    headers: &mut Vec<(HeaderName, Template)>,
    name: HeaderName,
    value: &str,
) -> Result<(), Refusal> {
    if !headers.iter().any(|(known, _)| *known == name) {
        headers.push((name, Template::read(value).map_err(invalid)?));
    }
    Ok(())
}

fn outgoing(
    method: Method,
    url: Url,
    mut headers: Vec<(HeaderName, Template)>,
    body: Bytes,
    settings: &Settings,
    secrets: &Secrets,
) -> Result<Outgoing, Refusal> {
    check_sendable(&url).map_err(invalid)?;
    check_host(&url, settings)?;
    for name in headers.iter().flat_map(|(_, value)| value.names()) {
        if !secrets.may_go(name, &url) {
            let reason =
                format!("the worker's setting secrets.hosts does not let {name} go to {}", origin(&url));
            return Err(Refusal::NotAllowed(reason));
        }
    }
    put_default(&mut headers, header::USER_AGENT, AGENT)?;
    Ok(Outgoing { method, url, headers, body })
}

fn look_of(
    look: LookFirst,
    key: &str,
    json: Option<&Value>,
    settings: &Settings,
    secrets: &Secrets,
) -> Result<Look, Refusal> {
    let url = url(&look.url, key, json)?;
    let call = outgoing(Method::GET, url, headers(&look.headers)?, Bytes::new(), settings, secrets)?;
    let when = match look.when {
        Some(When { pointer, equals }) => {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                return Err(invalid(format!("{pointer:?} is no JSON pointer: it begins with /")));
            }
            let equals = equals.map(|value| serde_json::from_str(value.get())).transpose();
            let equals = equals.map_err(|error| invalid(format!("the value of the look: {error}")))?;
            Some(Condition { pointer, equals })
        }
        None => None,
    };
    Ok(Look { call, when })
}

impl Condition {
    /// Whether a JSON body is as said.
    pub(super) fn holds(&self, body: &Value) -> bool {
        match (body.pointer(&self.pointer), &self.equals) {
            (Some(found), Some(wanted)) => found == wanted,
            (Some(found), None) => !found.is_null(),
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{get, post, request as call};

    fn check(request: Request) -> Result<Plan, Refusal> {
        let hosts = vec!["a.example".parse().unwrap(), "http://127.0.0.1:80".parse().unwrap()];
        let settings = Settings { hosts, ..Settings::default() };
        let secrets = Secrets::default().only_to("B", ["b.example".parse().unwrap()]);
        read(request, "0123", &settings, &secrets)
    }

    #[test]
    fn l03_a_request_gets_the_key_by_itself() {
        let names = |request| {
            let plan = check(request).unwrap();
            plan.call.headers.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(post("https://a.example/")), "idempotency-key user-agent");
        assert_eq!(
            names(post("https://a.example/").key_header("X-Key").text("x")),
            "x-key content-type user-agent"
        );
        assert_eq!(names(get("https://a.example/").without_key()), "user-agent");
        assert_eq!(names(crate::put("https://a.example/{key}").without_key()), "user-agent");
        let plan = check(post("https://a.example/{key}/x#y").query("a b", "c&d")).unwrap();
        assert_eq!(plan.call.url.as_str(), "https://a.example/0123/x?a+b=c%26d");
    }

    #[test]
    fn l03_what_is_wrong_with_a_request_is_said() {
        let at = || post("https://a.example/");
        for (request, says) in [
            (call("CONNECT", "https://a.example/"), "method"),
            (call("G T", "https://a.example/"), "method"),
            (post("a.example"), "cannot be read"),
            (post("file:///etc/passwd"), "begins with file:"),
            (post("https://u:p@a.example/"), "user or password"),
            (post("https://a.example/{secret:A}"), "neither"),
            (at().without_key(), "goes with the step's key"),
            (at().header("Idempotency-Key", "mine"), "cannot be set to something else"),
            (at().header("Host", "b.example"), "the connection's"),
            (at().header("a b", "c"), "no name of a header"),
            (at().header("x", "a\r\nb: c"), "no header may have"),
            (at().key_header("content-length"), "cannot travel"),
            (at().expect([99]), "between 200 and 599"),
            (at().query("q", "x".repeat(65_534)), "the most is 65534"),
            (
                at().look_first(LookFirst::new(format!("https://a.example/{}", "x".repeat(65_534)))),
                "the most is 65534",
            ),
            (at().look_first(LookFirst::new("https://a.example/").when_present("id")), "no JSON pointer"),
            (at().look_first(LookFirst::new("https://a.example/{body:/id}")), "needs a JSON body"),
        ] {
            match check(request) {
                Err(Refusal::Invalid(reason)) => assert!(reason.contains(says), "{says}: {reason}"),
                other => panic!("{says}: {other:?}"),
            }
        }
    }

    #[test]
    fn l03_a_url_of_the_most_bytes_is_sent() {
        let fits = format!("https://a.example/{}", "x".repeat(65_534 - "https://a.example/".len()));
        assert_eq!(check(get(&fits)).unwrap().call.url.as_str().len(), 65_534);
        assert!(matches!(check(get(format!("{fits}x"))), Err(Refusal::Invalid(_))));
    }

    #[test]
    fn l03_nothing_is_allowed_that_the_settings_do_not_name() {
        let look = || LookFirst::new("https://b.example/");
        for request in [
            post("https://b.example/"),
            post("http://a.example/"),
            post("http://127.0.0.1/"),
            post("https://a.example/").look_first(look()),
            post("https://a.example/").header("x", "{secret:B}"),
        ] {
            assert!(matches!(check(request), Err(Refusal::NotAllowed(_))));
        }
        let nothing = read(get("https://a.example/"), "0", &Settings::default(), &Secrets::default());
        assert!(matches!(nothing, Err(Refusal::NotAllowed(_))));
    }
}
