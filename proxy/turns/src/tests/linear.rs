//! The work on a conversation grows linearly with it, whatever its messages repeat. Work is counted in bytes that are
//! decoded, searched and written, and is not timed.

use metaclaw_chat::Message;
use serde_json::json;

use super::kit::{Client, Dice, new_log};
use crate::{JsonText, NewTurn, TurnFilter, TurnKind, TurnLog, work};

/// Messages of the first request.
const N_MESSAGES: usize = 800;
/// Turns after it.
const N_TURNS: usize = 5;
/// Work on a turn beside its texts: counts, statistics, and the table of records.
const BESIDE: usize = 40_000;

/// Returns a history by the number of each message.
type History = Box<dyn FnMut(usize) -> Message>;

fn said(role: &str, text: &str) -> Message {
    serde_json::from_value(json!({"role": role, "content": text})).unwrap()
}

fn roles(at: usize) -> &'static str {
    ["user", "assistant"][at % 2]
}

/// Ways in which messages repeat.
fn histories(seed: u64) -> Vec<(&'static str, History)> {
    let dice = |salt: u64| Dice::new(seed.wrapping_mul(31).wrapping_add(salt));
    let (mut two, mut many, mut long, mut prefixes) = (dice(1), dice(2), dice(3), dice(4));
    let mut clients = dice(5);
    let number = move |dice: &mut Dice, below: u64| usize::try_from(dice.below(below)).unwrap();
    vec![
        ("equal", Box::new(|_| said("user", "yo"))),
        (
            "one of two is always the same",
            Box::new(|at| match at % 2 {
                0 => said("user", &format!("question {at}")),
                _ => said("assistant", "yo"),
            }),
        ),
        ("two in turns", Box::new(|at| said(roles(at), "yo"))),
        (
            "one period of 37",
            Box::new(|at| said(roles(at), &format!("text {}", at % 37))),
        ),
        (
            "two at random",
            Box::new(move |_| said("user", ["a", "b"][number(&mut two, 2)])),
        ),
        (
            "forty at random",
            Box::new(move |at| said(roles(at), &format!("text {}", number(&mut many, 40)))),
        ),
        (
            "long ones at random, stored apart",
            Box::new(move |at| {
                let text = number(&mut long, 3).to_string().repeat(1_500);
                said(roles(at), &text)
            }),
        ),
        (
            "beginnings of one another",
            Box::new(move |at| said(roles(at), &"yo ".repeat(1 + number(&mut prefixes, 50)))),
        ),
        (
            "results of one call",
            Box::new(|_| {
                let it = json!({"role": "tool", "tool_call_id": "call_1", "content": "ok"});
                serde_json::from_value(it).unwrap()
            }),
        ),
        (
            "what a client says by itself",
            Box::new(move |_| {
                let n = number(&mut clients, 3);
                said(
                    "user",
                    &format!("<system-reminder>\nbe {n}\n</system-reminder>"),
                )
            }),
        ),
    ]
}

/// Writes messages as some clients do, in another spelling than the log.
fn spell(turn: &mut NewTurn) {
    for message in &mut turn.messages {
        let value: serde_json::Value = message.text.read().unwrap();
        message.text = JsonText::new(serde_json::to_string_pretty(&value).unwrap());
    }
}

fn n_bytes(messages: &[Message]) -> usize {
    let texts = messages
        .iter()
        .map(|it| serde_json::to_string(it.as_map()).unwrap().len());
    texts.sum()
}

async fn counted(log: &TurnLog) -> usize {
    log.read(|_| Ok(work::counted())).await.unwrap()
}

/// What a client does to its history before a turn.
type Change = fn(usize, &mut Client);

/// Changes after which a request does not continue the one before.
const CHANGES: [(&str, Change); 4] = [
    ("repeated", |_, _| ()),
    ("with the oldest messages dropped", |n, client| {
        client.messages.drain(1..2 + 7 * n);
    }),
    ("with another beginning", |n, client| {
        client.messages[1] = said("user", &format!("beginning {n}"));
    }),
    ("with a message put in", |n, client| {
        client
            .messages
            .insert(N_MESSAGES / 2, said("user", &format!("note {n}")));
    }),
];

/// Appends a long request and turns after it, and reads all of them.
async fn check(at: usize, what: &str, mut history: History, change: Change) {
    let (_dir, log) = new_log();
    let mut client = Client::new("s", "You are patient.");
    client.messages.extend((0..N_MESSAGES).map(&mut history));
    let mut ids = Vec::new();
    let (mut n_stored, mut n_new) = (0, n_bytes(&client.messages));
    for n in 0..=N_TURNS {
        if n > 0 {
            change(n, &mut client);
        }
        let mut turn = client.turn("yo", "yo");
        client.push(history(N_MESSAGES + n));
        spell(&mut turn);
        counted(&log).await;
        ids.push(log.put(turn).await);
        let n_appended = counted(&log).await;
        n_stored += n_new;
        // A changed request is compared with an earlier one, and its record has a place for each message.
        let most = 4 * n_new + BESIDE;
        assert!(
            n_appended <= most,
            "{what}: turn {n}: {n_appended} > {most} of {n_stored}"
        );
        n_new = if at == 0 {
            0
        } else {
            n_bytes(&client.messages)
        };
    }
    for id in &ids {
        counted(&log).await;
        let turn = log.turn(*id).await;
        let n_read = counted(&log).await;
        let most = 8 * n_bytes(&turn.request.messages) + BESIDE;
        assert!(n_read <= most, "{what}: {id}: {n_read} > {most}");
    }
    log.list(TurnFilter::default()).await.unwrap();
    let n_listed = counted(&log).await;
    let most = 10 * n_stored + BESIDE;
    assert!(n_listed <= most, "{what}: {n_listed} > {most}");
}

#[tokio::test]
async fn work_is_linear_whatever_repeats() {
    for (at, (how, change)) in CHANGES.into_iter().enumerate() {
        for (what, history) in histories(at as u64) {
            check(at, &format!("{what}, {how}"), history, change).await;
        }
    }
}

#[tokio::test]
async fn a_session_whose_requests_leave_out_the_history_is_linear_too() {
    let (_dir, log) = new_log();
    let mut dice = Dice::new(3);
    for n in 0..150 {
        let mut client = Client::new("s", "You are patient.");
        let text = format!("text {}", dice.below(3));
        let mut turn = client.turn(&text, "yo");
        turn.meta.reply_id = Some(format!("resp_{n}"));
        // Every tenth names a reply that nobody gave.
        turn.continues = Some(format!(
            "resp_{}",
            if n % 10 == 9 { n + 1_000 } else { n - 1 }
        ));
        counted(&log).await;
        log.put(turn).await;
        let n_appended = counted(&log).await;
        assert!(n_appended <= BESIDE / 2, "turn {n}: {n_appended}");
    }
}

#[tokio::test]
async fn a_turn_of_too_many_messages_is_refused_and_the_next_is_not() {
    let (_dir, log) = new_log();
    let mut client = Client::new("s", "You are patient.");
    let mut turn = client.turn("yo", "yo");
    turn.messages = vec![turn.messages[1].clone(); 250_001];
    let refused = log.append(turn).await.unwrap_err().to_string();
    let expected = "a turn of 250001 messages is not stored: at most 250000 messages are";
    assert_eq!(refused, expected);
    log.put(client.turn("yo", "yo")).await;
}

#[tokio::test]
async fn neighbours_of_a_turn_are_found_without_the_rest_of_its_session() {
    let (_dir, log) = new_log();
    let mut ids = Vec::new();
    for session in ["s", "t"] {
        let mut client = Client::new(session, "You are patient.");
        for n in 0..60 {
            ids.push(log.put(client.turn(&format!("{n}"), "yo")).await);
        }
    }
    counted(&log).await;
    let (first, last) = (ids[0], ids[59]);
    for (found, expected) in [
        (log.turns_after(first, 3).await, ids[1..4].to_vec()),
        (log.turns_after(ids[58], 3).await, vec![last]),
        (log.turns_after(last, 3).await, vec![]),
        (log.turns_before(ids[3], 2).await, vec![ids[2], ids[1]]),
        (log.turns_before(first, 3).await, vec![]),
        (log.turns_before(ids[61], 3).await, vec![ids[60]]),
        (log.last_turns(first.session, 2).await, vec![last, ids[58]]),
        (log.last_turns(99, 2).await, vec![]),
    ] {
        assert_eq!(found.unwrap(), expected);
    }
    assert_eq!(counted(&log).await, 9, "only the keys that were found");
    let (meta, parent) = log.meta(last).await.unwrap().unwrap();
    assert_eq!((meta.kind, parent), (TurnKind::Main, Some(ids[58])));
    let n_read = counted(&log).await;
    assert!(n_read < 2_000, "{n_read}");
}
