//! Tests with a server that refuses requests because of its key, its account, or its capacity.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
};

use metaclaw_test_kit::{Reply, Request, Server};
use metaclaw_tests::{
    home::{Home, Proxy},
    upstream::{Play, Upstream},
};
use serde_json::json;

use super::{agent, answers_again, home_of, known, says, server, talk_briefly, user};

/// The message to the owner about a server's status.
const REFUSALS: [(u16, &str); 4] = [
    (402, "the account has no credit"),
    (401, "the key is refused"),
    (429, "too many requests"),
    (503, "the server has no room for now"),
];
/// A proxy before a training server that answers in its place while it has to refuse.
struct Door {
    url: String,
    /// Refuses from the creation of a model on, if it is armed.
    is_armed: Arc<AtomicBool>,
    /// With 0, it lets all through.
    refuses: Arc<AtomicU16>,
    _server: Server,
}

// === impl Door ===

impl Door {
    fn before(behind: &str) -> Self {
        let address = behind.trim_start_matches("http://").to_owned();
        let (is_armed, refuses) = (Arc::<AtomicBool>::default(), Arc::<AtomicU16>::default());
        let (armed, status) = (Arc::clone(&is_armed), Arc::clone(&refuses));
        let server = Server::new(move |request| {
            let is_step = request.path().ends_with("/create_model");
            if is_step && armed.swap(false, Ordering::SeqCst) {
                status.store(402, Ordering::SeqCst);
            }
            match status.load(Ordering::SeqCst) {
                0 => pass(&address, request).map_or_else(|_| Reply::status(502, "{}"), Reply::raw),
                status => Reply::status(status, json!({"detail": "by the test"})),
            }
        });
        Self {
            url: server.url(),
            is_armed,
            refuses,
            _server: server,
        }
    }

    /// Refuses every request with this status; 0 lets it through.
    fn refuse(&self, status: u16) {
        self.refuses.store(status, Ordering::SeqCst);
    }

    /// Refuses with 402 from the next step on.
    fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }
}

/// Asks the server behind on a connection of its own; returns its answer as it came.
fn pass(address: &str, request: &Request) -> io::Result<Vec<u8>> {
    const OF_CONNECTION: [&str; 3] = ["connection", "content-length", "transfer-encoding"];
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "{} {} HTTP/1.1\r\n",
        request.method(),
        request.target()
    )?;
    for (name, value) in request.headers() {
        if !OF_CONNECTION.contains(&&*name.to_lowercase()) {
            write!(stream, "{name}: {value}\r\n")?;
        }
    }
    let length = request.body.len();
    write!(
        stream,
        "connection: close\r\ncontent-length: {length}\r\n\r\n"
    )?;
    stream.write_all(&request.body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_server_that_refuses_is_named_its_turns_wait_and_somebody_else_answers() {
    let (trainer, _, _folder) = server().await;
    let door = Door::before(&trainer.url);
    let upstream = Upstream::start(Play::Text("By llm."));
    let home = with_another(home_of(&door.url), &upstream);
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    door.arm();
    talk_briefly(&proxy, 1).await;
    let judged = |status: &serde_json::Value| status["funnel"]["judged"].as_u64().unwrap_or(0) >= 2;
    says(&home, "two turns are judged", judged).await;
    for (status, words) in REFUSALS {
        if status != 402 {
            door.refuse(status);
        }
        says(&home, words, |said| {
            let why = [&said["trainer"]["why"], &said["learner"]["phase"]["why"]];
            why.iter()
                .any(|it| it.as_str().is_some_and(|it| it.contains(words)))
        })
        .await;
        let shown = home.command(&["status"]).output().await.unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        eprintln!("{status}: {shown}");
        assert!(shown.contains(words), "{shown}");
        assert_another_answers(&proxy).await;
        assert!(agent(&home).await["last_step"].is_null(), "{status}");
    }
    door.refuse(0);
    // The owner has settled it with the provider, and does not wait.
    let steps = home.ask(&["train-step", "--json"]).await.unwrap();
    assert_eq!(steps.as_array().map(Vec::len), Some(1), "{steps}");
    let step = known(&home, "last_step").await;
    assert_eq!(step["n"], 1, "{step}");
    proxy.stop().await.unwrap();
    trainer.stop().await;
}

/// A home that also has another upstream.
fn with_another(home: Home, upstream: &Upstream) -> Home {
    let url = format!("{}/v1", upstream.base_url);
    home.with_env("METACLAW__LLM__API_BASE", url)
        .with_env("METACLAW__LLM__MODEL_ID", "m")
        .with_env("METACLAW__GATE__ENABLED", "false")
        .with_env("METACLAW__RL__MAX_STEPS", "1")
}

/// Sends a request, which the other upstream answers.
async fn assert_another_answers(proxy: &Proxy) {
    let asked = json!({"max_tokens": 8});
    let reply = proxy.client().stream(&user("What is tea?"), &asked).await;
    assert_eq!(reply.unwrap().text, "By llm.");
}
