use metaclaw_chat::Message;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::{Reply, chat_form, testing};

const ALL: [Direction; 3] = [ChatToMessages, MessagesToChat, ResponsesToChat];

/// Makes a reply as each upstream streams it, to be translated.
fn streams(said: &Said) -> [(Direction, String); 3] {
    ALL.map(|direction| match direction {
        ChatToMessages => (direction, messages_stream(said)),
        MessagesToChat | ResponsesToChat => (direction, chat_stream(said)),
    })
}

/// The parts of a model's reply, in order.
#[derive(Debug, Clone)]
enum Piece {
    Thinking(Vec<String>),
    Text(Vec<String>),
    Call(String, Vec<String>),
}

#[derive(Debug, Clone)]
struct Said {
    pieces: Vec<Piece>,
    /// The stop reason in each API.
    stop: (&'static str, &'static str),
    has_usage: bool,
    /// How much of the end is missing.
    n_cut: usize,
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec("[a-z \"\\\\\n<é…]{1,8}", 1..4)
}

fn said() -> impl Strategy<Value = Said> {
    let arguments = select(vec![
        vec!["{\"a\":", "1}"],
        vec!["{}"],
        vec!["{\"é\":\"\\n", "\"", "}"],
    ]);
    let call = ("[a-z]{1,4}", arguments)
        .prop_map(|(name, pieces)| Piece::Call(name, pieces.into_iter().map(Into::into).collect()));
    let pieces = vec(prop_oneof![texts().prop_map(Piece::Text), call], 0..5);
    let stops = select(vec![
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
    ]);
    let all = (option::of(texts()), pieces, stops, any::<bool>(), 0..5usize);
    all.prop_map(|(thinking, mut pieces, stop, has_usage, n_cut)| {
        pieces.splice(0..0, thinking.map(Piece::Thinking));
        // Chat has one text, and then the calls.
        pieces.sort_by_key(|piece| matches!(piece, Piece::Call(..)));
        let has_calls = matches!(pieces.last(), Some(Piece::Call(..)));
        let stop = match stop {
            ("stop", _) if has_calls => ("tool_calls", "tool_use"),
            ("tool_calls", _) if !has_calls => ("stop", "end_turn"),
            stop => stop,
        };
        Said {
            pieces,
            stop,
            has_usage,
            n_cut,
        }
    })
}

// === the two wires ===

fn chat_stream(said: &Said) -> String {
    let chunk = |delta: Value| json!({ "id": "r1", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }))];
    let mut n_calls = 0;
    for piece in &said.pieces {
        match piece {
            Piece::Thinking(texts) => {
                events.extend(
                    texts
                        .iter()
                        .map(|text| chunk(json!({ "reasoning_content": text }))),
                );
            }
            Piece::Text(texts) => {
                events.extend(texts.iter().map(|text| chunk(json!({ "content": text }))));
            }
            Piece::Call(name, arguments) => {
                let call = json!({ "index": n_calls, "id": format!("c{n_calls}"), "type": "function", "function": { "name": name, "arguments": "" } });
                events.push(chunk(json!({ "tool_calls": [call] })));
                events.extend(arguments.iter().map(|piece| {
                    chunk(json!({ "tool_calls": [{ "index": n_calls, "function": { "arguments": piece } }] }))
                }));
                n_calls += 1;
            }
        }
    }
    events.push(json!({ "id": "r1", "choices": [{ "index": 0, "delta": {}, "finish_reason": said.stop.0 }] }));
    if said.has_usage {
        events.push(json!({ "choices": [], "usage": { "prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": { "cached_tokens": 8 } } }));
    }
    let mut events: Vec<String> = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    events.push("data: [DONE]\n\n".into());
    events.truncate(events.len() - said.n_cut.min(events.len()));
    events.concat()
}

fn messages_stream(said: &Said) -> String {
    let usage = json!({ "input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 1 });
    let message = json!({ "id": "r1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage });
    let mut events = vec![
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "ping" }),
    ];
    for (n, piece) in said.pieces.iter().enumerate() {
        let (block, field, deltas) = match piece {
            Piece::Thinking(texts) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                "thinking",
                texts,
            ),
            Piece::Text(texts) => (json!({ "type": "text", "text": "" }), "text", texts),
            Piece::Call(name, arguments) => (
                json!({ "type": "tool_use", "id": format!("c{n}"), "name": name, "input": {} }),
                "partial_json",
                arguments,
            ),
        };
        let kind = if field == "partial_json" {
            "input_json_delta".into()
        } else {
            format!("{field}_delta")
        };
        events.push(json!({ "type": "content_block_start", "index": n, "content_block": block }));
        events.extend(deltas.iter().map(|delta| {
            json!({ "type": "content_block_delta", "index": n, "delta": { "type": kind, field: delta } })
        }));
        events.push(json!({ "type": "content_block_stop", "index": n }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": said.stop.1, "stop_sequence": null }, "usage": { "output_tokens": 3 } }));
    events.push(json!({ "type": "message_stop" }));
    events.truncate(events.len() - said.n_cut.min(events.len()));
    let mut out = Vec::new();
    for event in &events {
        wire::put_event(&mut out, event);
    }
    String::from_utf8(out).unwrap()
}

/// Returns the parts of a reply that both APIs can express.
fn gist(reply: &Reply) -> (Value, Option<String>, bool) {
    let message = reply.message.as_ref();
    let calls: Vec<_> = message.map(Message::tool_calls).unwrap_or_default();
    let calls: Vec<_> = calls
        .iter()
        // Anthropic has no call without an input, so no arguments are `{}` there.
        .map(|call| {
            json!([
                call.id,
                call.name,
                wire::arguments(&wire::input(&call.arguments))
            ])
        })
        .collect();
    let thinking = message.and_then(|m| m.get("reasoning_content").cloned());
    let text = message
        .map(|message| message.text().into_owned())
        .unwrap_or_default();
    let said = json!({ "text": text, "thinking": thinking.unwrap_or_default(), "calls": calls });
    (said, reply.finish_reason.clone(), reply.error.is_some())
}

/// Returns whether the reply has neither text nor a stop reason.
fn said_nothing(reply: &Reply) -> bool {
    let (said, reason, _) = gist(reply);
    reason.is_none() && said == json!({ "text": "", "thinking": null, "calls": [] })
}

// === conversations ===

/// Returns a conversation as chat completions have it after a translation to messages and back. Forms that are unique
/// there are unique here.
fn conversation() -> impl Strategy<Value = Vec<Value>> {
    let text = "[a-z é\"\\\\\n]{0,8}[a-z]";
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBOR" } });
    let user = (text, any::<bool>()).prop_map(move |(text, has_image)| {
        let parts = json!([{ "type": "text", "text": text }, image]);
        let content = if has_image { parts } else { text.into() };
        json!({ "role": "user", "content": content })
    });
    let arguments = select(vec!["{\"a\":[1,null]}", "{}", "{\"torn", "[1]"]);
    let calls = vec(("[a-z]{1,5}", arguments, text), 0..4);
    let turn = (user, option::of(text), calls).prop_map(|(user, said, calls)| {
        let mut turn = vec![user];
        let mut answer = json!({ "role": "assistant", "content": said });
        let mut results = Vec::new();
        for (n, (name, arguments, result)) in calls.iter().enumerate() {
            let function = json!({ "name": name, "arguments": arguments });
            let call = json!({ "id": format!("c_{n}"), "type": "function", "function": function });
            if n == 0 {
                answer["tool_calls"] = json!([]);
            }
            answer["tool_calls"].as_array_mut().unwrap().push(call);
            results.push(
                json!({ "role": "tool", "tool_call_id": format!("c_{n}"), "content": result }),
            );
        }
        let is_last = results.is_empty();
        if said.is_some() || !is_last {
            turn.push(answer);
        }
        turn.extend(results);
        if !is_last {
            turn.push(json!({ "role": "assistant", "content": "done" }));
        }
        turn
    });
    (option::of(text), vec(turn, 1..4)).prop_map(|(system, turns)| {
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        // Each call of a conversation has a unique id.
        let turns = turns.into_iter().enumerate().flat_map(|(n, turn)| {
            let renamed = Value::from(turn).to_string();
            let renamed = renamed.replace("\"c_", &format!("\"c_{n}_"));
            serde_json::from_str::<Vec<Value>>(&renamed).unwrap()
        });
        let mut messages: Vec<Value> = system.into_iter().chain(turns).collect();
        // Anthropic has no two user messages in a row.
        messages.dedup_by(|b, a| a["role"] == "user" && b["role"] == "user");
        messages
    })
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_bytes(said in said(), cuts in vec(any::<usize>(), 0..9)) {
        for (direction, stream) in streams(&said) {
            let split = rewritten(super::stream(direction, &ASKED), testing::pieces(stream.as_bytes(), &cuts));
            prop_assert_eq!(String::from_utf8(split).unwrap(), streamed(direction, &stream));
        }
    }

    #[test]
    fn a_translated_stream_says_the_same(said in said()) {
        for (direction, stream) in streams(&said) {
            let (here, there) = (direction.client(), direction.upstream());
            let translated = streamed(direction, &stream);
            let (theirs, ours) = (there.read_sse(stream.as_bytes()), here.read_sse(translated.as_bytes()));
            if said_nothing(&theirs) {
                // The body ended before any text, which is an error. A failed response is an end in Responses.
                let is_whole = ours.is_whole() && here != Api::Responses;
                prop_assert!(ours.error.is_some() && !is_whole, "{}", translated);
                continue;
            }
            prop_assert_eq!(gist(&theirs), gist(&ours), "{}", translated);
            prop_assert_eq!(theirs.is_whole(), ours.is_whole(), "{}", translated);
            if theirs.ended {
                let is_none = theirs.usage.is_none();
                prop_assert_eq!(theirs.usage.unwrap_or_default(), ours.usage.unwrap_or_default(), "{} {}", is_none, translated);
            }
        }
    }

    #[test]
    fn a_reply_translated_whole_says_what_the_stream_says(said in said()) {
        let said = Said { n_cut: 0, has_usage: true, ..said };
        for (direction, stream) in [(MessagesToChat, chat_stream(&said)), (ChatToMessages, messages_stream(&said))] {
            let translated = streamed(direction, &stream);
            // It is translated back: the translation is a valid reply, and can be translated completely.
            let (api, back) = match direction {
                ChatToMessages => (Api::Chat, MessagesToChat),
                MessagesToChat | ResponsesToChat => (Api::Messages, ChatToMessages),
            };
            let streamed = api.read_sse(translated.as_bytes());
            let whole = whole(api, &streamed);
            let again = reply(back, &ASKED, whole.to_string().as_bytes()).unwrap();
            let there = match api {
                Api::Chat => Api::Messages,
                Api::Messages | Api::Responses => Api::Chat,
            };
            prop_assert_eq!(gist(&there.read_json(&again.body)), gist(&streamed), "{}", whole);
        }
    }

    #[test]
    fn a_response_is_the_same_whole_and_streamed(said in said()) {
        let said = Said { n_cut: 0, has_usage: true, ..said };
        let stream = chat_stream(&said);
        let translated = streamed(ResponsesToChat, &stream);
        let events = translated.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.map(|data| serde_json::from_str(data).unwrap()).collect();
        for (n, event) in events.iter().enumerate() {
            prop_assert_eq!(&event["sequence_number"], n);
        }
        let last = &events[events.len() - 1]["response"];
        let added = events.iter().filter(|it| it["type"] == "response.output_item.added");
        let done = events.iter().filter(|it| it["type"] == "response.output_item.done");
        prop_assert_eq!(added.count(), last["output"].as_array().unwrap().len());
        let items: Value = done.map(|it| it["item"].clone()).collect();
        prop_assert_eq!(&items, &last["output"]);
        let whole = chat_form::as_whole(stream.as_bytes());
        let whole = reply(ResponsesToChat, &ASKED, &whole).unwrap();
        let whole: Value = serde_json::from_slice(&whole.body).unwrap();
        prop_assert_eq!(&whole, last, "{}", translated);
    }

    #[test]
    fn any_items_come_to_a_conversation_that_chat_servers_take(items in vec(crate::any_json::any_json(), 0..5), more in items()) {
        for input in [items, more] {
            let body = json!({ "model": "m", "input": input });
            let Ok(chat) = request(ResponsesToChat, &body) else {
                continue;
            };
            let messages = chat["messages"].as_array().unwrap();
            let mut open: Vec<&Value> = Vec::new();
            for (n, message) in messages.iter().enumerate() {
                let role = message["role"].as_str().unwrap();
                if role == "tool" {
                    let at = open.iter().position(|id| **id == message["tool_call_id"]);
                    prop_assert!(at.is_some(), "{}", chat);
                    open.remove(at.unwrap());
                    continue;
                }
                prop_assert!(open.is_empty(), "{}", chat);
                prop_assert!(role != "system" || n == 0, "{}", chat);
                prop_assert!(role != "user" || n == 0 || messages[n - 1]["role"] != "user", "{}", chat);
                open.extend(message["tool_calls"].as_array().into_iter().flatten().map(|it| &it["id"]));
            }
            prop_assert!(open.is_empty(), "{}", chat);
        }
    }

    #[test]
    fn a_conversation_comes_back_as_it_went(messages in conversation()) {
        let body = json!({ "model": "m", "messages": messages, "max_tokens": 9 });
        let there = request(ChatToMessages, &body).unwrap();
        let turns = there["messages"].as_array().unwrap();
        prop_assert!(turns.windows(2).all(|turns| turns[0]["role"] != turns[1]["role"]), "{}", there);
        let mut back = request(MessagesToChat, &there).unwrap();
        // Anthropic requires definitions of the tools in the history.
        back.as_object_mut().unwrap().retain(|name, _| body.get(name).is_some());
        prop_assert_eq!(back, body, "{}", there);
    }

    #[test]
    fn no_json_makes_it_panic(body in crate::any_json::any_json(), more in crate::any_json::any_json(), status in 0u16..1000) {
        let wrapped = json!({ "system": more, "messages": [body, { "role": "user", "content": [more] }, { "role": "assistant", "content": more, "tool_calls": body }], "tools": [more] });
        for direction in ALL {
            let _ = request(direction, &body);
            let _ = request(direction, &wrapped);
            let _ = reply(direction, &ASKED, body.to_string().as_bytes());
            let _ = reply(direction, &ASKED, json!({ "choices": [{ "message": more }], "content": [body] }).to_string().as_bytes());
            let out = error(direction, status, body.to_string().as_bytes());
            prop_assert!(serde_json::from_slice::<Value>(&out).is_ok());
            let chunk = json!({ "choices": [{ "delta": more, "finish_reason": body }] });
            streamed(direction, &format!("data: {body}\n\ndata: {more}\n\ndata: {chunk}\n\ndata: [DONE]\n\n"));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_every_event_out_is_json(bytes in vec(any::<u8>(), 0..200), cuts in vec(any::<usize>(), 0..4)) {
        for direction in ALL {
            let out = rewritten(super::stream(direction, &ASKED), [bytes.as_slice()]);
            let split = rewritten(super::stream(direction, &ASKED), testing::pieces(&bytes, &cuts));
            prop_assert_eq!(&split, &out);
            for line in String::from_utf8(out).unwrap().lines() {
                let data = line.strip_prefix("data: ").filter(|data| *data != "[DONE]");
                prop_assert!(data.is_none_or(|data| serde_json::from_str::<Value>(data).is_ok()), "{}", line);
            }
            let _ = reply(direction, &ASKED, &bytes);
            error(direction, 500, &bytes);
        }
    }
}

/// Makes items of Responses in any order.
fn items() -> impl Strategy<Value = Vec<Value>> {
    let id = select(vec!["a", "b"]);
    let item = (0..9usize, id).prop_map(|(kind, id)| match kind {
        0 => json!({ "role": "user", "content": "u" }),
        1 => json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "data:," }] }),
        2 => json!({ "role": "developer", "content": [{ "type": "input_text", "text": "d" }] }),
        3 => json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "t" }] }),
        4 => json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "r" }] }),
        5 => json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" }),
        6 => json!({ "type": "custom_tool_call", "call_id": id, "name": "c", "input": "x" }),
        7 => json!({ "type": "custom_tool_call_output", "call_id": id, "output": [{ "type": "input_image", "image_url": "data:," }] }),
        _ => json!({ "type": "function_call_output", "call_id": id, "output": "done" }),
    });
    vec(item, 1..12)
}

/// Makes a reply in its API's unstreamed form.
fn whole(api: Api, reply: &Reply) -> Value {
    let message = reply
        .message
        .clone()
        .map_or_else(|| json!({ "role": "assistant" }), Value::from);
    let chat = json!({ "id": "r1", "model": "m", "choices": [{ "index": 0, "message": message, "finish_reason": reply.finish_reason }] });
    match api {
        Api::Chat | Api::Responses => chat,
        Api::Messages => {
            let out = super::reply(MessagesToChat, &ASKED, chat.to_string().as_bytes()).unwrap();
            serde_json::from_slice(&out.body).unwrap()
        }
    }
}
