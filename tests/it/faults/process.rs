//! Signals, and what the system allows a process.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all};
use metaclaw_tests::{
    home::{Home, Proxy, signal},
    wait::until,
};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
};

use super::home_before;

/// For everything that is over at once.
const SOON: Duration = Duration::from_secs(20);
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const FIRST: &str =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
const REST: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is\"}}]}\n\ndata: [DONE]\n\n";

/// An upstream that begins each reply, and ends it when it may.
struct Slow {
    base_url: String,
    may_end: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

impl Slow {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let may_end = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        let permits = Arc::clone(&may_end);
        tasks.spawn(async move {
            let mut replies = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let permits = Arc::clone(&permits);
                replies.spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"}") {
                        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                    }
                    let begun = format!("{HEAD}{FIRST}");
                    stream.write_all(begun.as_bytes()).await.unwrap();
                    permits.acquire().await.unwrap().forget();
                    // The proxy may be gone by then.
                    drop(stream.write_all(REST.as_bytes()).await);
                });
            }
        });
        Self {
            base_url,
            may_end,
            _tasks: tasks,
        }
    }
}

/// A reply of which the first event has come.
async fn begun(proxy: &Proxy, question: &str) -> reqwest::Response {
    let body = json!({"stream": true, "messages": [{"role": "user", "content": question}]});
    let asked = proxy.client().post("/v1/chat/completions", &body);
    let mut reply = asked.send().await.unwrap();
    assert_eq!(reply.chunk().await.unwrap().unwrap(), FIRST);
    reply
}

async fn says(home: &Home, text: &str) {
    let said = until(SOON, async || home.log().contains(text)).await;
    said.unwrap_or_else(|_| panic!("it never said {text:?}: {}", home.log()));
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn told_to_end_it_lets_replies_finish_and_says_how_many() {
    let upstream = Slow::start().await;
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    let proxy = home.start().await.unwrap();
    let (first, second) = tokio::join!(begun(&proxy, "Where?"), begun(&proxy, "And there?"));
    signal(proxy.pid(), Signal::TERM).unwrap();
    says(&home, "no new connections").await;
    assert!(home.log().contains("n_active=2"), "{}", home.log());
    let refused = proxy.client().get_text("/healthz").await;
    assert!(refused.is_err(), "it takes no more");
    upstream.may_end.add_permits(2);
    for reply in [first, second] {
        assert_eq!(reply.text().await.unwrap(), REST);
    }
    assert!(proxy.ended().await.unwrap().success());
    let turns = home.ask(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns.as_array().unwrap().len(), 2, "both are in the log");
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn told_twice_it_ends_at_once() {
    let upstream = Slow::start().await;
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    let proxy = home.start().await.unwrap();
    let reply = begun(&proxy, "Where?").await;
    signal(proxy.pid(), Signal::TERM).unwrap();
    says(&home, "no new connections").await;
    signal(proxy.pid(), Signal::INT).unwrap();
    // The drain would take 30 s.
    let ended = tokio::time::timeout(SOON, proxy.ended()).await;
    assert_eq!(ended.expect("at once").unwrap().code(), Some(130));
    assert!(reply.text().await.is_err(), "a cut, not an end");
    assert!(home.log().contains("by a second signal"), "{}", home.log());
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn it_takes_as_many_files_as_the_system_allows() {
    const STREAMS: usize = 400;
    let upstream = Slow::start().await;
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    let own = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(256),
        ..own
    };
    let all = Rlimit {
        current: own.maximum,
        ..own
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let proxy = home.start().await;
    setrlimit(Resource::Nofile, all).unwrap();
    let proxy = proxy.unwrap();
    // Two connections each: 256 files are not enough.
    let replies = join_all((0..STREAMS).map(|_| begun(&proxy, "Where?"))).await;
    upstream.may_end.add_permits(STREAMS);
    for reply in replies {
        let rest: Vec<_> = reply.bytes_stream().collect().await;
        assert!(rest.iter().all(Result::is_ok));
    }
    proxy.stop().await.unwrap();
}
