//! Tests of the replies of a session, without the requests.

use metaclaw_chat::Message;
use serde_json::json;

use super::kit::{Client, open};
use crate::keys;

#[tokio::test]
async fn the_replies_of_a_session_are_told_with_their_upstreams_and_all_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let (mut one, mut other) = (Client::new("one", "sys"), Client::new("two", "sys"));
    let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"signed": "x"}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call], "reasoning_content": "so"});
    let signed: Message = message.try_into().unwrap();
    let mut first = one.turn("a", "b");
    first.served.upstream = "gemini".to_owned();
    first.reply = Some(signed.clone());
    let mut silent = one.turn("c", "d");
    silent.reply = None;
    for turn in [first, other.turn("x", "y"), silent, one.turn("e", "f")] {
        log.put(turn).await;
    }
    let (agent, session) = ("main".parse().unwrap(), "one".parse().unwrap());
    let replies = log.replies(&agent, &session).await.unwrap();
    let told: Vec<_> = replies
        .iter()
        .map(|it| (it.upstream.as_str(), &it.reply))
        .collect();
    assert_eq!(
        told,
        [("gemini", &signed), ("policy", &Message::assistant("f"))]
    );
    let unknown = "three".parse().unwrap();
    assert_eq!(log.replies(&agent, &unknown).await.unwrap(), []);
    log.close().await;
}

#[tokio::test]
async fn the_names_are_those_of_the_log_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for n_before in 0..2 {
        let log = open(folder.path());
        let has = |name: &str| {
            let key = keys::name(&"main".parse().unwrap(), &name.parse().unwrap());
            log.inner.state.names.may_have(&key)
        };
        // The first answer comes after the names were read.
        log.agents().await.unwrap();
        assert_eq!(
            [has("one"), has("two"), has("three")],
            [n_before > 0, n_before > 0, false]
        );
        for name in ["one", "two"] {
            log.put(Client::new(name, "sys").turn("a", "b")).await;
            assert!(has(name));
        }
        log.close().await;
    }
}
