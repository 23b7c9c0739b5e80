//! Reads the judged turns of the log, and decides which of them a step could use: turns of chats, and complete groups of
//! rollouts. Some sessions are held out, so that the gate can test an adapter on turns that it has not memorised.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{AgentId, GroupId, RolloutId, TurnId, now_ms, whole_ms};
use metaclaw_turns::{LogError, Rollout, RolloutMark, StateKind, Turn, TurnKind, TurnState};

use super::{
    choose::{Choosing, Samples, choose},
    decision::{DecisionRules, Parents, Support},
};
use crate::{
    lineage::{Ancestry, BaseModel},
    methods::{Compares, TrainingSignal, Want},
    sample::{
        Baselines, Batch, ExcludeReason, MEMORY, RolloutGroup, RolloutStep, Sample, Teaching,
        baseline, is_tool_turn,
    },
    shared::Shared,
};

/// The number of listed turns in which the last verdicts are looked for.
const LOOK_BACK: usize = 400;
/// The number of trained turns, the newest ones, among which turns are looked for that may be used again. A turn's uses
/// follow each other within days.
const MOST_AGAIN: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct FoundSamples {
    pub(crate) samples: Samples,
    pub(crate) base: Option<BaseModel>,
    pub(crate) rollouts: RolloutTurns,
    pub(crate) rollout_base: Option<BaseModel>,
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
}

/// The turns of the last look, so that the next look reads only new ones. Samples may wait all day for their owner to
/// leave.
#[derive(Debug, Default)]
pub(crate) struct SeenTurns {
    turns: BTreeMap<TurnId, Arc<Turn>>,
    parents: Parents,
    n_changed: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reused<'a> {
    pub(crate) ancestry: &'a Ancestry,
    pub(crate) base: &'a BaseModel,
}

/// Returns an agent's samples, and the base models that they were sampled from. Excludes turns that cannot be used.
pub(crate) async fn collect(
    shared: &Shared,
    seen: &mut SeenTurns,
    agent: &AgentId,
    teaching: Teaching<'_>,
) -> Result<FoundSamples, LogError> {
    let mut found = look(shared, seen, agent, teaching).await?;
    for (id, why) in std::mem::take(&mut found.spent) {
        if why == ExcludeReason::HeldOut {
            shared.persist(|| shared.log.hold_out(id)).await?;
        } else {
            shared.spend(id, why).await?;
        }
    }
    Ok(found)
}

/// Does the same, but excludes nothing in the log.
pub(crate) async fn look(
    shared: &Shared,
    seen: &mut SeenTurns,
    agent: &AgentId,
    teaching: Teaching<'_>,
) -> Result<FoundSamples, LogError> {
    seen.forget_if(shared.n_changed_verdicts());
    let judged = shared.in_state(agent, StateKind::Judged);
    let judged = seen.read_all(shared, judged.await?).await?;
    let support = Support::read(shared, agent, &mut seen.parents).await?;
    let without_ids = shared.without_ids();
    let rules = rules(shared, &support, &without_ids, teaching);
    let for_verdicts = judged.iter().filter(|turn| rules.is_for_its_verdict(turn));
    let n_support = support.counts(for_verdicts.map(|turn| &**turn));
    let share = shared.config.gate.held_out_share();
    let (mut found, mut spent) = (Vec::new(), Vec::new());
    let (mut of_rollouts, mut coming) = (Vec::new(), BTreeSet::new());
    for turn in judged {
        let decision = rules.decision(&turn);
        if let Some(mark) = &turn.served.rollout {
            match decision {
                Want::Never(why) => spent.push((turn.id, why)),
                Want::Own => of_rollouts.push(turn),
                Want::Wait | Want::Target | Want::Hint => drop(coming.insert(mark.group.clone())),
            }
            continue;
        }
        match decision {
            Want::Never(why) => spent.push((turn.id, why)),
            Want::Wait => {}
            _ if is_held_out(agent, turn.id.session, share) => {
                spent.push((turn.id, ExcludeReason::HeldOut));
            }
            Want::Target | Want::Own | Want::Hint => {
                found.push((turn, decision));
            }
        }
    }
    let (ready, rollout_base) = rollouts_of_one_base(of_rollouts, &mut spent);
    let mut found = of_one_base(found, spent, teaching);
    found.samples.support = Arc::new(support);
    found.samples.n_support = n_support;
    Ok(FoundSamples {
        rollouts: RolloutTurns { ready, coming },
        rollout_base,
        ..found
    })
}

/// Returns turns that earlier steps used and that may be used again: first the least used, of these the newest.
pub(crate) async fn used(
    shared: &Shared,
    agent: &AgentId,
    Reused { ancestry, base }: Reused<'_>,
    teaching: Teaching<'_>,
) -> Result<Vec<Arc<Turn>>, LogError> {
    let reuse = shared.config.rl.reuse;
    if reuse <= 1 {
        return Ok(Vec::new());
    }
    let trained = shared.in_state(agent, StateKind::Trained).await?;
    let without_ids = shared.without_ids();
    // A turn that is answered again does not train by its verdict, so no support is needed.
    let support = Support::default();
    let rules = rules(shared, &support, &without_ids, teaching);
    let mut found = Vec::new();
    for id in trained.into_iter().rev().take(MOST_AGAIN) {
        let Some(turn) = shared.turn(id).await? else {
            continue;
        };
        let n_uses = ancestry.n_uses(&turn);
        let is_its = turn.tokens.as_ref().map(BaseModel::of_tokens);
        let is_its = is_its.is_some_and(|own| own.is(base));
        if is_its && n_uses < reuse && !ancestry.is_undone(&turn) && rules.is_answered_again(&turn)
        {
            found.push((n_uses, Reverse(turn.meta.ended_ms), Arc::new(slim(turn))));
        }
    }
    found.sort_by_key(|(n_uses, newest, _)| (*n_uses, *newest));
    Ok(found.into_iter().map(|(_, _, turn)| turn).collect())
}

fn rules<'a>(
    shared: &'a Shared,
    support: &'a Support,
    without_ids: &'a BTreeSet<TurnId>,
    teaching: Teaching<'a>,
) -> DecisionRules<'a> {
    let (now_ms, max_age) = (now_ms(), shared.config.rl.max_age.0);
    // A turn that is excluded once stays so: a clock that is wrong for a while must exclude none.
    let certain_ms = shared.log.clock().confirmed_ms(max_age, now_ms);
    let max_age_ms = whole_ms(max_age);
    DecisionRules {
        methods: &shared.config.rl.method,
        teaching,
        support,
        external_teacher: shared.external_teacher().is_some(),
        without_ids,
        now_ms,
        oldest_ms: certain_ms.map_or(0, |ms| ms.saturating_sub(max_age_ms)),
    }
}

/// Keeps the turns with the newest sample's base model, and excludes the others, because another model's token ids mean
/// nothing to it.
fn of_one_base(
    mut found: Vec<(Arc<Turn>, Want)>,
    spent: Vec<(TurnId, ExcludeReason)>,
    teaching: Teaching<'_>,
) -> FoundSamples {
    found.sort_by_key(|(turn, _)| turn.meta.ended_ms);
    let base = |turn: &Turn| turn.tokens.as_ref().map(BaseModel::of_tokens);
    let newest = found.last().and_then(|(turn, _)| base(turn));
    let (mut samples, mut spent) = (Samples::default(), spent);
    for (turn, decision) in found {
        let of = base(&turn).zip(newest.as_ref());
        if of.is_none_or(|(own, newest)| !own.is(newest)) {
            spent.push((turn.id, ExcludeReason::OtherBase));
        } else {
            samples.add(turn, decision, teaching);
        }
    }
    FoundSamples {
        samples,
        base: newest,
        spent,
        ..FoundSamples::default()
    }
}

fn rollouts_of_one_base(
    turns: Vec<Arc<Turn>>,
    spent: &mut Vec<(TurnId, ExcludeReason)>,
) -> (Vec<Arc<Turn>>, Option<BaseModel>) {
    let base = |turn: &Arc<Turn>| turn.tokens.as_ref().map(BaseModel::of_tokens);
    let newest = turns.iter().max_by_key(|turn| turn.meta.ended_ms);
    let Some(newest) = newest.and_then(base) else {
        return (Vec::new(), None);
    };
    let is_its = |turn: &Arc<Turn>| base(turn).is_some_and(|own| own.is(&newest));
    let (own, others): (Vec<_>, Vec<_>) = turns.into_iter().partition(is_its);
    spent.extend(
        others
            .iter()
            .map(|turn| (turn.id, ExcludeReason::OtherBase)),
    );
    (own, Some(newest))
}

pub(crate) async fn assemble(
    shared: &Shared,
    agent: &AgentId,
    samples: &Samples,
    again: Vec<Sample>,
    limit: usize,
) -> Result<Batch, LogError> {
    let choosing = Choosing {
        config: &shared.config.rl,
        baselines: baselines(shared, agent).await?,
        external_teacher: shared.external_teacher().is_some(),
        limit,
    };
    Ok(choose(samples, again, choosing))
}

async fn baselines(shared: &Shared, agent: &AgentId) -> Result<Baselines, LogError> {
    let method = shared
        .config
        .rl
        .method
        .learning_from(TrainingSignal::Verdict);
    if method.is_none_or(|method| method.compares() != Compares::Baseline) {
        return Ok(Baselines::default());
    }
    let listed = shared.list(agent, LOOK_BACK).await?;
    let judged = listed
        .into_iter()
        .filter(|turn| turn.kind == TurnKind::Main)
        .filter_map(|turn| Some((turn.id, turn.score?.value())));
    let (mut tool, mut chat) = (Vec::new(), Vec::new());
    for (id, reward) in judged.take(MEMORY) {
        let turn = shared.turn(id).await?;
        let is_tool = turn.is_some_and(|turn| is_tool_turn(&turn));
        if is_tool {
            tool.push(reward);
        } else {
            chat.push(reward);
        }
    }
    Ok(Baselines {
        tool: baseline(tool),
        chat: baseline(chat),
    })
}

// === impl Samples ===

impl Samples {
    fn add(&mut self, turn: Arc<Turn>, want: Want, teaching: Teaching<'_>) {
        let hinted = teaching.hints.told(&turn).unwrap_or_default();
        match want {
            Want::Own => self.own.push(Sample::own(turn, hinted)),
            Want::Hint => self.unhinted.push(turn),
            Want::Target => match teaching.targets.target(&turn) {
                Some(target) => self.answered.push(Sample::answered(turn, target, hinted)),
                None => self.unanswered.push(turn),
            },
            Want::Wait | Want::Never(_) => {}
        }
    }
}

// === impl SeenTurns ===

impl SeenTurns {
    fn forget_if(&mut self, n_changed: u64) {
        if n_changed != self.n_changed {
            self.turns.clear();
            self.n_changed = n_changed;
        }
    }

    async fn read_all(
        &mut self,
        shared: &Shared,
        ids: Vec<TurnId>,
    ) -> Result<Vec<Arc<Turn>>, LogError> {
        let mut turns = BTreeMap::new();
        for id in ids {
            // The token ids of a turn without them may have arrived.
            let whole = self.turns.get(&id).filter(|turn| turn.tokens.is_some());
            let turn = if let Some(turn) = whole {
                Some(Arc::clone(turn))
            } else {
                let turn = shared.turn(id).await?;
                let judged = turn.filter(|turn| turn.state == TurnState::Judged);
                judged.map(|turn| Arc::new(slim(turn)))
            };
            turns.extend(turn.map(|turn| (id, turn)));
        }
        self.turns = turns;
        Ok(self.turns.values().cloned().collect())
    }
}

/// Removes the prompt of a turn, so that long conversations do not wait in memory.
fn slim(mut turn: Turn) -> Turn {
    turn.request.messages.clear();
    turn.new_from = 0;
    turn.request.tools = None;
    turn.served.system_block = None;
    turn
}

#[derive(Debug, Default)]
pub(crate) struct RolloutTurns {
    pub(crate) ready: Vec<Arc<Turn>>,
    pub(crate) coming: BTreeSet<GroupId>,
}

#[derive(Debug, Default)]
pub(crate) struct FoundGroups {
    pub(crate) groups: Vec<RolloutGroup>,
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
}

/// Finds the complete groups among these turns. Turns of other groups wait.
///
/// # Errors
/// Returns the log's errors.
pub(crate) async fn complete_groups(
    shared: &Shared,
    agent: &AgentId,
    turns: &RolloutTurns,
) -> Result<FoundGroups, LogError> {
    let mut found = FoundGroups::default();
    let mut by_group: BTreeMap<GroupId, Vec<(Arc<Turn>, RolloutMark)>> = BTreeMap::new();
    for turn in &turns.ready {
        if let Some(mark) = turn.served.rollout.clone() {
            let of_group = by_group.entry(mark.group.clone()).or_default();
            of_group.push((Arc::clone(turn), mark));
        }
    }
    by_group.retain(|group, _| !turns.coming.contains(group));
    if by_group.is_empty() {
        return Ok(found);
    }
    let all = shared.rollouts(agent).await?;
    let mut rollouts: BTreeMap<GroupId, Vec<Rollout>> = BTreeMap::new();
    // The newest come first.
    for rollout in all.into_iter().rev().filter(|rollout| !rollout.held_out) {
        rollouts
            .entry(rollout.group.clone())
            .or_default()
            .push(rollout);
    }
    for (group, turns) in by_group {
        let mut rollouts = rollouts.remove(&group).unwrap_or_default();
        if !is_complete(&rollouts) {
            continue;
        }
        rollouts.retain(|rollout| rollout.outcome().is_some());
        if rollouts.len() < 2 {
            let small = turns
                .iter()
                .map(|(turn, _)| (turn.id, ExcludeReason::SmallGroup));
            found.spent.extend(small);
            continue;
        }
        let steps = steps(shared, &rollouts, turns).await?;
        found.groups.push(RolloutGroup { rollouts, steps });
    }
    let opened = |group: &RolloutGroup| group.rollouts.first().map(|rollout| rollout.id.clone());
    found.groups.sort_by_key(opened);
    Ok(found)
}

fn is_complete(rollouts: &[Rollout]) -> bool {
    let wanted = rollouts.iter().map(|rollout| rollout.group_size).max();
    let n_closed = rollouts.iter().filter(|rollout| !rollout.is_open()).count();
    let is_full = wanted.is_some_and(|n| n_closed >= usize::try_from(n).unwrap_or(usize::MAX));
    is_full && n_closed == rollouts.len()
}

async fn steps(
    shared: &Shared,
    rollouts: &[Rollout],
    turns: Vec<(Arc<Turn>, RolloutMark)>,
) -> Result<Vec<RolloutStep>, LogError> {
    let outcomes: BTreeMap<&RolloutId, f32> = rollouts
        .iter()
        .filter_map(|rollout| Some((&rollout.id, rollout.outcome()?)))
        .collect();
    let numbers = step_numbers(shared, rollouts, &turns).await?;
    let step = |(turn, mark): (Arc<Turn>, RolloutMark)| {
        let outcome = *outcomes.get(&mark.id)?;
        let reward = turn.verdict.as_ref().and_then(|verdict| verdict.reward);
        Some(RolloutStep {
            step: *numbers.get(&turn.id)?,
            reward: reward.unwrap_or(outcome),
            outcome,
            turn,
            mark,
        })
    };
    let mut steps: Vec<RolloutStep> = turns.into_iter().filter_map(step).collect();
    steps.sort_by_key(|step| (step.mark.attempt, step.mark.id.clone(), step.step));
    Ok(steps)
}

/// Returns the number of each turn among the steps of its rollout. The client's own errands are no steps.
async fn step_numbers(
    shared: &Shared,
    rollouts: &[Rollout],
    turns: &[(Arc<Turn>, RolloutMark)],
) -> Result<BTreeMap<TurnId, usize>, LogError> {
    let known: BTreeSet<TurnId> = turns.iter().map(|(turn, _)| turn.id).collect();
    let ids: Vec<RolloutId> = rollouts.iter().map(|rollout| rollout.id.clone()).collect();
    let of_rollouts = shared
        .persist(|| shared.log.rollout_turns(ids.clone()))
        .await?;
    let mut numbers = BTreeMap::new();
    for turns in of_rollouts.into_values() {
        let mut n = 0;
        for id in turns {
            let is_step = known.contains(&id) || {
                let turn = shared.turn(id).await?;
                turn.is_some_and(|turn| turn.meta.kind == TurnKind::Rollout)
            };
            if is_step {
                numbers.insert(id, n);
                n += 1;
            }
        }
    }
    Ok(numbers)
}

/// The first sessions of a log are all trained on, because the owner wants to see an effect soon, and so few held-out
/// sessions would give too few pairs for a test.
const LEARNED_FIRST: u64 = 32;

/// Returns whether a session (by its number in the log) is held out; `share` is the share of held-out sessions, and the
/// answer is the same each time.
pub(crate) fn is_held_out(agent: &AgentId, session: u64, share: f64) -> bool {
    if session <= LEARNED_FIRST {
        return false;
    }
    let mut hash = blake3::Hasher::new();
    hash.update(agent.as_str().as_bytes());
    hash.update(&session.to_le_bytes());
    let [a, b, c, d, ..] = *hash.finalize().as_bytes();
    let at = f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX);
    at < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_sessions_is_held_out_and_none_of_the_first() {
        let agent = AgentId::default_agent();
        let n = |sessions: std::ops::Range<u64>, share| {
            let held_out = |session: &u64| is_held_out(&agent, *session, share);
            sessions.filter(held_out).count()
        };
        assert_eq!(n(0..33, 1.0), 0);
        assert_eq!(n(33..1_033, 0.0), 0);
        let some = n(33..1_033, 0.15);
        assert!((120..=180).contains(&some), "{some}");
        let other: AgentId = "main".parse().unwrap();
        assert!((33..1_033).any(
            |session| is_held_out(&agent, session, 0.15) != is_held_out(&other, session, 0.15)
        ));
    }
}
