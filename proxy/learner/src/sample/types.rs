//! What is known of one judged turn: what the teacher came to about it, which log-probabilities are requested for it, and
//! how much better than usual it was.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Role, Score, TurnId, Verdict, count_words};
use metaclaw_reward::Evidence;
use metaclaw_trainer_api::{DEFAULT_TEMPERATURE, Datum, DatumError};
use metaclaw_turns::{StreamEnd, Tokens, Turn, TurnKind};
use serde::Serialize;

use super::{datum, exclude_reason::ExcludeReason};

/// The greatest advantage: in a large batch a rare verdict is many standard deviations from the mean.
pub(crate) const MAX_ADVANTAGE: f32 = 5.0;

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) turn: Arc<Turn>,
    /// The teacher's replies to its prompt; none where only its own ids are trained on.
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) hinted: HintedPrompts,
    /// Whether no step has had it: the verdict counts once.
    pub(crate) is_fresh: bool,
    pub(crate) push: Option<Push>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Push {
    /// By its verdict; 0 where that pushes nothing.
    pub(crate) advantage: f32,
    /// `[R]`: what an external teacher adds to the advantage of each id. None where there is no such teacher, or it was not
    /// asked.
    pub(crate) teacher_delta: Option<Arc<[f32]>>,
    pub(crate) rollout: Option<RolloutPush>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RolloutPush {
    /// The weight of each id: 1 / (rollouts of the step · ids of the rollout).
    pub(crate) share: f32,
    /// `[R]`: the advantages that `rl.advantages` gives each id, in place of the turn's own. None where it gives one number.
    pub(crate) by_id: Option<Arc<[f32]>>,
}

/// A reply of the base model to a question of ours, with its wishes in the prompt: the weights are held at it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct AnchorReply {
    /// The question without the wishes: what the student reads.
    pub(crate) prompt: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    /// `[R][K]`: the ids that the base finds likeliest at each, told the wishes.
    pub(crate) likely: Vec<Vec<u32>>,
    /// `[R][K]`: their log-probabilities.
    pub(crate) logprobs: Vec<Vec<f32>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Teaching<'a> {
    pub(crate) targets: &'a Targets,
    pub(crate) hints: &'a Hints,
    pub(crate) consolidates: bool,
}

// === impl Sample ===

impl Sample {
    pub(crate) fn own(turn: Arc<Turn>, hinted: HintedPrompts) -> Self {
        Self {
            turn,
            target: None,
            hinted,
            is_fresh: true,
            push: None,
        }
    }

    pub(crate) fn answered(turn: Arc<Turn>, target: Arc<Target>, hinted: HintedPrompts) -> Self {
        Self {
            target: Some(target),
            ..Self::own(turn, hinted)
        }
    }

    pub(crate) fn again(turn: Arc<Turn>, target: Arc<Target>) -> Self {
        Self {
            is_fresh: false,
            ..Self::answered(turn, target, HintedPrompts::default())
        }
    }

    pub(crate) fn id(&self) -> TurnId {
        self.turn.id
    }

    /// Whether its ids are the policy's own choice, and its verdict pushes them or could.
    pub(crate) fn may_be_scored(&self) -> bool {
        let is_judged = matches!(score(&self.turn), Some(Score::Good | Score::Bad));
        let advantage = self.push.as_ref().map_or(0.0, |push| push.advantage);
        advantage != 0.0 || (is_judged && sampled_fairly(&self.turn))
    }
}

// === impl Push ===

impl Push {
    /// `[R]`: the advantage of each of `n` ids, within -`most` and `most`.
    pub(crate) fn advantages(&self, n: usize, most: f32) -> impl Iterator<Item = f32> + '_ {
        let deltas = self.teacher_delta.iter().flat_map(|d| d.iter().copied());
        let deltas = deltas.chain(std::iter::repeat(0.0)).take(n);
        let by_id = self.rollout.as_ref().and_then(|r| r.by_id.as_ref());
        deltas.enumerate().map(move |(at, delta)| {
            let own = by_id.and_then(|v| v.get(at)).unwrap_or(&self.advantage);
            (own + delta).clamp(-most, most)
        })
    }
}

/// The number of turns whose targets are cached; others are drawn again, with the same seeds.
const REMEMBERED: usize = 1_024;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// The student's prompt: the conversation without what the teacher was told.
    pub(crate) prompt: Vec<u32>,
    /// There is at least one.
    pub(crate) replies: Vec<TargetReply>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TargetReply {
    pub(crate) ids: Vec<u32>,
    pub(crate) form: Form,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    OneHot,
    /// The ids that the teacher found probable there: at each id of the reply the same number of ids, with their
    /// probabilities, which sum up to 1.
    TopK(Vec<Vec<(u32, f32)>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Taught {
    Target(Arc<Target>),
    /// The reason why redo does not use the turn.
    Declined(ExcludeReason),
}

/// The teacher's results for an agent's turns, as long as its wishes do not change.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    of: BTreeMap<TurnId, KnownTarget>,
    /// Turns that redo never uses, whatever their verdict, and why.
    at_fault: BTreeMap<TurnId, ExcludeReason>,
}

/// The teacher's result and the verdict that it is based on; with another verdict, the teacher is asked again.
#[derive(Debug)]
struct KnownTarget {
    taught: Taught,
    verdict: Said,
}

type Said = Option<(Score, Option<String>)>;

// === impl Target ===

impl Target {
    /// Returns a cross_entropy datum for each reply, with the weight of each id.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn datums(&self, each: f32) -> impl Iterator<Item = Result<Datum, DatumError>> {
        let prompt = &self.prompt;
        self.replies.iter().map(move |reply| match &reply.form {
            Form::OneHot => datum::target(prompt, &reply.ids, each),
            Form::TopK(likely) => datum::soft_target(prompt, &reply.ids, likely, each),
        })
    }

    pub(crate) fn n_ids(&self) -> usize {
        self.replies.iter().map(|reply| reply.ids.len()).sum()
    }
}

// === impl Targets ===

impl Targets {
    pub(crate) fn knows(&self, turn: &Turn) -> bool {
        self.at_fault.contains_key(&turn.id) || self.taught(turn).is_some()
    }

    pub(crate) fn target(&self, turn: &Turn) -> Option<Arc<Target>> {
        match self.taught(turn) {
            Some(Taught::Target(target)) if !self.at_fault.contains_key(&turn.id) => {
                Some(Arc::clone(target))
            }
            Some(Taught::Target(_) | Taught::Declined(_)) | None => None,
        }
    }

    pub(crate) fn declined(&self, turn: &Turn) -> Option<ExcludeReason> {
        let at_fault = self.at_fault.get(&turn.id).copied();
        at_fault.or_else(|| match self.taught(turn) {
            Some(Taught::Declined(why)) => Some(*why),
            Some(Taught::Target(_)) | None => None,
        })
    }

    pub(crate) fn n_declined(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        let of = self.of.values().filter_map(|known| match known.taught {
            Taught::Declined(why) => Some(why),
            Taught::Target(_) => None,
        });
        for why in of.chain(self.at_fault.values().copied()) {
            *counts.entry(why.as_str()).or_default() += 1;
        }
        counts
    }

    pub(crate) fn put(&mut self, turn: &Turn, taught: Taught) {
        if self.of.len() >= REMEMBERED {
            self.of.pop_first();
        }
        let verdict = words_for_teacher(turn);
        self.of.insert(turn.id, KnownTarget { taught, verdict });
    }

    pub(crate) fn forget(&mut self) {
        self.of.clear();
    }

    pub(crate) fn set_aside(&mut self, id: TurnId, why: ExcludeReason) {
        if self.at_fault.len() >= REMEMBERED {
            self.at_fault.pop_first();
        }
        self.of.remove(&id);
        self.at_fault.insert(id, why);
    }

    fn taught(&self, turn: &Turn) -> Option<&Taught> {
        let known = self.of.get(&turn.id)?;
        (known.verdict == words_for_teacher(turn)).then_some(&known.taught)
    }
}

fn words_for_teacher(turn: &Turn) -> Said {
    Some((score(turn)?, hint(turn).cloned()))
}

const REMEMBERED_HINTS: usize = 256;

/// The teacher's prompts, one for each hint; empty if nobody said what would have been better.
pub(crate) type HintedPrompts = Arc<Vec<Vec<u32>>>;

#[derive(Debug, Default)]
pub(crate) struct Hints {
    of: BTreeMap<TurnId, KnownHints>,
}

/// The prompts, and the verdict with which they were made, because another verdict may have other hints.
#[derive(Debug)]
struct KnownHints {
    told: HintedPrompts,
    verdict: Option<Verdict>,
}

// === impl Hints ===

impl Hints {
    pub(crate) fn told(&self, turn: &Turn) -> Option<HintedPrompts> {
        if !may_be_hinted(turn) {
            return Some(HintedPrompts::default());
        }
        let known = self.of.get(&turn.id)?;
        (known.verdict == turn.verdict).then(|| Arc::clone(&known.told))
    }

    pub(crate) fn put(&mut self, turn: &Turn, told: Vec<Vec<u32>>) {
        if self.of.len() >= REMEMBERED_HINTS {
            self.of.pop_first();
        }
        let known = KnownHints {
            told: told.into(),
            verdict: turn.verdict.clone(),
        };
        self.of.insert(turn.id, known);
    }
}

/// Returns whether there may be a hint what would have been better: in the turn's verdict, or in the reaction to it if
/// it failed.
fn may_be_hinted(turn: &Turn) -> bool {
    score(turn) == Some(Score::Bad) || hint(turn).is_some()
}

/// A reply of R ids after a prompt, and what is requested at each of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogprobQuery {
    pub(crate) datum: Datum,
    /// R: the positions where the reply's ids are predicted.
    pub(crate) positions: Vec<usize>,
    pub(crate) width: usize,
}

// === impl LogprobQuery ===

impl LogprobQuery {
    /// Asks for the reply's own ids.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn own(prompt: &[u32], reply: &[u32]) -> Result<Self, DatumError> {
        let own: Vec<Vec<u32>> = reply.iter().map(|id| vec![*id]).collect();
        Self::for_ids(prompt, reply, &own)
    }

    /// Asks for other ids at their positions, `[R][K]`.
    ///
    /// # Errors
    /// Returns the same error, also if the lists do not have the same length, with one entry for each id.
    pub(crate) fn for_ids(
        prompt: &[u32],
        reply: &[u32],
        ids_tk: &[Vec<u32>],
    ) -> Result<Self, DatumError> {
        let weightless = |ids: &Vec<u32>| ids.iter().map(|id| (*id, 0.0)).collect();
        let rows: Vec<Vec<(u32, f32)>> = ids_tk.iter().map(weightless).collect();
        let datum = datum::weighted(prompt, reply, &rows)?;
        let first = prompt.len().saturating_sub(1);
        Ok(Self {
            datum,
            positions: (first..first + reply.len()).collect(),
            width: ids_tk.first().map_or(1, Vec::len),
        })
    }
}

/// The upstream whose replies MetaClaw's own trainer samples: the policy model.
pub const POLICY_UPSTREAM: &str = "policy";
/// The least number of words of a target, because shorter ones would train the model to say nothing.
pub(crate) const MIN_TARGET_WORDS: usize = 3;
/// The range of temperatures, because colder replies are nearly the argmax and hotter ones noise, and neither says much
/// about the policy at T = 1.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.3..=1.2;
/// Other settings that change the distribution that a reply is drawn from, each with its value when it is off.
const SHAPING: [(&str, f64); 5] = [
    ("min_p", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("min_tokens", 0.0),
];

/// Returns whether a reply may get an advantage from its verdict: it was drawn from (nearly) the policy's own
/// distribution.
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

/// Returns whether the turn called tools; such turns succeed so often that they have a baseline of their own.
pub(crate) fn is_tool_turn(turn: &Turn) -> bool {
    turn.reply
        .as_ref()
        .is_some_and(|reply| !reply.tool_calls().is_empty())
}

pub(crate) fn score(turn: &Turn) -> Option<Score> {
    turn.verdict.as_ref().map(|verdict| verdict.score)
}

/// Returns what would have been better according to its verdict: the owner's words before a judge's.
pub(crate) fn hint(turn: &Turn) -> Option<&String> {
    let verdict = turn.verdict.as_ref()?;
    let of_judge = || verdict.judge_hints.first();
    verdict.hint.as_ref().or_else(of_judge)
}

pub(crate) fn all_hints(turn: &Turn, of_owner: Option<String>) -> Vec<String> {
    let verdict = turn.verdict.iter();
    let of_judge = verdict
        .clone()
        .flat_map(|verdict| verdict.judge_hints.iter().cloned());
    let own = verdict.filter_map(|verdict| verdict.hint.clone());
    let all = of_owner.into_iter().chain(own).chain(of_judge);
    let trimmed = all.map(|hint| hint.trim().to_owned());
    trimmed.filter(|hint| !hint.is_empty()).collect()
}

/// Returns whether a main turn continues its parent with the owner's words only, without a tool's message between.
pub(crate) fn is_owners_answer(turn: &Turn) -> bool {
    let evidence = turn.evidence();
    turn.meta.kind == TurnKind::Main
        && turn.new_words().is_some()
        && !evidence.iter().any(|message| message.role() == Role::Tool)
}

/// Returns whether a reply can be a target: it ended by itself, is no tool call, and says something.
///
/// A reply that a stop text may have ended contains that text, and no end id, so it would train the model to continue.
pub(crate) fn is_whole_target(turn: &Turn) -> bool {
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

pub(crate) fn is_usable(tokens: &Tokens) -> bool {
    !tokens.prompt_ids.is_empty()
        && !tokens.ids.is_empty()
        && tokens.logprobs.len() == tokens.ids.len()
}

pub(crate) const MEMORY: usize = 100;
/// The number of verdicts of 0 that are added to the mean, so that it is still near 0 after a few verdicts.
const PRIOR: f32 = 10.0;
/// Above this baseline, nearly every turn is good, and training on good ones would only make the policy more
/// deterministic.
const SATURATED: f32 = 0.9;

/// Returns the mean of recent verdicts, shrunk towards 0: sum(r) / (n + 10).
///
/// # Units
/// `rewards`: each is -1, 0 or +1. Returns a number within (-1, 1), or 0 without rewards.
pub(crate) fn baseline(rewards: impl IntoIterator<Item = f32>) -> f32 {
    let (sum, n) = rewards
        .into_iter()
        .fold((0.0, 0.0), |(sum, n), r| (sum + r, n + 1.0));
    sum / (n + PRIOR)
}

/// Returns A = clip(r - b, -1, 1), or 0 for a good turn once the baseline is above 0.9.
fn advantage(reward: f32, baseline: f32) -> f32 {
    if reward > 0.0 && baseline > SATURATED {
        return 0.0;
    }
    (reward - baseline).clamp(-1.0, 1.0)
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Baselines {
    pub(crate) tool: f32,
    pub(crate) chat: f32,
}

// === impl Baselines ===

impl Baselines {
    pub(crate) fn advantage(self, turn: &Turn) -> f32 {
        let Some(verdict) = &turn.verdict else {
            return 0.0;
        };
        let usual = if is_tool_turn(turn) {
            self.tool
        } else {
            self.chat
        };
        verdict.weight * advantage(verdict.score.value(), usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_shrunk_towards_nothing() {
        assert!(baseline([]).abs() < 1e-6);
        assert!((baseline([1.0; 10]) - 0.5).abs() < 1e-6);
        assert!((baseline([-1.0; 90]) + 0.9).abs() < 1e-6);
        assert!(baseline([1.0, -1.0, 0.0]).abs() < 1e-6);
    }

    #[test]
    fn what_is_usual_moves_little_and_nothing_moves_more_than_one() {
        for (reward, baseline, expected) in [
            (1.0, 0.0, 1.0),
            (1.0, 0.5, 0.5),
            (1.0, -0.5, 1.0),
            (-1.0, 0.5, -1.0),
            (-1.0, -0.5, -0.5),
            (1.0, 0.95, 0.0),
            (-1.0, 0.95, -1.0),
        ] {
            let given = advantage(reward, baseline);
            let is_so = (given - expected).abs() < 1e-6;
            assert!(is_so, "r {reward}, b {baseline}: {given}");
        }
    }
}
