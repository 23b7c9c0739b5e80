//! While an adapter serves: whether its agent's verdicts get worse, and what then serves in its place.
//!
//! The gate looks at an adapter once, with questions of ours; its owner looks at it all day. Verdicts on replies and on turns
//! that call tools are watched apart ([`change_point`]): tools fail for reasons of their own.
//!
//! A change is detected by Page's cumulative sum (E. S. Page, Continuous inspection schemes, 1954) over good and bad
//! verdicts in the order of time. The sum adds the log-likelihood ratios of *worse* to *as before*, and never falls below 0; the change is assumed to
//! be where the sum last left 0. The earlier share of bad verdicts is not known in advance, so it is estimated from the
//! verdicts before that point, and a little higher than they show, because a short run of good verdicts is no reliable
//! level.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_trainer_api::{AdapterName, BackendError};
use metaclaw_turns::{LogError, Step, StepOutcome, TurnKind, TurnSummary};

use crate::{
    sample::{POLICY_UPSTREAM, is_tool_turn},
    shared::Shared,
    status::WasTakenBack,
    trainer::StepRunner,
};

pub(crate) struct Regression {
    /// The steps that made what serves, the last one first.
    behind: Vec<Step>,
    culprit: usize,
    why: String,
}

/// How many verdicts of an agent there are: while that stays, there is nothing new to look at.
///
/// # Errors
/// The log's.
pub(crate) async fn seen(shared: &Shared, agent: &AgentId) -> Result<VerdictsSeen, LogError> {
    Ok(VerdictsSeen {
        n_judged: shared.n_judged(agent).await?,
        n_changed: shared.n_changed_verdicts(),
    })
}

/// Whether an agent's verdicts got worse under what serves.
///
/// # Errors
/// The log's.
pub(crate) async fn regression(
    shared: &Shared,
    agent: &AgentId,
    history: &mut VerdictHistory,
) -> Result<Option<Regression>, LogError> {
    let Some(serving) = shared.serving(agent).await? else {
        return Ok(None);
    };
    let steps = shared.steps(agent).await?;
    let behind = behind(&steps, &serving);
    let kinds = verdicts(shared, agent, &steps, history).await?;
    for (verdicts, of) in kinds.iter().zip(["replies", "turns that call tools"]) {
        if let Some((culprit, why)) = culprit(verdicts, of, &behind) {
            let behind = behind.into_iter().cloned().collect();
            return Ok(Some(Regression {
                behind,
                culprit,
                why,
            }));
        }
    }
    Ok(None)
}

fn behind<'s>(steps: &'s [Step], adapter: &str) -> Vec<&'s Step> {
    let mut behind: Vec<&Step> = Vec::new();
    let mut name = Some(adapter);
    // Parents are older than their children; what is written otherwise ends here.
    while let Some(step) =
        name.and_then(|name| steps.iter().find(|step| adapter_of(step) == Some(name)))
        && behind.len() < steps.len()
    {
        behind.push(step);
        name = step.begun.parent.as_deref();
    }
    behind
}

/// What was taken back last, while no step has been trained since.
pub(crate) fn taken_back(steps: &[Step]) -> Option<WasTakenBack> {
    let told = steps.iter().filter_map(|step| {
        let taken_back = step.taken_back.clone()?;
        Some(WasTakenBack {
            adapter: adapter_of(step)?.to_owned(),
            to: taken_back.to,
            why: taken_back.why,
            at_ms: taken_back.at_ms,
        })
    });
    let last = told.max_by_key(|told| told.at_ms)?;
    let since = |step: &Step| adapter_of(step).is_some() && step.taken_ms > last.at_ms;
    (!steps.iter().any(since)).then_some(last)
}

fn adapter_of(step: &Step) -> Option<&str> {
    match &step.outcome {
        Some(StepOutcome::Trained { adapter, .. }) => Some(adapter),
        Some(StepOutcome::Declined { .. } | StepOutcome::Released { .. }) | None => None,
    }
}

/// Which of the steps behind what serves made verdicts worse, and the numbers in words. Where they got worse under the base
/// model, or under what is not in the weights any more, none did.
fn culprit(verdicts: &[JudgedReply], of: &str, behind: &[&Step]) -> Option<(usize, String)> {
    let are_bad: Vec<bool> = verdicts.iter().map(|verdict| verdict.is_bad).collect();
    let at = change_point(&are_bad)?;
    let adapter = verdicts.get(at)?.adapter.as_deref()?;
    let culprit = behind
        .iter()
        .position(|step| adapter_of(step) == Some(adapter))?;
    let n_bad = |some: &[bool]| some.iter().filter(|is_bad| **is_bad).count();
    let (before, since) = are_bad.split_at(at);
    let why = format!(
        "of {} verdicts on {of} since it answered {} are bad, of {} before {}",
        since.len(),
        n_bad(since),
        before.len(),
        n_bad(before)
    );
    Some((culprit, why))
}

// === impl Regression ===

impl Regression {
    /// The newest adapter from before the culprit that the server still has; none is the base model.
    ///
    /// # Errors
    /// The server's, while it cannot be asked.
    pub(crate) async fn replacement(
        &self,
        runner: &StepRunner,
    ) -> Result<Option<AdapterName>, BackendError> {
        for step in self.behind.iter().skip(self.culprit + 1) {
            if let Some(name) = adapter_of(step).and_then(|name| name.parse().ok())
                && runner.answers(&name).await?
            {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Has `to` serve in the place of what serves; whether that served still.
    ///
    /// # Errors
    /// The log's.
    pub(crate) async fn take_back(
        &self,
        shared: &Shared,
        to: Option<AdapterName>,
    ) -> Result<bool, LogError> {
        let (Some(serving), why) = (self.behind.first(), self.why.as_str()) else {
            return Ok(false);
        };
        let name = to.as_ref().map(AdapterName::to_string);
        let roll_back = || shared.log.roll_back(serving, name.clone(), why);
        if !shared.persist(roll_back).await? {
            return Ok(false);
        }
        let (agent, from, to) = (&serving.begun.agent, adapter_of(serving), to.as_ref());
        let serves = to.map_or("the base model", AdapterName::as_str);
        tracing::error!(%agent, from, serves, why, "the adapter is taken back: verdicts got worse");
        (shared.on_swap)(agent, to);
        Ok(true)
    }
}

/// Turns of a list in which verdicts are looked for, and the last verdicts that are watched.
const LISTED: usize = 400;
const WATCHED: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct VerdictHistory {
    pub(crate) seen: Option<VerdictsSeen>,
    /// Whether turns call tools: to read a turn for that costs more than all the rest.
    tools: BTreeMap<TurnId, bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerdictsSeen {
    pub(crate) n_judged: u64,
    pub(crate) n_changed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JudgedReply {
    pub(crate) is_bad: bool,
    /// The adapter that replied; none is the base model.
    pub(crate) adapter: Option<String>,
}

/// The last verdicts on replies, and those on turns that call tools, the oldest first. None from before the owner, or a watch
/// before this one, last went back: that is settled.
pub(crate) async fn verdicts(
    shared: &Shared,
    agent: &AgentId,
    steps: &[Step],
    watched: &mut VerdictHistory,
) -> Result<[Vec<JudgedReply>; 2], LogError> {
    let choice = shared.persist(|| shared.log.choice(agent)).await?;
    let chosen = steps.iter().filter_map(|step| step.begun.choice_ms);
    let settled_ms = chosen.chain(choice.map(|choice| choice.at_ms)).max();
    let mut listed = shared.list(agent, LISTED).await?;
    listed.retain(|turn| {
        turn.kind == TurnKind::Main
            && turn.upstream == POLICY_UPSTREAM
            && settled_ms.is_none_or(|ms| turn.started_ms > ms)
    });
    listed.sort_by_key(|turn| turn.ended_ms);
    let judged: Vec<(TurnId, JudgedReply)> = listed.iter().filter_map(judged).collect();
    let (mut kinds, mut tools) = ([Vec::new(), Vec::new()], BTreeMap::new());
    for (id, judged) in judged.into_iter().rev().take(WATCHED).rev() {
        let is_tool = if let Some(known) = watched.tools.get(&id) {
            *known
        } else {
            let turn = shared.turn(id).await?;
            turn.is_some_and(|turn| is_tool_turn(&turn))
        };
        tools.insert(id, is_tool);
        kinds[usize::from(is_tool)].push(judged);
    }
    watched.tools = tools;
    Ok(kinds)
}

fn judged(turn: &TurnSummary) -> Option<(TurnId, JudgedReply)> {
    let is_bad = match turn.score? {
        Score::Bad => true,
        Score::Good => false,
        Score::Unclear => return None,
    };
    let adapter = turn.adapter.clone();
    Some((turn.id, JudgedReply { is_bad, adapter }))
}

/// The mean number of verdicts between two false alarms.
const FALSE_ALARM: f64 = 2_000.0;
/// A change is *worse* if the odds of a bad verdict grow by this factor.
const WORSE: f64 = 4.0;
/// The number of verdicts before a point from which the earlier level is estimated.
const MEMORY: usize = 100;
/// The lowest level that is assumed, because no owner is always content.
const LEAST: f64 = 0.02;
/// The highest level that is assumed, because an owner who complains more often can hardly complain much more.
const MOST: f64 = 0.7;
/// The mean overshoot over a bound at both ends, in standard deviations of a step (D. Siegmund, Sequential Analysis,
/// 1985).
const OVERSHOOT: f64 = 1.166;
const ROUNDS: usize = 30;

/// Returns where verdicts (`true` is bad, in the order of time) got worse, or `None` if there is no such sign.
pub(crate) fn change_point(are_bad: &[bool]) -> Option<usize> {
    alarm(are_bad).map(|(start, _)| start)
}

/// Returns where they got worse, and after how many verdicts that is detected.
fn alarm(are_bad: &[bool]) -> Option<(usize, usize)> {
    let (mut start, mut sum) = (0, 0.0);
    let mut chart = Chart::after(&[]);
    for (at, is_bad) in are_bad.iter().enumerate() {
        if let Some(Chart { bad, good, limit }) = chart {
            sum += if *is_bad { bad } else { good };
            if sum >= limit {
                return Some((start, at + 1));
            }
        }
        if sum <= 0.0 {
            (start, sum) = (at + 1, 0.0);
            chart = Chart::after(&are_bad[..start]);
        }
    }
    None
}

#[derive(Debug, Clone, Copy)]
struct Chart {
    /// What a bad verdict adds, and what a good one adds (below 0).
    bad: f64,
    good: f64,
    limit: f64,
}

// === impl Chart ===

impl Chart {
    /// Builds the test after these verdicts, or returns `None` if they could not get worse.
    fn after(before: &[bool]) -> Option<Self> {
        let usual = level(&before[before.len().saturating_sub(MEMORY)..]);
        if usual > MOST {
            return None;
        }
        let odds = WORSE * usual / (1.0 - usual);
        let worse = odds / (1.0 + odds);
        let bad = (worse / usual).ln();
        let good = ((1.0 - worse) / (1.0 - usual)).ln();
        let mean = usual * bad + (1.0 - usual) * good;
        let variance = usual * bad * bad + (1.0 - usual) * good * good - mean * mean;
        // Siegmund: without a change, an alarm comes after (e^b - b - 1) / |mean| verdicts on average.
        let mut b = 1.0;
        for _ in 0..ROUNDS {
            b = (FALSE_ALARM * mean.abs() + b + 1.0_f64).ln();
        }
        let limit = b - OVERSHOOT * variance.sqrt();
        Some(Self { bad, good, limit })
    }
}

/// Returns the expected share of bad verdicts after these: their share and one standard deviation, as if there had been
/// one good and one bad verdict before.
fn level(before: &[bool]) -> f64 {
    let n = before.len() as f64 + 2.0;
    let n_bad = before.iter().filter(|is_bad| **is_bad).count() as f64 + 1.0;
    let share = n_bad / n;
    (share + (share * (1.0 - share) / n).sqrt()).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(seed: u64, share: f64, n: usize) -> Vec<bool> {
        // Knuth's MMIX generator is used, with its upper bits.
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 24)
        };
        (0..n).map(|_| next() < share).collect()
    }

    #[test]
    fn where_nothing_changes_it_is_silent_for_two_thousand_verdicts_on_average() {
        for share in [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95] {
            let (mut n, mut alarms) = (0, 0);
            for seed in 0..40 {
                let mut rest = &verdicts(seed, share, 4_000)[..];
                while let Some((_, at)) = alarm(rest) {
                    (n, alarms) = (n + at, alarms + 1);
                    rest = &rest[at..];
                }
                n += rest.len();
            }
            assert!(alarms * 1_500 <= n, "{share}: {alarms} in {n}");
        }
    }

    #[test]
    fn what_got_worse_is_seen_within_some_twenty_verdicts_and_where_it_began() {
        for (before, after) in [(0.05, 0.4), (0.1, 0.5), (0.2, 0.6), (0.3, 0.8)] {
            let mut delays = Vec::new();
            for seed in 0..99 {
                let mut all = verdicts(seed, before, 40);
                all.extend(verdicts(seed + 1_000, after, 300));
                // A change just after a run of good verdicts may be taken for the earlier level.
                delays.push(alarm(&all).map_or((usize::MAX, 0), |(at, seen)| (seen, at)));
            }
            delays.sort_unstable();
            assert!(delays[94].0 < usize::MAX, "{before} to {after}");
            let (seen, began) = delays[49];
            assert!((41..=60).contains(&seen), "{before} to {after}: {seen}");
            assert!((30..=50).contains(&began), "{before} to {after}: {began}");
        }
    }

    #[test]
    fn a_handful_of_bad_verdicts_is_no_change() {
        assert_eq!(change_point(&[]), None);
        assert_eq!(change_point(&[true; 6]), None, "nothing is known of before");
        assert_eq!(change_point(&[false, true, false, true, true]), None);
        let mut all = vec![false; 50];
        all.extend([true; 2]);
        assert_eq!(change_point(&all), None);
        all.extend([true; 2]);
        assert_eq!(change_point(&all), Some(50));
    }
}
