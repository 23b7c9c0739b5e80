//! Calls and thinking removed from text, ids and log-probabilities removed from vLLM's replies: a stream gives the same
//! bytes however it is split, a stream without anything to remove passes unchanged, and no body causes a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_dialects::{
    rewrite::{Rewrite, Chained},
    toolcalls::{self, ToolCallOptions},
    vllm::{self, RequestedIds},
};
use metaclaw_fuzz::{Input, pieces, rewritten};
use serde_json::{Value, json};

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.byte();
    let lengths = input.take(4);
    let body = input.rest();
    if choice & 6 == 6 {
        return whole(choice, body);
    }
    let mut first = rewrite(choice);
    let mut second = rewrite(choice);
    let at_once = rewritten(first.as_mut(), &[body]);
    let in_pieces = rewritten(second.as_mut(), &pieces(body, lengths));
    assert_eq!(
        String::from_utf8_lossy(&at_once),
        String::from_utf8_lossy(&in_pieces),
        "another splitting, another reply"
    );
    if !body.contains(&b'{') {
        assert_eq!(at_once, body, "there was nothing to take");
    }
});

fn options(choice: u8) -> ToolCallOptions {
    let takes = json!({ "properties": { "n": { "type": "integer" } } });
    let tool = |name: &str| json!({ "function": { "name": name, "parameters": takes } });
    let request = json!({ "tools": [tool("exec"), tool("read_2")] });
    ToolCallOptions::for_request(&request, choice & 1 != 0)
}

fn asked(choice: u8) -> RequestedIds {
    RequestedIds {
        logprobs: choice & 8 != 0,
        token_ids: choice & 16 != 0,
    }
}

fn rewrite(choice: u8) -> Box<dyn Rewrite> {
    match choice & 6 {
        0 => toolcalls::stream(options(choice)),
        2 => Box::new(vllm::stream(asked(choice))),
        _ => Box::new(Chained::new(
            vllm::stream(asked(choice)),
            toolcalls::stream(options(choice)),
        )),
    }
}

/// Bodies that are not streamed are tested as well.
fn whole(choice: u8, body: &[u8]) {
    let is_json = serde_json::from_slice::<Value>(body).is_ok();
    for out in [
        toolcalls::reply(&options(choice), body),
        vllm::reply(asked(choice), body),
    ]
    .into_iter()
    .flatten()
    {
        let stays = serde_json::from_slice::<Value>(&out).is_ok();
        assert!(!is_json || stays, "{}", String::from_utf8_lossy(&out));
    }
    vllm::sampled_sse(body);
    vllm::sampled_json(body);
    if let Ok(body) = serde_json::from_slice::<Value>(body) {
        toolcalls::request(&body);
        toolcalls::bootstrap(&body);
        toolcalls::normalise(&body);
    }
}
