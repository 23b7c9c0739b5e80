//! Tests of a package of one API with an upstream that has only the other.

use metaclaw_tests::upstream::{Asked, CACHED_TOKENS, COMPLETION_TOKENS, PROMPT_TOKENS, Play};
use serde_json::{Value, json};

use super::{GREETING, Pair, errors, program, run, script};

const TOOL_SAID: &str = "The tool said hi.";

/// A server that has chat completions and nothing else.
fn only_chat(asked: &Asked<'_>) -> Play {
    match asked.path {
        "/v1/chat/completions" => script(asked),
        _ => Play::Unknown,
    }
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn the_openai_package_uses_an_upstream_of_messages() {
    let pair = Pair::start("anthropic", &Value::Null).await;
    let scenes = ["whole", "streamed", "thought", "tool", "vision"].map(|s| format!("chat_{s}"));
    let scenes: Vec<&str> = scenes.iter().map(String::as_str).collect();
    let at = &pair.proxy.base_url;
    let seen = run(program(&pair.python, "openai_turns.py", at, &scenes)).await;

    let usage = json!({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS}});
    for scene in ["chat_whole", "chat_vision"] {
        let choice = &seen[scene]["choices"][0];
        assert_eq!(choice["message"]["content"], GREETING, "{scene}");
        assert_eq!(choice["finish_reason"], "stop", "{scene}");
        assert_eq!(seen[scene]["usage"], usage, "{scene}");
    }
    let chunks = seen["chat_streamed"].as_array().expect("chunks");
    assert_eq!(deltas(chunks, "content"), GREETING);
    assert_eq!(chunks.last().expect("chunks")["usage"], usage);
    let thought = seen["chat_thought"].as_array().expect("chunks");
    assert_eq!(deltas(thought, "reasoning_content"), "Let me greet them.");
    let call = &seen["chat_tool"]["call"];
    let arguments = call["function"]["arguments"].as_str();
    assert_eq!(arguments, Some(r#"{"command":"echo \"hi\""}"#));
    let reply = &seen["chat_tool"]["reply"]["choices"][0]["message"];
    assert_eq!(reply["content"], TOOL_SAID);

    let sent = sent(&pair);
    assert!(sent.iter().all(|(path, _)| path == "/v1/messages"));
    let results = &sent[4].1["messages"][2]["content"][0];
    assert_eq!(results["type"], "tool_result", "{results}");
    assert_eq!(results["tool_use_id"], call["id"]);
    let image = &sent[5].1["messages"][0]["content"][1]["source"];
    assert_eq!(image["media_type"], "image/png", "{image}");
    pair.proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn the_anthropic_package_uses_an_upstream_of_chat_completions() {
    let pair = Pair::playing(only_chat, "openai", &Value::Null).await;
    let scenes = ["whole", "streamed", "thought", "tool", "vision"];
    let at = &pair.proxy.base_url;
    let seen = run(program(&pair.python, "anthropic_turns.py", at, &scenes)).await;

    for scene in ["whole", "vision"] {
        let seen = &seen[scene];
        assert_eq!(seen["content"][0]["text"], GREETING, "{scene}");
        assert_eq!(seen["stop_reason"], "end_turn", "{scene}");
        assert_eq!(seen["usage"]["cache_read_input_tokens"], CACHED_TOKENS);
        let new = PROMPT_TOKENS - CACHED_TOKENS;
        assert_eq!(seen["usage"]["input_tokens"], new, "{scene}");
        assert_eq!(seen["usage"]["output_tokens"], COMPLETION_TOKENS);
    }
    let events = seen["streamed"].as_array().expect("events");
    let text: String = events
        .iter()
        .filter_map(|event| event["delta"]["text"].as_str())
        .collect();
    assert_eq!(text, GREETING);
    assert_eq!(events.last().expect("events")["type"], "message_stop");
    let blocks = &seen["thought"]["message"]["content"];
    assert_eq!(blocks[0]["thinking"], "Let me greet them.", "{blocks}");
    assert_eq!(seen["tool"]["asked"]["stop_reason"], "tool_use");
    let call = &seen["tool"]["asked"]["content"][0];
    assert_eq!(call["input"]["command"], "echo \"hi\"");
    assert_eq!(seen["tool"]["reply"]["content"][0]["text"], TOOL_SAID);

    let sent = sent(&pair);
    let (guess, asked) = sent.split_first().expect("requests");
    assert_eq!(guess.0, "/v1/messages", "it is found out, once");
    assert!(asked.iter().all(|(path, _)| path == "/v1/chat/completions"));
    let result = &asked[4].1["messages"][2];
    assert_eq!(result["tool_call_id"], call["id"], "{}", asked[4].1);
    let image = &asked[5].1["messages"][0]["content"][0]["image_url"]["url"];
    let image = image.as_str().expect("an address");
    assert!(image.starts_with("data:image/png;base64,"), "{image}");
    pair.proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn errors_of_the_other_api_raise_what_a_package_knows() {
    let pair = Pair::playing(only_chat, "openai", &Value::Null).await;
    errors::assert_raised(&pair, "anthropic", &["messages"]).await;
    pair.proxy.stop().await.unwrap();

    let pair = Pair::start("anthropic", &Value::Null).await;
    errors::assert_raised(&pair, "openai", &["chat"]).await;
    pair.proxy.stop().await.unwrap();
}

/// Joins one field of all deltas of a stream.
fn deltas(chunks: &[Value], field: &str) -> String {
    let texts = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str());
    texts.collect()
}

/// The route and the body that the upstream got.
fn sent(pair: &Pair) -> Vec<(String, Value)> {
    let read = |body: &[u8]| serde_json::from_slice(body).expect("JSON");
    let all = pair.behind.received();
    all.iter()
        .map(|sent| (sent.path().to_owned(), read(&sent.body)))
        .collect()
}
