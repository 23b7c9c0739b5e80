//! Tests of Tinker's API with the real engine: order, repetition, limits, and refusals.

mod weights;

use std::time::Duration;

use metaclaw_trainer_api::{
    Datum,
    tinker::{self, PROTOBUF, TrainOutput, proto},
};
use prost::Message as _;

use super::*;
use crate::tinker::shared::TinkerLimits;

/// No test waits for this hold.
fn rig_of_tinker(hold: Duration, session_idle: Duration) -> Rig {
    let limits = ServerLimits {
        tinker: TinkerLimits {
            hold,
            session_idle,
            ..TinkerLimits::default()
        },
        ..ServerLimits::default()
    };
    rig_with(limits, None)
}

fn patient() -> Rig {
    rig_of_tinker(Duration::from_secs(30), Duration::from_secs(300))
}

fn datum(n: u32) -> Datum {
    let tokens: Vec<u32> = (1..=n).collect();
    let targets = (2..n + 2).collect();
    Datum::cross_entropy(tokens, targets, vec![1.0; n as usize]).unwrap()
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
        let mut sent = post("/api/v1/forward_backward", request.encode_to_vec());
        let media = header::HeaderValue::from_static(PROTOBUF);
        sent.headers_mut().insert(header::CONTENT_TYPE, media);
        read(self.send(sent).await).await
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
        let mut sent = match form {
            "zstd" => post(
                "/api/v1/forward_backward",
                zstd::encode_all(request.as_slice(), 1).unwrap(),
            ),
            _ => post("/api/v1/forward_backward", request),
        };
        let headers = sent.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static(PROTOBUF),
        );
        if form == "zstd" {
            headers.insert(
                header::CONTENT_ENCODING,
                header::HeaderValue::from_static("zstd"),
            );
        }
        if form == "json" {
            let input = json!({"data": [tinker::to_json(&datum(5))], "loss_fn": "cross_entropy"});
            let body = json!({"forward_backward_input": input, "model_id": model, "seq_id": 1});
            sent = post("/api/v1/forward_backward", body.to_string());
        }
        let (status, promise) = read(rig.send(sent).await).await;
        assert_eq!(status, StatusCode::OK, "{form}: {promise}");
        results.push(rig.result(&promise).await);
        let mut asked = post("/api/v1/retrieve_future", promise.to_string());
        let accept = header::HeaderValue::from_static(PROTOBUF);
        asked.headers_mut().insert(header::ACCEPT, accept);
        let answer = rig.send(asked).await;
        assert_eq!(answer.headers()[header::CONTENT_TYPE], PROTOBUF);
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let output = proto::ForwardBackwardOutput::decode(bytes).unwrap();
        let output = TrainOutput::from_proto(output).unwrap();
        assert_eq!(
            serde_json::to_value(output.to_json()).unwrap(),
            results[results.len() - 1]
        );
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
    let metadata = |lists: &str| {
        format!(
            "{{\"session_id\": \"s\", \"model_seq_id\": 1, \"base_model\": \"tiny\", \"user_metadata\": {{\"a\": [{lists}]}}}}"
        )
    };
    for (path, body) in [
        ("/api/v1/create_model", metadata(&lists)),
        ("/api/v1/create_model", metadata(&lists[..99_999])),
        (
            "/api/v1/asample",
            format!("{{\"prompt\": {{\"chunks\": [{{\"type\": \"image\", \"a\": [{lists}]}}]}}}}"),
        ),
        (
            "/api/v1/forward",
            format!("{{\"model_id\": \"m\", \"forward_input\": {{\"data\": [{lists}]}}}}"),
        ),
        (
            "/v1/chat/completions",
            format!("{{\"messages\": [{lists}]}}"),
        ),
        ("/tokenize", format!("{{\"messages\": [{lists}]}}")),
        (
            "/v1/checkpoint/save",
            format!("{{\"session_id\": \"a\", \"manifest\": [{lists}]}}"),
        ),
    ] {
        let (status, told) = read(rig.send(post(path, body)).await).await;
        let expected = if path.starts_with("/api") {
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            StatusCode::BAD_REQUEST
        };
        assert_eq!(status, expected, "{path}: {told}");
        let words = ["bytes", "values"];
        assert!(
            words.iter().any(|word| told.to_string().contains(word)),
            "{path}: {told}"
        );
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
        let mut sent = post(
            "/api/v1/forward_backward",
            zstd::encode_all(body.as_slice(), 1).unwrap(),
        );
        for (header, value) in [
            (header::CONTENT_TYPE, PROTOBUF),
            (header::CONTENT_ENCODING, "zstd"),
        ] {
            sent.headers_mut()
                .insert(header, header::HeaderValue::from_static(value));
        }
        let (status, told) = read(rig.send(sent).await).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{name}: {told}");
        assert!(
            told.to_string().contains("bytes in memory"),
            "{name}: {told}"
        );
    }
    // What waits counts as what it takes: each of these is 3 KB as it is sent, and 86 MiB in memory.
    let body = [whole.as_slice(), &[0x1a, 0].repeat(900_000)].concat();
    let mut statuses = Vec::new();
    for seq in 2..9 {
        let mut body = body.clone();
        body.extend([0x10, seq]);
        let mut sent = post("/api/v1/forward_backward", body);
        sent.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static(PROTOBUF),
        );
        statuses.push(rig.send(sent).await.status());
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
    assert_eq!(
        rig.get(&format!("/api/v1/samplers/{sampler}")).await.0,
        StatusCode::OK
    );
    let waiting = rig.step(&model, 3).await;
    let finish = json!({"reason": {"type": "success"}, "detail": null});
    let (status, _) = rig
        .post(&format!("/api/v1/sessions/{session}/finish"), &finish)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(rig.result(&waiting).await["error"].is_string());
    let info = rig
        .post("/api/v1/get_info", &json!({"model_id": model}))
        .await;
    assert_eq!(info.0, StatusCode::NOT_FOUND);
    let sampler = rig.get(&format!("/api/v1/samplers/{sampler}")).await;
    assert_eq!(sampler.0, StatusCode::NOT_FOUND);
    assert!(rig.app.host.adapter_names().unwrap().is_empty());
    let heartbeat = rig
        .post("/api/v1/session_heartbeat", &json!({"session_id": session}))
        .await;
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
    let (_, listed) = rig
        .get(&format!("/api/v1/training_runs/{model}/checkpoints"))
        .await;
    let listed = listed["checkpoints"].as_array().unwrap();
    assert_eq!(listed.len(), 7);
    assert!(listed.iter().all(|it| it["user_metadata"]["k"] == "v"));

    let body = json!({"session_id": rig.session().await, "model_seq_id": 0, "optimizer": true,
        "path": format!("tinker://{model}/weights/a")});
    let promise = rig.ok("/api/v1/load_weights", &body).await;
    let id = promise["model_id"].clone();
    let info = rig.ok("/api/v1/get_info", &json!({"model_id": id})).await;
    assert_eq!(info["lora_rank"], 2);
    let delete = Request::delete(format!(
        "/api/v1/training_runs/{model}/checkpoints/weights/b"
    ));
    let deleted = rig.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_in_words() {
    let rig = patient();
    let session = rig.session().await;
    let create = |more: Value| {
        let mut body = json!({"session_id": session, "model_seq_id": 1, "base_model": "tiny"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let lora = json!({"lora_config":
        {"train_attn": false, "train_mlp": false, "train_unembed": false}});
    let sample = |more: Value| {
        let mut body = json!({"base_model": "tiny", "sampling_params": {"max_tokens": 2},
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let long = vec![1; 512];
    let long = json!({"prompt": {"chunks": [{"type": "encoded_text", "tokens": long}]},
        "prompt_logprobs": true});
    let image = json!({"prompt": {"chunks": [{"type": "image", "data": "", "format": "png"}]}});
    let calls = [
        ("create_model", create(lora)),
        (
            "create_model",
            create(json!({"base_model": "Qwen/Qwen3-8B"})),
        ),
        (
            "create_model",
            create(json!({"optimizer_config": {"type": "dimuon"}})),
        ),
        ("create_model", create(json!({"session_id": "s0"}))),
        ("get_info", json!({"model_id": "a/b"})),
        ("optim_step", json!({"model_id": "s0:train:0", "seq_id": 1})),
        (
            "load_weights",
            json!({"path": "tinker://x/weights/y", "optimizer": true}),
        ),
        (
            "create_sampling_session",
            json!({"session_id": session, "sampling_session_seq_id": 0,
            "model_path": "tinker://s0123456789abcdef:train:0/sampler_weights/a"}),
        ),
        (
            "create_sampling_session",
            json!({"session_id": session, "sampling_session_seq_id": 0,
            "model_path": "tinker://s0123456789abcdef:train:0/weights/a"}),
        ),
        ("asample", sample(image)),
        ("asample", sample(json!({"prompt_alt_tokens_k": 2}))),
        ("asample", sample(json!({"num_samples": 100}))),
        ("asample", sample(long)),
        ("asample", sample(json!({"topk_prompt_logprobs": 129}))),
        ("asample", sample(json!({"topk_sample_logprobs": 21}))),
        (
            "asample",
            sample(json!({"prompt_logprobs": true, "prompt_logprobs_last_n": 2})),
        ),
    ];
    let (mut told, mut fields) = (Vec::new(), Vec::new());
    for (route, body) in calls {
        let (status, error) = rig.post(&format!("/api/v1/{route}"), &body).await;
        let message = error["error"]["message"].as_str().unwrap();
        let message = message.replace(&session, "[session]");
        told.push(format!("{route} {}: {message}", status.as_u16()));
        fields.push(error["error"]["param"].clone());
    }
    let of_prompts = [
        "prompt",
        "topk_prompt_logprobs",
        "topk_sample_logprobs",
        "prompt_logprobs_last_n",
    ];
    assert_eq!(fields[12..], of_prompts);
    insta::assert_snapshot!(told.join("\n"));
}
