//! Tests of `metaclaw setup` with a training service, and of the question at a start whether it may get texts.

use serde_json::json;

use super::*;
use crate::harness::{Reply, Server, gone};

const SERVICE_KEY: &str = "tml-0123456789wxyz";

/// A training service that knows one key. Its samplers, if it has any, report no log-probabilities of a prompt's tokens.
fn service(has_samplers: bool) -> Server {
    Server::new(move |request| {
        let is_known = request.header("x-api-key") == Some(SERVICE_KEY);
        Reply::json(match request.path().trim_start_matches("/api/v1/") {
            "get_server_capabilities" if !is_known => {
                return Reply::status(401, json!({"detail": "Invalid API key"}));
            }
            "get_server_capabilities" => json!({"supported_models": [
                {"model_name": "big/Answers-only", "trainable": false},
                {"model_name": "Qwen/Qwen3-4B", "max_context_length": 32_768},
                {"model_name": "Qwen/Qwen3-8B", "max_context_length": 65_536},
            ]}),
            _ if !has_samplers => return Reply::status(404, "{}"),
            "client/config" => json!({}),
            "create_session" => json!({"session_id": "sess-1"}),
            "create_sampling_session" => json!({"sampling_session_id": "sampler-1"}),
            "asample" => json!({"request_id": "req-1"}),
            "retrieve_future" => json!({"type": "sample", "sequences": [
                {"tokens": [5], "logprobs": [-0.5], "stop_reason": "length"},
            ]}),
            _ => return Reply::status(404, "{}"),
        })
    })
}

/// A home whose settings name the upstream and the service, with answers to everything before the questions about
/// training.
fn home(upstream: &Upstream, rl: &str) -> Home {
    Home::new(&format!(
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
    home: &Home,
    arguments: &[&str],
    service: &str,
    answers: &[(&'static str, &'static str)],
) -> String {
    let answers: Vec<_> = BEFORE.iter().chain(answers).copied().collect();
    let seen = at_terminal(home, arguments, answers.leak()).await;
    let training = seen.split_once("Weights are trained");
    let (_, seen) = training.unwrap_or_else(|| panic!("nothing was asked about training: {seen}"));
    assert!(!seen.contains(SERVICE_KEY), "{seen}");
    seen.replace(service.trim_start_matches("http://"), "SERVICE")
}

fn file(home: &Home) -> String {
    home.read("config.yaml")
}

#[tokio::test]
async fn the_models_of_a_service_are_listed_to_choose_from() {
    let (upstream, service) = (Upstream::new(), service(false));
    let home = home(
        &upstream,
        &format!(
            "rl: {{backend: tinker, tinker_base_url: '{}'}}\n",
            service.url()
        ),
    );
    let seen = asked(
        &home,
        &["setup"],
        &service.url(),
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
    .await;
    insta::assert_snapshot!("models of a service", seen);
    let written = file(&home);
    has(
        &written,
        [
            "model: Qwen/Qwen3-4B",
            "price_train: 1.5",
            SERVICE_KEY,
            &service.url(),
        ],
    );
}

#[tokio::test]
async fn a_key_of_the_environment_asks_and_is_not_written_down() {
    let (upstream, service) = (Upstream::new(), service(false));
    let home = home(&upstream, "")
        .with_variable("TINKER_API_KEY", SERVICE_KEY)
        .with_variable("TINKER_BASE_URL", service.url());
    let seen = asked(
        &home,
        &["setup"],
        &service.url(),
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
    .await;
    assert!(seen.contains("rl.model: Qwen/Qwen3-8B"), "{seen}");
    let written = file(&home);
    assert!(written.contains("backend: tinker"), "{written}");
    assert!(
        !written.contains(SERVICE_KEY) && !written.contains(&service.url()),
        "{written}"
    );
}

#[tokio::test]
async fn where_a_service_cannot_score_replies_a_method_that_works_is_proposed() {
    let upstream = Upstream::new();
    let service = service(true);
    let settings = format!(
        "rl: {{backend: mint, tinker_api_key: {SERVICE_KEY}, tinker_base_url: '{}'}}\n",
        service.url()
    );
    for (answer, is_written) in [("", true), ("no", false)] {
        let home = home(&upstream, &settings);
        let seen = asked(
            &home,
            &["setup"],
            &service.url(),
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
        .await;
        let said = "MinT does not say how likely a model finds a given reply";
        assert!(seen.contains(said), "{seen}");
        let written = file(&home);
        for line in ["method: binary_rl", "accept_without:"] {
            assert_eq!(written.contains(line), is_written, "{line}: {written}");
        }
        let shown = home.ask(&["config", "gate.accept_without"]).await;
        assert_eq!(shown.contains("preference"), is_written, "{shown}");
    }
}

#[tokio::test]
async fn who_has_no_provider_is_answered_by_the_model_that_is_trained() {
    let service = service(false);
    let home = Home::bare();
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
    .await;
    assert!(seen.contains("somebody else has to answer"), "{seen}");

    let home = Home::bare();
    let address: &'static str = service.url().leak();
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
    .await;
    let written = file(&home);
    assert!(!written.contains("llm:"), "{seen}\n{written}");
    assert!(written.contains("backend: tinker"), "{seen}\n{written}");
}

#[tokio::test]
async fn where_a_service_cannot_be_reached_the_model_is_typed() {
    let upstream = Upstream::new();
    // Nothing listens there any more.
    let gone = gone();
    let home = home(
        &upstream,
        &format!(
            "rl: {{backend: mint, tinker_api_key: {SERVICE_KEY}, tinker_base_url: '{gone}'}}\n"
        ),
    );
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
    .await;
    insta::assert_snapshot!("a service that is away", seen);
    assert!(file(&home).contains("Qwen/Qwen3-32B"), "{}", file(&home));
}

#[tokio::test]
async fn before_texts_are_sent_to_a_service_its_name_and_the_price_of_a_day_are_said() {
    let upstream = Upstream::new();
    let home = home(&upstream, "rl: {backend: local}\n");
    let text = file(&home).replace("mode: rl", "mode: skills_only");
    let settings = home.path().join("config.yaml");
    std::fs::write(&settings, &text).unwrap();
    let proxy = home.start().await;
    proxy.chat("s", &["Hello"]).await;
    home.ask(&["stop"]).await;
    let service = "rl: {backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: k, tinker_base_url: 'https://tinker.example', price_train: 1, price_read: 1, price_sample: 1}";
    let text = text
        .replace("rl: {backend: local}", service)
        .replace("mode: skills_only", "mode: rl");
    std::fs::write(&settings, text).unwrap();
    let refused = home.refusal(&["start"]).await;
    has(
        &refused,
        [
            "Qwen/Qwen3-8B is trained by the training server at tinker.example (rl.backend)",
            "For your budget: by the chats of the last 7 days, an average day at the training server takes about",
            " USD), and the tests of each new adapter come on top. Nobody can be asked here: `metaclaw config privacy.cloud_training_ok true` allows it",
        ],
    );
}
