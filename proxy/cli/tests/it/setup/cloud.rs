//! Tests of `metaclaw setup` with a training service, and of the question at a start whether it may get texts.

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get, post},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use super::*;

const SERVICE_KEY: &str = "tml-0123456789wxyz";

/// A training service that knows one key; it ends when dropped.
struct Service {
    url: String,
    _tasks: JoinSet<std::io::Result<()>>,
}

impl Service {
    async fn new() -> Result<Self> {
        Self::with(Router::new()).await
    }

    /// A service whose samplers report no log-probabilities of a prompt's tokens.
    async fn without_scores() -> Result<Self> {
        let api = Router::new()
            .route("/client/config", answering(json!({})))
            .route(
                "/create_session",
                answering(json!({"session_id": "sess-1"})),
            )
            .route(
                "/create_sampling_session",
                answering(json!({"sampling_session_id": "sampler-1"})),
            )
            .route("/asample", answering(json!({"request_id": "req-1"})))
            .route(
                "/retrieve_future",
                answering(json!({"type": "sample", "sequences": [
                    {"tokens": [5], "logprobs": [-0.5], "stop_reason": "length"},
                ]})),
            );
        Self::with(api).await
    }

    /// A service that knows these calls as well.
    async fn with(api: Router) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let api = api.route("/get_server_capabilities", get(models));
        let routes = Router::new().nest("/api/v1", api);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, _tasks: tasks })
    }
}

fn answering(body: serde_json::Value) -> MethodRouter {
    post(move || {
        let body = body.clone();
        async move { Json(body) }
    })
}

async fn models(headers: HeaderMap) -> Response {
    if headers
        .get("x-api-key")
        .is_none_or(|key| key != SERVICE_KEY)
    {
        let error = json!({"detail": "Invalid API key"});
        return (StatusCode::UNAUTHORIZED, Json(error)).into_response();
    }
    let models = json!([
        {"model_name": "big/Answers-only", "trainable": false},
        {"model_name": "Qwen/Qwen3-4B", "max_context_length": 32_768},
        {"model_name": "Qwen/Qwen3-8B", "max_context_length": 65_536},
    ]);
    Json(json!({"supported_models": models})).into_response()
}

/// A home whose settings name the upstream and the service, with answers to everything before the questions about
/// training.
fn home(upstream: &Upstream, rl: &str) -> Result<TestHome> {
    TestHome::new(&format!(
        "mode: rl\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted, api_key: {KEY}}}\n{rl}",
        upstream.url
    ))
}

/// The questions before those about training.
const BEFORE: [(&str, &str); 9] = [
    ("What is to learn [rl]", ""),
    ("Who has the model", ""),
    ("Its address", ""),
    ("Enter keeps sk-…abcd", ""),
    ("Model [scripted]", ""),
    ("skills that fit", ""),
    ("Folder", ""),
    ("Write new skills", ""),
    ("Port to listen on [0]", ""),
];

/// Returns the output from the questions about training on, without addresses that differ from run to run.
async fn asked(
    home: &TestHome,
    arguments: &[&str],
    service: &str,
    answers: &[(&'static str, &'static str)],
) -> Result<String> {
    let answers: Vec<_> = BEFORE.iter().chain(answers).copied().collect();
    let seen = at_terminal(home, arguments, answers.leak()).await?;
    let training = seen.split_once("Weights are trained");
    let (_, seen) =
        training.with_context(|| format!("nothing was asked about training: {seen}"))?;
    assert!(!seen.contains(SERVICE_KEY), "{seen}");
    Ok(seen.replace(service.trim_start_matches("http://"), "SERVICE"))
}

fn file(home: &TestHome) -> Result<String> {
    Ok(std::fs::read_to_string(home.path().join("config.yaml"))?)
}

#[tokio::test]
async fn the_models_of_a_service_are_listed_to_choose_from() {
    let (upstream, service) = (
        Upstream::new().await.unwrap(),
        Service::new().await.unwrap(),
    );
    let home = home(
        &upstream,
        &format!(
            "rl: {{backend: tinker, tinker_base_url: '{}'}}\n",
            service.url
        ),
    )
    .unwrap();
    let seen = asked(
        &home,
        &["setup"],
        &service.url,
        &[
            ("Train by a service", ""),
            ("Which service [tinker]", ""),
            ("Its address", ""),
            ("Key of the service", "tml-wrong"),
            ("Keep it", ""),
            ("Its address", ""),
            ("Key of the service", SERVICE_KEY),
            ("by its number or name [Qwen/Qwen3-8B]", "Qwen/Qwen3-4b"),
            ("Keep it", ""),
            ("by its number or name", "1"),
            ("tokens trained", "1.5"),
            ("tokens read", "0.5"),
            ("tokens sampled", "2"),
        ],
    )
    .await
    .unwrap();
    insta::assert_snapshot!("models of a service", seen);
    let written = file(&home).unwrap();
    for line in [
        "model: Qwen/Qwen3-4B",
        "price_train: 1.5",
        SERVICE_KEY,
        &service.url,
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
}

#[tokio::test]
async fn a_key_of_the_environment_asks_and_is_not_written_down() {
    let (upstream, service) = (
        Upstream::new().await.unwrap(),
        Service::new().await.unwrap(),
    );
    let home = home(&upstream, "")
        .unwrap()
        .with_variable("TINKER_API_KEY", std::path::Path::new(SERVICE_KEY))
        .with_variable("TINKER_BASE_URL", std::path::Path::new(&service.url));
    let seen = asked(
        &home,
        &["setup"],
        &service.url,
        &[
            ("Train by a service", "yes"),
            ("Which service [tinker]", ""),
            ("Its address", ""),
            ("Enter takes …wxyz", ""),
            ("by its number or name [Qwen/Qwen3-8B]", ""),
            ("tokens trained", ""),
            ("tokens read", ""),
            ("tokens sampled", ""),
        ],
    )
    .await
    .unwrap();
    assert!(seen.contains("rl.model: Qwen/Qwen3-8B"), "{seen}");
    let written = file(&home).unwrap();
    assert!(written.contains("backend: tinker"), "{written}");
    assert!(
        !written.contains(SERVICE_KEY) && !written.contains(&service.url),
        "{written}"
    );
}

#[tokio::test]
async fn where_a_service_cannot_score_replies_a_method_that_works_is_proposed() {
    let upstream = Upstream::new().await.unwrap();
    let service = Service::without_scores().await.unwrap();
    let settings = format!(
        "rl: {{backend: mint, tinker_api_key: {SERVICE_KEY}, tinker_base_url: '{}'}}\n",
        service.url
    );
    for (answer, is_written) in [("", true), ("no", false)] {
        let home = home(&upstream, &settings).unwrap();
        let seen = asked(
            &home,
            &["setup"],
            &service.url,
            &[
                ("Train by a service", ""),
                ("Which service [mint]", ""),
                ("Its address", ""),
                ("Enter takes …wxyz", ""),
                ("by its number or name [Qwen/Qwen3-8B]", ""),
                ("Learn by method binary_rl", answer),
                ("tokens trained", ""),
                ("tokens read", ""),
                ("tokens sampled", ""),
            ],
        )
        .await
        .unwrap();
        let said = "MinT does not say how likely a model finds a given reply";
        assert!(seen.contains(said), "{seen}");
        let written = file(&home).unwrap();
        for line in ["method: binary_rl", "accept_without:"] {
            assert_eq!(written.contains(line), is_written, "{line}: {written}");
        }
        let shown = home.ask(&["config", "gate.accept_without"]).await.unwrap();
        assert_eq!(shown.contains("preference"), is_written, "{shown}");
    }
}

#[tokio::test]
async fn who_has_no_provider_is_answered_by_the_model_that_is_trained() {
    let service = Service::new().await.unwrap();
    let home = TestHome::bare().unwrap();
    let seen = at_terminal(
        &home,
        &["setup"],
        &[
            ("What is to learn", "auto"),
            ("Who has the model", "none"),
            ("skills that fit", ""),
            ("Folder", ""),
            ("Write new skills", ""),
            ("Port to listen on", "0"),
            ("Train by a service", "no"),
            ("Model to train", ""),
            // An upstream must answer.
            ("Who has the model", "ollama"),
            ("Its address", "http://127.0.0.1:1/v1"),
            ("Key", ""),
            ("Keep it", "yes"),
            ("Model", "m"),
        ],
    )
    .await
    .unwrap();
    assert!(seen.contains("somebody else has to answer"), "{seen}");

    let home = TestHome::bare().unwrap();
    let address: &'static str = service.url.clone().leak();
    let seen = at_terminal(
        &home,
        &["setup"],
        [
            ("What is to learn", "rl"),
            ("Who has the model", "none"),
            ("skills that fit", ""),
            ("Folder", ""),
            ("Write new skills", ""),
            ("Port to listen on", "0"),
            ("Train by a service", "yes"),
            ("Which service [tinker]", ""),
            ("Its address", address),
            ("Key of the service", SERVICE_KEY),
            ("by its number or name [Qwen/Qwen3-8B]", ""),
            ("tokens trained", ""),
            ("tokens read", ""),
            ("tokens sampled", ""),
        ]
        .to_vec()
        .leak(),
    )
    .await
    .unwrap();
    let written = file(&home).unwrap();
    assert!(!written.contains("llm:"), "{seen}\n{written}");
    assert!(written.contains("backend: tinker"), "{seen}\n{written}");
}

#[tokio::test]
async fn where_a_service_cannot_be_reached_the_model_is_typed() {
    let upstream = Upstream::new().await.unwrap();
    // Nothing listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let home = home(
        &upstream,
        &format!(
            "rl: {{backend: mint, tinker_api_key: {SERVICE_KEY}, tinker_base_url: '{gone}'}}\n"
        ),
    )
    .unwrap();
    let seen = asked(
        &home,
        &["setup"],
        &gone,
        &[
            ("Train by a service", ""),
            ("Which service [mint]", ""),
            ("Its address", ""),
            ("Enter takes …wxyz", ""),
            ("Keep it", "yes"),
            ("as the service names it [Qwen/Qwen3-8B]", "Qwen/Qwen3-32B"),
            ("tokens trained", ""),
            ("tokens read", ""),
            ("tokens sampled", ""),
        ],
    )
    .await
    .unwrap();
    insta::assert_snapshot!("a service that is away", seen);
    assert!(
        file(&home).unwrap().contains("Qwen/Qwen3-32B"),
        "{}",
        file(&home).unwrap()
    );
}

#[tokio::test]
async fn before_texts_are_sent_to_a_service_its_name_and_the_price_of_a_day_are_said() {
    let upstream = Upstream::new().await.unwrap();
    let home = home(&upstream, "rl: {backend: local}\n").unwrap();
    let text = file(&home)
        .unwrap()
        .replace("mode: rl", "mode: skills_only");
    let settings = home.path().join("config.yaml");
    std::fs::write(&settings, &text).unwrap();
    let proxy = home.start().await.unwrap();
    proxy.chat("s", &["Hello"]).await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    let service = "rl: {backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: k, tinker_base_url: 'https://tinker.example', price_train: 1, price_read: 1, price_sample: 1}";
    let text = text
        .replace("rl: {backend: local}", service)
        .replace("mode: skills_only", "mode: rl");
    std::fs::write(&settings, text).unwrap();
    let refused = home.refusal(&["start"]).await.unwrap();
    for said in [
        "Qwen/Qwen3-8B is trained by the training server at tinker.example (rl.backend)",
        "For your budget: by the chats of the last 7 days, an average day at the training server takes about",
        " USD), and the tests of each new adapter come on top. Nobody can be asked here: `metaclaw config privacy.cloud_training_ok true` allows it",
    ] {
        assert!(refused.contains(said), "{said}: {refused}");
    }
}
