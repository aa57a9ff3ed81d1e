//! A journal as a real coordinator gives it over HTTP, which is what the command prints, is one that the kit can read.

use everstep::{Error, Registry, Retry, Step, Workflow, embedded::Embedded};
use everstep_testkit::TestKit;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

fn registry() -> Registry {
    Registry::new()
        .workflow_fn("everything", |cx: Workflow, n: u64| async move {
            let once = async |step: Step, n: u64| {
                if step.attempt() == 1 { Err(Error::failed("once")) } else { Ok(n + 1) }
            };
            let n: u64 = cx.step("add", n, once).retry(Retry::constant("1ms")).await?;
            let refused = cx.step("refuse", (), async |_: Step, (): ()| Err::<(), _>(Error::permanent("no")));
            let refused = refused.await.expect_err("it always fails");
            cx.sleep("nap", "1ms").await?;
            let doubled: u64 = cx.remote("double", n).on("pool").await?;
            Ok::<_, Error>((doubled, refused.is_permanent(), None::<u32>))
        })
        .function("double", async |_: Step, n: u64| Ok::<_, Error>(2 * n))
}

async fn get(addr: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    body.to_owned()
}

/// Runs an instance to its end, and gives what `instances get --journal --output json` would print.
async fn saved(path: std::path::PathBuf) -> String {
    let pools = vec!["pool".parse().unwrap()];
    let system = Embedded::open(path).registry(registry()).worker(|settings| settings.pools = pools);
    let system = system.start().await.unwrap();
    let mut ended = system.ended().await.unwrap();
    system.start_instance("everything", Some("one"), &20).await.unwrap();
    assert_eq!(ended.next().await.output(), Some("[42,true,null]"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let served =
        everstep_coordinator::http::serve(listener, system.coordinator().clone(), std::future::pending());
    let served = tokio::spawn(served);
    let instance = get(addr, "/v1/default/workflows/everything/instances/one").await;
    let page = get(addr, "/v1/default/workflows/everything/instances/one/journal").await;
    served.abort();
    system.stop().await.unwrap();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    format!("{{\"instance\":{instance},\"journal\":{}}}", page["entries"])
}

#[test]
fn p43_a_journal_of_a_real_coordinator_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("everstep.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let text = runtime.block_on(saved(path));
    let kit = TestKit::new().registry(registry());
    let replayed = kit.run(async move |kit| kit.replay(&text)).unwrap();
    assert!(replayed.ended && replayed.drifted == 0, "{replayed:?}");
    assert!(replayed.entries >= 9, "{replayed:?}");
}
