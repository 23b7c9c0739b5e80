//! Tests of what is kept and what is not: the switch, the header and the phrase, from both ends.

use metaclaw_test_kit::has;
use std::sync::Arc;

use metaclaw_skills::WishesConfig;
use metaclaw_turns::Turn;

use super::harness::{
    CHAT, Harness, STREAM, SetUp, chunk, completion, conversation, delta, json_reply, post,
    post_chat,
};
use crate::{Mark, OffRecord, Privacy, RelayOnly};

const WISHES: &str = "- Answer in one sentence.\n";
const NO: &str = "x-metaclaw-learn: no\r\n";

fn everyone() -> RelayOnly {
    RelayOnly {
        all: true,
        ..RelayOnly::default()
    }
}

/// Makes a gateway that adds a wish to each session.
async fn harness(privacy: &Arc<Privacy>) -> Harness {
    Harness::with(SetUp {
        lessons: vec![("_default/WISHES.md", WISHES), ("work/WISHES.md", WISHES)],
        wishes: WishesConfig::default(),
        privacy: Arc::clone(privacy),
        ..SetUp::default()
    })
    .await
}

/// Returns all turns' messages in the log, once a turn with the text `last` is there.
async fn kept(harness: &mut Harness, n_turns: usize) -> Vec<String> {
    harness
        .chat("x-session-id: last\r\n", &conversation(&["last"]), "end")
        .await;
    let turns = harness.log.wait(n_turns + 1).await;
    let said = |turn: &Turn| {
        let messages = turn
            .request
            .messages
            .iter()
            .map(|it| it.text().into_owned());
        messages.collect::<Vec<_>>().join("|")
    };
    turns[..n_turns].iter().map(said).collect()
}

fn in_session(name: &str) -> String {
    format!("x-session-id: {name}\r\n")
}

#[tokio::test]
async fn off_relays_bytes_untouched_while_a_stream_is_under_way_and_on_goes_on() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let taught = harness
        .chat(&in_session("a"), &conversation(&["one"]), "1")
        .await;
    assert!(taught.body().contains("Answer in one sentence."));
    // A stream that began before ends as it began, and is kept.
    let request = post("/v1/chat/completions", &in_session("b"), CHAT);
    let (mut client, mut exchange) = harness.ask(&request).await;
    exchange
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    client.until(&delta("Par")).await;
    privacy.switch.set(everyone());
    let body = conversation(&["one", "1", "a secret"]);
    let relayed = harness.chat(&in_session("a"), &body, "2").await;
    assert_eq!(relayed.body(), body, "not a byte is changed");
    let rest = format!(
        "{}{}0\r\n\r\n",
        chunk(&delta("is")),
        chunk("data: [DONE]\n\n")
    );
    exchange.send(rest.as_bytes()).await;
    assert!(client.read().await.is_whole);
    harness.log.wait(2).await;
    assert_eq!(harness.metrics.counts().relayed_only, 1);

    privacy.switch.set(RelayOnly::default());
    // The history would contain the text of that time, so the session is not kept, but still gets lessons.
    let body = conversation(&["one", "1", "a secret", "2", "three"]);
    let taught = harness.chat(&in_session("a"), &body, "3").await;
    assert!(taught.body().contains("Answer in one sentence."));
    // It begins anew.
    harness
        .chat(&in_session("a"), &conversation(&["four"]), "4")
        .await;
    let kept = kept(&mut harness, 3).await;
    assert_eq!(kept, ["one", "What is the capital of France?", "four"]);
    let counts = harness.metrics.counts();
    assert_eq!((counts.relayed_only, counts.off_record), (1, 1));
}

/// OpenClaw adds its own message after the owner's. Before, nothing was kept any more after one off-the-record phrase,
/// even if a session began anew.
#[tokio::test]
async fn what_an_agent_adds_behind_the_first_words_is_no_history() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let in_a = in_session("a");
    let with_no = format!("{in_a}{NO}");
    harness
        .chat(&with_no, &conversation(&["a secret"]), "1")
        .await;
    let body = |first: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{first}"}},{{"role":"user","content":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}}]}}"#
        )
    };
    harness.chat(&in_a, &body("anew"), "2").await;
    let kept = kept(&mut harness, 1).await;
    assert_eq!(kept, ["anew|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"]);
}

#[tokio::test]
async fn the_phrases_are_those_of_the_settings() {
    let mut set_up = SetUp::default();
    set_up.config.privacy.phrases = vec!["between us".to_owned()];
    let mut harness = Harness::with(set_up).await;
    for (session, text) in [("a", "Between us: I move."), ("b", "off the record")] {
        let body = conversation(&[text]);
        harness.chat(&in_session(session), &body, "1").await;
    }
    assert_eq!(kept(&mut harness, 1).await, ["off the record"]);
}

#[tokio::test]
async fn one_agent_is_off_and_others_are_not() {
    let work = "work".parse().unwrap();
    let privacy = Arc::new(Privacy::default());
    privacy.switch.set(RelayOnly {
        all: false,
        agents: [work].into(),
    });
    let mut harness = harness(&privacy).await;
    let own = "x-agent-id: work\r\nx-session-id: w\r\n";
    let body = conversation(&["of work"]);
    assert_eq!(harness.chat(own, &body, "x").await.body(), body);
    let other = harness
        .chat(&in_session("m"), &conversation(&["of main"]), "x")
        .await;
    assert!(other.body().contains("Answer in one sentence."));
    assert_eq!(kept(&mut harness, 1).await, ["of main"]);
}

#[tokio::test]
async fn a_header_keeps_a_turn_from_the_log_and_from_upstreams() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let with_no = format!("{}{NO}", in_session("a"));
    harness
        .chat(&in_session("a"), &conversation(&["one"]), "1")
        .await;
    let secret = conversation(&["one", "1", "a secret"]);
    let exchange = harness.chat(&with_no, &secret, "2").await;
    assert_eq!(exchange.header("x-metaclaw-learn"), None);
    assert!(
        exchange.body().contains("Answer in one sentence."),
        "it is served as ever"
    );
    // Later turns repeat it.
    let later = conversation(&["one", "1", "a secret", "2", "three"]);
    let request = post("/v1/chat/completions", &in_session("a"), &later);
    let (_, seen) = harness
        .exchange(&request, &json_reply(&completion("3")))
        .await;
    assert!(
        !seen.head.to_ascii_lowercase().contains("learn"),
        "{}",
        seen.head
    );
    let yes = format!("{}x-metaclaw-learn: YES\r\n", in_session("b"));
    harness.chat(&yes, &conversation(&["with yes"]), "x").await;
    assert_eq!(kept(&mut harness, 2).await, ["one", "with yes"]);
    let neither = format!("{}x-metaclaw-learn: maybe\r\n", in_session("b"));
    let seen = harness
        .refused(&post("/v1/chat/completions", &neither, CHAT))
        .await;
    assert_eq!(seen.status(), 400);
    has(
        seen.text(),
        [r#"X-MetaClaw-Learn: \"maybe\" is not allowed: yes or no"#],
    );
}

#[tokio::test]
async fn a_phrase_puts_the_rest_of_its_session_off_the_record_also_after_a_restart() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let said =
        "[Fri 2026-11-20 05:31 UTC] Off the record: I moved.\\n\\nRuntime: agent=_default | host=x";
    harness
        .chat(&in_session("a"), &conversation(&["one"]), "1")
        .await;
    harness
        .chat(&in_session("a"), &conversation(&["one", "1", said]), "2")
        .await;
    // The client has summarised the history: the phrase is gone, and the session's name stays.
    let summed = r#"{"messages":[{"role":"user","content":"Summary: she moved"},{"role":"user","content":"three"}]}"#;
    harness.chat(&in_session("a"), summed, "3").await;
    let marks = privacy.off_record.marks();
    let session = Mark::Session {
        agent: "_default".parse().unwrap(),
        session: "a".parse().unwrap(),
    };
    assert_eq!(marks, [session]);
    assert_eq!(kept(&mut harness, 1).await, ["one"]);

    let restarted = Arc::new(Privacy {
        off_record: OffRecord::new(marks),
        ..Privacy::default()
    });
    let mut harness = self::harness(&restarted).await;
    harness.chat(&in_session("a"), summed, "4").await;
    // Without the mark, the history itself shows it.
    let body = conversation(&["one", "1", said, "2", "five"]);
    harness.chat(&in_session("b"), &body, "5").await;
    harness
        .chat(&in_session("a"), &conversation(&["new"]), "6")
        .await;
    assert_eq!(kept(&mut harness, 1).await, ["new"]);
    assert_eq!(harness.metrics.counts().off_record, 2);
}

#[tokio::test]
async fn a_session_without_a_name_is_known_by_what_was_said_also_after_a_restart() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    harness.chat(NO, &conversation(&["a secret"]), "1").await;
    harness
        .chat("", &conversation(&["a secret", "1", "more"]), "2")
        .await;
    harness.chat("", &conversation(&["else"]), "x").await;
    assert_eq!(kept(&mut harness, 1).await, ["else"]);
    let restarted = Arc::new(Privacy {
        off_record: OffRecord::new(privacy.off_record.marks()),
        ..Privacy::default()
    });
    let mut harness = self::harness(&restarted).await;
    let body = conversation(&["a secret", "1", "more", "2", "again"]);
    harness.chat("", &body, "3").await;
    assert_eq!(kept(&mut harness, 0).await, [""; 0]);
}

#[tokio::test]
async fn a_reply_that_is_named_later_is_known_though_it_is_not_kept() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let reply = json_reply(
        r#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}]}"#,
    );
    let first = post("/v1/responses", NO, r#"{"model":"m","input":"a secret"}"#);
    harness.exchange(&first, &reply).await;
    let body = r#"{"model":"m","input":"go on","previous_response_id":"resp_1"}"#;
    let reply = reply.replace("resp_1", "resp_2");
    harness
        .exchange(&post("/v1/responses", "", body), &reply)
        .await;
    assert_eq!(kept(&mut harness, 0).await, [""; 0]);
    assert_eq!(harness.metrics.counts().off_record, 2);
    while harness.metrics.counts().capture_bytes > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sub_agent_is_off_the_record_with_the_session_that_sent_it_out() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let reply = r#"{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"spawn","arguments":"{\"task\":\"Find out where the treasure lies.\"}"}}]},"finish_reason":"tool_calls"}]}"#;
    let first = post(
        "/v1/chat/completions",
        "",
        &conversation(&["Off the record: dig."]),
    );
    harness.exchange(&first, &json_reply(reply)).await;
    let task = conversation(&["Find out where the treasure lies."]);
    harness.chat("", &task, "x").await;
    let child = "x-session-id: ses_4567efab\r\nx-parent-session-id: ses_0123abcd\r\n";
    let owners = "x-session-id: ses_0123abcd\r\n";
    harness
        .chat(owners, &conversation(&["Off the record: dig."]), "x")
        .await;
    harness
        .chat(child, &conversation(&["dig there"]), "x")
        .await;
    assert_eq!(kept(&mut harness, 0).await, [""; 0]);
}

#[tokio::test]
async fn an_errand_takes_no_session_of_the_owners_off_the_record() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let owners = "x-claude-code-session-id: 0f0e0d0c-1111-4222-8333-444455556666\r\n";
    let sub_agents = format!("{owners}x-claude-code-agent-id: a1\r\n");
    harness.chat(owners, &conversation(&["one"]), "1").await;
    for texts in [
        &["Keep this off the record."][..],
        &["Keep this off the record.", "x", "go on"],
    ] {
        harness.chat(&sub_agents, &conversation(texts), "x").await;
    }
    harness
        .chat(owners, &conversation(&["one", "1", "two"]), "2")
        .await;
    assert_eq!(kept(&mut harness, 2).await, ["one", "one|1|two"]);
}

#[tokio::test]
async fn what_was_summed_up_stays_off_the_record() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    let headers = "x-claude-code-session-id: 0f0e0d0c-1111-4222-8333-444455556666\r\n";
    harness
        .chat(headers, &conversation(&["Off the record: a secret"]), "1")
        .await;
    harness
        .chat(headers, &conversation(&["There was a secret. Go on."]), "2")
        .await;
    assert_eq!(kept(&mut harness, 0).await, [""; 0]);
}

#[tokio::test]
async fn nothing_is_marked_where_nobody_asks_for_it() {
    let privacy = Arc::new(Privacy::default());
    let mut harness = harness(&privacy).await;
    harness
        .exchange(&post_chat(CHAT), &json_reply(&completion("x")))
        .await;
    assert_eq!(kept(&mut harness, 1).await.len(), 1);
    assert_eq!(privacy.off_record.marks(), []);
}
