use super::*;

#[tokio::test]
async fn a_whole_reply_is_openais() {
    let rig = rig();
    let mut reply = rig.ok("/v1/chat/completions", &chat(&json!({}))).await;
    let usage = &reply["usage"];
    assert_eq!(
        usage["total_tokens"],
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap()
    );
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    for field in ["/id", "/created", "/choices/0/message/content"] {
        *reply.pointer_mut(field).unwrap() = json!("[varies]");
    }
    insta::assert_json_snapshot!(reply);
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_reply() {
    let rig = rig();
    let whole = rig.ok("/v1/chat/completions", &chat(&json!({}))).await;
    let body = chat(&json!({"stream": true, "stream_options": {"include_usage": true}}));
    let response = rig
        .send(post("/v1/chat/completions", body.to_string()))
        .await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut events = events(&text);
    assert_eq!(events.pop(), Some("[DONE]"));
    let chunks: Vec<Value> = events
        .iter()
        .map(|e| serde_json::from_str(e).unwrap())
        .collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(chunks[0]["usage"].is_null());
    let content = |c: &Value| Some(c["choices"][0]["delta"]["content"].as_str()?.to_owned());
    let content: String = chunks.iter().filter_map(content).collect();
    assert_eq!(content, whole["choices"][0]["message"]["content"]);
    let [.., end, last] = chunks.as_slice() else {
        panic!("too few chunks: {chunks:?}")
    };
    assert_eq!(
        end["choices"][0]["finish_reason"],
        whole["choices"][0]["finish_reason"]
    );
    assert_eq!(last["choices"], json!([]));
    // The second request found the first one's prompt in the cache.
    assert_eq!(
        last["usage"]["completion_tokens"],
        whole["usage"]["completion_tokens"]
    );
}

#[tokio::test]
async fn lessons_of_the_gateway_join_the_system_text() {
    let rig = rig();
    let said = json!([{"role": "system", "content": "Be kind.\n\nBe short."}, {"role": "user", "content": "hi"}]);
    let split =
        json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]);
    let whole = chat(&json!({"messages": said}));
    let appended = chat(&json!({"messages": split, "metaclaw_system_append": "Be short."}));
    let without = chat(&json!({"messages": split}));
    let mut n_prompt = Vec::new();
    for body in [&whole, &appended, &without] {
        let reply = rig.ok("/v1/chat/completions", body).await;
        n_prompt.push(reply["usage"]["prompt_tokens"].as_u64().unwrap());
    }
    assert_eq!(n_prompt[0], n_prompt[1], "the same prompt either way");
    assert!(n_prompt[2] < n_prompt[1]);
}

#[tokio::test]
async fn tokens_come_one_by_one() {
    let rig = rig();
    let body = chat(&json!({"stream": true, "max_tokens": 300, "stop": []}));
    let mut body = rig
        .send(post("/v1/chat/completions", body.to_string()))
        .await
        .into_body();
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        frames += 1;
        let events = String::from_utf8(data.to_vec()).unwrap();
        // One piece of text in each frame; the last has the end as well.
        assert!(
            events.matches("\"delta\":{\"content\"").count() <= 1,
            "{events}"
        );
    }
    assert!(frames > 3, "{frames}");
}

#[tokio::test]
async fn the_record_is_what_was_said() {
    let rig = rig();
    let body = chat(&json!({"temperature": 1, "logprobs": true, "max_tokens": 20}));
    let reply = rig.ok("/v1/chat/completions", &body).await;
    let (status, record) = rig
        .get(&format!("/v1/sampled/{}", reply["id"].as_str().unwrap()))
        .await;
    assert_eq!(status, StatusCode::OK);
    let ids = record["ids"].as_array().unwrap();
    assert_eq!(
        ids.len() as u64,
        reply["usage"]["completion_tokens"].as_u64().unwrap()
    );
    assert_eq!(
        record["prompt_ids"].as_array().unwrap().len() as u64,
        reply["usage"]["prompt_tokens"].as_u64().unwrap()
    );
    assert_eq!(record["base"], "tiny");
    assert_eq!(record["adapter"], Value::Null);
    // At temperature 1 without top-k and top-p both are the same distribution.
    let logprobs = |field: &str| -> Vec<f64> {
        let values = record[field].as_array().unwrap();
        values.iter().map(|v| v.as_f64().unwrap()).collect()
    };
    for (a, b) in logprobs("logprobs")
        .iter()
        .zip(logprobs("sampling_logprobs"))
    {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    let shown = reply["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    assert_eq!(shown.len(), ids.len());
    let prompt = rig
        .ok(
            "/tokenize",
            &json!({"messages": [{"role": "user", "content": "hi"}]}),
        )
        .await;
    assert_eq!(prompt["tokens"], record["prompt_ids"]);
}

#[tokio::test]
async fn a_reply_can_be_fetched_before_done_is_seen() {
    let rig = rig();
    let body = chat(&json!({"stream": true}));
    let mut body = rig
        .send(post("/v1/chat/completions", body.to_string()))
        .await
        .into_body();
    loop {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(data.to_vec()).unwrap();
        if text.contains("[DONE]") {
            let first: Value = serde_json::from_str(events(&text)[0]).unwrap();
            let path = format!("/v1/sampled/{}", first["id"].as_str().unwrap());
            // The client hangs up without reading on.
            drop(body);
            assert_eq!(rig.get(&path).await.0, StatusCode::OK);
            return;
        }
    }
}

#[tokio::test]
async fn a_conversation_goes_on_with_the_ids_that_were_sampled() {
    let rig = rig();
    let reply = rig
        .ok("/v1/chat/completions", &chat(&json!({"temperature": 1})))
        .await;
    let (_, first) = rig
        .get(&format!("/v1/sampled/{}", reply["id"].as_str().unwrap()))
        .await;
    let messages = json!([
        {"role": "user", "content": "hi"},
        reply["choices"][0]["message"],
        {"role": "user", "content": "and?"},
    ]);
    let reply = rig
        .ok(
            "/v1/chat/completions",
            &chat(&json!({"messages": messages})),
        )
        .await;
    let (_, second) = rig
        .get(&format!("/v1/sampled/{}", reply["id"].as_str().unwrap()))
        .await;
    let ids = |value: &Value| value.as_array().unwrap().clone();
    let mut served = ids(&first["prompt_ids"]);
    served.extend(ids(&first["ids"]));
    assert_eq!(ids(&second["prompt_ids"])[..served.len()], served[..]);
    assert!(
        reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
            > 0
    );
}

#[tokio::test]
async fn hanging_up_gives_the_place_back() {
    let limits = ServerLimits {
        text: metaclaw_trainer_chat::Limits {
            n_queue: 1,
            ..metaclaw_trainer_chat::Limits::default()
        },
        ..ServerLimits::default()
    };
    let rig = rig_with(limits, None);
    let long = chat(&json!({"stream": true, "max_tokens": 400}));
    let mut body = rig
        .send(post("/v1/chat/completions", long.to_string()))
        .await
        .into_body();
    body.frame().await.unwrap().unwrap();
    let response = rig
        .send(post("/v1/chat/completions", chat(&json!({})).to_string()))
        .await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    drop(body);
    rig.ok("/v1/chat/completions", &chat(&json!({}))).await;
}

#[tokio::test]
async fn sampling_by_ids_gives_as_many_as_asked() {
    let rig = rig();
    let body = json!({"tokens": [104, 105], "num_samples": 2, "max_tokens": 5, "seed": 3, "temperature": 1, "top_p": 1, "top_k": -1});
    let reply = rig.ok("/v1/sample", &body).await;
    let sequences = reply["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), 2);
    for sequence in sequences {
        let n = sequence["tokens"].as_array().unwrap().len();
        assert!((1..=5).contains(&n));
        assert_eq!(sequence["logprobs"].as_array().unwrap().len(), n);
    }
    assert_ne!(sequences[0]["tokens"], sequences[1]["tokens"]);
    // The same ids; found in the cache and drawn in another batch, their logits may differ in the last digit.
    let again = rig.ok("/v1/sample", &body).await;
    for (sequence, again) in sequences.iter().zip(again["sequences"].as_array().unwrap()) {
        assert_eq!(sequence["tokens"], again["tokens"]);
    }
}
