//! Every turn that is appended is read back, once, under its own id.

use metaclaw_chat::{Message, TurnId};
use serde_json::json;
use tokio::task::JoinSet;

use super::kit::{Client, as_put, new_log, new_session, one_turn, open, session_turns};
use crate::{
    JsonText, LogError, StateKind, StreamEnd, Tokens, TurnFilter, TurnKind, TurnState,
    counter::Flushed,
    keys,
    record::Record,
    store::{Store, Table},
};

#[tokio::test]
async fn a_turn_reads_back_as_it_was_put_also_after_reopening() {
    let (dir, log) = new_log();
    let mut client = Client::new("s", &"You are a careful assistant. ".repeat(1_300));
    let mut put = Vec::new();
    for n in 0..5 {
        let mut turn = client.turn(&format!("question {n}"), &format!("answer {n}"));
        turn.meta.reply_id = Some(format!("chatcmpl-{n}"));
        put.push((log.put(turn.clone()).await, turn));
    }
    log.close().await;
    let log = open(dir.path());
    assert!(log.outcome().recovered);
    for (n, (id, turn)) in put.iter().enumerate() {
        let back = log.turn(*id).await;
        assert_eq!(back.state, TurnState::Captured);
        assert_eq!(back.parent, n.checked_sub(1).map(|parent| put[parent].0));
        assert_eq!(&as_put(back), turn);
    }
    let whole = session_turns(&log, "main", "s").await;
    assert_eq!(whole.len(), 5);
    assert_eq!(whole[4].evidence(), [Message::user("question 4")]);
}

#[tokio::test]
async fn what_a_session_repeats_is_stored_once() {
    let (_dir, log) = new_log();
    let system = "Some instruction that is unlike the others: ".repeat(850);
    let mut n_raw = 0;
    for session in 0..4 {
        let mut client = Client::new(&format!("s{session}"), &system);
        for n in 0..25 {
            let said = format!("{session}/{n} tell me something new about the matter at hand");
            let turn = client.turn(&said, &"and so it is ".repeat(20));
            n_raw += serde_json::to_vec(&turn.request().unwrap()).unwrap().len();
            log.put(turn).await;
        }
    }
    let n_stored = log.read(|store| Ok(n_bytes(store))).await.unwrap();
    assert!(n_stored * 50 < n_raw, "{n_stored} bytes for {n_raw}");
}

fn n_bytes(store: &Store) -> usize {
    let all = |table| {
        let pairs = store.range(table, keys::under(&[])).map(Result::unwrap);
        pairs
            .map(|(key, value)| key.len() + value.len())
            .sum::<usize>()
    };
    all(Table::Turns) + all(Table::Texts)
}

#[tokio::test]
async fn another_try_takes_the_place_of_a_turn_that_was_cut() {
    let (_dir, log, mut client) = new_session();
    let mut cut = client.turn("question", "half an ans");
    client.messages.pop();
    cut.meta.end = StreamEnd::Cut;
    let first = log.put(cut).await;
    log.spend(first, "cut").await.unwrap();
    let whole = client.request("half an answer, and the other half");
    let again = log.put(whole.clone()).await;
    assert_eq!(again, first);
    let back = log.turn(again).await;
    assert_eq!(back.state, TurnState::Captured);
    assert_eq!(as_put(back), whole);
    let funnel = log.funnel(None).await.unwrap();
    assert_eq!((funnel.turns, funnel.complete), (1, 1));
    assert!(funnel.spent.is_empty());
    assert_eq!(log.list(TurnFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_same_request_after_a_whole_reply_is_a_sibling() {
    let (_dir, log, mut client) = new_session();
    log.put(client.turn("hello", "hi")).await;
    let one = log.put(client.turn("question", "one answer")).await;
    client.messages.pop();
    let other = log.put(client.request("another answer")).await;
    assert_ne!(one, other);
    let listed = log.list(TurnFilter::default()).await.unwrap();
    for turn in &listed[..2] {
        assert_eq!(turn.asked.as_deref(), Some("question"));
    }
    let parents = [one, other].map(|id| log.get(id));
    for parent in parents {
        assert_eq!(
            parent.await.unwrap().unwrap().parent,
            Some(TurnId { session: 1, seq: 0 })
        );
    }
}

#[tokio::test]
async fn a_stream_cut_while_its_sibling_ran_is_no_retry() {
    let (_dir, log, mut client) = new_session();
    let mut cut = client.turn("question", "half");
    client.messages.pop();
    cut.meta.end = StreamEnd::Cut;
    let mut sibling = client.request("whole");
    sibling.meta.started_ms = cut.meta.ended_ms - 1;
    let cut = log.put(cut).await;
    assert_ne!(log.put(sibling).await, cut);
}

#[tokio::test]
async fn a_turn_that_another_builds_on_keeps_its_place() {
    let (_dir, log, mut client) = new_session();
    let mut cut = client.turn("question", "half an ans");
    cut.meta.end = StreamEnd::ClientGone;
    let cut_id = log.put(cut.clone()).await;
    let mut retry = client.clone();
    retry.messages.pop();
    let next = log.put(client.turn("go on", "er")).await;
    retry.now_ms += 5_000;
    let retried = log.put(retry.request("whole answer")).await;
    assert!(retried != cut_id && retried != next);
    assert_eq!(as_put(log.turn(cut_id).await), cut);
}

#[tokio::test]
async fn a_reply_with_the_same_id_to_the_same_request_is_one_turn_of_its_session() {
    let (_dir, log, mut client) = new_session();
    let mut turn = client.turn("question", "answer");
    turn.meta.reply_id = Some("chatcmpl-1".to_owned());
    let id = log.put(turn.clone()).await;
    assert_eq!(log.put(turn.clone()).await, id);
    turn.session = "another".parse().unwrap();
    let other = log.put(turn).await;
    assert_ne!(other, id);
    assert_eq!(log.by_reply("chatcmpl-1").await.unwrap(), [id, other]);
    assert_eq!(log.funnel(None).await.unwrap().turns, 2);
}

#[tokio::test]
async fn a_server_that_gives_every_reply_the_same_id_loses_no_turn() {
    let (_dir, log, mut client) = new_session();
    let mut first = client.turn("question", "answer");
    let mut second = client.turn("more", "again");
    for turn in [&mut first, &mut second] {
        turn.meta.reply_id = Some("chatcmpl-123".to_owned());
    }
    let first = log.put(first).await;
    let second = log.put(second).await;
    assert_ne!(first, second);
    assert_eq!(log.funnel(None).await.unwrap().turns, 2);
}

#[tokio::test]
async fn sessions_of_two_agents_with_one_name_are_two() {
    let (_dir, log) = new_log();
    let (mut one, mut two) = (Client::new("s", "sys"), Client::new("s", "sys"));
    two.agent = "other";
    let one = log.put(one.turn("a", "b")).await;
    let two_turn = two.turn("a", "b");
    let agent = two_turn.agent.clone();
    let two = log.put(two_turn).await;
    assert_ne!(one.session, two.session);
    let turns = session_turns(&log, "other", "s").await;
    assert_eq!(turns.len(), 1);
    assert_eq!(
        log.in_state(&agent, StateKind::Captured).await.unwrap(),
        [two]
    );
    let agents: Vec<String> = log
        .agents()
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(agents, ["main", "other"]);
}

#[tokio::test]
async fn a_side_turn_between_does_not_break_the_conversation() {
    let (_dir, log, mut client) = new_session();
    let first = log.put(client.turn("question", "answer")).await;
    let mut title = Client::new("s", "Give this conversation a title.");
    let mut side = title.turn("question / answer", "A talk");
    side.meta.kind = TurnKind::Side;
    log.put(side).await;
    let next = log.put(client.turn("more", "yes")).await;
    assert_eq!(log.turn(next).await.parent, Some(first));
    let funnel = log.funnel(None).await.unwrap();
    assert_eq!((funnel.turns, funnel.main), (3, 2));
}

/// A sub-agent of Claude Code has its turns in the owner's session.
#[tokio::test]
async fn many_side_turns_between_do_not_break_the_conversation() {
    let (_dir, log, mut client) = new_session();
    let first = log.put(client.turn("question", "answer")).await;
    let mut sub_agent = Client::new("s", "You look around.");
    let mut before = None;
    for n in 0..40 {
        let mut side = sub_agent.turn(&format!("look at {n}"), "seen");
        side.meta.kind = TurnKind::Side;
        let id = log.put(side).await;
        assert_eq!(log.turn(id).await.parent, before);
        before = Some(id);
    }
    let next = log.put(client.turn("more", "yes")).await;
    assert_eq!(log.turn(next).await.parent, Some(first));
}

#[tokio::test]
async fn all_tool_results_after_the_reply_are_evidence_though_the_client_rewrote_it() {
    let (_dir, log, mut client) = new_session();
    let first = log.put(client.turn("list both", "calling")).await;
    let rewritten = json!({"role": "assistant", "content": "calling", "tool_calls": [
        {"id": "call1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]});
    *client.messages.last_mut().unwrap() = rewritten.try_into().unwrap();
    for n in 0..2 {
        let result = json!({"role": "tool", "tool_call_id": format!("call{n}"), "content": "ok"});
        client.push(result.try_into().unwrap());
    }
    let turn = client.request("both are there");
    let next = log.put(turn.clone()).await;
    let back = log.turn(next).await;
    assert_eq!(back.parent, Some(first));
    assert_eq!(back.evidence().len(), 2);
    assert_eq!(as_put(back), turn);
}

#[tokio::test]
async fn chains_and_lists_are_newest_first() {
    let (_dir, log) = new_log();
    let mut ids = Vec::new();
    let mut client = Client::new("a", "sys");
    for n in 0..7 {
        client.session = format!("s{}", n % 2);
        ids.push(log.put(client.turn(&format!("q{n}"), "a")).await);
    }
    let chains = log.recent_chains(3).await.unwrap();
    let sessions: Vec<&str> = chains
        .iter()
        .map(|(_, _, session)| session.as_str())
        .collect();
    assert_eq!(sessions, ["s0", "s1", "s0"]);
    let latest = log.turn(ids[6]).await;
    assert_eq!(chains[0].1, latest.meta.chain.then(&latest.reply.unwrap()));

    let mut filter = TurnFilter {
        limit: 3,
        ..TurnFilter::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = log.list(filter.clone()).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some(last.id);
        listed.extend(page);
    }
    let expected: Vec<TurnId> = ids.iter().rev().copied().collect();
    assert_eq!(listed.iter().map(|it| it.id).collect::<Vec<_>>(), expected);
    assert_eq!(listed[0].asked.as_deref(), Some("q6"));
    assert_eq!(listed[0].model, "demo");
    let session = TurnFilter {
        agent: Some("main".parse().unwrap()),
        session: Some("s1".parse().unwrap()),
        ..TurnFilter::default()
    };
    assert_eq!(log.list(session).await.unwrap().len(), 3);
    assert_eq!(log.sessions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn ids_share_the_parents_and_read_back() {
    let (_dir, log, mut client) = new_session();
    let mut before = Vec::new();
    for n in 0..4u32 {
        let id = log.put(client.turn(&format!("q{n}"), "a")).await;
        let mut prompt_ids = before.clone();
        prompt_ids.extend([n, 49_000 + n]);
        let tokens = Tokens {
            prompt_ids: prompt_ids.clone(),
            ids: vec![7, 8, 9],
            logprobs: vec![-0.1, -0.2, -3.5],
            sampling_logprobs: vec![-0.1, -0.2, f32::NEG_INFINITY],
            adapter: Some("main-3".to_owned()),
            version: Some(3),
            base: "demo".to_owned(),
            base_fingerprint: None,
        };
        assert!(log.add_tokens(id, tokens.clone()).await.unwrap());
        assert!(!log.add_tokens(id, Tokens::default()).await.unwrap());
        assert_eq!(log.turn(id).await.tokens, Some(tokens));
        before = [prompt_ids, vec![7, 8, 9]].concat();
    }
    assert_eq!(log.funnel(None).await.unwrap().with_ids, 4);
    let uneven = Tokens {
        ids: vec![1],
        ..Tokens::default()
    };
    let error = log
        .add_tokens(TurnId { session: 1, seq: 0 }, uneven)
        .await
        .unwrap_err();
    assert!(matches!(error, LogError::UnevenTokens { n_ids: 1, .. }));
}

#[tokio::test]
async fn ids_that_come_with_a_turn_are_stored_with_it() {
    let (dir, log, mut client) = new_session();
    let mut put = Vec::new();
    for n in 0..2u32 {
        let mut turn = client.turn(&format!("q{n}"), "a");
        turn.tokens = Some(Tokens {
            prompt_ids: vec![1; 3 + 4 * n as usize],
            ids: vec![1; 4],
            logprobs: vec![-0.5; 4],
            ..Tokens::default()
        });
        put.push((log.put(turn.clone()).await, turn));
    }
    let mut uneven = client.turn("q2", "a");
    uneven.tokens = Some(Tokens {
        ids: vec![1],
        ..Tokens::default()
    });
    let without = log.put(uneven.clone()).await;
    uneven.tokens = None;
    put.push((without, uneven));
    log.close().await;
    let log = open(dir.path());
    for (id, turn) in put {
        assert_eq!(as_put(log.turn(id).await), turn);
    }
    assert_eq!(log.funnel(None).await.unwrap().with_ids, 2);
}

#[tokio::test]
async fn subscribers_hear_of_a_turn_that_is_safe() {
    let (_dir, log) = new_log();
    let mut heard = log.subscribe();
    let id = log.put(one_turn()).await;
    assert_eq!(heard.recv().await.unwrap(), id);
    assert_eq!(log.health(), crate::LogHealth::default());
    let other = log.clone();
    log.close().await;
    assert_eq!(other.get(id).await, Err(LogError::Closed));
}

#[tokio::test]
async fn the_last_main_turn_is_found_behind_errands_and_sessions_are_told_apart() {
    let (_dir, log) = new_log();
    assert_eq!(log.last_main_ms().await.unwrap(), None);
    let mut ids = Vec::new();
    for session in ["a", "b"] {
        let mut client = Client::new(session, "x");
        ids.push(log.put(client.turn("q", "a")).await);
    }
    let mut client = Client::new("c", "x");
    client.now_ms += 60_000;
    let main = client.turn("q", "a");
    log.put(main.clone()).await;
    let mut errand = client.turn("title?", "A title");
    errand.meta.kind = TurnKind::Side;
    log.put(errand).await;
    assert_eq!(log.last_main_ms().await.unwrap(), Some(main.meta.ended_ms));

    let agent = main.agent;
    let captured = log.in_state(&agent, StateKind::Captured).await.unwrap();
    assert_eq!(captured[..2], ids);
    let last = |number| log.last_turns(number, 9);
    assert_eq!(last(ids[0].session).await.unwrap(), [ids[0]]);
    assert_eq!(last(ids[1].session).await.unwrap(), [ids[1]]);
    assert!(last(99).await.unwrap().is_empty());
}

#[tokio::test]
async fn turns_that_come_together_share_a_transaction() {
    let (dir, log) = new_log();
    let mut running = JoinSet::new();
    for n in 0..500 {
        let turn = Client::new(&format!("s{n}"), "sys").turn("q", "a");
        let log = log.clone();
        running.spawn(async move { log.append(turn).await });
    }
    for appended in running.join_all().await {
        appended.unwrap();
    }
    log.close().await;
    let n_flushed = Flushed::read(&Flushed::path(dir.path())).count;
    assert!(n_flushed < 100, "{n_flushed} transactions");
}

#[tokio::test]
async fn a_turn_writes_what_its_session_does_not_have_wherever_it_stands_there() {
    let (_dir, log, mut client) = new_session();
    let mut errand = client.clone();
    client.turn(&"the owner's long question ".repeat(9), "a");
    let mut put = vec![client.turn("and more", "b")];
    for n in 0..3 {
        put.push(errand.turn(&format!("errand {n}"), "done"));
    }
    client.messages.insert(1, Message::user("errand 0"));
    put.push(client.turn("go on", "c"));
    // Another client writes the same message with other white space and escapes.
    let mut again = client.turn("again", "d");
    for message in &mut again.messages {
        let pretty = message.text.as_str().replace("\":", "\" : ");
        message.text = JsonText::new(pretty.replace("go", "\\u0067o"));
    }
    put.push(again);
    let mut ids = Vec::new();
    for turn in &put {
        ids.push(log.put(turn.clone()).await);
    }
    let replies = |store: &Store| {
        let turns = (0..6).map(|seq| Record::get(store, TurnId { session: 1, seq }));
        let replies = turns.map(|turn| Ok(turn?.unwrap().reply.unwrap()));
        replies.collect::<Result<Vec<_>, _>>()
    };
    // The messages are the system prompt, the first question, its answer, the second question, and the reply; then the
    // side turn and "done".
    let replies = log.read(replies).await.unwrap();
    assert_eq!(replies, [4, 6, 8, 10, 12, 14]);
    for (id, turn) in ids.iter().zip(put) {
        let back = log.turn(*id).await;
        assert_eq!(back.request, turn.request().unwrap());
    }
}

#[tokio::test]
async fn a_turn_that_fits_in_no_value_is_refused_and_the_session_goes_on() {
    let (_dir, log, mut client) = new_session();
    let deep = |n| {
        let (open, close) = ("[".repeat(n), "]".repeat(n));
        format!(r#"{{"role":"user","content":{open}7{close}}}"#)
    };
    let refused = [r#"{"role":"user","content":1e999}"#.to_owned(), deep(127)];
    for (n, text) in refused.iter().enumerate() {
        let mut huge = client.clone().turn("question", "answer");
        huge.messages[1].text = JsonText::new(text.as_str());
        let error = log.append(huge).await.unwrap_err();
        assert!(matches!(error, LogError::Unreadable { .. }), "{error}");
        let turn = client.turn(&format!("question {n}"), "answer");
        let id = log.put(turn.clone()).await;
        assert_eq!(as_put(log.turn(id).await), turn);
    }
    let mut nested = client.turn("question", "answer");
    nested.messages[1].text = JsonText::new(deep(126));
    let id = log.put(nested.clone()).await;
    let back = log.turn(id).await;
    assert_eq!(back.request, nested.request().unwrap());
    assert_eq!(log.funnel(None).await.unwrap().turns, 3);
}
