//! What may not be reached, whatever the workflow, the callee or the name service says.

use everstep_http::{Sent, get, name, post};

use super::rig::{Names, Rig};
use super::server::{Server, answer};

#[tokio::test]
async fn l03_a_host_that_is_not_named_is_not_called() {
    let server = Server::start(|_, _| answer(200, &[], "")).await;
    let rig = Rig::new(&[]);
    for url in [server.url("/"), format!("http://127.0.0.1:{}/", server.addr.port())] {
        let failed = rig.fails(post(url)).await;
        assert_eq!(failed.kind(), (name::NOT_ALLOWED, true, Sent::No));
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn l03_an_address_that_is_not_allowed_is_not_connected_to() {
    let server = Server::at("127.0.0.2:0", None, |_, _| answer(200, &[], "")).await;
    let port = server.addr.port();
    let rig = Rig::new(&[port]).allow(&format!("http://127.0.0.2:{port}"));
    let by_address = rig.fails(post(format!("http://127.0.0.2:{port}/"))).await;
    assert_eq!(by_address.kind(), (name::NOT_ALLOWED, true, Sent::No));
    let rig = Rig { names: Names::default().with("service.test", &[&["127.0.0.2"]]), ..rig };
    let by_name = rig.fails(post(server.url("/"))).await;
    assert_eq!(by_name.kind(), (name::NOT_ALLOWED, true, Sent::No), "{}", by_name.message);
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn l03_a_name_that_changes_its_address_is_refused_where_it_leads_now() {
    let good = Server::start(|_, _| answer(200, &[], "good")).await;
    let port = good.addr.port();
    let inner = Server::at(&format!("127.0.0.2:{port}"), None, |_, _| answer(200, &[], "inner")).await;
    let names =
        Names::default().with("service.test", &[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.2", "127.0.0.1"]]);
    let rig = Rig { names, ..Rig::new(&[port]) };
    let calls = rig.calls();
    let step = super::rig::step(1);
    assert_eq!(calls.call(&step, get(good.url("/"))).await.unwrap().text().unwrap(), "good");
    assert_eq!(calls.call(&step, get(good.url("/"))).await.unwrap_err().name(), name::NOT_ALLOWED);
    let mixed = calls.call(&step, get(good.url("/"))).await.unwrap();
    assert_eq!(mixed.text().unwrap(), "good", "of several addresses only those that are allowed are tried");
    assert!(inner.seen().is_empty());
}

#[tokio::test]
async fn l03_a_redirect_leads_nowhere_that_may_not_be_called() {
    let inner = Server::at("127.0.0.2:0", None, |_, _| answer(200, &[], "inner")).await;
    let port = inner.addr.port();
    let server = Server::start(move |seen, _| {
        let to = match seen.path.as_str() {
            "/host" => format!("http://other.test:{port}/"),
            "/address" => format!("http://127.0.0.2:{port}/"),
            "/resolved" => format!("http://inner.test:{port}/"),
            "/scheme" => "file:///etc/passwd".to_owned(),
            "/user" => "http://user:pass@service.test/".to_owned(),
            _ => "http://[".to_owned(),
        };
        answer(307, &[("location", &to)], "")
    })
    .await;
    let rig = Rig::new(&[server.addr.port()])
        .allow(&format!("http://inner.test:{port}"))
        .allow(&format!("http://127.0.0.2:{port}"));
    let rig = Rig { names: rig.names.clone().with("inner.test", &[&["127.0.0.2"]]), ..rig };
    for path in ["/host", "/address", "/scheme", "/user", "/nowhere"] {
        let failed = rig.fails(post(server.url(path)).follow_redirects(5)).await;
        assert_eq!(failed.kind(), (name::REDIRECT, true, Sent::Answered), "{path}: {}", failed.message);
        assert!(
            !failed.message.contains("other.test"),
            "the callee's word is not repeated: {}",
            failed.message
        );
    }
    let failed = rig.fails(post(server.url("/resolved")).follow_redirects(5)).await;
    assert_eq!(failed.kind(), (name::BROKEN, false, Sent::Unknown), "the first host may have done its work");
    assert!(inner.seen().is_empty());
}

#[tokio::test]
async fn l03_secrets_do_not_follow_a_redirect_to_another_host() {
    let other = Server::start(|_, _| answer(200, &[], "")).await;
    let port = other.addr.port();
    let server = Server::start(move |seen, _| match seen.path.as_str() {
        "/here" => answer(307, &[("location", "/end")], ""),
        "/end" => answer(200, &[], ""),
        _ => answer(307, &[("location", &format!("http://other.test:{port}/"))], ""),
    })
    .await;
    let rig = Rig::new(&[server.addr.port()]).allow(&format!("http://other.test:{port}"));
    let rig = Rig {
        names: rig.names.clone().with("other.test", &[&["127.0.0.1"]]),
        secrets: rig.secrets.clone().with("A", "s3cret-value"),
        ..rig
    };
    let request = |path| {
        post(server.url(path))
            .header("x-token", "{secret:A}")
            .header("authorization", "Basic dTpw")
            .header("x-plain", "1")
            .follow_redirects(2)
    };
    rig.call(request("/here")).await.unwrap();
    rig.call(request("/there")).await.unwrap();
    let end = server.seen().into_iter().find(|seen| seen.path == "/end").unwrap();
    assert_eq!(
        (end.header("x-token"), end.header("authorization")),
        (Some("s3cret-value"), Some("Basic dTpw"))
    );
    let seen = &other.seen()[0];
    assert_eq!((seen.header("x-token"), seen.header("authorization")), (None, None));
    assert_eq!((seen.header("x-plain"), seen.header("idempotency-key")), (Some("1"), Some(super::rig::KEY)));
}
