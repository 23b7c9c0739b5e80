//! Clients with random behaviour: every turn is read back as it was put.

use std::collections::BTreeMap;

use metaclaw_chat::{Message, TurnId};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::kit::{Client, as_put, open};
use crate::{NewTurn, StreamEnd, Tokens, TurnKind};

/// Makes any JSON value whose numbers survive being parsed again: serde_json reads floats of 17 digits exactly only
/// with its feature `float_roundtrip`.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| json!(f64::from(n) / 1_000.0)),
        ".{0,20}".prop_map(Value::from),
        "[a-z ]{0,3000}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,8}", inner), 0..4)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop::sample::select(vec!["user", "tool", "assistant", "system", "other"]);
    (
        role,
        value(),
        prop::collection::vec((".{1,8}", value()), 0..2),
    )
        .prop_map(|(role, content, fields)| {
            let mut map = Map::from_iter(fields);
            map.insert("role".to_owned(), role.into());
            map.insert("content".to_owned(), content);
            Value::Object(map).try_into().unwrap()
        })
}

/// A change of the client's history before its next request.
#[derive(Debug, Clone)]
enum Doing {
    GoOn(Vec<Message>),
    RewriteLast(Message),
    ChangeFront(Message),
    DropMiddle(prop::sample::Index, prop::sample::Index),
    BeginAgain(Vec<Message>),
    AskAgain,
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        4 => prop::collection::vec(message(), 1..4).prop_map(Doing::GoOn),
        1 => message().prop_map(Doing::RewriteLast),
        1 => message().prop_map(Doing::ChangeFront),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(a, b)| Doing::DropMiddle(a, b)),
        1 => prop::collection::vec(message(), 0..3).prop_map(Doing::BeginAgain),
        2 => Just(Doing::AskAgain),
    ]
}

fn apply(doing: Doing, messages: &mut Vec<Message>) {
    match doing {
        Doing::GoOn(more) => messages.extend(more),
        Doing::RewriteLast(message) => {
            messages.pop();
            messages.push(message);
        }
        Doing::ChangeFront(message) => match messages.first_mut() {
            Some(first) => *first = message,
            None => messages.push(message),
        },
        Doing::DropMiddle(a, b) if !messages.is_empty() => {
            let (a, b) = (a.index(messages.len()), b.index(messages.len()));
            messages.drain(a.min(b)..a.max(b));
        }
        Doing::DropMiddle(..) | Doing::AskAgain => {}
        Doing::BeginAgain(fresh) => *messages = fresh,
    }
}

/// One request with all its optional parts.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    pub(super) session: bool,
    doing: Doing,
    reply: Option<Message>,
    keeps_reply: bool,
    end: StreamEnd,
    params: Value,
    block: Option<String>,
    took: u64,
    /// Whether the next one follows without waiting for the log.
    hurries: bool,
}

pub(super) fn asking() -> impl Strategy<Value = Asking> {
    let end = prop_oneof![
        3 => Just(StreamEnd::Complete),
        1 => Just(StreamEnd::Cut),
        1 => Just(StreamEnd::UpstreamError { status: 503 }),
    ];
    let took = prop_oneof![0u64..100, 0u64..3_000];
    let block = prop::option::of("[a-z\n]{0,2000}");
    let rest = (value(), block, took, any::<bool>());
    (
        any::<bool>(),
        doing(),
        prop::option::of(message()),
        any::<bool>(),
        end,
        rest,
    )
        .prop_map(
            |(session, doing, reply, keeps_reply, end, (params, block, took, hurries))| Asking {
                session,
                doing,
                reply,
                keeps_reply,
                end,
                params,
                block,
                took,
                hurries,
            },
        )
}

pub(super) fn turn(client: &mut Client, asking: &Asking) -> NewTurn {
    apply(asking.doing.clone(), &mut client.messages);
    if client.messages.is_empty() {
        client.push(Message::user("?"));
    }
    if asking.hurries {
        client.now_ms -= 990;
    }
    let mut turn = client.request("");
    turn.reply.clone_from(&asking.reply);
    turn.meta.end = asking.end;
    turn.meta.kind = if asking.took.is_multiple_of(5) {
        TurnKind::Side
    } else {
        TurnKind::Main
    };
    turn.params
        .insert("extra".to_owned(), asking.params.clone());
    turn.served.system_block.clone_from(&asking.block);
    // Sometimes the next request begins before this one has ended.
    turn.meta.ended_ms = turn.meta.started_ms + asking.took;
    turn.tokens = (turn.meta.end == StreamEnd::Complete).then(|| tokens(asking.took));
    if let (true, Some(reply)) = (asking.keeps_reply, &asking.reply) {
        client.push(reply.clone());
    }
    turn
}

/// Makes ids from a number. Prompts often begin alike.
fn tokens(number: u64) -> Tokens {
    let n = usize::try_from(number % 50).unwrap();
    Tokens {
        prompt_ids: (0..).take(n).collect(),
        ids: (0..).take(n / 2).collect(),
        logprobs: vec![-0.5; n / 2],
        sampling_logprobs: vec![-0.25; (n / 2) * (n % 2)],
        ..Tokens::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_put_comes_back(
        asked in prop::collection::vec(asking(), 1..24),
        reopen_at in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut log = open(dir.path());
            let mut clients = [Client::new("one", "sys"), Client::new("two", "sys")];
            let mut put: BTreeMap<TurnId, NewTurn> = BTreeMap::new();
            let reopen_at = reopen_at.index(asked.len());
            let mut under_way = JoinSet::new();
            for (n, asking) in asked.iter().enumerate() {
                if n == reopen_at {
                    log.close().await;
                    log = open(dir.path());
                }
                let turn = turn(&mut clients[usize::from(asking.session)], asking);
                let log = log.clone();
                under_way.spawn(async move { (n, log.append(turn.clone()).await, turn) });
                let is_last = n + 1 == asked.len() || n + 1 == reopen_at;
                if asking.hurries && !is_last {
                    continue;
                }
                let mut appended = std::mem::take(&mut under_way).join_all().await;
                appended.sort_by_key(|(n, ..)| *n);
                for (_, id, turn) in appended {
                    // A turn that did not end well may be replaced only by another try.
                    let chain = turn.meta.chain;
                    if let Some(old) = put.insert(id.unwrap(), turn) {
                        assert!(old.meta.end != StreamEnd::Complete && old.meta.chain == chain);
                    }
                }
            }
            for (id, turn) in &put {
                assert_eq!(&as_put(log.turn(*id).await), turn);
            }
            let n_turns = log.funnel(None).await.unwrap().turns;
            assert_eq!(n_turns, put.len() as u64);
            log.close().await;
        });
    }
}
