//! Tests that every reader and every rewrite costs no more than the length of a peer's input.

use crate::{
    Api,
    rewrite::Rewrite,
    toolcalls,
    translate::{self, Direction, ReplyContext},
    vllm,
};

fn rewrites() -> Vec<(&'static str, Box<dyn Rewrite>)> {
    let asked = ReplyContext::default();
    vec![
        ("chat", translate::stream(Direction::ChatToMessages, &asked)),
        (
            "messages",
            translate::stream(Direction::MessagesToChat, &asked),
        ),
        (
            "responses",
            translate::stream(Direction::ResponsesToChat, &asked),
        ),
        (
            "toolcalls",
            toolcalls::stream(toolcalls::ToolCallOptions::default()),
        ),
        (
            "vllm",
            Box::new(vllm::stream(vllm::RequestedIds::default())),
        ),
    ]
}

fn fed(mut rewrite: Box<dyn Rewrite>, bytes: &[u8], n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in bytes.chunks(n) {
        rewrite.feed(piece, &mut out);
    }
    rewrite.finish(&mut out);
    out
}

/// Reads and rewrites a stream completely and in pieces of `n` bytes. Code that looks at earlier input again takes
/// minutes here, and the test runner ends the test.
fn costs_its_length(stream: &str, n: usize) {
    for ((name, pieces), (_, whole)) in rewrites().into_iter().zip(rewrites()) {
        let whole = fed(whole, stream.as_bytes(), stream.len());
        let begin = &stream[..stream.len().min(80)];
        assert!(
            fed(pieces, stream.as_bytes(), n) == whole,
            "{name}: {begin}"
        );
    }
    for api in [Api::Chat, Api::Messages, Api::Responses] {
        api.read_sse(stream.as_bytes());
    }
}

fn chunk(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{{delta}}}}}]}}\n\n")
}

fn event(kind: &str, delta: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"index\":0,{delta}}}\n\n")
}

#[test]
fn a_long_event_may_come_byte_by_byte() {
    let text = "x".repeat(1 << 19);
    costs_its_length(&chunk(&format!("\"content\":\"{text}\"")), 1);
    let delta = format!("\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}");
    costs_its_length(&event("content_block_delta", &delta), 1);
    costs_its_length(&"data: \n".repeat(1 << 16), 1);
    costs_its_length(&": \r\n\r\n".repeat(1 << 16), 1);
}

#[test]
fn what_is_too_long_to_be_read_costs_its_length() {
    let text = "x".repeat(crate::sse::MAX_EVENT);
    costs_its_length(&format!("data: {text}\n\n: {text}\n\n"), 64);
}

#[test]
fn thousands_of_events_cost_thousands_of_times_one() {
    const N: usize = 2_000;
    let call = |n: usize| {
        let function = "{\"name\":\"f\",\"arguments\":\"{\"}";
        chunk(&format!(
            "\"tool_calls\":[{{\"index\":{n},\"id\":\"c{n}\",\"function\":{function}}}]"
        ))
    };
    let block =
        "\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}}";
    let thinking = "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"x\"}";
    let item = |n: usize| {
        let item = "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"x\"}";
        event(
            "response.output_item.added",
            &format!("\"output_index\":{n},\"item\":{item}"),
        )
    };
    let streams = [
        chunk("\"content\":\"<\"").repeat(N),
        chunk("\"content\":\"\\n\"").repeat(N),
        (0..N).map(call).collect(),
        call(0).repeat(N),
        (0..N).map(|n| chunk(&format!("\"x{n}\":\"x\""))).collect(),
        event("content_block_delta", thinking).repeat(N),
        event("content_block_start", block).repeat(N),
        (0..N).map(item).collect(),
    ];
    for stream in &streams {
        costs_its_length(stream, 1500);
    }
}
