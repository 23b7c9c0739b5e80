//! No secret at any place of a turn reaches the disk, and the log works as usual.

use std::path::{Path, PathBuf};

use metaclaw_chat::{JudgedBy, Message, Score, Verdict, Vote};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::kit::{Client, new_log, open, session_turns, verdict};
use crate::{
    JsonText, NewTurn, OpenError, Tokens, TurnLog, TurnsConfig, codec, keys,
    mask::tests::secrets,
    store::{Store, Table},
    values,
};

/// The place of the secret.
#[derive(Debug, Clone, Copy)]
enum Place {
    User,
    System,
    ToolCall,
    ToolResult,
    Part,
    Reply,
    ReplyCall,
    Tools,
    Params,
    SystemBlock,
    Hint,
}

const PLACES: [Place; 11] = [
    Place::User,
    Place::System,
    Place::ToolCall,
    Place::ToolResult,
    Place::Part,
    Place::Reply,
    Place::ReplyCall,
    Place::Tools,
    Place::Params,
    Place::SystemBlock,
    Place::Hint,
];

fn message(value: Value) -> Message {
    Message::try_from(value).unwrap()
}

fn call(arguments: &Value) -> Message {
    let arguments = arguments.to_string();
    message(json!({"role": "assistant", "content": null, "tool_calls":
        [{"id": "1", "type": "function", "function": {"name": "write", "arguments": arguments}}]}))
}

/// Makes a turn with `text` at a place.
fn planted(client: &mut Client, place: Place, text: &str) -> NewTurn {
    let mut reply = None;
    match place {
        Place::User => client.push(Message::user(text)),
        Place::System => client.messages[0] = Message::system(text),
        Place::ToolCall => client.push(call(&json!({"content": format!("a\n{text}")}))),
        Place::ToolResult => client.push(message(
            json!({"role": "tool", "tool_call_id": "1", "content": text}),
        )),
        Place::Part => client.push(message(
            json!({"role": "user", "content": [{"type": "text", "text": text}]}),
        )),
        Place::Reply => reply = Some(Message::assistant(text)),
        Place::ReplyCall => reply = Some(call(&json!({"x": {"y": [text]}}))),
        Place::Tools | Place::Params | Place::SystemBlock | Place::Hint => {}
    }
    client.push(Message::user("go on"));
    let mut turn = client.request("done");
    match place {
        Place::Tools => turn.tools = Some(JsonText::of(&json!([{"description": text}])).unwrap()),
        Place::Params => {
            turn.params
                .insert("metadata".to_owned(), json!({"note": text}));
        }
        Place::SystemBlock => turn.served.system_block = Some(text.to_owned()),
        _ => {}
    }
    turn.tokens = Some(Tokens {
        prompt_ids: vec![1, 2],
        ids: vec![3],
        logprobs: vec![-0.5],
        ..Tokens::default()
    });
    turn.reply = reply.or(turn.reply);
    client.messages.extend(turn.reply.clone());
    turn
}

/// Returns the files below a folder that contain some bytes.
fn in_files(dir: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(in_files(&path, bytes));
        } else if memchr::memmem::find(&std::fs::read(&path).unwrap(), bytes).is_some() {
            found.push(path);
        }
    }
    found
}

/// Returns whether a text is in any value of any table, packed or not.
async fn in_tables(log: &TurnLog, text: &str) -> bool {
    let text = text.to_owned();
    let look = move |store: &Store| {
        let tables = [
            Table::Turns,
            Table::Texts,
            Table::Verdicts,
            Table::States,
            Table::Sessions,
        ];
        for table in tables {
            for pair in store.range(table, keys::under(&[])) {
                let (key, piece) = pair?;
                let whole = values::get(store, table, &key).ok().flatten();
                let whole = whole.or_else(|| codec::unpack(&piece).ok());
                let stands_in =
                    |bytes: &[u8]| memchr::memmem::find(bytes, text.as_bytes()).is_some();
                if stands_in(&piece) || whole.is_some_and(|bytes| stands_in(&bytes)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    log.read(look).await.unwrap()
}

fn hint(text: &str) -> Verdict {
    let hint = Some(text.to_owned());
    let votes = vec![Vote::new(Score::Bad, hint.clone())];
    Verdict {
        votes,
        judge_hints: hint.iter().cloned().collect(),
        hint,
        ..Verdict::new(Score::Bad, JudgedBy::Owner)
    }
}

async fn nothing_is_found(place: Place, secret: &str, filler: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("a", "sys");
    let text = format!("{filler} {secret} {filler}");
    let first = log.put(client.turn("Hello", "Hi")).await;
    let turn = planted(&mut client, place, &text);
    let second = log.put(turn).await;
    if let Place::Hint = place {
        log.judge(second, hint(&text)).await.unwrap();
    }
    for again in 0..2 {
        // The client repeats it, also to a process that never saw it unmasked.
        let third = log.put(client.turn("And now?", "This.")).await;
        assert!(!in_tables(&log, secret).await, "{place:?}");
        assert_eq!(
            in_files(dir.path(), secret.as_bytes()),
            Vec::<PathBuf>::new()
        );
        let turns = session_turns(&log, "main", "a").await;
        let masked: Vec<bool> = turns.iter().map(|turn| turn.meta.masked).collect();
        let is_masked = !matches!(place, Place::Hint);
        assert_eq!(masked[..3], [false, is_masked, is_masked], "{place:?}");
        assert_eq!(turns[1].tokens.is_none(), is_masked, "{place:?}");
        assert_eq!((turns[1].parent, turns[1].id), (Some(first), second));
        if again == 0 {
            assert_eq!((turns[2].parent, turns[2].id), (Some(second), third));
        }
        let lines = log.exported().await;
        assert!(
            lines.contains("[masked: ") && !lines.contains(secret),
            "{place:?}"
        );
        log.close().await;
        log = open(dir.path());
    }
    let added = Tokens {
        ids: vec![1],
        logprobs: vec![0.0],
        ..Tokens::default()
    };
    let is_added = log.add_tokens(second, added).await.unwrap();
    assert!(!is_added, "it has some, or may have none");
}

#[tokio::test]
async fn no_secret_is_found_in_any_file_wherever_it_stood() {
    for place in PLACES {
        nothing_is_found(place, &secrets()[0], "quite plain words").await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_planted_secret_is_found_in_any_file(
        place in select(PLACES.to_vec()),
        secret in select(secrets()),
        filler in "[a-z ,.:'\"\\\\\n密码]{0,40}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(nothing_is_found(place, &secret, &filler));
    }
}

#[tokio::test]
async fn a_long_masked_text_is_stored_apart_once_and_found_again() {
    let (_dir, log) = new_log();
    let secret = &secrets()[0];
    let mut client = Client::new("a", &format!("{} {secret}", "long ".repeat(500)));
    for _ in 0..3 {
        log.put(client.turn("q", "a")).await;
    }
    let texts = |store: &Store| Ok(store.range(Table::Texts, keys::under(&[])).count());
    // The three texts are the system prompt, the setup with what was injected, and the tools.
    assert_eq!(log.read(texts).await.unwrap(), 3);
    let turns = session_turns(&log, "main", "a").await;
    assert!(
        turns[2].request.messages[0]
            .text()
            .ends_with("[masked: api key]")
    );
    log.judge(turns[2].id, verdict(Score::Good)).await.unwrap();
}

#[tokio::test]
async fn own_patterns_are_masked_and_known_shapes_stay_where_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let config = TurnsConfig {
        mask_secrets: false,
        mask: vec!["ACME-[0-9]+".to_owned()],
        ..TurnsConfig::default()
    };
    let log = TurnLog::open(dir.path(), &config).unwrap();
    let mut client = Client::new("a", "sys");
    let said = format!("ACME-77 and {}", secrets()[0]);
    log.put(client.turn(&said, "a")).await;
    let turns = session_turns(&log, "main", "a").await;
    let text = turns[0].request.messages[1].text().into_owned();
    assert_eq!(text, format!("[masked] and {}", secrets()[0]));
    let config = TurnsConfig {
        mask: vec!["(".to_owned()],
        ..config
    };
    let refused = TurnLog::open(&dir.path().join("b"), &config).unwrap_err();
    assert!(matches!(refused, OpenError::Mask { .. }), "{refused}");
}
