//! Turns and samples of made-up ids, for the tests of samples and of steps.

use std::sync::Arc;

use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, Score, TurnId, Verdict};
use metaclaw_turns::{Request, Served, Tokens, Turn, TurnMeta, TurnState};

use super::{
    baselines::Baselines,
    pushed::Choosing,
    target::{Form, Target, TargetReply},
    waiting::{Own, Redo, Samples},
};
use crate::config::RlConfig;

/// A judged turn that replied with ids 0 to `n_ids`, each at a log-probability of -1.
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

pub(crate) fn redo(seq: u32, n_ids: u32) -> Redo {
    redo_of(seq, &[n_ids])
}

/// A turn of context distillation whose teacher gave replies of so many ids.
pub(crate) fn redo_of(seq: u32, replies: &[u32]) -> Redo {
    let replies = replies.iter().map(|n_ids| TargetReply {
        ids: (0..*n_ids).collect(),
        form: Form::OneHot,
    });
    Redo {
        turn: turn(seq, Score::Bad, 3),
        target: Arc::new(Target {
            prompt: vec![100 + seq, 1],
            replies: replies.collect(),
        }),
        is_fresh: true,
        told: Arc::default(),
    }
}

pub(crate) fn own(turn: Arc<Turn>) -> Own {
    let told = Arc::default();
    Own { turn, told }
}

pub(crate) fn of(redo: Vec<Redo>, verdicts: Vec<Arc<Turn>>) -> Samples {
    Samples {
        redo,
        own: verdicts.into_iter().map(own).collect(),
        ..Samples::default()
    }
}

pub(crate) fn by(config: &RlConfig, limit: usize) -> Choosing<'_> {
    Choosing {
        config,
        baselines: Baselines::default(),
        external_teacher: false,
        limit,
    }
}

pub(crate) fn config(json: serde_json::Value) -> RlConfig {
    serde_json::from_value(json).unwrap()
}

/// A turn whose teacher was told one hint.
pub(crate) fn hinted(seq: u32, score: Score, n_ids: u32) -> Own {
    Own {
        turn: turn(seq, score, n_ids),
        told: Arc::new(vec![vec![100 + seq, 1, 7, 8]]),
    }
}
