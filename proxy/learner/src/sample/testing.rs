//! Turns and samples of made-up ids, for the tests of samples and steps.

use std::sync::Arc;

use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, RolloutId, Score, TurnId, Verdict};
use metaclaw_turns::{
    Request, Rollout, RolloutState, Served, Tokens, Turn, TurnKind, TurnMeta, TurnState,
};

use super::{
    batch::{RolloutGroup, RolloutStep},
    types::{Form, Sample, Target, TargetReply},
};

/// Returns a judged turn whose reply has the ids 0 to `n_ids`, each with a log-probability of -1.
pub(crate) fn turn(seq: u32, score: Score, n_ids: u32) -> Arc<Turn> {
    let n = n_ids as usize;
    Arc::new(Turn {
        id: TurnId { session: 1, seq },
        agent: AgentId::default_agent(),
        session: "s".parse().unwrap(),
        meta: TurnMeta::whole(ChainHash::start(&AgentId::default_agent()), seq.into()),
        parent: None,
        new_from: 0,
        request: Request::default(),
        reply: Some(Message::assistant("x")),
        served: Served::default(),
        overruled: Vec::new(),
        uses: Vec::new(),
        state: TurnState::Judged,
        verdict: Some(Verdict::new(score, JudgedBy::Rules)),
        tokens: Some(Tokens {
            prompt_ids: vec![100 + seq, 1],
            ids: (0..n_ids).collect(),
            logprobs: vec![-1.0; n],
            sampling_logprobs: vec![-1.0; n],
            ..Tokens::default()
        }),
    })
}

pub(crate) fn answered(seq: u32, n_ids: u32) -> Sample {
    answered_by(seq, &[n_ids])
}

pub(crate) fn answered_by(seq: u32, replies: &[u32]) -> Sample {
    let replies = replies.iter().map(|n_ids| TargetReply {
        ids: (0..*n_ids).collect(),
        form: Form::OneHot,
    });
    let target = Target {
        prompt: vec![100 + seq, 1],
        replies: replies.collect(),
    };
    Sample::answered(turn(seq, Score::Bad, 3), target.into(), Arc::default())
}

pub(crate) fn own(turn: Arc<Turn>) -> Sample {
    Sample::own(turn, Arc::default())
}

pub(crate) fn hinted(seq: u32, score: Score, n_ids: u32) -> Sample {
    let prompt = vec![100 + seq, 1, 7, 8];
    Sample::own(turn(seq, score, n_ids), Arc::new(vec![prompt]))
}

pub(crate) fn rollout(group: &str, attempt: u32, outcome: f32, steps: &[f32]) -> Rollout {
    let id = RolloutId::new(u64::from(group.as_bytes()[0]), attempt);
    Rollout {
        agent: AgentId::default_agent(),
        task: format!("task of {group}").parse().unwrap(),
        group: group.parse().unwrap(),
        group_size: 4,
        attempt,
        held_out: false,
        adapter: None,
        run: None,
        opened_by: None,
        key_hash: String::new(),
        opened_ms: 0,
        deadline_ms: 0,
        state: RolloutState::Scored {
            outcome,
            steps: steps.to_vec(),
            closed_ms: 0,
        },
        id,
    }
}

pub(crate) fn rollout_group(group: &str, rollouts: &[(f32, &[f32], &[u32])]) -> RolloutGroup {
    let (mut closed, mut steps) = (Vec::new(), Vec::new());
    for (attempt, (outcome, rewards, n_ids)) in (0..).zip(rollouts) {
        let rollout = rollout(group, attempt, *outcome, rewards);
        for (step, n_ids) in n_ids.iter().enumerate() {
            steps.push(rollout_step(&rollout, step, *n_ids));
        }
        closed.push(rollout);
    }
    RolloutGroup {
        rollouts: closed,
        steps,
    }
}

/// A turn's prompt has the ids of the turn before it, which begins with those of the task.
fn rollout_step(rollout: &Rollout, step: usize, n_ids: u32) -> RolloutStep {
    let (mark, outcome) = (rollout.mark(), rollout.outcome().unwrap());
    let RolloutState::Scored { steps, .. } = &rollout.state else {
        panic!("{rollout:?}");
    };
    let reward = outcome + steps.get(step).copied().unwrap_or(0.0);
    let seq = u32::try_from(step).unwrap();
    let mut turn = Arc::unwrap_or_clone(turn(seq, Score::Good, n_ids));
    let session = u64::from(rollout.group.as_str().as_bytes()[0]) * 100;
    turn.id.session = session + u64::from(rollout.attempt);
    turn.meta.kind = TurnKind::Rollout;
    turn.served.rollout = Some(mark.clone());
    turn.verdict = Some(Verdict {
        reward: Some(reward),
        ..Verdict::new(Score::Good, JudgedBy::Rollout)
    });
    let tokens = turn.tokens.as_mut().unwrap();
    tokens.prompt_ids = vec![100, rollout.attempt, 7];
    tokens.prompt_ids.truncate(1 + usize::from(step > 0) * 2);
    RolloutStep {
        turn: turn.into(),
        mark,
        step,
        outcome,
        reward,
    }
}
