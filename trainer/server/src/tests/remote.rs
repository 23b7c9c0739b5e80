//! Tests of the client with the server over a socket, as the learner uses them.

use std::{sync::Arc, time::Duration};

use metaclaw_trainer_api::{
    Datum, Endpoint, LossConfig, LossFn, RemoteBackend, RemoteConfig, TrainingBackend,
    wire::{
        CreateRequest, ForwardBackwardRequest, ForwardRequest, OptimStepRequest, SampleRequest,
        TokenizeRequest,
    },
};
use tokio::net::TcpListener;

use super::*;

const KEY: &str = "sk-trainer-secret";

fn backend(url: String) -> RemoteBackend {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = Some(ApiKey::new(KEY));
    let endpoint = Endpoint { url, key };
    let client = reqwest::Client::builder().tls_certs_only([]).build();
    RemoteBackend::new(RemoteConfig {
        client: client.unwrap(),
        endpoint: Arc::new(move || Some(endpoint.clone())),
        timeout: Duration::from_secs(30),
        base_model: None,
    })
}

/// Runs `work` with a server that listens.
async fn with_server(work: impl AsyncFnOnce(RemoteBackend)) {
    let rig = rig_with(ServerLimits::default(), Some(KEY));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::select! {
        ended = async { axum::serve(listener, rig.router.clone()).await } => ended.unwrap(),
        () = work(backend(url)) => {}
    }
}

fn datum() -> Datum {
    Datum::cross_entropy(vec![104, 105, 5], vec![105, 5, 5], vec![0.0, 1.0, 1.0]).unwrap()
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_step_is_taken_saved_and_found_again() {
    with_server(async |backend| {
        let capabilities = backend.health().await.unwrap().capabilities;
        assert!(capabilities.manifests && capabilities.sampled);
        let create: CreateRequest = from_json(json!({"rank": 4, "seed": 1}));
        let run = backend.create_run(create).await.unwrap().session_id;
        let batch = ForwardBackwardRequest {
            session_id: run.clone(),
            datums: vec![datum()],
            loss_fn: LossFn::CrossEntropy,
            loss_fn_config: LossConfig::new(),
        };
        let found = backend.forward_backward(batch).await.unwrap();
        assert_eq!((found.num_datums, found.total_tokens), (1, 2));
        let logprobs = &found.loss_fn_outputs[0].logprobs;
        let computed: Vec<bool> = logprobs.iter().map(Option::is_some).collect();
        assert_eq!(computed, [false, true, true]);
        let step: OptimStepRequest = from_json(json!({"session_id": run, "learning_rate": 0.01}));
        let stepped = backend.optim_step(step).await.unwrap();
        assert_eq!((stepped.step, stepped.skipped), (1, false));
        let manifest = json!({"turns": ["1-1"]});
        let name = "main@1".parse().unwrap();
        let saving = backend.save_checkpoint(run.clone(), name, manifest.clone());
        let saved = saving.await.unwrap();
        let listed = backend.checkpoints().await.unwrap();
        assert_eq!(listed[0].path, saved.path);
        assert_eq!(listed[0].manifest, manifest);
        let loaded = backend.load_checkpoint(run.clone(), saved.path);
        assert_eq!(loaded.await.unwrap(), 1);
        let name: metaclaw_trainer_api::AdapterName = "main@1".parse().unwrap();
        let saved = backend.save_adapter(run.clone(), name.clone());
        saved.await.unwrap();
        assert_eq!(backend.adapters().await.unwrap()[0].name, name);
        let forward = async |key: &str, value: Value| {
            let body = json!({"session_id": run, "datums": [datum()], key: value});
            let request: ForwardRequest = from_json(body);
            backend.forward(request).await.unwrap()
        };
        assert_eq!(forward("top_k", json!(1)).await.topk_ids[0].len(), 3);
        let found = forward("positions", json!([[2]])).await;
        assert_eq!(found.logprobs[0].len(), 1);
        let body = json!({"tokens": [104], "max_tokens": 3, "model": "main@1"});
        let sample: SampleRequest = from_json(body);
        let sequences = backend.sample(sample).await.unwrap().sequences;
        assert!(!sequences[0].tokens.is_empty());
        assert!(backend.unload_adapter(name.clone()).await.unwrap());
        assert!(!backend.unload_adapter(name.clone()).await.unwrap());
        let listed = backend.adapters().await.unwrap();
        let loaded = backend.load_adapter(name).await.unwrap();
        assert_eq!(listed[0].sha256, Some(loaded.sha256));
        let kept = "main@1".parse().unwrap();
        assert!(backend.prune(vec![kept]).await.unwrap().is_empty());
        backend.close_run(run.clone()).await.unwrap();
        let error = backend.close_run(run).await.unwrap_err();
        assert!(error.is_unknown_run(), "{error}");
    })
    .await;
}

#[tokio::test]
async fn refusals_are_told_apart() {
    with_server(async |backend| {
        let tokenize: TokenizeRequest = from_json(json!({"prompt": "hi"}));
        assert_eq!(backend.tokenize(tokenize).await.unwrap().tokens, [104, 105]);
        let sampled = backend.sampled("chatcmpl-none".to_owned()).await;
        assert_eq!(sampled.unwrap(), None);
        let step: OptimStepRequest = from_json(json!({"session_id": "0badc0de"}));
        let error = backend.optim_step(step).await.unwrap_err();
        assert!(error.is_unknown_run() && !error.is_ambiguous(), "{error}");
    })
    .await;
}
