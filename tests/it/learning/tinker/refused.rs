//! Tests with a server that refuses requests because of its key, its account, or its capacity.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, Ordering},
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use metaclaw_tests::{
    home::{Home, Proxy},
    upstream::{Play, Upstream},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use super::{agent, answers_again, home_of, known, says, server, talk_briefly, user};

/// The message to the owner about a server's status.
const REFUSALS: [(u16, &str); 4] = [
    (402, "the account has no credit"),
    (401, "the key is refused"),
    (429, "too many requests"),
    (503, "the server has no room for now"),
];
/// The largest body of a test.
const MOST_BYTES: usize = 64 << 20;

/// A proxy before a training server that answers in its place while it has to refuse.
struct Door {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Shared {
    behind: String,
    http: reqwest::Client,
    /// Refuses from the creation of a model on, if it is armed.
    is_armed: AtomicBool,
    /// With 0, it lets all through.
    refuses: AtomicU16,
}

// === impl Door ===

impl Door {
    async fn before(behind: &str) -> Self {
        // Another test of the same process may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            behind: behind.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            is_armed: AtomicBool::new(false),
            refuses: AtomicU16::new(0),
        });
        let app = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            shared,
            _server: tasks,
        }
    }

    /// Refuses every request with this status; 0 lets it through.
    fn refuse(&self, status: u16) {
        self.shared.refuses.store(status, Ordering::SeqCst);
    }

    /// Refuses with 402 from the next step on.
    fn arm(&self) {
        self.shared.is_armed.store(true, Ordering::SeqCst);
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MOST_BYTES).await.unwrap();
    let is_step = parts.uri.path().ends_with("/create_model");
    if is_step && shared.is_armed.swap(false, Ordering::SeqCst) {
        shared.refuses.store(402, Ordering::SeqCst);
    }
    let refused = shared.refuses.load(Ordering::SeqCst);
    if refused != 0 {
        let status = StatusCode::from_u16(refused).unwrap();
        return (status, Json(json!({"detail": "by the test"}))).into_response();
    }
    let url = format!("{}{}", shared.behind, parts.uri);
    let sent = shared
        .http
        .request(parts.method, url)
        .headers(without_length(parts.headers))
        .body(body)
        .send()
        .await;
    let Ok(answer) = sent else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, headers) = (answer.status(), without_length(answer.headers().clone()));
    let body = answer.bytes().await.unwrap();
    (status, headers, Body::from(body)).into_response()
}

/// The state of one connection.
fn without_length(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
    ] {
        headers.remove(name);
    }
    headers
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_server_that_refuses_is_named_its_turns_wait_and_somebody_else_answers() {
    let (trainer, _, _folder) = server().await;
    let door = Door::before(&trainer.url).await;
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
