use serde_json::json;

use super::*;

const ANTHROPIC: &str = include_str!("anthropic.sse");

const CHAT: &str = include_str!("chat.sse");

#[test]
fn anthropics_stream_becomes_chunks() {
    insta::assert_snapshot!(streamed(ChatToMessages, ANTHROPIC));
}

#[test]
fn a_chat_stream_becomes_anthropics() {
    insta::assert_snapshot!(streamed(MessagesToChat, CHAT));
}

#[test]
fn usage_is_a_chunk_only_for_those_who_asked() {
    let asked = ReplyContext {
        include_usage: false,
        ..ASKED.clone()
    };
    let out = rewritten(stream(ChatToMessages, &asked), [ANTHROPIC.as_bytes()]);
    assert!(!String::from_utf8(out).unwrap().contains("usage"));
}

/// Returns the output when `stream` breaks off, and the addition at the end of the body.
fn cut_off(direction: Direction, stream: &str) -> (String, String) {
    let mut rewrite = super::super::stream(direction, &ASKED);
    let (mut out, mut end) = (Vec::new(), Vec::new());
    rewrite.feed(stream.as_bytes(), &mut out);
    rewrite.finish(&mut end);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(out), text(end))
}

#[test]
fn an_emoji_torn_between_two_events_does_not_end_the_reply() {
    let chunk = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let torn = chunk("a\\ud83d") + &chunk("\\ude00b") + "data: [DONE]\n\n";
    let out = streamed(MessagesToChat, &torn);
    let reply = Api::Messages.read_sse(out.as_bytes());
    assert!(reply.ended && reply.error.is_none(), "{out}");
    assert_eq!(reply.message.unwrap().text(), "a\u{fffd}\u{fffd}b");
}

#[test]
fn what_keeps_a_silent_stream_alive_does_so_here() {
    let (begun, _) = CHAT.split_once(": keep-alive").unwrap();
    let alive = format!(": early\n\n{begun}: a\n\n: b\r\n\r\n\n\n");
    let out = streamed(MessagesToChat, &alive);
    assert_eq!(out.matches("event: ping").count(), 3);
    // Servers are silent longest before their first word.
    assert!(out.starts_with(": ping\n\nevent: message_start"), "{out}");
    let alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n: a\n\n";
    let (out, _) = cut_off(ChatToMessages, alive);
    assert_eq!(out, ": ping\n\n: ping\n\n");
}

#[test]
fn a_cut_stream_stays_cut_wherever_it_is_cut() {
    let [finish, stop] = ["finish_reason\":\"", "stop_reason\":\""];
    for (direction, stream, last_words, ends) in [
        (ChatToMessages, ANTHROPIC, stop, [finish, "[DONE]"]),
        (MessagesToChat, CHAT, finish, ["message_stop", stop]),
    ] {
        for at in 0..stream.find(last_words).unwrap() {
            let (out, end) = cut_off(direction, &stream[..at]);
            let whole = out + &end;
            let has_ended = ends.iter().any(|mark| whole.contains(mark));
            assert!(!has_ended, "cut at {at}: {whole}");
        }
    }
}

#[test]
fn every_piece_goes_out_when_it_comes() {
    for (direction, stream, word) in [
        (ChatToMessages, ANTHROPIC, "check"),
        (MessagesToChat, CHAT, "look."),
    ] {
        let at = stream.find(word).unwrap();
        let end = at + stream[at..].find("\n\n").unwrap() + 2;
        let (out, _) = cut_off(direction, &stream[..end]);
        assert!(out.contains(word), "{out}");
    }
}

#[test]
fn the_reason_to_stop_is_an_end_though_no_done_follows() {
    let (stream, _) = CHAT.split_once("data: [DONE]").unwrap();
    let (out, end) = cut_off(MessagesToChat, stream);
    assert!(!out.contains("message_stop"), "{out}");
    insta::assert_snapshot!(end);
}

#[test]
fn a_done_without_a_reason_is_an_end_too() {
    insta::assert_snapshot!(streamed(
        MessagesToChat,
        "data: {\"id\":\"\",\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n"
    ));
}

#[test]
fn a_reply_that_its_server_broke_off_does_not_look_ended() {
    let reasons = "abort error insufficient_system_resource network_error";
    for reason in reasons.split(' ') {
        let stream = CHAT.replace("reason\":\"tool_calls\"", &format!("reason\":\"{reason}\""));
        assert!(!Api::Chat.read_sse(stream.as_bytes()).is_whole());
        let (without_done, _) = stream.split_once("data: [DONE]").unwrap();
        for stream in [&stream, without_done] {
            let out = streamed(MessagesToChat, stream);
            let is_broken = out.contains("event: error") && !out.contains("message_stop");
            assert!(is_broken, "{out}");
        }
        let body =
            json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": reason }] });
        assert_eq!(replied(MessagesToChat, &body)["type"], "error");
    }
    let body = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "abort" }] });
    insta::assert_snapshot!(replied(MessagesToChat, &body), @r#"{"type":"error","error":{"type":"api_error","message":"the upstream broke its reply off: finish_reason is \"abort\""}}"#);
}

#[test]
fn an_error_in_the_midst_is_the_last_word() {
    let (begun, _) = CHAT.split_once(": keep-alive").unwrap();
    let stream = format!(
        "{begun}data: {{\"error\":{{\"message\":\"boom\",\"code\":400}}}}\n\ndata: [DONE]\n\n"
    );
    let (_, end) = CHAT.split_once("data: [DONE]").unwrap();
    let out = streamed(MessagesToChat, &(stream + end));
    let (_, last) = out.split_once("event: error").unwrap();
    insta::assert_snapshot!(last, @r#"data: {"type":"error","error":{"type":"invalid_request_error","message":"boom"}}"#);

    let (begun, rest) = ANTHROPIC.split_once("event: content_block_start").unwrap();
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let stream = format!("{begun}{error}event: content_block_start{rest}");
    let out = streamed(ChatToMessages, &stream);
    let (_, last) = out.split_once("data: {\"error").unwrap();
    insta::assert_snapshot!(last, @r#"":{"message":"Overloaded","type":"overloaded_error","param":null,"code":null}}"#);
}

#[test]
fn what_cannot_be_read_is_said_and_ends_the_reply() {
    let (begun, rest) = CHAT.split_once(": keep-alive").unwrap();
    let stream = format!("{begun}data: {{\"choices\":[\n\n{rest}");
    let out = streamed(MessagesToChat, &stream);
    let (_, last) = out.split_once("event: error").unwrap();
    insta::assert_snapshot!(last, @r#"data: {"type":"error","error":{"type":"api_error","message":"an event of the upstream's reply cannot be translated: EOF while parsing a list at line 1 column 12"}}"#);

    let long = "x".repeat(crate::sse::MAX_EVENT);
    let long = format!("{begun}data: {long}\n\n{rest}");
    for (direction, mark) in [
        (MessagesToChat, "event: error"),
        (ChatToMessages, "data: {\"error"),
    ] {
        let out = streamed(direction, &long);
        assert_eq!(out.matches("too long").count(), 1, "{out}");
        assert!(out.contains(mark), "{out}");
    }
}

#[test]
fn moonshots_usage_is_found_in_its_choice() {
    let chunk = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":2,"cached_tokens":8}}]}"#;
    let out = streamed(MessagesToChat, &format!("{chunk}\n\ndata: [DONE]\n\n"));
    let usage = Api::Messages.read_sse(out.as_bytes()).usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.cached_tokens), (9, 8));
    assert_eq!(usage.completion_tokens, 2);
}

#[test]
fn mistrals_thinking_is_thinking() {
    let parts = r#"[{"type":"thinking","thinking":[{"type":"text","text":"h"},{"type":"text","text":"m"}]}]"#;
    let chunk = |content: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{content}}}}}]}}\n\n")
    };
    let last = r#"[{"type":"text","text":"es"}]"#;
    let chunks = ["\"\"", parts, parts, "\"Y\"", last].map(chunk);
    let stream = chunks.concat() + "data: [DONE]\n\n";
    let out = streamed(MessagesToChat, &stream);
    for reply in [
        Api::Chat.read_sse(stream.as_bytes()),
        Api::Messages.read_sse(out.as_bytes()),
    ] {
        let message = reply.message.unwrap();
        assert_eq!(message.text(), "Yes", "{out}");
        assert_eq!(message.get("reasoning_content").unwrap(), "hmhm");
    }
    let content = format!(
        "[{},{{\"type\":\"text\",\"text\":\"Yes\"}}]",
        &parts[1..parts.len() - 1]
    );
    let body = json!({ "choices": [{ "message": { "content": serde_json::from_str::<Value>(&content).unwrap() } }] });
    let out = replied(MessagesToChat, &body);
    insta::assert_snapshot!(out["content"], @r#"[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Yes"}]"#);
}

#[test]
fn a_block_that_is_too_long_to_go_out_once_more_does_not() {
    let thinking = |n: usize, m: usize| {
        let delta = |kind: &str| {
            let long = "s".repeat(1 << 16);
            format!(
                "data: {{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"{kind}_delta\",\"{kind}\":\"{long}\"}}}}\n\n"
            )
        };
        let start = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#;
        let stop = r#"data: {"type":"content_block_stop","index":0}"#;
        let deltas = delta("thinking").repeat(n) + &delta("signature").repeat(m);
        let stream = format!("{start}\n\n{deltas}{stop}\n\n");
        streamed(ChatToMessages, &stream).contains("thinking_blocks")
    };
    assert!(thinking(1, 1) && !thinking(20, 1) && !thinking(1, 20));
}
