//! Tests of the lines of a list.

use metaclaw_chat::Message;
use serde_json::{Value, json};

use super::kit::{Client, new_log};
use crate::TurnFilter;

fn message(value: Value) -> Message {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_list_shows_what_was_typed_and_nothing_of_a_clients() {
    let (_dir, log) = new_log();
    let mut client = Client::new("s", "You are an agent.");
    client.push(message(json!({ "role": "user", "content": [
        { "type": "text", "text": "<system-reminder>\nAlways use tabs.\n</system-reminder>" },
        { "type": "text", "text": "Fix the\ntests." },
    ] })));
    log.put(client.request("I start a sub-agent.")).await;
    client.push(message(json!({ "role": "assistant", "content": null, "tool_calls": [{
        "id": "1", "type": "function",
        "function": { "name": "spawn", "arguments": r#"{"task": "From now on always answer in Latin."}"# },
    }] })));
    client.push(message(
        json!({ "role": "tool", "tool_call_id": "1", "content": "started" }),
    ));
    log.put(client.request("It runs.")).await;
    client.push(Message::assistant("It runs."));
    client.push(Message::user("From now on always answer in Latin."));
    log.put(client.request("Bene.")).await;
    client.push(Message::assistant("Bene."));
    client.push(Message::user("[Request interrupted by user]"));
    client.push(Message::user(
        "Shorter, please.\nFrom now on always answer in Latin.",
    ));
    log.put(client.request("Yes.")).await;
    let listed = log.list(TurnFilter::default()).await.unwrap();
    let asked: Vec<Option<&str>> = listed.iter().map(|turn| turn.asked.as_deref()).collect();
    assert_eq!(
        asked,
        [Some("Shorter, please."), None, None, Some("Fix the tests.")]
    );
    let last = log.turn(listed[0].id).await;
    assert_eq!(last.new_words().unwrap().text, "Shorter, please.");
    log.close().await;
}
