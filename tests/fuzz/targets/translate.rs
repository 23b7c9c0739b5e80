//! The translations: whatever comes, none panics; a stream gives the same bytes however it is split, and a torn
//! one never looks whole; what comes out of a whole body is JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_chat::Message;
use metaclaw_dialects::{
    Api, Reply,
    mend::{CallIds, Demands, PastReply, mend},
    translate::{self, Direction, ReplyContext},
};
use metaclaw_fuzz::{Input, pieces, rewritten};
use serde_json::{Value, json};

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.byte();
    let direction = match choice & 17 {
        0 => Direction::ChatToMessages,
        1 => Direction::MessagesToChat,
        _ => Direction::ResponsesToChat,
    };
    let lengths = input.take(4);
    let body = input.rest();
    let mut asked = json!({
        "stream": true,
        "stream_options": { "include_usage": choice & 8 != 0 },
        "tools": [
            { "name": "a.b" },
            { "type": "custom", "name": "c" },
            { "type": "namespace", "name": "n", "tools": [{ "type": "function", "name": "f" }] },
        ],
    });
    let without_stops = ReplyContext::for_request(direction, &asked, 1);
    // Anthropic takes no stop text of blanks, and OpenAI four in all: the others are watched for here.
    asked["stop"] = json!(["END", "\n\n"]);
    asked["stop_sequences"] = json!(["END", "1", "2", "3", "4"]);
    let asked = ReplyContext::for_request(direction, &asked, 1);
    match choice >> 1 & 3 {
        0 => request(direction, body),
        1 => stream(direction, &asked, &without_stops, lengths, body),
        2 => {
            if let Ok(out) = translate::reply(direction, &asked, body) {
                assert_json(&out.body);
            }
        }
        _ => assert_json(&translate::error(direction, 400, body)),
    }
});

/// What was translated can be said in its new API: it can be translated back, or is refused in words.
fn request(direction: Direction, body: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    mended(&body);
    if let Ok(translated) = translate::request(direction, &body) {
        let back = match direction {
            Direction::ChatToMessages => Direction::MessagesToChat,
            Direction::MessagesToChat | Direction::ResponsesToChat => Direction::ChatToMessages,
        };
        let _ = translate::request(back, &translated).map_err(|error| error.to_string());
    }
}

/// A history is mended whatever stands in it, with its own messages as what the log has, and once is enough.
fn mended(body: &Value) {
    let messages = body["messages"].as_array().into_iter().flatten();
    let replies: Vec<Message> = messages
        .filter_map(|message| Message::try_from(message.clone()).ok())
        .collect();
    let past = replies.iter().enumerate().map(|(n, reply)| PastReply {
        is_own: n % 2 == 0,
        is_masked: n % 3 == 0,
        reply,
    });
    let past: Vec<PastReply<'_>> = past.collect();
    let some = Demands {
        signed_calls: true,
        reasoning: true,
        own_thinking: true,
        ids: CallIds::Bounded,
        ..Demands::default()
    };
    let others = Demands {
        thinking: true,
        standard_fields: true,
        paired_calls: true,
        ids: CallIds::Nine,
        ..Demands::default()
    };
    for (api, target) in [
        (Api::Chat, Api::Chat),
        (Api::Chat, Api::Messages),
        (Api::Messages, Api::Messages),
    ] {
        for demands in [Demands::default(), some, others] {
            let mut once = body.clone();
            mend(api, target, &mut once, &past, demands);
            let mut twice = once.clone();
            mend(api, target, &mut twice, &past, demands);
            assert_eq!(once, twice, "mended again, it is another");
        }
    }
}

/// `without_stops` is of the same request without its stop texts.
fn stream(
    direction: Direction,
    asked: &ReplyContext,
    without_stops: &ReplyContext,
    lengths: &[u8],
    body: &[u8],
) {
    let whole = rewritten(translate::stream(direction, asked).as_mut(), &[body]);
    let split = pieces(body, lengths);
    let in_pieces = rewritten(translate::stream(direction, asked).as_mut(), &split);
    assert_eq!(
        String::from_utf8_lossy(&whole),
        String::from_utf8_lossy(&in_pieces),
        "another splitting, another reply"
    );
    let said = direction.client().read_sse(&whole);
    // At a stop text that the upstream does not take, the translation itself ends the reply: what it says is shorter then.
    let uncut = rewritten(
        translate::stream(direction, without_stops).as_mut(),
        &[body],
    );
    let uncut = direction.client().read_sse(&uncut);
    if text(&said) != text(&uncut) {
        return;
    }
    // A failed response is an end of Responses. Some upstreams say why the model stopped and leave out the end mark.
    let has_ended = said.ended && said.error.is_none();
    assert!(
        !has_ended || direction.upstream().read_sse(body).is_whole(),
        "a torn reply looks whole: {}",
        String::from_utf8_lossy(&whole)
    );
}

/// All that a reply says in text.
fn text(reply: &Reply) -> String {
    let message = reply.message.as_ref();
    message.map_or_else(String::new, |message| message.text().into_owned())
}

fn assert_json(out: &[u8]) {
    let read = serde_json::from_slice::<Value>(out);
    assert!(read.is_ok(), "no JSON: {}", String::from_utf8_lossy(out));
}
