//! Which turns of a batch are pushed on their own ids, and by how much.

use std::sync::Arc;

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;

use super::{
    baselines::Baselines,
    exclude_reason::ExcludeReason,
    hints::Told,
    turns::{sampled_fairly, score},
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
    /// `[R]`: what an external teacher adds to the advantage of each id; none where there is none, or it was not asked yet.
    pub(super) pulls: Option<Arc<[f32]>>,
}

/// What becomes of the turns whose own ids a step may push.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) pushed: Vec<Pushed>,
    /// Without an advantage themselves, and part of the others'.
    pub(super) counted: Vec<Arc<Turn>>,
    /// Of no use, and why.
    pub(super) spent: Vec<(TurnId, ExcludeReason)>,
}

/// By what a batch is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choosing<'a> {
    pub(crate) config: &'a RlConfig,
    pub(crate) baselines: Baselines,
    /// Whether there is somebody who pushes what a verdict does not.
    pub(crate) external_teacher: bool,
    /// The most samples of each method.
    pub(crate) limit: usize,
}

/// Chooses turns, with those of `redo` that are new: they have verdicts as well, which are pushed once.
pub(super) fn choose(samples: &Samples, redo: &[Redo], choosing: Choosing<'_>) -> Choice {
    let Choosing {
        config,
        baselines,
        external_teacher,
        limit,
    } = choosing;
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
            pulls: None,
        });
    let is_pushed = |it: &Pushed| it.is_pushed() || (external_teacher && it.may_be_scored());
    let (pushed, idle): (Vec<_>, Vec<_>) = pushed.enumerate().partition(|(_, it)| is_pushed(it));
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
    let spent = idle
        .iter()
        .map(|turn| (turn.id, ExcludeReason::NoAdvantage));
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

    /// Whether its ids are the policy's own choice, and its verdict pushes them or could.
    pub(super) fn may_be_scored(&self) -> bool {
        let is_judged = matches!(score(&self.turn), Some(Score::Good | Score::Bad));
        self.advantage != 0.0 || (is_judged && sampled_fairly(&self.turn))
    }

    /// `[R]`: the advantage of each of its ids, within these bounds.
    pub(super) fn advantages(&self, n: usize, most: f32) -> impl Iterator<Item = f32> + '_ {
        let pulls = self.pulls.iter().flat_map(|pulls| pulls.iter().copied());
        let pulls = pulls.chain(std::iter::repeat(0.0)).take(n);
        pulls.map(move |pull| (self.advantage + pull).clamp(-most, most))
    }
}
