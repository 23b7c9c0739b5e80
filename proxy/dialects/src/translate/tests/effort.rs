//! Tests that the effort that a caller asks for in one API becomes the right effort in the server's API.

use serde_json::{Value, json};

use super::*;

/// Returns the named fields of a translated request.
fn sent(path: &[Direction], model: &str, more: &Value, fields: &[&str]) -> Value {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
    if path.first() == Some(&ResponsesToChat) {
        body = json!({ "model": model, "input": "hi" });
    }
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let (sent, _) = request_along(path, &body, 1).unwrap();
    let given = fields.iter().filter(|name| sent.get(**name).is_some());
    given
        .map(|name| ((*name).to_owned(), sent[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn a_chat_model_gets_the_nearest_word_that_it_has() {
    let effort = |word: &str| json!({ "max_tokens": 20_000, "output_config": { "effort": word }, "thinking": { "type": "adaptive" } });
    let budget = |n: u64| json!({ "max_tokens": 40_000, "thinking": { "type": "enabled", "budget_tokens": n } });
    let off = json!({ "max_tokens": 9, "thinking": { "type": "disabled" }, "output_config": { "effort": "high" } });
    let tool = json!({ "max_tokens": 9, "output_config": { "effort": "low" }, "tools": [{ "name": "f", "input_schema": {} }] });
    let unasked = json!({ "max_tokens": 9, "tools": tool["tools"] });
    let tool_off =
        json!({ "max_tokens": 9, "thinking": { "type": "disabled" }, "tools": tool["tools"] });
    for (model, more, expected) in [
        ("gpt-5.2", effort("low"), Some("low")),
        ("gpt-5.2", effort("HIGH"), Some("high")),
        ("gpt-5.2", effort("max"), Some("xhigh")),
        ("gpt-5.1", effort("xhigh"), Some("high")),
        ("gpt-5.1", effort("minimal"), Some("none")),
        ("gpt-5", effort("max"), Some("high")),
        ("gpt-5-pro", effort("low"), Some("high")),
        ("gpt-5.1-codex-max-2026", effort("max"), Some("xhigh")),
        ("o3-mini", effort("max"), Some("high")),
        ("openai/gpt-oss-120b", effort("xhigh"), Some("high")),
        ("gpt-oss:20b", effort("medium"), Some("medium")),
        ("gpt-5.2", budget(1_024), Some("low")),
        ("gpt-5.2", budget(8_000), Some("medium")),
        ("gpt-5.2", budget(16_000), Some("high")),
        ("gpt-5.2", off.clone(), Some("none")),
        ("gpt-5", off.clone(), Some("minimal")),
        ("o4-mini", off, Some("low")),
        // The server decides where nothing was asked, or where the word is nobody's.
        (
            "gpt-5.2",
            json!({ "max_tokens": 9, "thinking": { "type": "adaptive" } }),
            None,
        ),
        ("gpt-5.2", effort("boundless"), None),
        // These would be refused.
        ("gpt-4.1", effort("high"), None),
        ("gpt-5-chat-latest", effort("high"), None),
        ("o1-mini", effort("high"), None),
        ("grok-4", effort("high"), None),
        ("mistral-large-latest", effort("high"), None),
        ("llama3.1:8b", effort("high"), None),
        ("gpt-5.2", tool.clone(), Some("low")),
        ("gpt-5.4", tool.clone(), None),
        ("gpt-5.5", tool.clone(), None),
        ("gpt-5.7", tool.clone(), None),
        ("gpt-5.5", unasked.clone(), None),
        ("gpt-5.2", unasked.clone(), None),
        ("gpt-5.5", tool_off.clone(), Some("none")),
        ("gpt-5.4", tool_off, Some("none")),
        ("gpt-5.6-terra", tool.clone(), Some("none")),
        ("gpt-5.6", unasked, Some("none")),
        ("openai/gpt-5.6", tool, Some("low")),
    ] {
        let sent = sent(&[MessagesToChat], model, &more, &["reasoning_effort"]);
        let expected = expected.map_or_else(|| json!({}), |it| json!({ "reasoning_effort": it }));
        assert_eq!(sent, expected, "{model} {more}");
    }
    for (model, word, expected) in [
        ("gpt-5.2", "low", "low"),
        ("o3", "xhigh", "high"),
        ("gpt-5", "none", "minimal"),
        ("gpt-oss-20b", "minimal", "low"),
    ] {
        let more = json!({ "reasoning": { "effort": word } });
        let sent = sent(&[ResponsesToChat], model, &more, &["reasoning_effort"]);
        assert_eq!(
            sent,
            json!({ "reasoning_effort": expected }),
            "{model} {word}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_claude_gets_a_word_or_a_budget_that_leaves_room() {
    let fields = ["thinking", "output_config", "max_tokens"];
    let word = |word: &str| json!({ "reasoning_effort": word, "max_completion_tokens": 4_000 });
    let adaptive = |word: &str, n: u64| json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": word }, "max_tokens": n });
    let budget = |tokens: u64, n: u64| json!({ "thinking": { "type": "enabled", "budget_tokens": tokens }, "max_tokens": n });
    let room = 8_192 + 16_384;
    for (model, more, expected) in [
        ("claude-opus-4-8", word("low"), adaptive("low", 4_000)),
        ("claude-opus-4-8", word("minimal"), adaptive("low", 4_000)),
        ("claude-opus-4-8", word("xhigh"), adaptive("xhigh", 4_000)),
        ("claude-opus-4-8", word("max"), adaptive("max", 4_000)),
        (
            "anthropic.claude-sonnet-4-6-v1:0",
            word("xhigh"),
            adaptive("high", 4_000),
        ),
        ("claude-opus-4-6", word("max"), adaptive("max", 4_000)),
        (
            "claude-opus-4-8",
            word("none"),
            json!({ "output_config": { "effort": "low" }, "max_tokens": 4_000 }),
        ),
        (
            "claude-opus-4-8",
            json!({ "reasoning_effort": "high" }),
            adaptive("high", room),
        ),
        (
            "claude-opus-4-8",
            json!({ "reasoning": { "effort": "medium" } }),
            adaptive("medium", room),
        ),
        (
            "claude-opus-4-8",
            json!({ "thinking": { "type": "enabled", "budget_tokens": 2_000 } }),
            adaptive("low", 8_192),
        ),
        (
            "claude-sonnet-4-5",
            json!({ "reasoning_effort": "high" }),
            budget(16_384, room),
        ),
        (
            "claude-sonnet-4-5",
            json!({ "reasoning": { "max_tokens": 4_000 } }),
            budget(4_000, room),
        ),
        (
            "claude-sonnet-4-5",
            json!({ "reasoning": { "max_tokens": 90_000 } }),
            budget(16_384, room),
        ),
        (
            "claude-3-7-sonnet-latest",
            word("high"),
            budget(2_000, 4_000),
        ),
        ("claude-haiku-4-5", word("minimal"), budget(1_024, 4_000)),
        (
            "claude-haiku-4-5",
            word("none"),
            json!({ "max_tokens": 4_000 }),
        ),
        (
            "claude-haiku-4-5",
            json!({ "reasoning_effort": "high", "max_tokens": 1_500 }),
            json!({ "max_tokens": 1_500 }),
        ),
        // These do not think, or are not known to.
        (
            "claude-3-5-sonnet",
            word("high"),
            json!({ "max_tokens": 4_000 }),
        ),
        ("kimi-k2", word("high"), json!({ "max_tokens": 4_000 })),
    ] {
        assert_eq!(
            sent(&[ChatToMessages], model, &more, &fields),
            expected,
            "{model} {more}"
        );
    }
    let path = [ResponsesToChat, ChatToMessages];
    let more = json!({ "reasoning": { "effort": "xhigh" } });
    assert_eq!(
        sent(&path, "claude-opus-4-8", &more, &fields),
        adaptive("xhigh", room)
    );
    assert_eq!(
        sent(&path, "claude-sonnet-4-5", &more, &fields),
        budget(16_384, room)
    );
    let forced = json!({ "reasoning_effort": "high", "tool_choice": "required", "tools": [{ "type": "function", "function": { "name": "f" } }] });
    let sent = sent(&[ChatToMessages], "claude-sonnet-4-5", &forced, &fields);
    assert_eq!(sent.get("thinking"), None, "a tool must be called");
}
