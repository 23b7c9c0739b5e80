//! Why a reply ended: every word of the table, between all APIs, whole and streamed.

use serde_json::{Value, json};

use super::*;

const TABLE: &str = include_str!("../../../../chat/src/words.tsv");

/// What a kind of word becomes without and beside a call in a chat completion and in Anthropic's messages, and in a
/// response.
const KINDS: &str = "\
done      stop tool_calls   end_turn tool_use   completed
called    stop tool_calls   end_turn tool_use   completed
paused    stop tool_calls   end_turn tool_use   completed
length    length length   max_tokens max_tokens   max_output_tokens
window    length length   model_context_window_exceeded model_context_window_exceeded   max_output_tokens
filtered  content_filter content_filter   refusal refusal   content_filter
broken    error error   error error   error";

/// The arguments of a reply's call, or `None` for a text.
const SAID: [Option<&str>; 3] = [None, Some("{\"x\":1}"), Some("{\"x\":")];

fn events(events: &[Value]) -> String {
    let lines = events.iter().map(|data| format!("data: {data}\n\n"));
    lines.collect()
}

fn chat(arguments: Option<&str>, word: &str, is_stream: bool) -> String {
    let message = match arguments {
        None => json!({ "role": "assistant", "content": "x" }),
        Some(arguments) => {
            let function = json!({ "name": "f", "arguments": arguments });
            let call = json!({ "index": 0, "id": "c1", "type": "function", "function": function });
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        }
    };
    if !is_stream {
        let choice = json!({ "index": 0, "message": message, "finish_reason": word });
        return json!({ "id": "r", "choices": [choice] }).to_string();
    }
    let said = json!({ "index": 0, "delta": message, "finish_reason": null });
    let end = json!({ "index": 0, "delta": {}, "finish_reason": word });
    let chunks = [said, end].map(|choice| json!({ "id": "r", "choices": [choice] }));
    events(&chunks) + "data: [DONE]\n\n"
}

fn messages(arguments: Option<&str>, word: impl Into<Value>, is_stream: bool) -> String {
    let word = word.into();
    let call =
        |input: &Value| json!({ "type": "tool_use", "id": "t1", "name": "f", "input": input });
    let message = |content: &Value, reason: &Value| json!({ "id": "r", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason });
    if !is_stream {
        // What is not JSON cannot be in a whole message.
        let input = arguments.map(|text| serde_json::from_str(text).unwrap_or(json!({})));
        let block = input.map_or_else(
            || json!({ "type": "text", "text": "x" }),
            |input| call(&input),
        );
        return message(&json!([block]), &word).to_string();
    }
    let (block, delta) = match arguments {
        None => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": "x" }),
        ),
        Some(text) => (
            call(&json!({})),
            json!({ "type": "input_json_delta", "partial_json": text }),
        ),
    };
    events(&[
        json!({ "type": "message_start", "message": message(&json!([]), &Value::Null) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": word } }),
        json!({ "type": "message_stop" }),
    ])
}

/// Returns what the caller reads of a reply: its last stop reason, or `error`.
fn reason(reply: &[u8], is_stream: bool) -> String {
    let text = String::from_utf8_lossy(reply);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let lines = if is_stream {
        lines.collect()
    } else {
        vec![&*text]
    };
    let events: Vec<Value> = lines
        .iter()
        .flat_map(|line| serde_json::from_str(line))
        .collect();
    let is_error = |event: &Value| {
        ["error", "response.failed"]
            .map(Value::from)
            .contains(&event["type"])
            || event["error"].is_object()
    };
    if events.iter().any(is_error) {
        return "error".to_owned();
    }
    let places = [
        "/choices/0/finish_reason",
        "/stop_reason",
        "/delta/stop_reason",
        "/incomplete_details/reason",
        "/response/incomplete_details/reason",
        "/status",
        "/response/status",
    ];
    let last = |place: &&str| {
        events
            .iter()
            .rev()
            .find_map(|event| event.pointer(place)?.as_str())
    };
    places.iter().find_map(last).unwrap_or_default().to_owned()
}

fn translated(path: &[Direction], mut bytes: Vec<u8>, is_stream: bool) -> Vec<u8> {
    let mut status = None;
    for direction in path.iter().rev() {
        if is_stream {
            bytes = rewritten(stream(*direction, &ASKED), [&bytes[..]]);
        } else if let Some(status) = status {
            bytes = error(*direction, status, &bytes);
        } else {
            let out = reply(*direction, &ASKED, &bytes).unwrap();
            (status, bytes) = (out.error, out.body);
        }
    }
    bytes
}

#[test]
fn every_word_is_understood_between_all_apis() {
    let mut n_words = 0;
    for line in TABLE.lines() {
        let mut columns = line.split('\t');
        let named = columns.next();
        let mut kinds = KINDS
            .lines()
            .map(|kind| kind.split_whitespace().collect::<Vec<_>>());
        let Some(kind) = kinds.find(|kind| named == Some(kind[0])) else {
            continue;
        };
        let word = columns.next().unwrap();
        n_words += 1;
        let other = format!("FINISH_REASON_{}", word.to_uppercase());
        for word in [word, &word.replace('_', "-"), &other] {
            for (n, arguments) in SAID.into_iter().enumerate() {
                let has_call = usize::from(n > 0);
                for (path, expected) in [
                    (&[ChatToMessages][..], kind[1 + has_call]),
                    (&[MessagesToChat], kind[3 + has_call]),
                    (&[ResponsesToChat], kind[5]),
                    (&[ResponsesToChat, ChatToMessages], kind[5]),
                ] {
                    for is_stream in [false, true] {
                        let answer = match path.last().unwrap().upstream() {
                            Api::Messages => messages(arguments, word, is_stream),
                            Api::Chat | Api::Responses => chat(arguments, word, is_stream),
                        };
                        let out = translated(path, answer.into_bytes(), is_stream);
                        let about = format!("{word} {path:?} {arguments:?} {is_stream}");
                        assert_eq!(reason(&out, is_stream), expected, "{about}");
                    }
                }
            }
        }
    }
    assert!(n_words > 40, "{n_words}");
}

#[test]
fn a_message_without_a_reason_ends_with_one_in_both_forms() {
    for (arguments, in_chat) in [(None, "stop"), (Some("{\"x\":1}"), "tool_calls")] {
        for word in [Value::Null, json!(""), json!("zzz"), json!(7)] {
            for is_stream in [false, true] {
                let said = messages(arguments, word.clone(), is_stream).into_bytes();
                let out = translated(&[ChatToMessages], said, is_stream);
                assert_eq!(reason(&out, is_stream), in_chat, "{word} {is_stream}");
                let said = messages(arguments, word.clone(), is_stream).into_bytes();
                let out = translated(&[ResponsesToChat, ChatToMessages], said, is_stream);
                assert_eq!(reason(&out, is_stream), "completed", "{word} {is_stream}");
            }
        }
    }
}
