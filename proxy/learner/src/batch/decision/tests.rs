use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, Verdict};
use metaclaw_turns::{Request, Served, Tokens, TurnMeta, TurnState};
use serde_json::json;

use super::{
    Want::{Hint, Never, Own, Target, Wait},
    *,
};
use crate::{
    config::SupportQuery,
    sample::{Hints, Targets},
};

const NOW: u64 = 100 * 24 * 3_600_000;

fn id(seq: u32) -> TurnId {
    TurnId { session: 1, seq }
}

/// A main turn of the policy model: judged if it has a score, with ids, just ended.
fn turn(seq: u32, score: Option<Score>, reply: &str) -> Turn {
    let verdict = score.map(|score| Verdict::new(score, JudgedBy::Rules));
    Turn {
        id: id(seq),
        agent: AgentId::default_agent(),
        session: "s".parse().unwrap(),
        meta: TurnMeta {
            reply_id: Some(format!("r{seq}")),
            finish_reason: Some("stop".to_owned()),
            ..TurnMeta::whole(ChainHash::start(&AgentId::default_agent()), NOW)
        },
        parent: None,
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

fn bad(seq: u32) -> Turn {
    turn(seq, Some(Score::Bad), "a long reply")
}

fn good(seq: u32) -> Turn {
    turn(seq, Some(Score::Good), "a short reply")
}

fn with(methods: &str, wishes: bool, turn: &Turn) -> Want {
    decide(
        methods,
        wishes,
        &Targets::default(),
        &Hints::default(),
        turn,
    )
}

fn decide(methods: &str, wishes: bool, targets: &Targets, hints: &Hints, turn: &Turn) -> Want {
    let methods: Methods = serde_json::from_value(json!(methods)).unwrap();
    let gone = BTreeSet::from([id(9)]);
    let rules = DecisionRules {
        methods: &methods,
        teaching: Teaching {
            targets,
            hints,
            consolidates: wishes,
        },
        support: &Support::default(),
        external_teacher: false,
        without_ids: &gone,
        now_ms: NOW,
        oldest_ms: NOW - 14 * 24 * 3_600_000,
    };
    rules.decision(turn)
}

fn redo(turn: &Turn) -> Want {
    with("redo", false, turn)
}

#[test]
fn what_failed_is_answered_again_and_what_was_accepted_where_wishes_stand() {
    let unclear = turn(0, Some(Score::Unclear), "x");
    for (turn, alone, consolidated) in [
        (bad(0), Target, Target),
        (good(0), Never(ExcludeReason::Accepted), Target),
        (unclear, Never(ExcludeReason::Unclear), Target),
    ] {
        assert_eq!(with("redo", false, &turn), alone);
        assert_eq!(with("redo", true, &turn), consolidated);
    }
    assert_eq!(with("binary_rl", true, &good(0)), Own);
    assert_eq!(with("redo+binary_rl", false, &good(0)), Own);
}

/// OpenClaw-RL's table of what becomes of a turn (its specification, 4.1), and that of opd alone.
#[test]
fn a_hint_or_a_verdict_makes_a_sample_and_neither_makes_none() {
    let unclear = turn(0, Some(Score::Unclear), "x");
    let mut hinted = unclear.clone();
    hinted.verdict.as_mut().unwrap().hint = Some("Be brief.".to_owned());
    let (targets, mut hints) = (Targets::default(), Hints::default());
    let of = |methods, hints: &Hints, turn: &Turn| decide(methods, false, &targets, hints, turn);
    for turn in [&bad(0), &hinted] {
        assert_eq!(
            of("hybrid", &hints, turn),
            Hint,
            "the teacher is told first"
        );
        assert_eq!(of("redo+opd", &hints, turn), Hint);
        hints.put(turn, vec![vec![1]]);
        assert_eq!(of("hybrid", &hints, turn), Own);
        assert_eq!(of("opd", &hints, turn), Own);
        hints.put(turn, Vec::new());
    }
    assert_eq!(of("hybrid", &hints, &hinted), Never(ExcludeReason::Unclear));
    assert_eq!(
        of("hybrid", &hints, &unclear),
        Never(ExcludeReason::Unclear)
    );
    assert_eq!(of("hybrid", &hints, &good(0)), Own);
    assert_eq!(of("opd", &hints, &good(0)), Never(ExcludeReason::NoUse));
    hints.put(&bad(0), Vec::new());
    assert_eq!(of("hybrid", &hints, &bad(0)), Own, "by its verdict");
    assert_eq!(of("opd", &hints, &bad(0)), Never(ExcludeReason::NotHinted));
    assert_eq!(of("redo+opd", &hints, &bad(0)), Target);
}

#[test]
fn only_the_originals_method_counts_what_is_unclear() {
    let unclear = turn(0, Some(Score::Unclear), "x");
    assert_eq!(with("metaclaw", false, &unclear), Own);
    for method in ["binary_rl", "grpo"] {
        assert_eq!(with(method, false, &unclear), Never(ExcludeReason::Unclear));
    }
}

#[test]
fn what_the_teacher_declined_is_left_to_the_verdict() {
    let mut targets = Targets::default();
    targets.set_aside(id(0), ExcludeReason::NotRelevant);
    let hints = Hints::default();
    let of = |methods, turn: &Turn| decide(methods, true, &targets, &hints, turn);
    assert_eq!(of("redo", &bad(0)), Never(ExcludeReason::NotRelevant));
    assert_eq!(of("redo+binary_rl", &bad(0)), Own);
    assert_eq!(of("redo", &bad(1)), Target, "another turn");
}

#[test]
fn a_turn_that_calls_tools_is_answered_again_if_it_failed() {
    let mut calls = bad(0);
    let reply = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
    ]});
    calls.reply = Some(serde_json::from_value(reply).unwrap());
    assert_eq!(with("redo", false, &calls), Target);
    assert_eq!(with("opd", false, &calls), Hint);
    calls.verdict = Some(Verdict::new(Score::Good, JudgedBy::Rules));
    assert_eq!(with("redo", true, &calls), Never(ExcludeReason::Accepted));
    assert_eq!(with("redo+binary_rl", true, &calls), Own);
}

#[test]
fn it_waits_for_ids_that_may_still_come() {
    let mut late = bad(1);
    late.tokens = None;
    assert_eq!(redo(&late), Wait);
    late.meta.ended_ms = NOW - 3_600_000;
    assert_eq!(redo(&late), Never(ExcludeReason::NoIds));
    let mut gone = bad(9);
    gone.tokens = None;
    assert_eq!(redo(&gone), Never(ExcludeReason::NoIds));
}

#[test]
fn what_cannot_be_trained_on_says_why() {
    let mut other = bad(0);
    other.served.upstream = "llm".to_owned();
    assert_eq!(redo(&other), Never(ExcludeReason::NotPolicy));
    let mut old = bad(0);
    old.meta.ended_ms = NOW - 15 * 24 * 3_600_000;
    assert_eq!(redo(&old), Never(ExcludeReason::TooOld));
    let mut uneven = bad(0);
    uneven.tokens.as_mut().unwrap().logprobs.clear();
    assert_eq!(redo(&uneven), Never(ExcludeReason::NoIds));
    let mut masked = bad(0);
    masked.meta.masked = true;
    assert_eq!(redo(&masked), Never(ExcludeReason::Masked));
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
        let mut turn = good(0);
        turn.request.params = params.as_object().unwrap().clone();
        let expected = if fair {
            Own
        } else {
            Never(ExcludeReason::BadSampling)
        };
        assert_eq!(with("binary_rl", false, &turn), expected, "{params}");
    }
}

/// Returns what becomes of a turn that led to a lesson at 7 ms.
fn of_support(methods: &str, rule: SupportQuery, told: &[Vec<u32>], turn: &Turn) -> Want {
    let methods: Methods = serde_json::from_value(json!(methods)).unwrap();
    let (targets, mut hints) = (Targets::default(), Hints::default());
    hints.put(turn, told.to_vec());
    let rules = DecisionRules {
        methods: &methods,
        teaching: Teaching {
            targets: &targets,
            hints: &hints,
            consolidates: false,
        },
        support: &Support {
            rule,
            evidence: [id(0)].into(),
            changed_ms: Some(NOW),
            is_unknown: false,
        },
        external_teacher: false,
        without_ids: &BTreeSet::new(),
        now_ms: NOW,
        oldest_ms: NOW - 14 * 24 * 3_600_000,
    };
    rules.decision(turn)
}

#[test]
fn support_is_taught_and_its_verdict_is_not_trained_on() {
    use SupportQuery::{Off, Own as Evidence, Strict};
    let (led, other) = (bad(0), bad(1));
    let mut earlier = bad(1);
    earlier.meta.started_ms = NOW - 1;
    let support = Never(ExcludeReason::Support);
    for (rule, turn, expected) in [
        (Evidence, &led, support),
        (Evidence, &earlier, Own),
        (Strict, &led, Own),
        (Strict, &earlier, Never(ExcludeReason::BeforeLesson)),
        (Strict, &other, Own),
        (Off, &led, Own),
        (Off, &earlier, Own),
    ] {
        let decided = of_support("binary_rl", rule, &[], turn);
        assert_eq!(decided, expected, "{rule:?}");
    }
    assert_eq!(of_support("redo+binary_rl", Evidence, &[], &led), Target);
    let accepted = of_support("redo+binary_rl", Evidence, &[], &good(0));
    assert_eq!(
        accepted, support,
        "which says more than that it was accepted"
    );
    // A hinted teacher says what is better, whatever the verdict.
    for method in ["opd", "hybrid"] {
        assert_eq!(of_support(method, Evidence, &[vec![1]], &led), Own);
    }
    assert_eq!(of_support("hybrid", Evidence, &[], &led), support);
}
