use super::*;

#[tokio::test]
async fn a_whole_reply_is_openais() {
    let rig = rig();
    let mut reply = rig.chat(&json!({})).await;
    let count = |name: &str| reply["usage"][name].as_u64().unwrap();
    let parts = count("prompt_tokens") + count("completion_tokens");
    assert_eq!(count("total_tokens"), parts);
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    for field in ["/id", "/created", "/choices/0/message/content"] {
        *reply.pointer_mut(field).unwrap() = json!("[varies]");
    }
    insta::assert_json_snapshot!(reply);
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_reply() {
    let rig = rig();
    let whole = rig.chat(&json!({})).await;
    let with_usage = json!({"stream_options": {"include_usage": true}});
    let response = rig.stream(&with_usage).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    drop(response);
    let chunks = rig.chunks(&with_usage).await;
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(chunks[0]["usage"].is_null());
    let content = |c: &Value| Some(c["choices"][0]["delta"]["content"].as_str()?.to_owned());
    let content: String = chunks.iter().filter_map(content).collect();
    assert_eq!(content, whole["choices"][0]["message"]["content"]);
    let [.., end, last] = chunks.as_slice() else {
        panic!("too few chunks: {chunks:?}")
    };
    let reason = |reply: &Value| reply["choices"][0]["finish_reason"].clone();
    assert_eq!(reason(end), reason(&whole));
    assert_eq!(last["choices"], json!([]));
    // The later requests found the first one's prompt in the cache.
    let n_generated = |reply: &Value| reply["usage"]["completion_tokens"].clone();
    assert_eq!(n_generated(last), n_generated(&whole));
}

#[tokio::test]
async fn lessons_of_the_gateway_join_the_system_text() {
    let rig = rig();
    let said = json!([{"role": "system", "content": "Be kind.\n\nBe short."}, {"role": "user", "content": "hi"}]);
    let split =
        json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]);
    let whole = json!({"messages": said});
    let appended = json!({"messages": split, "metaclaw_system_append": "Be short."});
    let without = json!({"messages": split});
    let mut n_prompt = Vec::new();
    for fields in [&whole, &appended, &without] {
        let reply = rig.chat(fields).await;
        n_prompt.push(reply["usage"]["prompt_tokens"].as_u64().unwrap());
    }
    assert_eq!(n_prompt[0], n_prompt[1], "the same prompt either way");
    assert!(n_prompt[2] < n_prompt[1]);
}

#[tokio::test]
async fn tokens_come_one_by_one() {
    let rig = rig();
    let streamed = rig.stream(&json!({"max_tokens": 300, "stop": []})).await;
    let mut body = streamed.into_body();
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        frames += 1;
        let events = String::from_utf8(data.to_vec()).unwrap();
        // One piece of text in each frame; the last has the end as well.
        let n_pieces = events.matches("\"delta\":{\"content\"").count();
        assert!(n_pieces <= 1, "{events}");
    }
    assert!(frames > 3, "{frames}");
}

#[tokio::test]
async fn the_record_is_what_was_said() {
    let rig = rig();
    let more = json!({"temperature": 1, "logprobs": true, "max_tokens": 20});
    let reply = rig.chat(&more).await;
    let record = rig.record(&reply).await;
    let n = |field: &str| record[field].as_array().unwrap().len();
    assert_eq!(reply["usage"]["completion_tokens"], n("ids"));
    assert_eq!(reply["usage"]["prompt_tokens"], n("prompt_ids"));
    assert_eq!(record["base"], "tiny");
    assert_eq!(record["adapter"], Value::Null);
    // At temperature 1 without top-k and top-p both are the same distribution.
    let logprobs = |field: &str| -> Vec<f64> {
        let values = record[field].as_array().unwrap();
        values.iter().map(|v| v.as_f64().unwrap()).collect()
    };
    let (own, sampling) = (logprobs("logprobs"), logprobs("sampling_logprobs"));
    for (a, b) in own.iter().zip(sampling) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    let shown = &reply["choices"][0]["logprobs"]["content"];
    assert_eq!(shown.as_array().unwrap().len(), n("ids"));
    let messages = json!({"messages": [{"role": "user", "content": "hi"}]});
    let prompt = rig.ok("/tokenize", &messages).await;
    assert_eq!(prompt["tokens"], record["prompt_ids"]);
}

#[tokio::test]
async fn a_reply_can_be_fetched_before_done_is_seen() {
    let rig = rig();
    let mut body = rig.stream(&json!({})).await.into_body();
    loop {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(data.to_vec()).unwrap();
        if text.contains("[DONE]") {
            let first: Value = serde_json::from_str(events(&text)[0]).unwrap();
            // The client hangs up without reading on.
            drop(body);
            rig.record(&first).await;
            return;
        }
    }
}

#[tokio::test]
async fn a_conversation_goes_on_with_the_ids_that_were_sampled() {
    let rig = rig();
    let reply = rig.chat(&json!({"temperature": 1})).await;
    let first = rig.record(&reply).await;
    let messages = json!([
        {"role": "user", "content": "hi"},
        reply["choices"][0]["message"],
        {"role": "user", "content": "and?"},
    ]);
    let reply = rig.chat(&json!({"messages": messages})).await;
    let second = rig.record(&reply).await;
    let ids = |value: &Value| value.as_array().unwrap().clone();
    let mut served = ids(&first["prompt_ids"]);
    served.extend(ids(&first["ids"]));
    assert_eq!(ids(&second["prompt_ids"])[..served.len()], served[..]);
    let cached = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() > 0);
}

#[tokio::test]
async fn hanging_up_gives_the_place_back() {
    let usual = metaclaw_trainer_chat::Limits::default();
    let rig = rig_of_chats(metaclaw_trainer_chat::Limits {
        n_queue: 1,
        ..usual
    });
    let mut body = rig.stream(&json!({"max_tokens": 400})).await.into_body();
    body.frame().await.unwrap().unwrap();
    let response = rig.begin_chat(&json!({})).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    drop(body);
    rig.chat(&json!({})).await;
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
