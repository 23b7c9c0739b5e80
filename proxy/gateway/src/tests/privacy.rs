//! Tests of what is kept and what is not: the switch, the header and the phrase, from both ends.

use std::sync::Arc;

use metaclaw_chat::Message;
use metaclaw_test_kit::has;

use super::harness::{
    CHAT, CHATS, DONE, Harness, SetUp, chunk, conversation, delta, json_reply, post, says,
};
use crate::{Mark, OffRecord, Privacy, RelayOnly};

const WISHES: &str = "- Answer in one sentence.\n";
const NO: &str = "x-metaclaw-learn: no\r\n";
const CLAUDE: &str = "x-claude-code-session-id: 0f0e0d0c-1111-4222-8333-444455556666\r\n";
const A: &str = "x-session-id: a\r\n";
const B: &str = "x-session-id: b\r\n";

/// Makes a gateway that adds a wish to each session.
async fn harness(privacy: &Arc<Privacy>) -> Harness {
    Harness::with(SetUp {
        privacy: Arc::clone(privacy),
        ..SetUp::taught(&[("_default/WISHES.md", WISHES), ("work/WISHES.md", WISHES)])
    })
    .await
}

async fn fresh() -> Harness {
    harness(&Arc::default()).await
}

/// The state of privacy of a process that starts with the marks of another.
fn restarted(privacy: &Privacy) -> Arc<Privacy> {
    let off_record = OffRecord::new(privacy.off_record.marks());
    Arc::new(Privacy {
        off_record,
        ..Privacy::default()
    })
}

/// Checks that the log has these turns and no others, each with its messages, once a last turn is there.
async fn keeps(harness: &mut Harness, expected: &[&str]) {
    harness.talk("x-session-id: last\r\n", &["last"]).await;
    let mut kept = harness
        .turns(expected.len() + 1, |turn| {
            let texts = turn.request.messages.iter().map(Message::text);
            texts.collect::<Vec<_>>().join("|")
        })
        .await;
    kept.truncate(expected.len());
    assert_eq!(kept, expected);
}

#[tokio::test]
async fn off_relays_bytes_untouched_while_a_stream_is_under_way_and_on_goes_on() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    has(harness.talk(A, &["one"]).await.body(), [WISHES.trim()]);
    // A stream that began before ends as it began, and is kept.
    let (mut client, mut exchange) = harness.ask(&post(CHATS, B, CHAT)).await;
    exchange.begin("Par").await;
    client.until(&delta("Par")).await;
    privacy.switch.set(RelayOnly {
        all: true,
        ..RelayOnly::default()
    });
    let texts = ["one", "1", "a secret", "2", "three"];
    let relayed = harness.talk(A, &texts[..3]).await;
    let body = conversation(&texts[..3]);
    assert_eq!(relayed.body(), body, "not a byte is changed");
    exchange.send(&chunk(&delta("is"))).await;
    exchange.end(DONE).await;
    assert!(client.read().await.is_whole);
    harness.log.wait(2).await;
    assert_eq!(harness.metrics.counts().relayed_only, 1);

    privacy.switch.set(RelayOnly::default());
    // The history would contain the text of that time, so the session is not kept, but still gets lessons.
    has(harness.talk(A, &texts).await.body(), [WISHES.trim()]);
    // It begins anew.
    harness.talk(A, &["four"]).await;
    keeps(
        &mut harness,
        &["one", "What is the capital of France?", "four"],
    )
    .await;
    let counts = harness.metrics.counts();
    assert_eq!((counts.relayed_only, counts.off_record), (1, 1));
}

/// OpenClaw adds its own message after the owner's. Before, nothing was kept any more after one off-the-record phrase,
/// even if a session began anew.
#[tokio::test]
async fn what_an_agent_adds_behind_the_first_words_is_no_history() {
    let mut harness = fresh().await;
    harness.talk(&format!("{A}{NO}"), &["a secret"]).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"anew"},{"role":"user","content":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}"#;
    harness.chat(A, body, "2").await;
    keeps(
        &mut harness,
        &["anew|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"],
    )
    .await;
}

#[tokio::test]
async fn the_phrases_are_those_of_the_settings() {
    let mut set_up = SetUp::default();
    set_up.config.privacy.phrases = vec!["between us".to_owned()];
    let mut harness = Harness::with(set_up).await;
    harness.talk(A, &["Between us: I move."]).await;
    harness.talk(B, &["off the record"]).await;
    keeps(&mut harness, &["off the record"]).await;
}

#[tokio::test]
async fn one_agent_is_off_and_others_are_not() {
    let privacy = Arc::new(Privacy::default());
    privacy.switch.set(RelayOnly {
        all: false,
        agents: ["work".parse().unwrap()].into(),
    });
    let mut harness = harness(&privacy).await;
    let own = "x-agent-id: work\r\nx-session-id: w\r\n";
    let relayed = harness.talk(own, &["of work"]).await;
    assert_eq!(relayed.body(), conversation(&["of work"]));
    has(harness.talk(A, &["of main"]).await.body(), [WISHES.trim()]);
    keeps(&mut harness, &["of main"]).await;
}

#[tokio::test]
async fn a_header_keeps_a_turn_from_the_log_and_from_upstreams() {
    let mut harness = fresh().await;
    let texts = ["one", "1", "a secret", "2", "three"];
    harness.talk(A, &texts[..1]).await;
    let exchange = harness.talk(&format!("{A}{NO}"), &texts[..3]).await;
    assert_eq!(exchange.header("x-metaclaw-learn"), None);
    // It is served as ever.
    has(exchange.body(), [WISHES.trim()]);
    // Later turns repeat it.
    let request = post(CHATS, A, &conversation(&texts));
    let (_, seen) = harness.exchange(&request, &says("3")).await;
    assert!(
        !seen.head.to_ascii_lowercase().contains("learn"),
        "{seen:?}"
    );
    let yes = format!("{B}x-metaclaw-learn: YES\r\n");
    harness.talk(&yes, &["with yes"]).await;
    keeps(&mut harness, &["one", "with yes"]).await;
    let neither = format!("{B}x-metaclaw-learn: maybe\r\n");
    let seen = harness.refused(&post(CHATS, &neither, CHAT)).await;
    let why = r#"X-MetaClaw-Learn: "maybe" is not allowed: yes or no"#;
    assert_eq!(seen.refusal(), (400, why.to_owned()));
}

#[tokio::test]
async fn a_phrase_puts_the_rest_of_its_session_off_the_record_also_after_a_restart() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let said =
        "[Fri 2026-11-20 05:31 UTC] Off the record: I moved.\\n\\nRuntime: agent=_default | host=x";
    harness.talk(A, &["one"]).await;
    harness.talk(A, &["one", "1", said]).await;
    // The client has summarised the history: the phrase is gone, and the session's name stays.
    let summed = r#"{"messages":[{"role":"user","content":"Summary: she moved"},{"role":"user","content":"three"}]}"#;
    harness.chat(A, summed, "3").await;
    let session = Mark::Session {
        agent: "_default".parse().unwrap(),
        session: "a".parse().unwrap(),
    };
    assert_eq!(privacy.off_record.marks(), [session]);
    keeps(&mut harness, &["one"]).await;

    let mut harness = self::harness(&restarted(&privacy)).await;
    harness.chat(A, summed, "4").await;
    // Without the mark, the history itself shows it.
    harness.talk(B, &["one", "1", said, "2", "five"]).await;
    harness.talk(A, &["new"]).await;
    keeps(&mut harness, &["new"]).await;
    assert_eq!(harness.metrics.counts().off_record, 2);
}

#[tokio::test]
async fn a_session_without_a_name_is_known_by_what_was_said_also_after_a_restart() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let texts = ["a secret", "1", "more", "2", "again"];
    harness.talk(NO, &texts[..1]).await;
    harness.talk("", &texts[..3]).await;
    harness.talk("", &["else"]).await;
    keeps(&mut harness, &["else"]).await;
    let mut harness = self::harness(&restarted(&privacy)).await;
    harness.talk("", &texts).await;
    keeps(&mut harness, &[]).await;
}

#[tokio::test]
async fn a_reply_that_is_named_later_is_known_though_it_is_not_kept() {
    let mut harness = fresh().await;
    let reply = json_reply(
        r#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}]}"#,
    );
    let first = post("/v1/responses", NO, r#"{"model":"m","input":"a secret"}"#);
    harness.exchange(&first, &reply).await;
    let next = r#"{"model":"m","input":"go on","previous_response_id":"resp_1"}"#;
    let reply = reply.replace("resp_1", "resp_2");
    harness
        .exchange(&post("/v1/responses", "", next), &reply)
        .await;
    keeps(&mut harness, &[]).await;
    assert_eq!(harness.metrics.counts().off_record, 2);
    harness.until(|counts| counts.capture_bytes == 0).await;
}

#[tokio::test]
async fn a_sub_agent_is_off_the_record_with_the_session_that_sent_it_out() {
    let mut harness = fresh().await;
    let reply = r#"{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"spawn","arguments":"{\"task\":\"Find out where the treasure lies.\"}"}}]},"finish_reason":"tool_calls"}]}"#;
    let phrase = "Off the record: dig.";
    let first = post(CHATS, "", &conversation(&[phrase]));
    harness.exchange(&first, &json_reply(reply)).await;
    let child = "x-session-id: ses_4567efab\r\nx-parent-session-id: ses_0123abcd\r\n";
    for (headers, text) in [
        ("", "Find out where the treasure lies."),
        ("x-session-id: ses_0123abcd\r\n", phrase),
        (child, "dig there"),
    ] {
        harness.talk(headers, &[text]).await;
    }
    keeps(&mut harness, &[]).await;
}

#[tokio::test]
async fn an_errand_takes_no_session_of_the_owners_off_the_record() {
    let mut harness = fresh().await;
    let sub_agents = format!("{CLAUDE}x-claude-code-agent-id: a1\r\n");
    harness.talk(CLAUDE, &["one"]).await;
    let texts = ["Keep this off the record.", "x", "go on"];
    harness.talk(&sub_agents, &texts[..1]).await;
    harness.talk(&sub_agents, &texts).await;
    harness.talk(CLAUDE, &["one", "1", "two"]).await;
    keeps(&mut harness, &["one", "one|1|two"]).await;
}

#[tokio::test]
async fn what_was_summed_up_stays_off_the_record() {
    let mut harness = fresh().await;
    harness.talk(CLAUDE, &["Off the record: a secret"]).await;
    harness.talk(CLAUDE, &["There was a secret. Go on."]).await;
    keeps(&mut harness, &[]).await;
}

#[tokio::test]
async fn nothing_is_marked_where_nobody_asks_for_it() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    harness.talk("", &["one"]).await;
    keeps(&mut harness, &["one"]).await;
    assert_eq!(privacy.off_record.marks(), []);
}
