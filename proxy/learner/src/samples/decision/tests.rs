use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, Verdict};
use metaclaw_turns::{Request, Served, StreamEnd, Tokens, TurnKind, TurnMeta};
use serde_json::json;

use super::*;

const NOW: u64 = 100 * 24 * 3_600_000;

fn id(seq: u32) -> TurnId {
    TurnId { session: 1, seq }
}

/// A main turn of the policy model: judged if it has a score, with ids, just ended.
fn turn(seq: u32, parent: Option<u32>, score: Option<Score>, reply: &str) -> Turn {
    let verdict = score.map(|score| Verdict::new(score, JudgedBy::Rules));
    Turn {
        id: id(seq),
        agent: AgentId::default_agent(),
        session: "s".parse().unwrap(),
        meta: TurnMeta {
            kind: TurnKind::Main,
            chain: ChainHash::start(&AgentId::default_agent()),
            reply_id: Some(format!("r{seq}")),
            finish_reason: Some("stop".to_owned()),
            usage: None,
            end: StreamEnd::Complete,
            started_ms: NOW,
            first_byte_ms: None,
            ended_ms: NOW,
            is_last: false,
            masked: false,
        },
        parent: parent.map(id),
        new_from: 0,
        request: Request {
            messages: vec![Message::user("Too long.")],
            ..Request::default()
        },
        reply: Some(Message::assistant(reply)),
        served: Served {
            upstream: POLICY_UPSTREAM.to_owned(),
            ..Served::default()
        },
        overruled: Vec::new(),
        uses: Vec::new(),
        state: if verdict.is_some() {
            TurnState::Judged
        } else {
            TurnState::Captured
        },
        verdict,
        tokens: Some(Tokens {
            prompt_ids: vec![1],
            ids: vec![2],
            logprobs: vec![-1.0],
            sampling_logprobs: vec![-1.0],
            base: "b".to_owned(),
            ..Tokens::default()
        }),
    }
}

fn bad(seq: u32, parent: Option<u32>) -> Turn {
    turn(seq, parent, Some(Score::Bad), "a long reply")
}

fn good(seq: u32, parent: Option<u32>) -> Turn {
    turn(seq, parent, Some(Score::Good), "a short reply")
}

fn pending(seq: u32, parent: Option<u32>) -> Turn {
    turn(seq, parent, None, "just said")
}

fn with(methods: &str, turns: &[Turn]) -> Vec<SampleDecision> {
    let methods: Methods = serde_json::from_value(json!(methods)).unwrap();
    let gone = BTreeSet::from([id(9)]);
    let max_age = Duration::from_secs(14 * 24 * 3_600);
    decisions(
        turns,
        Rules {
            methods: &methods,
            without_ids: &gone,
            now_ms: NOW,
            max_age,
        },
    )
}

fn redo(turns: &[Turn]) -> Vec<SampleDecision> {
    with("redo", turns)
}

fn pair(failed: u32, accepted: u32) -> SampleDecision {
    SampleDecision::Redo {
        failed: id(failed),
        accepted: id(accepted),
    }
}

fn spend(seq: u32, why: &'static str) -> SampleDecision {
    SampleDecision::Spend(id(seq), why)
}

#[test]
fn an_accepted_answer_to_a_complaint_corrects_the_failed_turn() {
    assert_eq!(
        redo(&[bad(0, None), good(1, Some(0)), pending(2, Some(1))]),
        [pair(0, 1)]
    );
}

#[test]
fn after_several_failures_the_first_is_corrected() {
    let turns = [bad(0, None), bad(1, Some(0)), good(2, Some(1))];
    assert_eq!(redo(&turns), [pair(0, 2), spend(1, reason::NOT_CORRECTED)]);
    assert_eq!(
        with("redo+binary_rl", &turns),
        [pair(0, 2), SampleDecision::Verdict(id(1))]
    );
}

#[test]
fn one_correction_is_used_once() {
    // Two tries at the same complaint, both accepted.
    let turns = [bad(0, None), good(1, Some(0)), good(2, Some(0))];
    assert_eq!(redo(&turns), [pair(0, 1), spend(2, reason::ACCEPTED)]);
}

#[test]
fn a_failed_turn_waits_for_the_verdict_on_its_correction() {
    assert_eq!(
        redo(&[bad(0, None), pending(1, Some(0))]),
        [SampleDecision::Wait]
    );
    assert_eq!(
        redo(&[bad(0, None), bad(1, Some(0)), pending(2, Some(1))]),
        [SampleDecision::Wait, SampleDecision::Wait]
    );
    let unclear = turn(1, Some(0), Some(Score::Unclear), "x");
    assert_eq!(
        redo(&[bad(0, None), unclear]),
        [spend(0, reason::NOT_CORRECTED), spend(1, reason::UNCLEAR)]
    );
    assert_eq!(redo(&[bad(0, None)]), [spend(0, reason::NOT_CORRECTED)]);
    let mut left = pending(1, Some(0));
    left.meta.ended_ms = NOW - 13 * 3_600_000;
    assert_eq!(
        redo(&[bad(0, None), left]),
        [spend(0, reason::NOT_CORRECTED)]
    );
    // And an accepted one for the verdict on what it may have corrected.
    assert_eq!(
        redo(&[pending(0, None), good(1, Some(0))]),
        [SampleDecision::Wait]
    );
}

#[test]
fn both_wait_for_ids_that_may_still_come() {
    let mut late = good(1, Some(0));
    late.tokens = None;
    assert_eq!(
        redo(&[bad(0, None), late.clone()]),
        [SampleDecision::Wait, SampleDecision::Wait]
    );
    late.meta.ended_ms = NOW - 3_600_000;
    assert_eq!(
        redo(&[bad(0, None), late]),
        [spend(0, reason::NOT_CORRECTED), spend(1, reason::NO_IDS)]
    );
    let mut gone = good(9, None);
    gone.tokens = None;
    assert_eq!(redo(&[gone]), [spend(9, reason::NO_IDS)]);
}

#[test]
fn a_tool_between_makes_it_no_correction() {
    let mut after_tool = good(1, Some(0));
    after_tool.request.messages.push(Message::new("tool", "42"));
    assert_eq!(
        redo(&[bad(0, None), after_tool]),
        [spend(0, reason::NOT_CORRECTED), spend(1, reason::ACCEPTED)]
    );
}

#[test]
fn only_a_whole_reply_of_three_words_is_a_target() {
    for (reply, finish) in [
        ("a short reply", "length"),
        ("two words", "stop"),
        ("a short reply", "tool_calls"),
    ] {
        let mut accepted = turn(1, Some(0), Some(Score::Good), reply);
        accepted.meta.finish_reason = Some(finish.to_owned());
        let expected = [spend(0, reason::NOT_CORRECTED), spend(1, reason::ACCEPTED)];
        assert_eq!(
            redo(&[bad(0, None), accepted]),
            expected,
            "{reply} {finish}"
        );
    }
}

#[test]
fn what_cannot_be_trained_on_says_why() {
    let mut other = good(0, None);
    other.served.upstream = "llm".to_owned();
    assert_eq!(redo(&[other]), [spend(0, reason::NOT_POLICY)]);
    let mut old = good(0, None);
    old.meta.ended_ms = NOW - 15 * 24 * 3_600_000;
    assert_eq!(redo(&[old]), [spend(0, reason::TOO_OLD)]);
    let mut uneven = good(0, None);
    uneven.tokens.as_mut().unwrap().logprobs.clear();
    assert_eq!(redo(&[uneven]), [spend(0, reason::NO_IDS)]);
}

#[test]
fn only_replies_from_near_the_policy_itself_are_pushed_by_their_verdict() {
    for (params, fair) in [
        (json!({}), true),
        (json!({"temperature": 0.7, "top_p": 1, "top_k": 0}), true),
        (json!({"temperature": 0}), false),
        (json!({"temperature": 1.5}), false),
        (json!({"top_p": 0.9}), false),
        (json!({"top_k": 50}), false),
        (
            json!({"min_p": 0, "repetition_penalty": 1, "presence_penalty": 0.0}),
            true,
        ),
        (json!({"min_p": 0.1}), false),
        (json!({"repetition_penalty": 1.1}), false),
        (json!({"frequency_penalty": -0.5}), false),
        (json!({"min_tokens": 5}), false),
        (json!({"ignore_eos": true}), false),
    ] {
        let mut turn = good(0, None);
        turn.request.params = params.as_object().unwrap().clone();
        let expected = if fair {
            SampleDecision::Verdict(id(0))
        } else {
            spend(0, reason::BAD_SAMPLING)
        };
        assert_eq!(with("binary_rl", &[turn]), [expected], "{params}");
    }
}

#[test]
fn failures_that_are_no_longer_free_still_lead_to_the_first() {
    let mut between = bad(1, Some(0));
    between.state = TurnState::Spent {
        why: reason::NOT_CORRECTED.to_owned(),
    };
    let mut turns = [bad(0, None), between, good(2, Some(1))];
    assert_eq!(redo(&turns), [pair(0, 2)]);
    turns[0].state = TurnState::Trained { n: 1 };
    assert_eq!(redo(&turns), [spend(2, reason::ACCEPTED)]);
}

#[test]
fn a_reply_that_a_stop_text_may_have_ended_is_no_target() {
    let accepted = |params: serde_json::Value| {
        let mut accepted = good(1, Some(0));
        accepted.request.params = params.as_object().unwrap().clone();
        redo(&[bad(0, None), accepted])
    };
    for stop in [json!("\nUser:"), json!(["\n\n"])] {
        let expected = [spend(0, reason::NOT_CORRECTED), spend(1, reason::ACCEPTED)];
        assert_eq!(accepted(json!({ "stop": stop })), expected);
    }
    for stop in [json!(null), json!([])] {
        assert_eq!(accepted(json!({ "stop": stop })), [pair(0, 1)]);
    }
}
