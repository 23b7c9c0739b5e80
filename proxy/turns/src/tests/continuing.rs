//! Tests of requests that name the reply they continue instead of repeating the conversation.

use metaclaw_chat::Message;

use super::kit::{Client, new_session, open};
use crate::{NewTurn, Turn, TurnLog};

/// Makes the client's `n`th turn with only its new messages.
fn continuing(client: &mut Client, n: usize, system: Option<&str>) -> NewTurn {
    let mut turn = client.turn(&format!("question {n}"), &format!("answer {n}"));
    turn.meta.reply_id = Some(format!("resp_{n}"));
    turn.served.api = Some("/v1/responses".to_owned());
    let before = turn.messages.len() - 1;
    turn.messages.drain(..before);
    if n > 0 {
        turn.continues = Some(format!("resp_{}", n - 1));
    }
    if let Some(system) = system {
        let mut with = Client::new("s", system).turn("", "");
        turn.messages.insert(0, with.messages.remove(0));
    }
    turn
}

async fn turn(log: &TurnLog, new: NewTurn) -> Turn {
    let id = log.put(new).await;
    log.turn(id).await
}

#[tokio::test]
async fn such_a_turn_reads_back_with_the_whole_conversation_however_long() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("s", "sys");
    let mut ids = Vec::new();
    for n in 0..70 {
        if n == 40 {
            log.close().await;
            log = open(dir.path());
        }
        let new = continuing(&mut client, n, Some("sys"));
        let turn = turn(&log, new).await;
        assert_eq!(turn.parent, ids.last().copied(), "{n}");
        ids.push(turn.id);
        let said = &client.messages[..client.messages.len() - 1];
        assert_eq!(turn.request.messages, said, "{n}");
        if n > 0 {
            assert_eq!(turn.evidence(), [Message::user(format!("question {n}"))]);
        }
    }
    // This request continues a reply of long ago.
    let mut other = continuing(&mut client, 70, None);
    other.continues = Some("resp_3".to_owned());
    let turn = turn(&log, other).await;
    assert_eq!(turn.parent, Some(ids[3]));
    assert_eq!(turn.request.messages[..9], client.messages[..9]);
    assert_eq!(turn.evidence(), [Message::user("question 70")]);
}

#[tokio::test]
async fn a_system_text_holds_for_its_own_request() {
    let (_dir, log, mut client) = new_session();
    turn(&log, continuing(&mut client, 0, Some("sys"))).await;
    let other = turn(&log, continuing(&mut client, 1, Some("other"))).await;
    let mut said = client.messages.clone();
    said.pop();
    said[0] = Message::system("other");
    assert_eq!(other.request.messages, said);
    assert_eq!(other.evidence(), [Message::user("question 1")]);
    assert_eq!(other.new_from, 3);
}

#[tokio::test]
async fn one_that_names_a_reply_of_nobodys_has_what_it_says() {
    let (_dir, log, mut client) = new_session();
    let turn = turn(&log, continuing(&mut client, 7, None)).await;
    assert_eq!(turn.request.messages, [Message::user("question 7")]);
    assert_eq!(turn.parent, None);
}
