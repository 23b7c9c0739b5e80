//! What each judged turn is good for: a correction, a verdict to learn from, or nothing, and why.
//!
//! Works on the turns of one session at a time, since a correction is made within one. Every judged
//! turn gets a [`Fate`], so none is forgotten and none is used twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metaclaw_chat::{Role, Score, TurnId};
use metaclaw_reward::{Evidence, count_words};
use metaclaw_trainer_api::wire::DEFAULT_TEMPERATURE;
use metaclaw_turns::{StreamEnd, Tokens, Turn, TurnKind, TurnState};

use crate::config::Methods;

/// The upstream whose replies our own trainer samples: the policy model.
pub const POLICY_UPSTREAM: &str = "policy";
/// A target of fewer words teaches silence.
const MIN_TARGET_WORDS: usize = 3;
/// Colder replies are nearly the argmax and hotter ones noise: neither says much about the policy at T = 1.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.3..=1.2;
/// What else bends the distribution that a reply is drawn from, each with its value when off.
const SHAPING: [(&str, f64); 5] = [
    ("min_p", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("min_tokens", 0.0),
];
/// The trainer keeps what it sampled for 15 minutes; after these, ids that have not come never will.
const TOKENS_WAIT: Duration = Duration::from_secs(20 * 60);
/// An owner who has not gone on after so long has left: a failed turn waits no longer for its correction.
const CORRECTION_WAIT: Duration = Duration::from_secs(12 * 3_600);

/// Why a turn is never trained on: the funnel's reasons.
pub(crate) mod reason {
    pub(crate) const SIDE: &str = "side turn";
    pub(crate) const INCOMPLETE: &str = "reply incomplete";
    pub(crate) const NO_RULE: &str = "no rule fits";
    pub(crate) const NO_VOTE: &str = "no vote could be read";
    pub(crate) const UNCLEAR: &str = "verdict unclear";
    pub(crate) const NOT_POLICY: &str = "not answered by the policy model";
    pub(crate) const NO_IDS: &str = "token ids were not kept";
    pub(crate) const MASKED: &str = "a secret in it was masked: no token ids are kept";
    pub(crate) const TOO_OLD: &str = "older than rl.max_age";
    pub(crate) const NOT_CORRECTED: &str = "failed, and no correction was accepted";
    pub(crate) const ACCEPTED: &str = "accepted, and no correction";
    pub(crate) const BAD_SAMPLING: &str = "sampled too cold, too hot or cut off";
    pub(crate) const NO_ADVANTAGE: &str = "as good as usual: no advantage";
    pub(crate) const OTHER_BASE: &str = "sampled from another base model";
    pub(crate) const REFUSED: &str = "refused by the training server";
}

/// What becomes of a judged turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The corrected reply becomes the target of the failed turn's prompt; both turns are used.
    Redo {
        /// Judged -1.
        failed: TurnId,
        /// Judged +1, in the same session, after the owner's complaint.
        accepted: TurnId,
    },
    /// Its own ids, pushed by its verdict.
    Verdict(TurnId),
    /// More must happen first.
    Wait,
    /// Of no use, and why.
    Spend(TurnId, &'static str),
}

/// What sampling looks at besides the turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// The methods in use.
    pub(crate) methods: &'a Methods,
    /// Turns whose ids are known to be gone.
    pub(crate) without_ids: &'a BTreeSet<TurnId>,
    /// The time, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// `rl.max_age`.
    pub(crate) max_age: Duration,
}

/// Whether a turn has what training needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Material {
    Ready,
    Coming,
    Never(&'static str),
}

/// The fates of a session's judged turns. `turns` are those and the captured ones of the session, and the
/// failures behind each accepted one, whatever became of them.
pub(crate) fn fates<'a>(turns: impl IntoIterator<Item = &'a Turn>, rules: Rules<'a>) -> Vec<Fate> {
    let session = Session::new(turns, rules);
    let mut fates = session.corrections();
    let used: BTreeSet<TurnId> = fates.iter().flat_map(Fate::concerns).collect();
    let rest = session.judged().filter(|turn| !used.contains(&turn.id));
    fates.extend(rest.map(|turn| session.alone(turn)));
    fates
}

/// Whether a reply may be pushed by its verdict: drawn from (nearly) the policy's own distribution.
pub(crate) fn sampled_fairly(turn: &Turn) -> bool {
    let number = |name: &str| {
        turn.request
            .params
            .get(name)
            .and_then(serde_json::Value::as_f64)
    };
    let temperature = number("temperature").unwrap_or(DEFAULT_TEMPERATURE);
    let whole =
        number("top_p").is_none_or(|p| p >= 1.0) && number("top_k").is_none_or(|k| k <= 0.0);
    let is_off = |(name, off): &(&str, f64)| {
        number(name).is_none_or(|value| (value - off).abs() < f64::EPSILON)
    };
    let ends_itself = turn.request.params.get("ignore_eos") != Some(&true.into());
    TEMPERATURES.contains(&temperature) && whole && SHAPING.iter().all(is_off) && ends_itself
}

/// Whether the turn called tools: such turns succeed so often that they have a baseline of their own.
pub(crate) fn is_tool_turn(turn: &Turn) -> bool {
    turn.reply
        .as_ref()
        .is_some_and(|reply| !reply.tool_calls().is_empty())
}

struct Session<'a> {
    turns: BTreeMap<TurnId, &'a Turn>,
    /// The main turns that go on from a turn by the owner's words alone: attempts at a correction.
    answered_by: BTreeMap<TurnId, Vec<TurnId>>,
    rules: Rules<'a>,
}

// === impl Fate ===

impl Fate {
    /// The turns that it decides about.
    pub(crate) fn concerns(&self) -> Vec<TurnId> {
        match self {
            Self::Redo { failed, accepted } => vec![*failed, *accepted],
            Self::Verdict(id) | Self::Spend(id, _) => vec![*id],
            Self::Wait => Vec::new(),
        }
    }
}

// === impl Session ===

impl<'a> Session<'a> {
    fn new(turns: impl IntoIterator<Item = &'a Turn>, rules: Rules<'a>) -> Self {
        let turns: BTreeMap<TurnId, &Turn> =
            turns.into_iter().map(|turn| (turn.id, turn)).collect();
        let mut answered_by = BTreeMap::<TurnId, Vec<TurnId>>::new();
        for turn in turns.values() {
            if let Some(parent) = turn.parent
                && is_owners_answer(turn)
            {
                answered_by.entry(parent).or_default().push(turn.id);
            }
        }
        Self {
            turns,
            answered_by,
            rules,
        }
    }

    fn judged(&self) -> impl Iterator<Item = &'a Turn> {
        self.turns
            .values()
            .copied()
            .filter(|turn| turn.state == TurnState::Judged)
    }

    /// Pairs of a failed turn and the reply that was accepted after it; after several failures in a
    /// row the first one, which had no help yet.
    fn corrections(&self) -> Vec<Fate> {
        if !self.rules.methods.redo {
            return Vec::new();
        }
        let mut used = BTreeSet::new();
        let mut pairs = Vec::new();
        for accepted in self
            .judged()
            .filter(|turn| score(turn) == Some(Score::Good))
        {
            let failures = self.failures_before(accepted);
            let is_free =
                |turn: &&Turn| turn.state == TurnState::Judged && !used.contains(&turn.id);
            let first = failures.into_iter().rfind(is_free);
            if let Some(failed) = first
                && self.can_teach(failed, accepted)
            {
                used.extend([failed.id, accepted.id]);
                pairs.push(Fate::Redo {
                    failed: failed.id,
                    accepted: accepted.id,
                });
            }
        }
        pairs
    }

    /// The unbroken row of failed turns that an accepted one answers, the latest first. Some may be spent or
    /// trained by now.
    fn failures_before(&self, accepted: &'a Turn) -> Vec<&'a Turn> {
        let step = |turn: &&'a Turn| {
            let parent = self.turns.get(&turn.parent?).copied()?;
            let failed = score(parent) == Some(Score::Bad);
            (failed && is_owners_answer(turn)).then_some(parent)
        };
        std::iter::successors(step(&accepted), step).collect()
    }

    fn can_teach(&self, failed: &Turn, accepted: &Turn) -> bool {
        let ready = |turn| self.material(turn) == Material::Ready;
        let base = |turn: &Turn| turn.tokens.as_ref().map(|tokens| tokens.base.clone());
        ready(failed)
            && ready(accepted)
            && base(failed) == base(accepted)
            && is_whole_target(accepted)
    }

    /// What a turn is good for when it is part of no correction.
    fn alone(&self, turn: &Turn) -> Fate {
        let id = turn.id;
        match (self.material(turn), score(turn)) {
            (Material::Never(why), _) => Fate::Spend(id, why),
            (_, None | Some(Score::Unclear)) => Fate::Spend(id, reason::UNCLEAR),
            (Material::Coming, _) => Fate::Wait,
            (Material::Ready, Some(Score::Bad)) if self.may_be_corrected(turn) => Fate::Wait,
            (Material::Ready, Some(Score::Good)) if self.may_be_a_correction(turn) => Fate::Wait,
            (Material::Ready, Some(_)) if self.rules.methods.binary_rl => {
                if sampled_fairly(turn) {
                    Fate::Verdict(id)
                } else {
                    Fate::Spend(id, reason::BAD_SAMPLING)
                }
            }
            (Material::Ready, Some(Score::Bad)) => Fate::Spend(id, reason::NOT_CORRECTED),
            (Material::Ready, Some(Score::Good)) => Fate::Spend(id, reason::ACCEPTED),
        }
    }

    /// Whether an answer to the complaint about this turn may still be accepted.
    fn may_be_corrected(&self, turn: &Turn) -> bool {
        let answers = self.answered_by.get(&turn.id).into_iter().flatten();
        let mut answers = answers.filter_map(|id| self.turns.get(id));
        self.rules.methods.redo
            && answers.any(|answer| match (&answer.state, score(answer)) {
                (TurnState::Captured, None) => self.age(answer) < CORRECTION_WAIT,
                (TurnState::Judged, Some(Score::Bad)) => self.may_be_corrected(answer),
                (TurnState::Judged, Some(Score::Good)) => self.material(answer) == Material::Coming,
                _ => false,
            })
    }

    /// Whether this accepted turn answers one whose verdict, or whose ids, are still to come.
    fn may_be_a_correction(&self, turn: &Turn) -> bool {
        let parent = turn.parent.and_then(|id| self.turns.get(&id));
        self.rules.methods.redo
            && is_owners_answer(turn)
            && parent.is_some_and(|parent| match (&parent.state, score(parent)) {
                (TurnState::Captured, None) => self.age(parent) < CORRECTION_WAIT,
                (TurnState::Judged, Some(Score::Bad)) => self.material(parent) == Material::Coming,
                _ => false,
            })
    }

    fn material(&self, turn: &Turn) -> Material {
        if self.is_too_old(turn) {
            return Material::Never(reason::TOO_OLD);
        }
        if turn.served.upstream != POLICY_UPSTREAM {
            return Material::Never(reason::NOT_POLICY);
        }
        if turn.meta.masked {
            return Material::Never(reason::MASKED);
        }
        match &turn.tokens {
            Some(tokens) if is_usable(tokens) => Material::Ready,
            None if turn.meta.reply_id.is_some() && self.ids_may_come(turn) => Material::Coming,
            Some(_) | None => Material::Never(reason::NO_IDS),
        }
    }

    fn ids_may_come(&self, turn: &Turn) -> bool {
        !self.rules.without_ids.contains(&turn.id) && self.age(turn) < TOKENS_WAIT
    }

    fn is_too_old(&self, turn: &Turn) -> bool {
        self.age(turn) > self.rules.max_age
    }

    fn age(&self, turn: &Turn) -> Duration {
        Duration::from_millis(self.rules.now_ms.saturating_sub(turn.meta.ended_ms))
    }
}

pub(crate) fn score(turn: &Turn) -> Option<Score> {
    turn.verdict.as_ref().map(|verdict| verdict.score)
}

/// Whether a main turn goes on from its parent by the owner's words alone: no tool spoke in between.
fn is_owners_answer(turn: &Turn) -> bool {
    let evidence = turn.evidence();
    turn.meta.kind == TurnKind::Main
        && evidence.iter().any(metaclaw_chat::Message::is_owners)
        && !evidence.iter().any(|message| message.role() == Role::Tool)
}

/// Whether a reply can be a target: it ended by itself, is no tool call, and says something.
///
/// One that a stop text may have ended has that text among its ids, and no end: it would teach the model to
/// write on.
fn is_whole_target(turn: &Turn) -> bool {
    let Some(reply) = &turn.reply else {
        return false;
    };
    let said = Evidence::new(&[], reply.clone(), &[]).said();
    turn.meta.end == StreamEnd::Complete
        && !may_be_stopped(turn)
        && turn.meta.finish_reason.as_deref() == Some("stop")
        && reply.tool_calls().is_empty()
        && count_words(&said) >= MIN_TARGET_WORDS
}

fn may_be_stopped(turn: &Turn) -> bool {
    use serde_json::Value;
    match turn.request.params.get("stop") {
        None | Some(Value::Null) => false,
        Some(Value::Array(texts)) => !texts.is_empty(),
        Some(_) => true,
    }
}

fn is_usable(tokens: &Tokens) -> bool {
    !tokens.prompt_ids.is_empty()
        && !tokens.ids.is_empty()
        && tokens.logprobs.len() == tokens.ids.len()
}

#[cfg(test)]
mod tests;
