//! Tests of what broke the prefix of a prompt.

use metaclaw_chat::{Message, TurnId};
use serde_json::{Value, json};

use super::kit::{Client, new_log, open};
use crate::{
    BreakCause, BreakCounts, BrokenPrompt, JsonText, LessonRef, NewTurn, StreamEnd, TurnKind,
    TurnLog, day_of,
};

/// Appends two turns of a session, the second one after a change, and returns the reported break.
async fn after(change: impl FnOnce(&mut NewTurn)) -> Option<BrokenPrompt> {
    let (_dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    let first = client.turn("one", "1");
    let mut second = client.turn("two", "2");
    change(&mut second);
    log.put(first).await;
    let id = log.put(second).await;
    broken(&log, id).await
}

async fn broken(log: &TurnLog, id: TurnId) -> Option<BrokenPrompt> {
    log.broken_prompts(vec![id]).await.unwrap().pop()
}

/// Returns the cause, the part, and both texts.
fn told(broken: Option<BrokenPrompt>) -> (BreakCause, String, String, String) {
    let it = broken.unwrap();
    (it.cause, it.what, it.before, it.now)
}

fn is(
    cause: BreakCause,
    what: &str,
    before: &str,
    now: &str,
) -> (BreakCause, String, String, String) {
    (cause, what.to_owned(), before.to_owned(), now.to_owned())
}

fn set(turn: &mut NewTurn, at: usize, message: &Value) {
    turn.messages[at].text = JsonText::of(message).unwrap();
}

#[tokio::test]
async fn a_prompt_that_goes_on_breaks_with_nothing() {
    assert_eq!(after(|_| ()).await, None);
}

#[tokio::test]
async fn a_wish_and_a_skill_that_come_between_two_turns_are_named() {
    let change = |turn: &mut NewTurn| {
        turn.served.wish_ids.push("77".to_owned());
        let block = turn.served.system_block.as_mut().unwrap();
        block.push_str("Answer in German.");
    };
    let (cause, what, _, now) = told(after(change).await);
    assert_eq!((cause, &*what), (BreakCause::Lesson, "a wish was added"));
    assert!(now.ends_with("Answer in German."), "{now}");

    let change = |turn: &mut NewTurn| {
        turn.served.skills = vec![LessonRef {
            name: "invoices".to_owned(),
            version: "1".to_owned(),
        }];
        turn.served.wish_ids.clear();
        turn.served.system_block = Some("## Active Skills\n\nLook at October.".to_owned());
    };
    let expected =
        "a wish was removed, the skill answer-briefly was removed, the skill invoices was added";
    let (cause, what, before, now) = told(after(change).await);
    assert_eq!((cause, &*what), (BreakCause::Lesson, expected));
    assert!(before.starts_with("Be brief."), "{before}");
    assert_eq!(now, "Look at October.");

    let line = |turn: &mut NewTurn| turn.served.user_line = Some("(short)".to_owned());
    let (cause, what, ..) = told(after(line).await);
    assert_eq!(
        (cause, &*what),
        (BreakCause::Lesson, "the text of the lessons")
    );
}

#[tokio::test]
async fn another_adapter_model_or_upstream_is_told_apart() {
    let adapter = |turn: &mut NewTurn| turn.served.adapter = Some("main-4".to_owned());
    let expected = is(
        BreakCause::Adapter,
        "another adapter answered",
        "main-3",
        "main-4",
    );
    assert_eq!(told(after(adapter).await), expected);
    let model = |turn: &mut NewTurn| turn.served.model = "large".to_owned();
    let what = "another upstream or model answered";
    let expected = is(
        BreakCause::Upstream,
        what,
        "demo by policy",
        "large by policy",
    );
    assert_eq!(told(after(model).await), expected);
}

#[tokio::test]
async fn what_the_client_changed_is_told_with_its_first_words() {
    let time = |turn: &mut NewTurn| {
        set(
            turn,
            0,
            &json!({"role": "system", "content": "sys 12:32 UTC"}),
        );
    };
    let expected = is(
        BreakCause::System,
        "the client's system prompt",
        "sys",
        "sys 12:32 UTC",
    );
    assert_eq!(told(after(time).await), expected);

    let past = |turn: &mut NewTurn| set(turn, 1, &json!({"role": "user", "content": "uno"}));
    let expected = is(
        BreakCause::History,
        "the client's message 2 of 4 (user)",
        "one",
        "uno",
    );
    assert_eq!(told(after(past).await), expected);

    let tools = |turn: &mut NewTurn| {
        turn.tools = Some(JsonText::new(
            r#"[{"type":"function","function":{"name":"read"}}]"#,
        ));
    };
    let (cause, what, before, now) = told(after(tools).await);
    assert_eq!((cause, &*what), (BreakCause::Tools, "the client's tools"));
    assert!(
        before.contains("exec") && now.contains("read"),
        "{before} {now}"
    );
    let none = |turn: &mut NewTurn| turn.tools = None;
    assert_eq!(told(after(none).await).0, BreakCause::Tools);
}

#[tokio::test]
async fn what_comes_first_in_the_prompt_is_named() {
    let both = |turn: &mut NewTurn| {
        turn.served.wish_ids.clear();
        turn.served.system_block = None;
        set(turn, 1, &json!({"role": "user", "content": "uno"}));
    };
    assert_eq!(told(after(both).await).0, BreakCause::Lesson);
    let three = |turn: &mut NewTurn| {
        both(turn);
        set(turn, 0, &json!({"role": "system", "content": "other"}));
    };
    assert_eq!(told(after(three).await).0, BreakCause::System);
}

#[tokio::test]
async fn marks_of_the_cache_are_no_change() {
    let marked = |turn: &mut NewTurn| {
        let part = json!({"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}});
        set(turn, 1, &json!({"role": "user", "content": [part]}));
        turn.tools = Some(JsonText::new(
            r#"[{"type":"function","function":{"name":"exec"},"cache_control":{}}]"#,
        ));
    };
    assert_eq!(after(marked).await, None);
}

#[tokio::test]
async fn what_openclaw_ends_each_prompt_with_is_not_missed_in_the_next() {
    let (_dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    for (said, answered, is_changed) in [
        ("one", "1", false),
        ("two", "2", false),
        ("three", "3", true),
    ] {
        client.push(Message::user(said));
        if is_changed {
            client.messages[1] = Message::user("one, as the client says now");
        }
        let now = format!("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nIt is {said} o'clock.");
        client.push(Message::user(&now));
        let turn = client.request(answered);
        client.messages.pop();
        client.push(Message::assistant(answered));
        let id = log.put(turn).await;
        let cause = broken(&log, id).await.map(|it| it.cause);
        assert_eq!(cause, is_changed.then_some(BreakCause::History), "{said}");
    }
}

#[tokio::test]
async fn a_conversation_that_begins_and_a_side_turn_are_not_compared() {
    let begins = |turn: &mut NewTurn| {
        turn.messages.truncate(2);
        set(turn, 0, &json!({"role": "system", "content": "another"}));
        set(turn, 1, &json!({"role": "user", "content": "hello"}));
    };
    assert_eq!(after(begins).await, None);
    let side = |turn: &mut NewTurn| {
        turn.meta.kind = TurnKind::Side;
        turn.tools = None;
    };
    assert_eq!(after(side).await, None);
}

#[tokio::test]
async fn a_sub_agents_turns_between_two_of_the_owner_break_nothing() {
    let (_dir, log) = new_log();
    let (mut owner, mut sub) = (
        Client::new("a", "sys"),
        Client::new("a", "you are a sub-agent"),
    );
    for (said, answered) in [("one", "1"), ("two", "2"), ("three", "3")] {
        for client in [&mut owner, &mut sub] {
            let id = log.put(client.turn(said, answered)).await;
            assert_eq!(broken(&log, id).await, None);
        }
    }
    assert_eq!(log.break_counts(), BreakCounts::default());
}

#[tokio::test]
async fn a_turn_that_no_upstream_read_is_not_compared_with() {
    let (_dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    log.put(client.turn("one", "1")).await;
    client.push(Message::user("two"));
    let mut failed = client.request("");
    failed.reply = None;
    failed.tools = None;
    failed.meta.end = StreamEnd::UpstreamError { status: 500 };
    log.put(failed).await;
    client.push(Message::user("two again"));
    let id = log.put(client.request("2")).await;
    assert_eq!(broken(&log, id).await, None);
}

#[tokio::test]
async fn breaks_are_counted_listed_and_gone_with_their_turns() {
    let (dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    log.put(client.turn("one", "1")).await;
    client.messages[0] = Message::system(format!("sys with sk-{} inside", "A1".repeat(12)));
    let id = log.put(client.turn("two", "2")).await;
    // The log is opened again: it compares with what it reads from the disk.
    log.close().await;
    let log = open(dir.path());
    let mut third = client.turn("three", "3");
    third.served.adapter = None;
    let last = log.put(third).await;
    let (cause, .., now) = told(broken(&log, id).await);
    assert_eq!(cause, BreakCause::System);
    assert!(now.contains("[masked") && !now.contains("A1A1"), "{now}");

    let listed = log.list(crate::TurnFilter::default()).await.unwrap();
    let causes: Vec<_> = listed.iter().map(|it| it.broken).collect();
    assert_eq!(
        causes,
        [Some(BreakCause::Adapter), Some(BreakCause::System), None]
    );
    let (own, client_n) = (1, 1);
    let expected = BreakCounts {
        own,
        client: client_n,
        upstream: 0,
    };
    let days = log.statistics(day_of(client.now_ms)).await.unwrap();
    assert_eq!(days[0].counts.breaks, expected);
    assert_eq!(
        log.break_counts(),
        BreakCounts {
            own,
            ..BreakCounts::default()
        }
    );
    let latest = log.latest_breaks().await.unwrap();
    assert_eq!(latest.iter().map(|it| it.turn).collect::<Vec<_>>(), [last]);

    log.forget(&"main".parse().unwrap(), &"a".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(log.latest_breaks().await.unwrap(), []);
}
