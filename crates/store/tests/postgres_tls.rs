//! The way to PostgreSQL with TLS (rule A9), against a server of the test's own that takes nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::path::PathBuf;

use everstep_store::{
    Error, ErrorKind, Instances as _,
    postgres::{PostgresSettings, PostgresStore, PostgresTls, migrate, restored},
};
use everstep_testbed::{OwnPostgres, certificates::Authority};

fn settings(url: &str, tls: PostgresTls, ca_file: Option<PathBuf>) -> PostgresSettings {
    PostgresSettings { tls, ca_file, ..PostgresSettings::new(url) }
}

async fn refused(settings: PostgresSettings) -> Error {
    let error = PostgresStore::connect(settings.clone()).await.expect_err("it does not connect");
    let migrating = migrate(settings).await.expect_err("it does not connect");
    assert_eq!(error.kind(), migrating.kind(), "{error} {migrating}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a09_the_way_to_postgresql_is_encrypted_and_verified() {
    let authority = Authority::new().unwrap();
    let own = OwnPostgres::start_encrypted(&authority.sign(&["127.0.0.1"]).unwrap()).unwrap();
    let (url, trusted) = (own.url(), Some(authority.file()));

    // Each of the ways works with all that connects.
    let verified = settings(&url, PostgresTls::VerifyFull, trusted.clone());
    assert_eq!(migrate(verified.clone()).await.unwrap().len(), 1);
    let first = PostgresStore::connect(verified.clone()).await.unwrap();
    assert_eq!(first.incarnation().await.unwrap().0, 1);
    assert!(restored(verified).await.unwrap().incarnation.0 > 1);
    let encrypted = settings(&url, PostgresTls::Require, None);
    assert!(migrate(encrypted.clone()).await.unwrap().is_empty());
    let second = PostgresStore::connect(encrypted).await.unwrap();
    second.incarnation().await.unwrap();
    // The server says the same.
    let seen = "SELECT count(*) > 1 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'everstep'";
    assert_eq!(own.sql(seen).unwrap().trim(), "t");
    drop((first, second));

    // Without it the server takes nobody.
    let plain = refused(settings(&url, PostgresTls::Off, None)).await;
    assert_eq!(plain.kind(), ErrorKind::Unavailable, "{plain}");
    // Whoever is verified is signed by an authority that is trusted,
    let other = Authority::new().unwrap();
    let untrusted = refused(settings(&url, PostgresTls::VerifyFull, Some(other.file()))).await;
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");
    let by_system = refused(settings(&url, PostgresTls::VerifyFull, None)).await;
    assert!(by_system.to_string().contains("certificate"), "{by_system}");
    // and is who was called.
    let called = url.replace("127.0.0.1", "localhost");
    let misnamed = refused(settings(&called, PostgresTls::VerifyFull, trusted)).await;
    assert!(misnamed.to_string().contains("certificate"), "{misnamed}");
    PostgresStore::connect(settings(&called, PostgresTls::Require, None)).await.unwrap();
}

#[tokio::test]
async fn a09_what_is_to_be_encrypted_never_goes_without() {
    let authority = Authority::new().unwrap();
    let own = OwnPostgres::start().unwrap();
    // It speaks no TLS.
    for tls in [PostgresTls::Require, PostgresTls::VerifyFull] {
        let error = refused(settings(&own.url(), tls, Some(authority.file()))).await;
        assert!(error.to_string().contains("TLS"), "{error}");
    }
    let contradiction = format!("{}?sslmode=require", own.url());
    let error = refused(settings(&contradiction, PostgresTls::Off, None)).await;
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("postgres.tls is off"), "{error}");
    let error = refused(settings(&own.url(), PostgresTls::VerifyFull, Some("/nowhere.pem".into()))).await;
    assert!(error.to_string().contains("/nowhere.pem cannot be used"), "{error}");
    // What the URL says of it does not make less of it.
    let less = format!("{}?sslmode=disable", own.url());
    assert!(refused(settings(&less, PostgresTls::Require, None)).await.to_string().contains("TLS"));
    migrate(settings(&less, PostgresTls::Off, None)).await.unwrap();
}
