use super::*;
use crate::{
    Api,
    rewrite::{Chained, rewritten},
    testing,
    translate::{self, Direction, ReplyContext},
};

fn chunk(choice: &Value) -> String {
    let mut choice = choice.clone();
    if choice.get("finish_reason").is_none() {
        choice["finish_reason"] = Value::Null;
    }
    choice["index"] = 0.into();
    let chunk = json!({ "id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] });
    format!("data: {chunk}\n\n")
}

fn said(text: &str) -> String {
    chunk(&json!({ "delta": { "content": text } }))
}

fn finish(reason: &str) -> String {
    chunk(&json!({ "delta": {}, "finish_reason": reason })) + "data: [DONE]\n\n"
}

fn streamed(text: &str) -> String {
    let out = rewritten(stream(ToolCallOptions::default()), [text.as_bytes()]);
    String::from_utf8(out).unwrap()
}

#[test]
fn calls_and_thinking_become_deltas() {
    let first = chunk(&json!({ "delta": { "role": "assistant", "content": "" } }));
    let pieces = ["<th", "ink>\n", "I sh", "ould.\n</thi", "nk>\n\nI ", "look. <", "3\n<tool_", "call>\n{\"name\": \"exec\", ",
        "\"arguments\": {\"command\": \"ls\"}}\n</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>", "\n"].map(said);
    let usage = "data: {\"id\":\"r\",\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
    let finish = finish("stop").replace("data: [DONE]", &format!("{usage}data: [DONE]"));
    insta::assert_snapshot!(streamed(&(first + ": hi\n\n" + &pieces.concat() + &finish)));
}

#[test]
fn a_stream_without_markers_passes_byte_for_byte() {
    let stream = format!(
        ": hi\r\n\r\nid: 7\ndata:{{\"choices\": [{{\"delta\":{{\"content\":\"a < b\"}}}}]}}\r\n\r\n{}{}data: oops\n\ndata: {{\"error\":{{}}}}\n\n",
        said("Hello."),
        finish("stop"),
    );
    assert_eq!(streamed(&stream), stream);
    assert_eq!(streamed(&stream[..50]), stream[..50]);
}

#[test]
fn structured_fields_of_the_upstream_are_left_alone() {
    let call = chunk(
        &json!({ "delta": { "tool_calls": [{ "index": 0, "id": "c", "function": { "name": "f", "arguments": "{}" } }] } }),
    );
    let stream = call + &said("<tool_call>{\"name\":\"x\"}</tool_call>") + &finish("tool_calls");
    assert_eq!(streamed(&stream), stream);
    let thought = chunk(&json!({ "delta": { "reasoning_content": "hm" } }));
    let stream = thought + &said("<think>x</think>") + &finish("stop");
    assert_eq!(streamed(&stream), stream);
}

#[test]
fn text_after_a_call_comes_after_it() {
    let stream =
        said("<tool_call>{\"name\":\"x\"}</tool_call> and <tool_call>{\"name\":\"y\"}</tool_call>")
            + &finish("length");
    insta::assert_snapshot!(streamed(&stream));
}

#[test]
fn what_was_held_back_comes_out_at_the_end_and_ends_nothing() {
    let torn = said("a <tool_call>{\"name\":\"x\"}");
    insta::assert_snapshot!(streamed(&torn), @r#"
    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"delta":{"content":"a "},"finish_reason":null,"index":0}]}

    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"<tool_call>{\"name\":\"x\"}"},"finish_reason":null}]}
    "#);
    let nameless_end = said("a <tool_call>{\"name\":\"x\"}") + "data: [DONE]\n\n";
    insta::assert_snapshot!(streamed(&nameless_end), @r#"
    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"delta":{"content":"a "},"finish_reason":null,"index":0}]}

    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_xml_r_0","type":"function","function":{"name":"x","arguments":"{}"},"index":0}]},"finish_reason":null}]}

    data: [DONE]
    "#);
}

#[test]
fn what_a_held_chunk_says_beside_its_text_is_not_held() {
    let held = chunk(&json!({ "delta": { "content": "<tool" }, "logprobs": { "content": [] } }));
    insta::assert_snapshot!(streamed(&held), @r#"
    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"delta":{},"logprobs":{"content":[]},"finish_reason":null,"index":0}]}

    data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"<tool"},"finish_reason":null}]}
    "#);
}

#[test]
fn several_choices_are_told_apart() {
    let both = |a: &str, b: &str| {
        format!(
            "data: {}\n\n",
            json!({ "id": "r", "choices": [
        { "index": 0, "delta": { "content": a } }, { "index": 1, "delta": { "content": b } }] })
        )
    };
    let stream =
        both("<tool_call>{\"name\":", "<think>hm") + &both("\"x\"}</tool_call>", "</think>Yes.");
    insta::assert_snapshot!(streamed(&stream));
}

#[test]
fn a_call_in_text_reaches_a_client_of_anthropic_as_tool_use() {
    let stream =
        said("<tool_call>{\"name\":\"exec\",\"arguments\":{\"command\":\"ls\"}}</tool_call>")
            + &finish("stop");
    let second = translate::stream(Direction::MessagesToChat, &ReplyContext::default());
    let out = rewritten(
        Chained::new(super::stream(ToolCallOptions::default()), second),
        [stream.as_bytes()],
    );
    let reply = Api::Messages.read_sse(&out);
    assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
    assert_eq!(reply.message.unwrap().tool_calls()[0].name, "exec");
}

#[test]
fn the_calls_of_each_reply_have_ids_of_their_own() {
    let ids = |id: &str| {
        let azure = r#"{"id":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
        let call = said("<tool_call>{\"name\":\"x\"}</tool_call> <tool_call>{\"name\":\"x\"}");
        let stream = format!("data: {azure}\n\n") + &call.replace("\"r\"", &format!("\"{id}\""));
        let out = streamed(&(stream + &finish("stop")));
        let read = Api::Chat.read_sse(out.as_bytes());
        let message = json!({ "content": "<tool_call>{\"name\":\"x\"}</tool_call><tool_call>{\"name\":\"x\"}</tool_call>" });
        let body = json!({ "id": id, "choices": [{ "message": message }] });
        let whole = reply(&ToolCallOptions::default(), body.to_string().as_bytes()).unwrap();
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let calls = whole["choices"][0]["message"]["tool_calls"]
            .as_array()
            .unwrap();
        let calls: Vec<Value> = calls.iter().map(|call| call["id"].clone()).collect();
        let streamed: Vec<String> = read
            .message
            .unwrap()
            .tool_calls()
            .into_iter()
            .map(|call| call.id)
            .collect();
        assert_eq!(json!(streamed), json!(calls));
        streamed.join(" ")
    };
    let found = ids("chatcmpl-9f");
    assert_eq!(found, "call_xml_chatcmpl9f_0 call_xml_chatcmpl9f_1");
    let result = ids("chatcmpl-9e");
    assert_eq!(result, "call_xml_chatcmpl9e_0 call_xml_chatcmpl9e_1");
}

#[test]
fn chunks_of_our_own_name_the_reply_and_repeat_no_more_of_others_than_they_need() {
    let azure = r#"{"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
    let held = said("<tool").replace("\"r\"", "\"r1\"");
    let out = streamed(&format!("data: {azure}\n\n{held}"));
    let (_, own) = out.rsplit_once("data: ").unwrap();
    insta::assert_snapshot!(own, @r#"{"id":"r1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"<tool"},"finish_reason":null}]}"#);
    let long = format!("\"long\":\"{}\",\"list\":[1],\"id\":", "x".repeat(999));
    let out = streamed(&said("a <tool").replace("\"id\":", &long));
    assert_eq!(out.matches("\"long\"").count(), 1, "{out}");
    assert_eq!(out.matches("\"list\"").count(), 1, "{out}");
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_bytes_and_what_the_whole_reply_gives(
        text in texts(), n in 1usize..7, cuts in vec(any::<usize>(), 0..9), ends: bool,
    ) {
        let letters: Vec<char> = text.chars().collect();
        let deltas: String = letters.chunks(n).map(|piece| said(&piece.iter().collect::<String>())).collect();
        let end = if ends { finish("stop") } else { String::new() };
        let bytes = deltas + &end;
        let whole = streamed(&bytes);
        let split = rewritten(super::stream(ToolCallOptions::default()), testing::pieces(bytes.as_bytes(), &cuts));
        prop_assert_eq!(&String::from_utf8(split).unwrap(), &whole);

        let read = Api::Chat.read_sse(whole.as_bytes());
        prop_assert_eq!(read.is_whole(), ends);
        if ends && !reply::ends_open_thinking(&text) {
            let message = json!({ "role": "assistant", "content": text });
            let body = json!({ "id": "r", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }).to_string();
            let body = reply(&ToolCallOptions::default(), body.as_bytes()).unwrap_or_else(|| body.into_bytes());
            let expected = Api::Chat.read_json(&body);
            let gist = |reply: &crate::Reply| {
                let message = reply.message.clone().unwrap_or_else(|| metaclaw_chat::Message::assistant(""));
                let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                (text("content"), text("reasoning_content"), message.tool_calls(), reply.finish_reason.clone())
            };
            prop_assert_eq!(gist(&read), gist(&expected));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), chunk in crate::any_json::any_json(), more in crate::any_json::any_json()) {
        rewritten(super::stream(ToolCallOptions::default()), [bytes.as_slice()]);
        let wrapped = json!({ "choices": [{ "delta": more }, chunk], "usage": more });
        let text = format!("data: {chunk}\n\ndata: {wrapped}\n\ndata: [DONE]\n\n");
        rewritten(super::stream(ToolCallOptions::default()), [text.as_bytes()]);
        let _ = reply(&ToolCallOptions::default(), json!({ "choices": [{ "message": more }] }).to_string().as_bytes());
        let _ = request(&json!({ "messages": [chunk, { "role": "assistant", "content": more, "tool_calls": [chunk] }] }));
    }
}
