//! Which turns of a batch are pushed on their own ids, and by how much.

use std::sync::Arc;

use metaclaw_chat::TurnId;
use metaclaw_turns::Turn;

use super::{
    baselines::Baselines,
    hints::Told,
    reason,
    verdicts::{advantages, siblings_of},
    waiting::{Own, Redo, Samples},
};
use crate::config::{RlConfig, VerdictMethod};

/// A turn whose own ids are pushed.
#[derive(Debug, Clone)]
pub(super) struct Pushed {
    pub(super) turn: Arc<Turn>,
    /// What the teacher reads in its prompt's place; empty where it was told nothing.
    pub(super) told: Told,
    /// By its verdict; 0 where that pushes nothing.
    pub(super) advantage: f32,
}

/// What becomes of the turns whose own ids a step may push.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) pushed: Vec<Pushed>,
    /// Without an advantage themselves, and part of the others'.
    pub(super) counted: Vec<Arc<Turn>>,
    /// Of no use, and why.
    pub(super) spent: Vec<(TurnId, &'static str)>,
}

/// Chooses up to `limit` turns, with those of `redo` that are new: they have verdicts as well, which are pushed once.
pub(super) fn choose(
    samples: &Samples,
    redo: &[Redo],
    config: &RlConfig,
    baselines: Baselines,
    limit: usize,
) -> Choice {
    let window = window(&samples.own, config.method.verdict, limit);
    let fresh = redo.iter().filter(|it| it.is_fresh);
    let fresh = fresh.map(|it| (&it.turn, &it.told));
    let own = window.iter().map(|it| (&it.turn, &it.told));
    let all: Vec<(&Arc<Turn>, &Told)> = own.chain(fresh).collect();
    let turns: Vec<&Arc<Turn>> = all.iter().map(|(turn, _)| *turn).collect();
    let given = match config.method.verdict {
        Some(method) => advantages(method, &turns, baselines),
        None => vec![0.0; turns.len()],
    };
    let pushed = all
        .into_iter()
        .zip(given)
        .map(|((turn, told), advantage)| Pushed {
            turn: Arc::clone(turn),
            told: Arc::clone(told),
            advantage,
        });
    let (pushed, idle): (Vec<_>, Vec<_>) = pushed.enumerate().partition(|(_, it)| it.is_pushed());
    let is_own = |at: usize| at < window.len();
    let counts_others = config
        .method
        .verdict
        .is_some_and(VerdictMethod::counts_others);
    let (own, fresh): (Vec<_>, Vec<_>) = pushed.into_iter().partition(|(at, _)| is_own(*at));
    // A window that counts is whole already.
    let most = if counts_others { own.len() } else { limit };
    let pushed = own.into_iter().take(most).chain(fresh).map(|(_, it)| it);
    let pushed: Vec<Pushed> = pushed.collect();
    // Those of redo have a use all the same.
    let idle = idle.into_iter().filter(|(at, _)| is_own(*at));
    let idle: Vec<Arc<Turn>> = idle.map(|(_, it)| it.turn).collect();
    if counts_others && !pushed.is_empty() {
        return Choice {
            pushed,
            counted: idle,
            spent: Vec::new(),
        };
    }
    let spent = idle.iter().map(|turn| (turn.id, reason::NO_ADVANTAGE));
    Choice {
        spent: spent.collect(),
        counted: Vec::new(),
        pushed,
    }
}

/// Those that are looked at: where advantages come of the others, as many as a batch has, with all siblings.
fn window(own: &[Own], method: Option<VerdictMethod>, limit: usize) -> Vec<&Own> {
    let Some(method) = method.filter(|it| it.counts_others()) else {
        return own.iter().collect();
    };
    let (first, rest) = own.split_at(own.len().min(limit));
    let mut window: Vec<&Own> = first.iter().collect();
    if method == VerdictMethod::Grpo {
        let turns: Vec<&Arc<Turn>> = first.iter().map(|it| &it.turn).collect();
        window.extend(rest.iter().filter(|it| siblings_of(&turns, &it.turn)));
    }
    window
}

// === impl Pushed ===

impl Pushed {
    fn is_pushed(&self) -> bool {
        self.advantage != 0.0 || !self.told.is_empty()
    }
}
