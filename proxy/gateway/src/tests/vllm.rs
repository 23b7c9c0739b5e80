//! Tests of an upstream with `dialect: vllm`: which fields are added to a chat, and who sees the results.

use metaclaw_test_kit::has;
use metaclaw_turns::{StreamEnd, Tokens, Turn};
use tokio_util::task::TaskTracker;

use super::harness::{
    CHAT, CHATS, DONE, END, Harness, STREAM, SetUp, Upstream, chunk, json_reply, post, post_chat,
    reply, streamed,
};
use crate::{Api, Failure, Provider, UpstreamConfig};

/// The beginning of a request with the added fields.
const ASKING: &str = r#"{"logprobs":true,"return_token_ids":true,"#;

/// Chunks of vLLM's chat completions as it sends them with ids. Its parser held the second token back.
const ASKED: [&str; 6] = [
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[151644,872,198]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":"Par"},"logprobs":{"content":[{"token":"Par","logprob":-0.125,"bytes":[80,97,114],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[4272]}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"<","logprob":-1.5,"bytes":[60],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[27]}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":"<is"},"logprobs":{"content":[{"token":"is","logprob":-0.5,"bytes":[105,115],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[285]}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"<|im_end|>","logprob":-0.25,"bytes":[],"top_logprobs":[]}]},"finish_reason":"stop","stop_reason":null,"token_ids":[151645]}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[],"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4}}"#,
];

/// The same reply of vLLM without the added fields.
const UNASKED: [&str; 5] = [
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":"Par"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":"<is"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}"#,
    r#"{"id":"chatcmpl-a1","object":"chat.completion.chunk","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[],"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4}}"#,
];

/// An unstreamed reply, with placeholders `I`, `L` and `P` for the added data.
const WHOLE: &str = r#"{"id":"chatcmpl-a1","object":"chat.completion","created":1763630000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"message":{"role":"assistant","content":"Par<is","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":<L>,"finish_reason":"stop","stop_reason":null,"token_ids":<I>}],"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4,"prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":<P>,"kv_transfer_params":null}"#;

async fn before(llm: UpstreamConfig) -> Harness {
    Harness::before(UpstreamConfig {
        dialect: Provider::Vllm,
        ..llm
    })
    .await
}

async fn before_vllm() -> Harness {
    before(UpstreamConfig::default()).await
}

fn events(chunks: &[&str]) -> String {
    let events = chunks.iter().chain(&["[DONE]"]);
    events.flat_map(|data| ["data: ", data, "\n\n"]).collect()
}

fn whole(logprobs: &str, ids: &str, prompt: &str) -> String {
    let with_ids = WHOLE.replace("<L>", logprobs).replace("<I>", ids);
    with_ids.replace("<P>", prompt)
}

fn asked_whole() -> String {
    let logprob = |logprob: &str| {
        format!(r#"{{"token":"t","logprob":{logprob},"bytes":[116],"top_logprobs":[]}}"#)
    };
    let logprobs = ["-0.125", "-1.5", "-0.5", "-0.25"].map(logprob).join(",");
    whole(
        &format!(r#"{{"content":[{logprobs}]}}"#),
        "[4272,27,285,151645]",
        "[151644,872,198]",
    )
}

/// Makes vLLM's reply with token ids, and without them.
fn with_ids() -> String {
    streamed(&events(&ASKED))
}

fn without_ids() -> String {
    streamed(&events(&UNASKED))
}

fn refused(message: &str) -> String {
    let body = format!(
        r#"{{"object":"error","message":"{message}","type":"BadRequestError","param":null,"code":400}}"#
    );
    reply("400 Bad Request", "", &body)
}

fn sampled(model: &str) -> Tokens {
    Tokens {
        prompt_ids: vec![151_644, 872, 198],
        ids: vec![4_272, 27, 285, 151_645],
        logprobs: vec![-0.125, -1.5, -0.5, -0.25],
        base: model.to_owned(),
        ..Tokens::default()
    }
}

async fn turn(harness: &Harness) -> Turn {
    harness.log.wait(1).await.remove(0)
}

#[tokio::test]
async fn the_log_has_the_ids_and_the_agent_sees_what_it_would_have_seen() {
    let mut harness = before_vllm().await;
    let (exchange, seen) = harness.exchange(&post_chat(CHAT), &with_ids()).await;
    assert_eq!(exchange.body(), CHAT.replacen('{', ASKING, 1));
    assert_eq!(seen.text(), events(&UNASKED));
    assert!(seen.is_whole);
    let turn = turn(&harness).await;
    assert_eq!(turn.tokens, Some(sampled("m")));
    assert_eq!(turn.reply.unwrap().text(), "Par<is");
    assert!(!turn.request.params.contains_key("logprobs"));
}

#[tokio::test]
async fn an_adapters_turn_is_known_as_an_adapters() {
    let mut harness = before_vllm().await;
    let chat = CHAT.replace(r#""model":"m""#, r#""model":"px""#);
    let mut kept = None;
    // A reply that ends before the list of models has arrived counts as a base model's.
    for n in 1..100 {
        let (_, seen) = harness.exchange(&post_chat(&chat), &with_ids()).await;
        assert_eq!(seen.text(), events(&UNASKED));
        let turn = harness.log.wait(n).await.remove(n - 1);
        let has_adapter = |tokens: &Tokens| tokens.adapter.is_some();
        if turn.tokens.as_ref().is_some_and(has_adapter) {
            kept = Some(turn);
            break;
        }
    }
    let kept = kept.expect("its adapter is known soon");
    let expected = Tokens {
        adapter: Some("px".to_owned()),
        ..sampled("m")
    };
    assert_eq!(kept.tokens, Some(expected));
    assert_eq!((&*kept.served.model, kept.served.adapter), ("px", None));
}

#[tokio::test]
async fn a_stream_goes_on_as_it_comes_wherever_it_is_split() {
    let all = events(&ASKED);
    let mut harness = before_vllm().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM).await;
    // The first event has arrived completely, so nobody waits for the second.
    let first = all.find("\n\n").unwrap() + 2;
    exchange.send(&chunk(&all[..first + 9])).await;
    client.until("\"prompt_token_ids\":null}").await;
    for piece in all.as_bytes()[first + 9..].chunks(7) {
        let piece = std::str::from_utf8(piece).unwrap();
        exchange.send(&chunk(piece)).await;
    }
    exchange.send(END).await;
    assert_eq!(client.read().await.text(), events(&UNASKED));
    assert_eq!(turn(&harness).await.tokens, Some(sampled("m")));
}

#[tokio::test]
async fn an_unstreamed_reply_has_its_ids_taken_out_too() {
    let mut harness = before_vllm().await;
    let chat = CHAT.replace(r#""stream":true,"#, "");
    let reply = json_reply(&asked_whole());
    let (exchange, seen) = harness.exchange(&post_chat(&chat), &reply).await;
    assert_eq!(exchange.body(), chat.replacen('{', ASKING, 1));
    let unasked = whole("null", "null", "null");
    assert_eq!(seen.text(), unasked);
    let length = unasked.len().to_string();
    assert_eq!(seen.header("content-length"), Some(&*length));
    assert_eq!(turn(&harness).await.tokens, Some(sampled("m")));
}

#[tokio::test]
async fn what_the_caller_asked_for_itself_it_gets() {
    let mut harness = before_vllm().await;
    let chat = CHAT.replacen('{', r#"{"return_token_ids":true, "logprobs":true,"#, 1);
    let request = post(CHATS, "accept-encoding: br\r\n", &chat);
    let (exchange, seen) = harness.exchange(&request, &with_ids()).await;
    assert_eq!(exchange.body(), chat);
    assert_eq!(exchange.header("accept-encoding"), Some("br"));
    assert_eq!(seen.text(), events(&ASKED));
    assert_eq!(turn(&harness).await.tokens, Some(sampled("m")));

    let chat = CHAT.replacen('{', r#"{"logprobs": false,"#, 1);
    let (exchange, seen) = harness.exchange(&post_chat(&chat), &with_ids()).await;
    let gives_way = CHAT.replacen('{', r#"{"return_token_ids":true,"logprobs": true,"#, 1);
    assert_eq!(exchange.body(), gives_way);
    assert_eq!(seen.text(), events(&UNASKED));
}

#[tokio::test]
async fn a_cut_goes_on_as_a_cut_and_has_no_ids() {
    let mut harness = before_vllm().await;
    let cut = events(&ASKED[..4]).replace(DONE, "");
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(&format!("{STREAM}{}", chunk(&cut))).await;
    drop(exchange);
    let seen = client.read().await;
    let begun = events(&UNASKED[..3]).replace(DONE, "");
    assert_eq!(seen.content(), (&*begun, false));
    let turn = turn(&harness).await;
    assert_eq!((turn.meta.end, turn.tokens), (StreamEnd::Cut, None));

    // An unstreamed reply does the same: the received part is passed on.
    let whole = json_reply(&asked_whole());
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(&whole.as_bytes()[..whole.len() - 9]).await;
    drop(exchange);
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.is_whole), (200, false));
    assert_eq!(seen.text(), &asked_whole()[..asked_whole().len() - 9]);
    assert_eq!(harness.log.wait(2).await[1].tokens, None);
}

#[tokio::test]
async fn what_cannot_be_read_goes_on_as_it_came() {
    let mut harness = before_vllm().await;
    for (kind, body) in [("text/plain", "no completion"), ("application/json", "[1")] {
        let reply = json_reply(body).replace("application/json", kind);
        let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
        assert_eq!((seen.text(), seen.is_whole), (body, true));
        assert_eq!(seen.header("content-type"), Some(kind));
    }
    let packed = json_reply("\u{1f}packed").replace("type:", "encoding: zstd\r\nx-type:");
    let (exchange, seen) = harness.exchange(&post_chat(CHAT), &packed).await;
    assert_eq!(exchange.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.text(), "\u{1f}packed");
    assert_eq!(seen.header("content-encoding"), Some("zstd"));
    let turns = harness.log.wait(3).await;
    assert!(turns.iter().all(|turn| turn.tokens.is_none()));
}

#[tokio::test]
async fn ids_without_their_end_are_no_ids() {
    let mut harness = before_vllm().await;
    let mut lossy = ASKED.to_vec();
    lossy.remove(2);
    let reply = streamed(&events(&lossy));
    let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!(seen.text(), events(&UNASKED));
    let turn = turn(&harness).await;
    assert_eq!((turn.meta.end, turn.tokens), (StreamEnd::Complete, None));
}

#[tokio::test]
async fn a_server_that_refuses_the_fields_is_asked_without_them_for_an_hour() {
    const FORBIDDEN: &str = "[{'type': 'extra_forbidden', 'loc': ('body', 'return_token_ids'), 'msg': 'Extra inputs are not permitted', 'input': True}]";
    let mut harness = before_vllm().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let first = harness.upstream.answer(&refused(FORBIDDEN)).await;
    assert!(first.body().starts_with(ASKING));
    let second = harness.upstream.answer(&without_ids()).await;
    assert_eq!(second.body(), CHAT);
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.text()), (200, &*events(&UNASKED)));
    assert_eq!(turn(&harness).await.tokens, None);
    let (later, _) = harness.exchange(&post_chat(CHAT), &without_ids()).await;
    assert_eq!(later.body(), CHAT);
}

/// Checks that the next chat is asked for ids.
async fn is_asked_for_ids(harness: &mut Harness) {
    let (later, _) = harness.exchange(&post_chat(CHAT), &with_ids()).await;
    assert!(later.body().starts_with(ASKING));
}

#[tokio::test]
async fn what_is_refused_without_the_fields_too_was_not_refused_for_them() {
    let mut harness = before_vllm().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    for message in ["logprobs: messages is a bad list", "messages is a bad list"] {
        harness.upstream.answer(&refused(message)).await;
    }
    let seen = client.read().await;
    assert_eq!(seen.status(), 400);
    has(seen.text(), ["\"messages is a bad list"]);
    is_asked_for_ids(&mut harness).await;
    // An error that names neither field is for the agent, and is passed on at once.
    let too_long = refused("This model's maximum context length is 4096 tokens.");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &too_long).await;
    assert_eq!(seen.status(), 400);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn where_the_second_asking_finds_nobody_the_first_answer_stays() {
    let mut harness = before_vllm().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let no = refused("logprobs: messages is a bad list");
    harness.upstream.answer(&no).await;
    drop(harness.upstream.next().await);
    let seen = client.read().await;
    assert_eq!(seen.status(), 400);
    assert!(no.ends_with(seen.text()) && !seen.text().is_empty());
    // It is not known to lack anything.
    is_asked_for_ids(&mut harness).await;
}

#[tokio::test]
async fn where_the_second_asking_finds_nobody_the_next_upstream_is_asked_if_settings_say_so() {
    let mut second = Upstream::start(&TaskTracker::new()).await;
    let mut set_up = SetUp::default();
    set_up.with_second(&second, &[Failure::Unreachable]);
    set_up.llm().dialect = Provider::Vllm;
    let mut harness = Harness::with(set_up).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    harness.upstream.answer(&refused("no logprobs here")).await;
    drop(harness.upstream.next().await);
    second.answer(&json_reply("{}")).await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn what_vllm_refuses_is_not_made_right_by_our_fields() {
    let mut harness = before_vllm().await;
    let no = refused("when using `top_logprobs`, `logprobs` must be set to true.");
    for fields in [
        r#"{"top_logprobs":2,"#,
        r#"{"logprobs":false,"top_logprobs":2,"#,
    ] {
        let chat = CHAT.replacen('{', fields, 1);
        let (exchange, seen) = harness.exchange(&post_chat(&chat), &no).await;
        assert_eq!((exchange.body(), seen.status()), (&*chat, 400));
        assert!(harness.upstream.is_unasked());
    }
    for fields in [
        r#"{"top_logprobs":null,"#,
        r#"{"logprobs":true,"top_logprobs":2,"#,
    ] {
        let chat = CHAT.replacen('{', fields, 1);
        let (exchange, _) = harness.exchange(&post_chat(&chat), &with_ids()).await;
        assert!(exchange.body().contains(r#""return_token_ids":true"#));
    }
}

#[tokio::test]
async fn a_reply_that_is_rewritten_announces_no_fields_behind_it() {
    let mut harness = before_vllm().await;
    let with_trailer = |reply: &str| reply.replacen("\r\n\r\n", "\r\ntrailer: x-sum\r\n\r\n", 1);
    let end = "0\r\nx-sum: 1\r\n\r\n";
    let stream = format!("{STREAM}{}{end}", chunk(&events(&ASKED)));
    let json = STREAM.replace("text/event-stream", "application/json");
    let unstreamed = format!("{json}{}{end}", chunk(&asked_whole()));
    for (reply, expected) in [
        (stream, events(&UNASKED)),
        (unstreamed, whole("null", "null", "null")),
    ] {
        let reply = with_trailer(&reply);
        let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
        assert_eq!((seen.text(), seen.is_whole), (&*expected, true));
        assert_eq!(seen.header("trailer"), None);
        assert_eq!(seen.header("x-sum"), None);
    }
    // A reply that passes unchanged keeps them.
    let text = STREAM.replace("text/event-stream", "text/plain");
    let text = with_trailer(&format!("{text}{}{end}", chunk("no completion")));
    let (_, seen) = harness.exchange(&post_chat(CHAT), &text).await;
    assert_eq!(seen.header("trailer"), Some("x-sum"));
}

#[tokio::test]
async fn who_is_not_learned_from_is_not_asked_for_ids() {
    let mut harness = before_vllm().await;
    let side = post(CHATS, "x-turn-type: side\r\n", CHAT);
    let (exchange, _) = harness.exchange(&side, &without_ids()).await;
    assert_eq!(exchange.body(), CHAT);

    let mut set_up = SetUp::default();
    set_up.llm().dialect = Provider::Vllm;
    set_up.config.unrecorded = true;
    let mut unrecorded = Harness::with(set_up).await;
    let (exchange, _) = unrecorded.exchange(&post_chat(CHAT), &without_ids()).await;
    assert_eq!(exchange.body(), CHAT);

    let responses = r#"{"model":"m","input":"Hi"}"#;
    let request = post("/v1/responses", "", responses);
    let reply = json_reply(r#"{"id":"resp_1","object":"response","output":[]}"#);
    let (exchange, _) = harness.exchange(&request, &reply).await;
    assert_eq!(exchange.body(), responses);
}

#[tokio::test]
async fn a_chat_that_is_translated_is_asked_for_ids_as_well() {
    let mut harness = before(UpstreamConfig {
        speaks: Some(vec![Api::Chat]),
        tool_calls_in_text: true,
        ..UpstreamConfig::default()
    })
    .await;
    let messages = r#"{"model":"m","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"Where?"}]}"#;
    let request = post("/v1/messages", "", messages);
    let called = events(&ASKED).replace(
        "\"content\":\"<is\"",
        r#""content":"<tool_call>{\"name\":\"look\",\"arguments\":{}}</tool_call>""#,
    );
    let (exchange, seen) = harness.exchange(&request, &streamed(&called)).await;
    let sent = exchange.json();
    assert_eq!([&sent["logprobs"], &sent["return_token_ids"]], [true; 2]);
    let text = seen.text();
    assert!(text.contains("tool_use") && text.ends_with("data: {\"type\":\"message_stop\"}\n\n"));
    assert!(
        !text.contains("logprob") && !text.contains("token_ids"),
        "{text}"
    );
    assert_eq!(turn(&harness).await.tokens, Some(sampled("m")));
}
