//! Several choices, log-probabilities of real tokens, and thinking that the template switches.

use std::fs;

use super::*;

#[tokio::test]
async fn as_many_choices_come_as_were_asked_for() {
    let rig = rig();
    let reply = rig.chat(&json!({"n": 3, "temperature": 1})).await;
    let choices = reply["choices"].as_array().unwrap();
    let text = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
    let texts: Vec<String> = choices.iter().map(text).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    let id = reply["id"].as_str().unwrap();
    let mut n_generated = 0;
    let ids = [id.to_owned(), format!("{id}-1"), format!("{id}-2")];
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(choices[index]["index"], index);
        let (_, record) = rig.get(&format!("/v1/sampled/{id}")).await;
        n_generated += record["ids"].as_array().unwrap().len();
    }
    assert_eq!(reply["usage"]["completion_tokens"], n_generated);
    // The first is what one alone would have been, and the second what the next seed alone is.
    for (at, seed) in [(0, 1), (1, 2)] {
        let alone = rig.chat(&json!({"seed": seed, "temperature": 1})).await;
        assert_eq!(text(&alone["choices"][0]), texts[at]);
    }
}

#[tokio::test]
async fn choices_are_streamed_side_by_side() {
    let rig = rig();
    let mut several = json!({"n": 3, "temperature": 1, "max_tokens": 100});
    let whole = rig.chat(&several).await;
    several["stream_options"] = json!({"include_usage": true});
    let mut chunks = rig.chunks(&several).await;
    let n_generated = |reply: &Value| reply["usage"]["completion_tokens"].clone();
    assert_eq!(n_generated(&chunks.pop().unwrap()), n_generated(&whole));
    let mut texts = [String::new(), String::new(), String::new()];
    let mut ends = 0;
    let mut order = Vec::new();
    for chunk in &chunks {
        let choice = &chunk["choices"][0];
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        texts[index] += choice["delta"]["content"].as_str().unwrap_or("");
        ends += usize::from(choice["finish_reason"].is_string());
        order.push(index);
    }
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(*text, whole["choices"][index]["message"]["content"]);
    }
    assert_eq!(ends, 3);
    order.dedup();
    assert!(order.len() > 6, "one after the other: {order:?}");
}

/// Returns the tokens of the first choice with their log-probabilities.
fn shown(reply: &Value) -> Vec<Value> {
    let content = &reply["choices"][0]["logprobs"]["content"];
    content.as_array().unwrap().clone()
}

/// The client's text holds back what is no character yet; the token is what was drawn.
#[tokio::test]
async fn a_tokens_log_probability_names_the_token() {
    let rig = rig();
    let more = json!({"temperature": 1, "max_tokens": 60, "logprobs": true, "ignore_eos": true});
    let reply = rig.chat(&more).await;
    let shown = shown(&reply);
    let record = rig.record(&reply).await;
    let ids = record["ids"].as_array().unwrap();
    assert_eq!((shown.len(), ids.len()), (60, 60));
    let special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    for (token, id) in shown.iter().zip(ids) {
        // The tiny vocabulary is the bytes, and three tokens more.
        let number = usize::try_from(id.as_u64().unwrap()).unwrap();
        match special.get(number.wrapping_sub(256)) {
            Some(text) => assert_eq!(token["token"], *text),
            None => assert_eq!(token["bytes"], json!([id])),
        }
    }
    assert!(shown.iter().any(|token| token["token"] == "\u{fffd}"));
}

#[tokio::test]
async fn the_likeliest_tokens_are_told_beside_each() {
    let rig = rig();
    let more = json!({"temperature": 0, "logprobs": true, "top_logprobs": 3});
    for token in shown(&rig.chat(&more).await) {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the drawn one is the first.
        let drawn = json!([token["bytes"], token["logprob"]]);
        assert_eq!(json!([top[0]["bytes"], top[0]["logprob"]]), drawn);
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
    }
}

/// As Qwen3's: thinking is opened, or closed at once.
const THINKS: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% if enable_thinking is defined and enable_thinking is false %}{{ '\n</think>\n\n' }}{% endif %}{% endif %}";

fn thinker() -> Rig {
    let folder = folder_of_tiny();
    let file = folder.path().join("tiny/tokenizer_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["chat_template"] = json!(THINKS);
    fs::write(file, config.to_string()).unwrap();
    rig_in(folder, ServerLimits::default(), None)
}

/// It vanished in silence: Qwen3 could not be told not to think.
#[tokio::test]
async fn thinking_is_switched_off_where_the_template_can() {
    let rig = thinker();
    let thought = rig.chat(&json!({})).await;
    let thought = &thought["choices"][0]["message"];
    assert_eq!(thought["content"], "");
    assert!(!thought["reasoning_content"].as_str().unwrap().is_empty());
    for off in [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"reasoning_effort": "none"}),
        json!({"enable_thinking": false}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"reasoning": {"enabled": false}}),
    ] {
        let said = rig.chat(&off).await;
        let said = &said["choices"][0]["message"];
        assert_ne!(said["content"], "", "{off}");
        assert_eq!(said.get("reasoning_content"), None, "{off}");
        let chunks = rig.chunks(&off).await;
        let thinks = |chunk: &Value| {
            let delta = &chunk["choices"][0]["delta"];
            delta.get("reasoning_content").is_some()
        };
        assert!(!chunks.iter().any(thinks), "{off}");
    }
}
