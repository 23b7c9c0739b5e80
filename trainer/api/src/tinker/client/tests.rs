//! Tests of the client with a server in memory: what is sent, and the result of each failure.

mod network;
mod server;
mod skyrl;

use std::{sync::Arc, sync::Once, time::Duration};

use futures_util::StreamExt as _;
use metaclaw_trainer_terms::{AdapterName, SampleEvent, Sampler, SamplerFailure, SamplerRequest};
use serde_json::json;

use self::server::{Fault, Manner, Server};
use super::{Dialect, LocalText, TinkerBackend, TinkerConfig};
use crate::{
    ApiKey, BackendError, BackendFuture, CheckpointName, Datum, LossConfig, LossFn, RunId,
    TrainingBackend,
    wire::{
        CreateRequest, ForwardBackwardRequest, ForwardRequest, OptimStepRequest, SampleRequest,
        Sampled, TokenizeReply, TokenizeRequest,
    },
};

/// It has no functions for text.
#[derive(Debug)]
struct NoText;

impl LocalText for NoText {
    fn tokenize(&self, _: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Box::pin(async { Err(BackendError::NoEndpoint { call: "tokenize" }) })
    }

    fn decode(&self, ids: Vec<u32>) -> BackendFuture<'_, String> {
        Box::pin(async move { Ok(format!("{ids:?}")) })
    }

    fn sampled(&self, _: String) -> BackendFuture<'_, Option<Sampled>> {
        Box::pin(async { Ok(None) })
    }
}

fn config(server: &Server) -> TinkerConfig {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let provider = rustls::crypto::ring::default_provider();
        provider.install_default().unwrap();
    });
    let client = reqwest::Client::builder().tls_certs_only([]).build();
    TinkerConfig {
        client: client.unwrap(),
        url: server.url.clone(),
        key: ApiKey::new("tml-a-long-secret-7890"),
        project: None,
        base_model: "Qwen/Qwen3-8B".to_owned(),
        dialect: Dialect::Current,
        timeout: Duration::from_secs(20),
        patience: Duration::ZERO,
        heartbeat: Duration::from_secs(3_600),
        folder: None,
        keep: 5,
        text: Arc::new(NoText),
    }
}

async fn world(manner: Manner) -> (Server, TinkerBackend) {
    let server = Server::start(manner).await;
    let backend = TinkerBackend::new(config(&server));
    (server, backend)
}

const CLOUD: Manner = Manner {
    is_skyrl: false,
    is_blind: false,
};
const SKYRL: Manner = Manner {
    is_skyrl: true,
    ..CLOUD
};
const BLIND: Manner = Manner {
    is_blind: true,
    ..CLOUD
};

fn taught(mark: u32) -> Datum {
    Datum::cross_entropy(vec![mark, 2], vec![2, 3], vec![0.0, 1.0]).unwrap()
}

async fn open(backend: &TinkerBackend) -> RunId {
    let created = backend.create_run(CreateRequest::default()).await;
    created.unwrap().session_id
}

async fn pass(backend: &TinkerBackend, run: &RunId, marks: &[u32]) -> Result<f64, BackendError> {
    let request = ForwardBackwardRequest {
        session_id: run.clone(),
        datums: marks.iter().map(|mark| taught(*mark)).collect(),
        loss_fn: LossFn::CrossEntropy,
        loss_fn_config: LossConfig::new(),
    };
    Ok(backend.forward_backward(request).await?.loss)
}

async fn step(backend: &TinkerBackend, run: &RunId) -> Result<u64, BackendError> {
    let body = json!({"session_id": run, "learning_rate": 0.001});
    let request: OptimStepRequest = serde_json::from_value(body).unwrap();
    Ok(backend.optim_step(request).await?.step)
}

/// Makes a step on sequences with these marks.
async fn train(backend: &TinkerBackend, run: &RunId, marks: &[u32]) -> u64 {
    pass(backend, run, marks).await.unwrap();
    step(backend, run).await.unwrap()
}

/// The same, and its checkpoint.
async fn train_and_save(backend: &TinkerBackend, run: &RunId, mark: u32, name: &str) {
    train(backend, run, &[mark]).await;
    save(backend, run, name).await.unwrap();
}

async fn load(backend: &TinkerBackend, run: &RunId, name: &str) -> u64 {
    let loaded = backend.load_checkpoint(run.clone(), name.to_owned());
    loaded.await.unwrap()
}

fn adapter(name: &str) -> AdapterName {
    name.parse().unwrap()
}

/// A request for the log-probabilities of the last two ids of a prompt.
fn score(run: &RunId, adapter: bool, top_k: u32) -> ForwardRequest {
    let datum = Datum::cross_entropy(vec![4, 5, 6], vec![5, 6, 8], vec![0.0; 3]);
    ForwardRequest {
        session_id: run.clone(),
        datums: vec![datum.unwrap()],
        adapter,
        positions: Some(vec![vec![1, 2]]),
        top_k,
    }
}

fn checkpoint(name: &str) -> CheckpointName {
    name.parse().unwrap()
}

async fn save(backend: &TinkerBackend, run: &RunId, name: &str) -> Result<String, BackendError> {
    let manifest = json!({"agent": "main", "hash": name});
    let saved = backend.save_checkpoint(run.clone(), checkpoint(name), manifest);
    Ok(saved.await?.path)
}

#[tokio::test]
async fn a_step_is_made_saved_and_gone_on_from() {
    for manner in [CLOUD, SKYRL] {
        let (server, backend) = world(manner).await;
        assert_eq!(backend.health().await.unwrap().model, "Qwen/Qwen3-8B");
        let run = open(&backend).await;
        let loss = pass(&backend, &run, &[11, 12]).await.unwrap();
        // There are two sequences, each with weight 1 on an id whose log-probability is -0.3.
        let expected = if manner == SKYRL { 0.6 } else { 5.0 };
        assert!((loss - expected).abs() < 1e-6, "{loss}");
        assert_eq!(step(&backend, &run).await.unwrap(), 1);
        save(&backend, &run, "main-1@a-000001").await.unwrap();
        let adapter = backend.save_adapter(run.clone(), adapter("main-1@a-000001"));
        let adapter = adapter.await.unwrap();
        assert_eq!(adapter.step, 1);
        // If sampling would replace what is trained, adapters are saved like checkpoints.
        let is_skyrl = manner == SKYRL;
        let kind = if is_skyrl {
            "weights"
        } else {
            "sampler_weights"
        };
        let end = format!("/{kind}/main-1_40a-000001");
        assert!(adapter.adapter_path.ends_with(&end), "{adapter:?}");

        let listed = backend.checkpoints().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name.as_str(), "main-1@a-000001");
        assert_eq!(listed[0].step, 1);
        assert_eq!(listed[0].manifest["agent"], "main");

        assert_eq!(load(&backend, &run, "main-1@a-000001").await, 1);
        assert_eq!(train(&backend, &run, &[13]).await, 2);
        save(&backend, &run, "main-1@a-000002").await.unwrap();
        let mut checkpoints = server.saved("/weights/");
        checkpoints.retain(|(path, _)| path.contains("_m"));
        let held: Vec<_> = checkpoints.into_iter().map(|(_, marks)| marks).collect();
        assert_eq!(held, [vec![11, 12], vec![11, 12, 13]], "{manner:?}");
    }
}

#[tokio::test]
async fn a_request_whose_answer_is_lost_is_carried_out_once() {
    for call in ["forward_backward", "optim_step", "save_weights"] {
        let (server, backend) = world(CLOUD).await;
        server.fail(call, &[Fault::After, Fault::Before, Fault::After]);
        let run = open(&backend).await;
        train_and_save(&backend, &run, 11, "a-1-1").await;
        let held = server.saved("/weights/");
        assert_eq!((held.len(), &held[0].1[..]), (1, &[11][..]), "{call}");
        assert_eq!(server.n_asked(call), 4, "{call}");
    }
}

#[tokio::test]
async fn where_numbers_are_not_looked_at_nothing_is_sent_twice() {
    let (server, backend) = world(SKYRL).await;
    let run = open(&backend).await;
    pass(&backend, &run, &[11]).await.unwrap();
    let before = server.n_asked("optim_step");
    server.fail("optim_step", &[Fault::After]);
    let error = step(&backend, &run).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
    assert_eq!(server.n_asked("optim_step"), before + 1);
    // The model's content is uncertain, so nothing more is done with it.
    let error = save(&backend, &run, "a-1-1").await.unwrap_err();
    assert!(error.is_unknown_run(), "{error}");
    assert_eq!(server.saved("/weights/").len(), 0);
}

#[tokio::test]
async fn a_server_that_was_restarted_knows_no_run_and_the_checkpoint_is_loaded_again() {
    let (server, backend) = world(CLOUD).await;
    let run = open(&backend).await;
    train_and_save(&backend, &run, 11, "a-1-1").await;
    server.restart();
    let error = pass(&backend, &run, &[12]).await.unwrap_err();
    assert!(error.is_unknown_run(), "{error}");
    let run = open(&backend).await;
    assert_eq!(load(&backend, &run, "a-1-1").await, 1);
    train_and_save(&backend, &run, 12, "a-1-2").await;
    assert_eq!(server.saved("/weights/").pop().unwrap().1, [11, 12]);
    // Samplers are created again as well.
    let asked = SampleRequest::one_token("base".to_owned());
    let drawn = backend.sample(asked).await;
    assert_eq!(drawn.unwrap().sequences[0].tokens, [7]);
}

#[tokio::test]
async fn what_is_refused_is_said_in_words_and_its_number_is_free() {
    let refusals = [
        (401, "the key is refused"),
        (402, "no credit"),
        (403, "may not do this"),
        (429, "too many requests"),
        (503, "no room for now"),
    ];
    for (status, words) in refusals {
        let (server, backend) = world(CLOUD).await;
        let run = open(&backend).await;
        pass(&backend, &run, &[11]).await.unwrap();
        let refused = Fault::Answers(status, r#"{"detail":"as it says"}"#);
        server.fail("optim_step", &[refused]);
        let error = step(&backend, &run).await.unwrap_err();
        assert_eq!(error.status(), Some(status));
        let said = error.to_string();
        let has_both = said.contains(words) && said.contains("as it says");
        assert!(has_both, "{said}");
        // The fake server asserts that no number is left out.
        assert_eq!(step(&backend, &run).await.unwrap(), 1);
        save(&backend, &run, "a-1-1").await.unwrap();
        assert_eq!(server.saved("/weights/")[0].1, [11]);
    }
}

#[tokio::test]
async fn a_server_that_is_busy_for_a_moment_is_asked_again() {
    let server = Server::start(CLOUD).await;
    let backend = TinkerBackend::new(TinkerConfig {
        patience: Duration::from_secs(20),
        ..config(&server)
    });
    let run = open(&backend).await;
    let busy = Fault::Answers(429, "{}");
    server.fail("forward_backward", &[busy, Fault::Answers(503, "")]);
    train_and_save(&backend, &run, 11, "a-1-1").await;
    assert_eq!(server.saved("/weights/")[0].1, [11]);
}

#[tokio::test]
async fn a_result_is_waited_for_and_one_that_is_lost_is_ambiguous() {
    let (server, backend) = world(CLOUD).await;
    let run = open(&backend).await;
    pass(&backend, &run, &[11]).await.unwrap();
    let again = r#"{"type":"try_again","request_id":"r","queue_state":"paused_capacity"}"#;
    let later = [(408, again), (200, again), (500, "{}")];
    server.fail(
        "retrieve_future",
        &later.map(|(status, body)| Fault::Answers(status, body)),
    );
    server.fail("retrieve_future", &[Fault::Before]);
    step(&backend, &run).await.unwrap();
    let expired = Fault::Answers(410, r#"{"detail":"expired"}"#);
    server.fail("retrieve_future", &[expired]);
    let error = pass(&backend, &run, &[12]).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
    let text = error.to_string();
    assert!(text.contains("has lost what it was asked for"), "{text}");
    let again = pass(&backend, &run, &[12]).await.unwrap_err();
    assert!(again.is_unknown_run());
}

#[tokio::test]
async fn an_operation_that_failed_is_of_whose_fault_it_is() {
    for (category, status) in [("user", 400), ("server", 500), ("unknown", 500)] {
        let (server, backend) = world(CLOUD).await;
        let run = open(&backend).await;
        pass(&backend, &run, &[10]).await.unwrap();
        let fails = Fault::Fails(category, "data[1].model_input: too long");
        server.fail("forward_backward", &[fails]);
        let error = pass(&backend, &run, &[11, 12]).await.unwrap_err();
        assert_eq!(error.status(), Some(status), "{category}");
        let datum = (category == "user").then_some(1);
        assert_eq!(error.datum(), datum, "{error}");
        // Its number is used up, and the next one follows.
        step(&backend, &run).await.unwrap();
    }
}

#[tokio::test]
async fn long_passes_go_in_chunks_in_order() {
    let (server, backend) = world(CLOUD).await;
    server.flags(json!({"fwdbwd_max_chunk_len": 2, "proto_compress_fwdbwd": false}));
    let run = open(&backend).await;
    let loss = pass(&backend, &run, &[1, 2, 3, 4, 5]).await.unwrap();
    assert!((loss - 15.0).abs() < 1e-9, "three chunks of 5 each: {loss}");
    assert_eq!(server.n_asked("forward_backward"), 3);
    step(&backend, &run).await.unwrap();
    save(&backend, &run, "a-1-1").await.unwrap();
    assert_eq!(server.saved("/weights/")[0].1, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn the_base_model_scores_without_a_model_of_its_own() {
    let (server, backend) = world(CLOUD).await;
    let run = open(&backend).await;
    let by_base = backend.forward(score(&run, false, 2)).await.unwrap();
    assert_eq!(by_base.logprobs, [[-0.6, -0.8]]);
    assert_eq!(by_base.topk_ids, [[[0, 1], [0, 1]]]);
    assert_eq!(server.n_asked("create_model"), 0);
    let own = backend.forward(score(&run, true, 0)).await.unwrap();
    assert_eq!(own.logprobs, [[-0.6, -0.8]]);
    assert!(own.topk_ids.is_empty());
    assert_eq!(server.n_asked("create_model"), 1);
    let likely = backend.forward(score(&run, true, 2)).await.unwrap();
    assert_eq!(likely.topk_ids, by_base.topk_ids);
    let usage = backend.usage().now();
    assert_eq!((usage.trained, usage.read, usage.sampled), (3, 8, 2));
}

#[tokio::test]
async fn what_a_server_cannot_answer_is_an_error_of_its_own_kind() {
    let (_server, backend) = world(BLIND).await;
    let mut request = score(&open(&backend).await, false, 0);
    request.positions = None;
    let error = backend.forward(request.clone()).await.unwrap_err();
    assert!(error.is_not_supported(), "{error}");
    // These ids are not the prompt's own.
    request.datums = vec![Datum::cross_entropy(vec![1, 2], vec![9, 3], vec![1.0; 2]).unwrap()];
    let error = backend.forward(request).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("target_prompt_logprobs"), "{text}");
    assert!(!error.is_ambiguous() && !error.is_unreachable());
}

#[tokio::test]
async fn a_model_that_is_not_offered_is_told_those_that_are() {
    let server = Server::start(CLOUD).await;
    let of = |model: &str| {
        TinkerBackend::new(TinkerConfig {
            base_model: model.to_owned(),
            ..config(&server)
        })
    };
    let error = of("Qwen/Qwen9").health().await.unwrap_err().to_string();
    assert!(error.contains("does not offer Qwen/Qwen9"), "{error}");
    assert!(error.contains("Qwen/Qwen3-8B, org/other"), "{error}");
    let error = of("org/other").health().await.unwrap_err().to_string();
    assert!(error.contains("does not train it"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_no_doubt() {
    let server = Server::start(CLOUD).await;
    let mut config = config(&server);
    config.url = "http://127.0.0.1:1".to_owned();
    let backend = TinkerBackend::new(config);
    let run = open(&backend).await;
    let error = pass(&backend, &run, &[1]).await.unwrap_err();
    assert!(error.is_unreachable() && !error.is_ambiguous(), "{error}");
    assert!(backend.health().await.unwrap_err().is_unreachable());
}

#[tokio::test]
async fn only_what_is_ours_is_listed_and_deleted() {
    let (server, backend) = world(CLOUD).await;
    let (other_home, run) = (TinkerBackend::new(config(&server)), open(&backend).await);
    let theirs = open(&other_home).await;
    pass(&other_home, &theirs, &[1]).await.unwrap();
    save(&other_home, &theirs, "main-9-1").await.unwrap();
    for n in 1..=7 {
        let name = format!("main-1-{n}");
        train_and_save(&backend, &run, n, &name).await;
        let saved = backend.save_adapter(run.clone(), adapter(&name));
        saved.await.unwrap();
    }
    let deleted = backend.prune(vec![checkpoint("main-1-1")]).await.unwrap();
    assert_eq!(deleted, [checkpoint("main-1-2")]);
    // Six of ours, and one of theirs.
    assert_eq!(server.saved("/weights/").len(), 7);
    assert_eq!(server.saved("/sampler_weights/").len(), 6);
    assert_eq!(other_home.checkpoints().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_key_is_exchanged_where_the_server_wants_that() {
    let (server, backend) = world(CLOUD).await;
    server.flags(json!({"pjwt_auth_enabled": true}));
    let run = open(&backend).await;
    pass(&backend, &run, &[1]).await.unwrap();
    let inner = server.inner();
    let last = inner.heads.last().unwrap();
    assert!(last.contains("x-api-key: eyj.e30.x"), "{last}");
    assert!(inner.heads[0].contains("x-api-key: tml-a-long-secret-7890"));
}

#[tokio::test]
async fn a_manifest_that_the_server_refuses_is_kept_here() {
    let (server, backend) = world(CLOUD).await;
    let run = open(&backend).await;
    pass(&backend, &run, &[1]).await.unwrap();
    let refused = Fault::Answers(422, r#"{"detail":"user_metadata is too long"}"#);
    server.fail("save_weights", &[refused]);
    save(&backend, &run, "main-1-1").await.unwrap();
    let listed = backend.checkpoints().await.unwrap();
    assert_eq!(listed[0].manifest["hash"], "main-1-1");
    let asked = server.last_asked("save_weights");
    let manifest = &asked["user_metadata"]["metaclaw_manifest"];
    assert!(manifest.is_null(), "{asked}");
}

fn chat(n: u32) -> SamplerRequest {
    SamplerRequest {
        prompt_ids: vec![1, 2],
        n,
        max_tokens: 3,
        stop_token_ids: vec![9],
        ..SamplerRequest::default()
    }
}

#[tokio::test]
async fn a_chat_is_sampled_in_one_piece() {
    let (server, backend) = world(CLOUD).await;
    let sampling = Sampler::sample(&backend.sampler(), chat(2)).await.unwrap();
    let events: Vec<_> = sampling.events.collect().await;
    assert_eq!(events.len(), 8, "three tokens and an end, twice");
    let is_end = |event: &&Result<SampleEvent, _>| matches!(event, Ok(SampleEvent::End { .. }));
    assert_eq!(events.iter().filter(is_end).count(), 2);
    let asked = server.last_asked("asample");
    assert_eq!(asked["sampling_params"]["stop"], json!([9]));
    assert_eq!(asked["sampling_params"]["max_tokens"], 3);
}

#[tokio::test]
async fn a_chat_whose_sample_was_cancelled_or_has_expired_ends_in_words() {
    let (server, backend) = world(CLOUD).await;
    let cancelled = r#"{"error":"the request was cancelled by its client","category":"user"}"#;
    let expired = r#"{"detail":"expired"}"#;
    for (status, body, words) in [
        (410, expired, "it has no result of it any more (expired)"),
        (200, cancelled, "the request was cancelled by its client"),
    ] {
        server.fail("retrieve_future", &[Fault::Answers(status, body)]);
        let sampling = Sampler::sample(&backend.sampler(), chat(1)).await.unwrap();
        let events: Vec<_> = sampling.events.collect().await;
        let [Err(error)] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(server.n_asked("asample"), 2, "nothing is drawn twice");
}

#[tokio::test]
async fn what_a_chat_is_refused_for_is_known_before_it_begins() {
    let (server, backend) = world(CLOUD).await;
    for (status, failure) in [
        (401, SamplerFailure::Unauthorized),
        (402, SamplerFailure::Payment),
        (429, SamplerFailure::Busy),
        (503, SamplerFailure::Unavailable),
        (500, SamplerFailure::Remote),
    ] {
        server.fail("asample", &[Fault::Answers(status, "{}")]);
        let refused = Sampler::sample(&backend.sampler(), chat(1)).await;
        let error = refused.unwrap_err();
        assert_eq!(error.failure(), failure, "{error}");
    }
    let mut unknown = chat(1);
    unknown.adapter = Some(adapter("nobody"));
    let refused = Sampler::sample(&backend.sampler(), unknown).await;
    let error = refused.unwrap_err();
    assert_eq!(error.failure(), SamplerFailure::UnknownModel);
}
