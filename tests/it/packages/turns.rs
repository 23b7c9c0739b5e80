//! Tests of replies: streamed and whole, tools, images, thoughts, and other routes.

use serde_json::Value;

use super::{GREETING, Pair};

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn the_openai_package_sees_and_sends_what_it_would_without_us() {
    let pair = Pair::start("openai", &Value::Null).await;
    let seen = pair.assert_same("openai_turns.py", &[]).await;

    let text = |reply: &Value| reply["choices"][0]["message"]["content"].clone();
    assert_eq!(text(&seen["chat_whole"]), GREETING);
    for scene in ["chat_streamed", "chat_without_done", "chat_without_finish"] {
        assert_eq!(streamed(&seen[scene]), GREETING, "{scene}");
    }
    let n_finishes = |scene: &str| {
        let chunks = list(&seen[scene]).iter();
        let has_finish = |chunk: &&Value| chunk["choices"][0]["finish_reason"].is_string();
        chunks.filter(has_finish).count()
    };
    assert_eq!(n_finishes("chat_streamed"), 1);
    assert_eq!(n_finishes("chat_without_finish"), 0, "none is made up");
    assert_eq!(seen["chat_tool"]["call"]["function"]["name"], "exec");
    assert_eq!(text(&seen["chat_tool"]["reply"]), "The tool said hi.");
    assert_eq!(seen["responses_whole"]["text"], GREETING);
    let last = list(&seen["responses_streamed"]).last();
    assert_eq!(last.expect("events")["type"], "response.completed");
    assert_eq!(seen["responses_tool"]["text"], "The tool said hi.");
    assert_eq!(seen["beside"]["vector"]["data"][0]["embedding"][2], 1e-7);
    pair.proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn the_anthropic_package_sees_and_sends_what_it_would_without_us() {
    let pair = Pair::start("anthropic", &Value::Null).await;
    let seen = pair.assert_same("anthropic_turns.py", &[]).await;

    assert_eq!(seen["whole"]["content"][0]["text"], GREETING);
    let last = list(&seen["streamed"]).last();
    assert_eq!(last.expect("events")["type"], "message_stop");
    assert_eq!(seen["thought"]["text"], GREETING);
    let blocks = list(&seen["thought"]["message"]["content"]);
    assert_eq!(blocks[0]["thinking"], "Let me greet them.");
    let call = &seen["tool"]["asked"]["content"][0];
    assert_eq!(call["input"]["command"], "echo \"hi\"");
    let reply = &seen["tool"]["reply"]["content"][0];
    assert_eq!(reply["text"], "The tool said hi.");
    assert_eq!(seen["beside"]["count"]["input_tokens"], 1234);
    let sent = pair.behind.received();
    let betas = sent
        .iter()
        .filter(|sent| sent.header("anthropic-beta").is_some());
    assert_eq!(betas.count(), 1);
    pair.proxy.stop().await.unwrap();
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// Returns the text of a streamed chat completion.
fn streamed(chunks: &Value) -> String {
    let deltas = list(chunks).iter();
    deltas
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect()
}
