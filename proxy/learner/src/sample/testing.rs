//! Turns and samples of made-up ids, for the tests of samples and steps.

use std::sync::Arc;

use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, Score, TurnId, Verdict};
use metaclaw_turns::{Request, Served, Tokens, Turn, TurnMeta, TurnState};

use super::{
    target::{Form, Target, TargetReply},
    types::Sample,
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

/// Returns a turn to which the teacher gave one reply of this many ids.
pub(crate) fn answered(seq: u32, n_ids: u32) -> Sample {
    answered_by(seq, &[n_ids])
}

/// Returns a turn to which the teacher gave replies of these many ids.
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

/// Returns a turn whose own ids have advantages.
pub(crate) fn own(turn: Arc<Turn>) -> Sample {
    Sample::own(turn, Arc::default())
}

/// Returns a turn with one hint.
pub(crate) fn hinted(seq: u32, score: Score, n_ids: u32) -> Sample {
    let prompt = vec![100 + seq, 1, 7, 8];
    Sample::own(turn(seq, score, n_ids), Arc::new(vec![prompt]))
}
