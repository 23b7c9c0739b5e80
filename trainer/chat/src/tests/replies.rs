//! Tests of what a client gets for sampled ids.

use super::*;

#[tokio::test]
async fn ids_become_a_reply_and_its_record() {
    let rig = rig(|_| answer([says(1, "Oui"), says(0, "Yes")].concat()));
    let asked = json!({"n": 2, "seed": 7, "temperature": 1, "model": "main@3"});
    let (status, reply) = rig.chat(&asked).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let said = |at: usize| reply["choices"][at]["message"]["content"].clone();
    assert_eq!((said(0), said(1)), (json!("Yes"), json!("Oui")));
    assert_eq!(reply["model"], "main@3");
    assert_eq!(reply["usage"]["completion_tokens"], 8);
    let [request] = &rig.asked()[..] else {
        panic!("asked {} times", rig.asked().len())
    };
    assert_eq!((request.n, request.seed), (2, Some(7)));
    assert_eq!(request.stop_token_ids, [END]);
    let id = reply["id"].as_str().unwrap();
    let (_, record) = rig.get(&format!("/v1/sampled/{id}")).await;
    assert_eq!(record["ids"], json!(whole("Yes")));
    assert_eq!(record["prompt_ids"], json!(request.prompt_ids));
    let adapter = json!([record["version"], record["adapter"]]);
    assert_eq!(adapter, json!([3, "main@3"]));
    let logprobs = json!([record["logprobs"][0], record["sampling_logprobs"][0]]);
    assert_eq!(logprobs, json!([-0.5, -0.25]));
    let (_, second) = rig.get(&format!("/v1/sampled/{id}-1")).await;
    assert_eq!(second["ids"], json!(whole("Oui")));
    let messages = json!({"messages": hi(&asked)["messages"]});
    let (_, prompt) = rig.tokenize(&messages).await;
    assert_eq!(prompt["tokens"], record["prompt_ids"]);
    assert_eq!(prompt["max_model_len"], CONTEXT);
}

/// A client that cut a text inside an emoji sends the half in each later request.
#[tokio::test]
async fn half_an_emoji_is_a_replacement_character_at_every_door() {
    let rig = rig(|_| answer(says(0, "Yes")));
    let tool = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":\"HALF\"}"}}]},{"role":"tool","tool_call_id":"c","content":"HALF"}"#;
    let user = r#"{"role":"user","content":"x HALF y"}"#;
    let described = r#"{"type":"function","function":{"name":"f","description":"HALF"}}"#;
    let long = format!("{{\"messages\":{}[{user}]}}", " ".repeat(300_000));
    for body in [
        format!("{{\"messages\":[{user}]}}"),
        format!("{{\"messages\":[{user},{tool}]}}"),
        format!("{{\"messages\":[{user}],\"tools\":[{described}]}}"),
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"HALF"}]}]}"#.to_owned(),
        long,
        r#"{"prompt":"HALF"}"#.to_owned(),
    ] {
        let doors = ["/tokenize", "/v1/chat/completions"];
        let n = if body.contains("prompt") { 1 } else { 2 };
        for path in &doors[..n] {
            let mut tokens = Vec::new();
            for half in ["\\ud83d", "\\uDE00", "\\ud83d\\ud83d", "\u{fffd}"] {
                let escaped = format!(r#"\"{}"#, half.replace('\\', "\\\\"));
                let written = body.replace(r#"\"HALF"#, &escaped);
                let sent = written.replace("HALF", half);
                let (status, reply) = read(rig.post_text(path, sent.clone()).await).await;
                assert_eq!(status, StatusCode::OK, "{path} {sent:.300}: {reply}");
                tokens.push(reply["tokens"].clone());
            }
            assert_eq!(tokens[0], tokens[3], "{path} {body:.300}");
            assert_eq!(tokens[1], tokens[3], "{path} {body:.300}");
        }
    }
    let name = r#"{"messages":[],"a\ud83d":1}"#.to_owned();
    let (status, reply) = read(rig.post_text("/tokenize", name).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    assert_eq!(reply["error"]["param"], "a\u{fffd}");
}

#[tokio::test]
async fn a_conversation_with_its_reply_is_split_where_the_reply_begins() {
    let rig = rig(|_| answer(says(0, "unused")));
    let asked = json!({"role": "user", "content": "hi"});
    let reply = json!({"role": "assistant", "content": "Yes"});
    let (_, prompt) = rig.tokenize(&json!({"messages": [asked]})).await;
    let talk = json!({"messages": [asked, reply], "split_reply": true});
    let (_, split) = rig.tokenize(&talk).await;
    let start = usize::try_from(split["reply_start"].as_u64().unwrap()).unwrap();
    let tokens = split["tokens"].as_array().unwrap();
    assert_eq!(json!(tokens[..start]), prompt["tokens"]);
    assert_eq!(json!(tokens[start..]), json!(whole("Yes")));
    assert!(prompt.get("reply_start").is_none(), "{prompt}");
    let of_user = json!({"messages": [asked], "split_reply": true});
    let of_prompt = json!({"prompt": "hi", "split_reply": true});
    for (body, said) in [
        (of_user, "the last message has role user"),
        (of_prompt, "split_reply is given with a prompt"),
    ] {
        let (status, refused) = rig.tokenize(&body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
    }
}

/// A sampler that returns only ids does not know stop texts.
#[tokio::test]
async fn a_stop_text_ends_the_reply_and_cancels_what_is_still_drawn() {
    let mut steps = says(0, "one; two");
    // If the code waited for this step, the test would not end.
    let late = Ok(token(0, u32::from(b'x')));
    steps.insert(5, (Duration::from_secs(3_600), late));
    let rig = rig(move |_| answer(steps.clone()));
    let (_, reply) = rig.chat(&json!({"stop": ["; "], "logprobs": true})).await;
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["content"], "one");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 5);
    assert_eq!(reply["usage"]["completion_tokens"], 5);
    assert!(rig.was_dropped());
}

#[tokio::test]
async fn a_reply_that_was_cut_says_so() {
    let rig = rig(|_| {
        let mut steps = says(0, "ye");
        steps.truncate(2);
        steps.push(at_once(end(0, FinishReason::Length)));
        answer(steps)
    });
    let (_, reply) = rig.chat(&json!({"ignore_eos": true})).await;
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["choices"][0]["message"]["content"], "ye");
    assert!(rig.asked()[0].stop_token_ids.is_empty());
}

/// A server that does not know the end token continues.
#[tokio::test]
async fn what_comes_after_the_end_of_a_turn_is_not_part_of_it() {
    let rig = rig(|_| {
        let mut steps = says(0, "yes");
        let end = steps.pop().unwrap();
        let more = letters(" and more").into_iter();
        steps.extend(more.map(|id| at_once(token(0, id))));
        steps.push(end);
        answer(steps)
    });
    let (_, reply) = rig.chat(&json!({})).await;
    assert_eq!(reply["choices"][0]["message"]["content"], "yes");
    assert_eq!(reply["usage"]["completion_tokens"], 4);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

const TOOLS: &str = "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}\
{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}";

#[tokio::test]
async fn tools_are_shown_and_thinking_stands_apart() {
    let call = "hm\n</think>\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
    let rig = rig_with(Some(TOOLS), move |_| answer(says(0, call)));
    let look = json!([{"type": "function", "function": {"name": "look"}}]);
    let more = json!({"tools": look, "reasoning_effort": "low", "stream": true});
    let (_, text) = rig.chat(&more).await;
    let (mut reasoning, mut content) = (String::new(), String::new());
    for event in text.as_str().unwrap().split_terminator("\n\n") {
        let data = event.strip_prefix("data: ").unwrap();
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            assert_eq!(data, "[DONE]");
            continue;
        };
        let delta = &chunk["choices"][0]["delta"];
        reasoning += delta["reasoning_content"].as_str().unwrap_or("");
        content += delta["content"].as_str().unwrap_or("");
    }
    assert_eq!(reasoning, "hm");
    // Calls stay text here. The gateway converts them, for every API.
    let begins = "<tool_call>\n{\"name\": \"look\"";
    assert!(content.starts_with(begins), "{content}");
    let prompt = tokenizer(None).decode(&rig.asked()[0].prompt_ids);
    assert!(prompt.contains("\"name\": \"look\""), "{prompt}");
    assert!(prompt.ends_with("<think>\n"), "{prompt}");
}

#[tokio::test]
async fn a_conversation_goes_on_with_the_ids_that_were_sampled() {
    // No text gives the first id of the reply again: it is a byte of a letter that never ends.
    let odd = [vec![0xE5], whole("ok")].concat();
    let reply = odd.clone();
    let rig = rig(move |_| {
        let mut steps: Vec<Step> = reply.iter().map(|&id| at_once(token(0, id))).collect();
        steps.push(at_once(end(0, FinishReason::Stop)));
        answer(steps)
    });
    let (_, first) = rig.chat(&json!({})).await;
    let messages = json!([
        {"role": "user", "content": "hi"},
        first["choices"][0]["message"],
        {"role": "user", "content": "and?"},
    ]);
    rig.chat(&json!({"messages": messages})).await;
    let asked = rig.asked();
    let served = [asked[0].prompt_ids.clone(), odd].concat();
    assert_eq!(asked[1].prompt_ids[..served.len()], served[..]);
}

/// The template writes the call's arguments in another order, and the reply ends where the model waits for the result.
#[tokio::test]
async fn a_session_with_tools_goes_on_with_the_ids_that_gemma_sampled() {
    let call = "<|tool_call>call:look{n:2,at:<|\"|>a \"b\"<|\"|>}<tool_call|>";
    let said = format!("<|channel>thought\nhm\n<channel|>{call}<|tool_response>");
    let sampled = gemma().encode(&said).unwrap();
    let reply = sampled.clone();
    let rig = rig_of(gemma(), move |_| {
        let steps = reply.iter().map(|&id| token(0, id));
        answer(
            steps
                .chain([end(0, FinishReason::Stop)])
                .map(at_once)
                .collect(),
        )
    });
    let user = json!({"role": "user", "content": "<|tool_call>"});
    let thinks = json!({"messages": [user], "enable_thinking": true});
    let (_, first) = rig.chat(&thinks).await;
    let message = &first["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "hm");
    assert_eq!(message["content"], call, "calls stay text here");
    let function = json!({"name": "look", "arguments": "{\"n\": 2, \"at\": \"a \\\"b\\\"\"}"});
    let calls = json!([{"id": "c", "type": "function", "function": function}]);
    let called = json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": calls});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "<tool_response|>"});
    let more = json!({"messages": [user, called, result], "enable_thinking": true});
    rig.chat(&more).await;
    let asked = rig.asked();
    let served = [asked[0].prompt_ids.clone(), sampled].concat();
    assert_eq!(asked[1].prompt_ids[..served.len()], served[..]);
    let rest = gemma().decode_special(&asked[1].prompt_ids[served.len()..]);
    let expected =
        "response:look{value:<|\"|><tool_response|><|\"|>}<tool_response|><|channel>thought\n";
    assert_eq!(rest, expected);
    let ended = gemma().encode("<tool_response|>").unwrap();
    let n_ended = asked[1].prompt_ids.iter().filter(|id| ended.contains(id));
    assert_eq!(n_ended.count(), 1, "the template's own");
}

#[tokio::test]
async fn a_model_is_the_base_or_an_adapter_by_name() {
    let rig = rig(|_| answer(says(0, "ok")));
    let (_, models) = rig.get("/v1/models").await;
    let models = models["data"].as_array().unwrap();
    let ids: Vec<&Value> = models.iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["tiny", "main@3"]);
    let bases = ["base", "tiny", "default"].map(|name| (name, None));
    for (model, adapter) in bases.into_iter().chain([("main@3", Some("main@3"))]) {
        let (status, _) = rig.chat(&json!({"model": model})).await;
        assert_eq!(status, StatusCode::OK);
        let asked = rig.asked().pop().unwrap().adapter;
        assert_eq!(asked.as_ref().map(AdapterName::as_str), adapter);
    }
    let (status, error) = rig.chat(&json!({"model": "main@4"})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    insta::assert_snapshot!(error["error"]["message"].as_str().unwrap(), @r#"model "main@4" is not here: there is tiny, main@3"#);
}

#[tokio::test]
async fn what_the_sampler_cannot_do_is_refused_before_it_is_asked() {
    let rig = rig(|_| answer(says(0, "ok")));
    let (status, error) = rig.chat(&json!({"min_p": 0.5})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["param"], "min_p");
    let long = json!({"messages": [{"role": "user", "content": "x".repeat(CONTEXT)}]});
    let (status, error) = rig.chat(&long).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    assert!(rig.asked().is_empty());
}

#[tokio::test]
async fn nothing_is_answered_without_the_key() {
    let rig = rig(|_| answer(says(0, "ok")));
    for path in ["/v1/models", "/v1/sampled/x"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = rig.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(rig.get("/v1/nothing").await.0, StatusCode::NOT_FOUND);
}
