//! Signals, and what the system allows a process.

use std::{
    iter,
    sync::{
        Arc, Mutex,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::join_all};
use metaclaw_test_kit::until_within;
use metaclaw_test_kit::{Reply, Server};
use metaclaw_tests::home::{Home, Proxy, signal};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

use super::home_before;

/// For everything that is over at once.
const SOON: Duration = Duration::from_secs(20);
const FIRST: &str =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Par\"}}]}\n\n";
const REST: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"is\"}}]}\n\ndata: [DONE]\n\n";

/// An upstream that begins each reply, and ends it when it may.
struct Slow {
    base_url: String,
    may_end: Sender<()>,
    _server: Server,
}

impl Slow {
    fn start() -> Self {
        let (may_end, permits) = channel();
        let permits = Arc::new(Mutex::new(permits));
        let server = Server::new(move |_| {
            let permits = Arc::clone(&permits);
            let rest = iter::once_with(move || {
                permits.lock().unwrap().recv().ok();
                REST
            });
            Reply::events(iter::once(FIRST).chain(rest))
        });
        Self {
            base_url: server.url(),
            may_end,
            _server: server,
        }
    }

    fn end(&self, n_replies: usize) {
        for _ in 0..n_replies {
            self.may_end.send(()).unwrap();
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
    until_within(SOON, text, async || home.log(), |it| it.contains(text)).await;
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn told_to_end_it_lets_replies_finish_and_says_how_many() {
    let upstream = Slow::start();
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    let proxy = home.start().await.unwrap();
    let (first, second) = tokio::join!(begun(&proxy, "Where?"), begun(&proxy, "And there?"));
    signal(proxy.pid(), Signal::TERM).unwrap();
    says(&home, "no new connections").await;
    assert!(home.log().contains("n_active=2"), "{}", home.log());
    let refused = proxy.client().get_text("/healthz").await;
    assert!(refused.is_err(), "it takes no more");
    upstream.end(2);
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
    let upstream = Slow::start();
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
    let upstream = Slow::start();
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
    upstream.end(STREAMS);
    for reply in replies {
        let rest: Vec<_> = reply.bytes_stream().collect().await;
        assert!(rest.iter().all(Result::is_ok));
    }
    proxy.stop().await.unwrap();
}
