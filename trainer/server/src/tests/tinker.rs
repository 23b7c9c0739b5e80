//! Tests of Tinker's API with the real engine: order, repetition, limits, and refusals.

mod weights;

use std::time::Duration;

use axum::http::HeaderName;
use metaclaw_trainer_api::{
    Datum,
    tinker::{self, PROTOBUF, TrainOutput, proto},
};
use prost::Message as _;

use super::*;
use crate::tinker::shared::TinkerLimits;

/// No test waits for this hold.
fn rig_of_tinker(hold: Duration, session_idle: Duration) -> Rig {
    let tinker = TinkerLimits {
        hold,
        session_idle,
        ..TinkerLimits::default()
    };
    rig_with(
        ServerLimits {
            tinker,
            ..ServerLimits::default()
        },
        None,
    )
}

fn patient() -> Rig {
    rig_of_tinker(Duration::from_secs(30), Duration::from_secs(300))
}

fn datum(n: u32) -> Datum {
    let tokens: Vec<u32> = (1..=n).collect();
    let targets = (2..n + 2).collect();
    Datum::cross_entropy(tokens, targets, vec![1.0; n as usize]).unwrap()
}

/// A pass that is sent as protobuf.
fn sent(body: Vec<u8>) -> Request<Body> {
    with_header(
        post("/api/v1/forward_backward", body),
        header::CONTENT_TYPE,
        PROTOBUF,
    )
}

/// The same, compressed.
fn sent_compressed(body: &[u8]) -> Request<Body> {
    let compressed = zstd::encode_all(body, 1).unwrap();
    with_header(sent(compressed), header::CONTENT_ENCODING, "zstd")
}

fn with_header(mut request: Request<Body>, name: HeaderName, value: &'static str) -> Request<Body> {
    let value = header::HeaderValue::from_static(value);
    request.headers_mut().insert(name, value);
    request
}

fn forward_backward(model: &str, seq_id: i32, datums: &[Datum]) -> proto::ProtoForwardBackward {
    proto::ProtoForwardBackward {
        model_id: model.to_owned(),
        seq_id,
        data: datums.iter().map(tinker::to_proto).collect(),
        loss_fn: "cross_entropy".to_owned(),
        ..Default::default()
    }
}

impl Rig {
    async fn session(&self) -> String {
        let body = json!({"tags": [], "sdk_version": "0.38.0", "type": "create_session"});
        let session = self.ok("/api/v1/create_session", &body).await;
        session["session_id"].as_str().unwrap().to_owned()
    }

    /// Creates a model in its own session.
    async fn model(&self, rank: u32) -> String {
        self.model_of(json!({"rank": rank, "seed": 5})).await
    }

    async fn model_of(&self, lora_config: Value) -> String {
        let session = self.session().await;
        let body = json!({"session_id": session, "model_seq_id": 0, "base_model": "tiny",
            "lora_config": lora_config});
        let promise = self.ok("/api/v1/create_model", &body).await;
        let made = self.result(&promise).await;
        made["model_id"].as_str().unwrap().to_owned()
    }

    async fn train(&self, request: &proto::ProtoForwardBackward) -> (StatusCode, Value) {
        read(self.send(sent(request.encode_to_vec())).await).await
    }

    async fn finish(&self, session: &str) -> (StatusCode, Value) {
        let finish = json!({"reason": {"type": "success"}, "detail": null});
        self.post(&format!("/api/v1/sessions/{session}/finish"), &finish)
            .await
    }

    async fn info(&self, model: &Value) -> Value {
        self.ok("/api/v1/get_info", &json!({"model_id": model}))
            .await
    }

    /// Returns the result of a promise, in JSON.
    async fn result(&self, promise: &Value) -> Value {
        let body = json!({"request_id": promise["request_id"], "allow_metadata_only": true});
        self.ok("/api/v1/retrieve_future", &body).await
    }

    async fn step(&self, model: &str, seq_id: u32) -> Value {
        let body =
            json!({"model_id": model, "seq_id": seq_id, "adam_params": {"learning_rate": 0.01}});
        self.ok("/api/v1/optim_step", &body).await
    }
}

#[tokio::test]
async fn calls_are_executed_by_their_numbers_whatever_order_they_arrive_in() {
    let rig = patient();
    let (ordered, mixed) = (rig.model(4).await, rig.model(4).await);
    let request = |model: &str, seq| forward_backward(model, seq, &[datum(5)]);
    let mut first = Vec::new();
    for seq in [1, 3] {
        let (status, promise) = rig.train(&request(&ordered, seq)).await;
        assert_eq!(status, StatusCode::OK, "{promise}");
        first.push(promise);
        rig.step(&ordered, seq.cast_unsigned() + 1).await;
    }
    // The steps and the second batch come first.
    rig.step(&mixed, 4).await;
    let (_, later) = rig.train(&request(&mixed, 3)).await;
    rig.step(&mixed, 2).await;
    let (_, sooner) = rig.train(&request(&mixed, 1)).await;
    let mut results = Vec::new();
    for promise in [&first[0], &first[1], &sooner, &later] {
        results.push(rig.result(promise).await);
    }
    assert_eq!(results[0], results[2]);
    assert_eq!(results[1], results[3]);
    assert_ne!(results[0], results[1]);
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_done_once_and_another_body_is_refused() {
    let rig = patient();
    let model = rig.model(4).await;
    let request = forward_backward(&model, 1, &[datum(5)]);
    let (_, promise) = rig.train(&request).await;
    assert_eq!(rig.train(&request).await.1, promise);
    rig.result(&promise).await;
    assert_eq!(rig.train(&request).await.1, promise);
    let (status, other) = rig.train(&forward_backward(&model, 1, &[datum(6)])).await;
    assert_eq!(status, StatusCode::CONFLICT, "{other}");
    // One gradient was added, not three.
    let stepped = rig.step(&model, 2).await;
    let norm = rig.result(&stepped).await["metrics"]["grad_norm"].clone();
    let again = rig.model(4).await;
    rig.train(&forward_backward(&again, 1, &[datum(5)])).await;
    let stepped = rig.step(&again, 2).await;
    assert_eq!(rig.result(&stepped).await["metrics"]["grad_norm"], norm);
}

#[tokio::test]
async fn a_result_that_is_not_there_yet_is_a_408_with_words_and_one_that_never_was_is_gone() {
    let rig = rig_of_tinker(Duration::ZERO, Duration::from_secs(300));
    let session = rig.session().await;
    let body = json!({"session_id": session, "model_seq_id": 0, "base_model": "tiny",
        "lora_config": {"rank": 4}});
    let promise = rig.ok("/api/v1/create_model", &body).await;
    let model = promise["model_id"].as_str().unwrap();
    // Number 1 never arrives.
    let waiting = rig.step(model, 2).await;
    let (status, again) = rig.post("/api/v1/retrieve_future", &waiting).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(again["type"], "try_again");
    assert_eq!(again["queue_state"], "active");
    let unknown = json!({"request_id": "no-such"});
    let (status, _) = rig.post("/api/v1/retrieve_future", &unknown).await;
    assert_eq!(status, StatusCode::GONE);
}

#[tokio::test]
async fn what_is_wrong_with_data_is_the_calls_result_and_its_number_is_used() {
    let rig = patient();
    let model = rig.model(4).await;
    let mut bad = forward_backward(&model, 1, &[datum(5)]);
    bad.data[0].loss_fn_inputs.remove("weights");
    let (status, promise) = rig.train(&bad).await;
    assert_eq!(status, StatusCode::OK);
    let failed = rig.result(&promise).await;
    assert_eq!(failed["category"], "user", "{failed}");
    let (_, promise) = rig.train(&forward_backward(&model, 2, &[datum(5)])).await;
    assert!(rig.result(&promise).await["metrics"]["loss:sum"].is_f64());
}

#[tokio::test]
async fn protobuf_compressed_or_not_and_json_are_one_call_in_three_forms() {
    let rig = patient();
    let mut results = Vec::new();
    for form in ["protobuf", "zstd", "json"] {
        let model = rig.model(4).await;
        let request = forward_backward(&model, 1, &[datum(5)]).encode_to_vec();
        let input = json!({"data": [tinker::to_json(&datum(5))], "loss_fn": "cross_entropy"});
        let body = json!({"forward_backward_input": input, "model_id": model, "seq_id": 1});
        let sent = match form {
            "zstd" => sent_compressed(&request),
            "json" => post("/api/v1/forward_backward", body.to_string()),
            _ => sent(request),
        };
        let (status, promise) = read(rig.send(sent).await).await;
        assert_eq!(status, StatusCode::OK, "{form}: {promise}");
        results.push(rig.result(&promise).await);
        let asked = post("/api/v1/retrieve_future", promise.to_string());
        let answer = rig.send(with_header(asked, header::ACCEPT, PROTOBUF)).await;
        assert_eq!(answer.headers()[header::CONTENT_TYPE], PROTOBUF);
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let output = proto::ForwardBackwardOutput::decode(bytes).unwrap();
        let output = TrainOutput::from_proto(output).unwrap();
        let output = serde_json::to_value(output.to_json()).unwrap();
        assert_eq!(Some(&output), results.last());
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

/// A value of three bytes takes 72 or more in memory.
#[tokio::test]
async fn lists_of_empty_lists_are_refused_before_they_are_read() {
    let rig = patient();
    let n = 1 << 20;
    let lists = "[],".repeat(n) + "[]";
    let metadata = r#"{"session_id": "s", "model_seq_id": 1, "base_model": "tiny", "user_metadata": {"a": [LISTS]}}"#;
    let image = r#"{"prompt": {"chunks": [{"type": "image", "a": [LISTS]}]}}"#;
    let data = r#"{"model_id": "m", "forward_input": {"data": [LISTS]}}"#;
    let messages = r#"{"messages": [LISTS]}"#;
    let manifest = r#"{"session_id": "a", "manifest": [LISTS]}"#;
    let (large, bad) = (StatusCode::PAYLOAD_TOO_LARGE, StatusCode::BAD_REQUEST);
    for (path, body, lists, expected) in [
        ("/api/v1/create_model", metadata, &lists[..], large),
        ("/api/v1/create_model", metadata, &lists[..99_999], large),
        ("/api/v1/asample", image, &lists, large),
        ("/api/v1/forward", data, &lists, large),
        ("/v1/chat/completions", messages, &lists, bad),
        ("/tokenize", messages, &lists, bad),
        ("/v1/checkpoint/save", manifest, &lists, bad),
    ] {
        let (status, told) = rig.post_raw(path, body.replace("LISTS", lists)).await;
        assert_eq!(status, expected, "{path}: {told}");
        let text = told.to_string();
        let says_why = text.contains("bytes") || text.contains("values");
        assert!(says_why, "{path}: {text}");
    }
}

/// A body of 2 MB whose parts take 96 or more bytes each in memory.
#[tokio::test]
async fn a_small_body_cannot_become_a_large_structure() {
    let rig = patient();
    let model = rig.model(4).await;
    let whole = forward_backward(&model, 2, &[]).encode_to_vec();
    let n = 1 << 20;
    // Empty datums, empty chunks, spans, entries of maps, and the numbers of a shape.
    let nested = |part: Vec<u8>, path: &[u8]| {
        path.iter().rev().fold(part, |inner, tag| {
            let mut outer = vec![*tag];
            prost::encode_length_delimiter(inner.len(), &mut outer).unwrap();
            [outer, inner].concat()
        })
    };
    for (name, more) in [
        ("datums", [0x1a, 0].repeat(n * 2)),
        ("chunks", nested([0x0a, 0].repeat(n * 2), &[0x1a])),
        ("spans", nested([0x22, 0].repeat(n * 2), &[0x1a])),
        ("inputs", nested([0x12, 0].repeat(n * 2), &[0x1a])),
        ("shape", nested(vec![0; n * 20], &[0x1a, 0x12, 0x12, 0x22])),
        ("settings", [0x3a, 0].repeat(n * 2)),
    ] {
        let body = [whole.as_slice(), &more].concat();
        let (status, told) = read(rig.send(sent_compressed(&body)).await).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{name}: {told}");
        let text = told.to_string();
        assert!(text.contains("bytes in memory"), "{name}: {text}");
    }
    // What waits counts as what it takes: each of these is 3 KB as it is sent, and 86 MiB in memory.
    let body = [whole.as_slice(), &[0x1a, 0].repeat(900_000)].concat();
    let mut statuses = Vec::new();
    for seq in 2..9 {
        let mut body = body.clone();
        body.extend([0x10, seq]);
        statuses.push(rig.send(sent(body)).await.status());
    }
    assert_eq!(statuses[..6], [StatusCode::OK; 6]);
    assert_eq!(statuses[6], StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_key_is_the_servers_own_after_tinkers_beginning() {
    let rig = rig_with(ServerLimits::default(), Some("secret"));
    let status = async |key: &str| {
        let asked = Request::get("/api/v1/healthz").header("x-api-key", key);
        rig.send(asked.body(Body::empty()).unwrap()).await.status()
    };
    assert_eq!(status("tml-secret").await, StatusCode::OK);
    assert_eq!(status("secret").await, StatusCode::OK);
    assert_eq!(status("tml-other").await, StatusCode::UNAUTHORIZED);
    assert_eq!(status("tml-").await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_session_that_is_finished_gives_its_models_and_samplers_back() {
    let rig = patient();
    let model = rig.model(4).await;
    let session = model.split(':').next().unwrap();
    let body = json!({"model_id": model, "sampling_session_seq_id": 0, "seq_id": 1});
    let promise = rig.ok("/api/v1/save_weights_for_sampler", &body).await;
    let saved = rig.result(&promise).await;
    let sampler = saved["sampling_session_id"].as_str().unwrap();
    let sampler = format!("/api/v1/samplers/{sampler}");
    assert_eq!(rig.get(&sampler).await.0, StatusCode::OK);
    let waiting = rig.step(&model, 3).await;
    assert_eq!(rig.finish(session).await.0, StatusCode::NO_CONTENT);
    assert!(rig.result(&waiting).await["error"].is_string());
    let asked = json!({"model_id": model});
    let info = rig.post("/api/v1/get_info", &asked).await;
    assert_eq!(info.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.get(&sampler).await.0, StatusCode::NOT_FOUND);
    assert!(rig.app.host.adapter_names().unwrap().is_empty());
    let asked = json!({"session_id": session});
    let heartbeat = rig.post("/api/v1/session_heartbeat", &asked).await;
    assert_eq!(heartbeat.0, StatusCode::GONE);
}

#[tokio::test]
async fn a_silent_session_expires_and_its_place_is_anothers() {
    let rig = rig_of_tinker(Duration::from_secs(30), Duration::from_secs(1));
    let model = rig.model(4).await;
    let mut asked = 0;
    // This waits for the next check of the sessions.
    while rig.get(&format!("/api/v1/training_runs/{model}")).await.0 == StatusCode::OK {
        tokio::task::yield_now().await;
        asked += 1;
        assert!(asked < 10_000_000, "it never expires");
    }
}

#[tokio::test]
async fn a_checkpoint_outlives_its_session_and_who_prunes_does_not_take_it() {
    let rig = patient();
    let model = rig.model(2).await;
    for (seq, name) in (1..).zip(["a", "b", "c", "d", "e", "f", "g"]) {
        let body =
            json!({"model_id": model, "path": name, "seq_id": seq, "user_metadata": {"k": "v"}});
        let promise = rig.ok("/api/v1/save_weights", &body).await;
        let saved = rig.result(&promise).await;
        assert_eq!(saved["path"], format!("tinker://{model}/weights/{name}"));
    }
    rig.ok("/v1/checkpoints/prune", &json!({"keep": []})).await;
    let kept = format!("/api/v1/training_runs/{model}/checkpoints");
    let (_, listed) = rig.get(&kept).await;
    let listed = listed["checkpoints"].as_array().unwrap();
    assert_eq!(listed.len(), 7);
    let has_metadata = |listed: &Value| listed["user_metadata"]["k"] == "v";
    assert!(listed.iter().all(has_metadata));

    let body = json!({"session_id": rig.session().await, "model_seq_id": 0, "optimizer": true,
        "path": format!("tinker://{model}/weights/a")});
    let promise = rig.ok("/api/v1/load_weights", &body).await;
    assert_eq!(rig.info(&promise["model_id"]).await["lora_rank"], 2);
    let deleted = rig.delete(&format!("{kept}/weights/b")).await;
    assert_eq!(deleted.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_in_words() {
    let rig = patient();
    let session = rig.session().await;
    let create = |more: Value| {
        let body = json!({"session_id": session, "model_seq_id": 1, "base_model": "tiny"});
        ("create_model", with(body, &more))
    };
    let lora = json!({"lora_config":
        {"train_attn": false, "train_mlp": false, "train_unembed": false}});
    let sample = |more: Value| {
        let body = json!({"base_model": "tiny", "sampling_params": {"max_tokens": 2},
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}});
        ("asample", with(body, &more))
    };
    let sampler = |kind: &str| {
        let path = format!("tinker://s0123456789abcdef:train:0/{kind}/a");
        let body = json!({"session_id": session, "sampling_session_seq_id": 0, "model_path": path});
        ("create_sampling_session", body)
    };
    let long = vec![1; 512];
    let long = json!({"prompt": {"chunks": [{"type": "encoded_text", "tokens": long}]},
        "prompt_logprobs": true});
    let image = json!({"prompt": {"chunks": [{"type": "image", "data": "", "format": "png"}]}});
    let calls = [
        create(lora),
        create(json!({"base_model": "Qwen/Qwen3-8B"})),
        create(json!({"optimizer_config": {"type": "dimuon"}})),
        create(json!({"session_id": "s0"})),
        ("get_info", json!({"model_id": "a/b"})),
        ("optim_step", json!({"model_id": "s0:train:0", "seq_id": 1})),
        (
            "load_weights",
            json!({"path": "tinker://x/weights/y", "optimizer": true}),
        ),
        sampler("sampler_weights"),
        sampler("weights"),
        sample(image),
        sample(json!({"prompt_alt_tokens_k": 2})),
        sample(json!({"num_samples": 100})),
        sample(long),
        sample(json!({"topk_prompt_logprobs": 129})),
        sample(json!({"topk_sample_logprobs": 21})),
        sample(json!({"prompt_logprobs": true, "prompt_logprobs_last_n": 2})),
    ];
    let (mut told, mut fields) = (Vec::new(), Vec::new());
    for (route, body) in calls {
        let (status, error) = rig.post(&format!("/api/v1/{route}"), &body).await;
        let message = error["error"]["message"].as_str().unwrap();
        let message = message.replace(&session, "[session]");
        told.push(format!("{route} {}: {message}", status.as_u16()));
        fields.push(error["error"]["param"].clone());
    }
    let of_prompts = ["prompt", "topk_prompt_logprobs", "topk_sample_logprobs"];
    assert_eq!(fields[12..15], of_prompts);
    assert_eq!(fields[15..], ["prompt_logprobs_last_n"]);
    insta::assert_snapshot!(told.join("\n"));
}
