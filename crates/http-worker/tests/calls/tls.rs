//! TLS with a certificate authority of one's own.

use std::{path::PathBuf, sync::Arc};

use everstep_http::{
    Sent, name, post,
    worker::{Secrets, Settings},
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::rig::Rig;
use super::server::{Server, answer};

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/tls", name].iter().collect()
}

fn acceptor() -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(file("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()))
}

#[tokio::test]
async fn l03_a_certificate_counts_if_its_authority_is_named_and_its_host_is_right() {
    let server = Server::at("127.0.0.1:0", Some(acceptor()), |_, _| answer(200, &[], "safe")).await;
    let port = server.addr.port();
    let rig = Rig::new(&[]).allow(&format!("service.test:{port}")).allow(&format!("other.test:{port}"));
    let rig = Rig { names: rig.names.clone().with("other.test", &[&["127.0.0.1"]]), ..rig };
    let strange = rig.fails(post(format!("https://service.test:{port}/"))).await;
    assert_eq!(strange.kind(), (name::NOT_SENT, false, Sent::No), "{}", strange.message);
    assert!(strange.message.contains("certificate"), "{}", strange.message);
    let settings = Settings { ca_file: Some(file("ca.pem")), ..rig.settings.clone() };
    let rig = Rig { settings, ..rig };
    let trusted = rig.call(post(format!("https://service.test:{port}/"))).await.unwrap();
    assert_eq!(trusted.text().unwrap(), "safe");
    let other = rig.fails(post(format!("https://other.test:{port}/"))).await;
    assert_eq!(other.kind(), (name::NOT_SENT, false, Sent::No), "the certificate of another host");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_file_of_certificates_that_has_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for ca_file in [empty, dir.path().join("gone.pem")] {
        let settings = Settings { ca_file: Some(ca_file), ..Settings::default() };
        let error = everstep_http::worker::HttpCalls::new(&settings, Secrets::default()).unwrap_err();
        assert!(error.to_string().contains("calls.ca_file"), "{error}");
    }
}
