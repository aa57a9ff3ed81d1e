//! HTTPS (rule A9): what is shown, who is served, and that nobody who does not end a handshake holds up others.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use everstep_coordinator::http::{self, Demand};
use everstep_testbed::certificates::Authority;
use everstep_tls::{Identity, Roots, trusting};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

use crate::rig::Rig;

async fn ask(
    addr: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
    what: &str,
) -> std::io::Result<String> {
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
    let request =
        format!("{what} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn a09_the_api_is_served_by_https_alone() {
    let authority = Authority::new().unwrap();
    let signed = authority.sign(&["localhost"]).unwrap();
    let identity = Identity::load(&signed.certificate_file, &signed.key_file).unwrap();
    let rig = Rig::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let settings = http::Settings { access: Demand::UnlessLoopback, ..http::Settings::default() };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(http::serve_encrypted(
        settings,
        Arc::new(identity),
        listener,
        rig.handle.clone(),
        async { drop(stopped.await) },
    ));
    let trusts = |file: &std::path::Path| Arc::new(trusting(Roots::Only(file)).unwrap());
    let good = trusts(&authority.file());

    // Whoever connects and says nothing holds up nobody.
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(addr).await.unwrap());
    }
    let answer = ask(addr, &good, "localhost", "GET /v1/default/instances").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""instances":[]"#), "{answer}");
    // The address of whoever asks is known, as without TLS.
    let instances = "/v1/default/workflows/fulfil/instances";
    assert_eq!(rig.post(instances, r#"{"id":"o-1"}"#).await.status, 201);
    let answer = ask(addr, &good, "localhost", &format!("POST {instances}/o-1/terminate")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let record = &rig.get("/v1/default/audit").await.json()["actions"][0];
    assert_eq!((&record["operation"], &record["from"]), (&"terminate".into(), &"127.0.0.1".into()));

    // Nobody else is believed, under no other name, and nothing goes without.
    let other = Authority::new().unwrap();
    ask(addr, &trusts(&other.file()), "localhost", "GET /healthz").await.unwrap_err();
    ask(addr, &good, "example.com", "GET /healthz").await.unwrap_err();
    let mut plain = TcpStream::connect(addr).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut told = Vec::new();
    drop(plain.read_to_end(&mut told).await);
    assert!(!String::from_utf8_lossy(&told).contains("HTTP/1.1"), "{told:?}");

    drop(stop);
    tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it ends").unwrap().unwrap();
    let closes = async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closes).await.expect("nobody listens any more");
}
