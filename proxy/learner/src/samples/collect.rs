//! From the log to samples: which judged turns a step could take.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{AgentId, Score, TurnId, now_ms};
use metaclaw_turns::{LogError, StateKind, StreamEnd, Turn, TurnFilter, TurnState};

use super::{
    advantage::{MEMORY, baseline},
    baselines::Baselines,
    decision::{Rules, SampleDecision, decisions},
    reason,
    turns::{is_tool_turn, score},
    waiting::{Correction, Samples},
};
use crate::{lineage::BaseModel, shared::Shared};

/// Turns of a list in which the last verdicts are looked for.
const LOOK_BACK: usize = 400;

/// What a look at the log found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) samples: Samples,
    /// The base model that they were sampled from.
    pub(crate) base: Option<BaseModel>,
    /// Turns of no use, and why.
    pub(crate) spent: Vec<(TurnId, &'static str)>,
}

/// What an agent has to train on, and the base model that it was sampled from. Turns of no use are spent on the way.
pub(crate) async fn collect(
    shared: &Shared,
    seen: &mut Seen,
    agent: &AgentId,
) -> Result<(Samples, Option<BaseModel>), LogError> {
    let found = look(shared, seen, agent).await?;
    for (id, why) in found.spent {
        shared.spend(id, why).await?;
    }
    Ok((found.samples, found.base))
}

/// The same, with nothing spent.
pub(crate) async fn look(
    shared: &Shared,
    seen: &mut Seen,
    agent: &AgentId,
) -> Result<Found, LogError> {
    let free = free_turns(shared, seen, agent).await?;
    let without_ids = shared.without_ids();
    let rules = Rules {
        methods: &shared.config.rl.method,
        without_ids: &without_ids,
        now_ms: now_ms(),
        max_age: shared.config.rl.max_age.0,
    };
    let (mut found, mut spent) = (Vec::new(), Vec::new());
    for session in free.sessions.values() {
        for decision in decisions(session.iter().map(|turn| &**turn), rules) {
            if !decision
                .concerns()
                .iter()
                .all(|id| free.judged.contains(id))
            {
                continue;
            }
            if let SampleDecision::Spend(id, why) = decision {
                spent.push((id, why));
            } else {
                found.extend(taken(&decision, session));
            }
        }
    }
    Ok(of_one_base(found, spent))
}

/// A sample with the turns that it is made of.
enum Sample {
    Correction(Correction),
    Verdict(Arc<Turn>),
}

/// Turns by session.
struct Free {
    sessions: BTreeMap<u64, Vec<Arc<Turn>>>,
    /// Those that were judged at the first look. What becomes of others is for the next time.
    judged: BTreeSet<TurnId>,
}

/// The free turns of sessions that have a judged one, and the failures behind each that was accepted.
///
/// Judging goes on meanwhile. A turn is judged after the one that follows it came into the log; so what follows
/// one that is judged at the first look is captured at the second or judged by the third, and cannot be missed.
async fn free_turns(shared: &Shared, seen: &mut Seen, agent: &AgentId) -> Result<Free, LogError> {
    seen.forget_if(shared.n_changed_verdicts());
    let judged = shared.persist(|| shared.log.in_state(agent, StateKind::Judged));
    let judged: BTreeSet<TurnId> = judged.await?.into_iter().collect();
    let numbers: BTreeSet<u64> = judged.iter().map(|id| id.session).collect();
    let (mut sessions, mut kept) = (BTreeMap::new(), BTreeMap::new());
    for number in numbers {
        let mut listed = BTreeMap::new();
        for kind in [StateKind::Captured, StateKind::Judged] {
            let ids = shared.persist(|| shared.log.in_session(agent, Some(kind), number));
            listed.extend(ids.await?.into_iter().map(|id| (id, kind)));
        }
        let mut turns = BTreeMap::new();
        for (id, kind) in listed {
            if let Some(turn) = seen.read(shared, id, Some(kind)).await? {
                turns.insert(id, turn);
            }
        }
        failures_behind(shared, seen, &mut turns).await?;
        kept.extend(turns.iter().map(|(id, turn)| (*id, Arc::clone(turn))));
        sessions.insert(number, turns.into_values().collect());
    }
    seen.turns = kept;
    Ok(Free { sessions, judged })
}

/// Adds the failed turns that an accepted one comes after, free or not: a correction may wait for its batch
/// longer than the failures between it and the first.
async fn failures_behind(
    shared: &Shared,
    seen: &Seen,
    turns: &mut BTreeMap<TurnId, Arc<Turn>>,
) -> Result<(), LogError> {
    let accepted = turns
        .values()
        .filter(|turn| score(turn) == Some(Score::Good));
    let mut next: Vec<TurnId> = accepted.filter_map(|turn| turn.parent).collect();
    while let Some(id) = next.pop() {
        let turn = match turns.get(&id) {
            Some(turn) => Some(Arc::clone(turn)),
            None => seen.read(shared, id, None).await?,
        };
        if let Some(turn) = turn.filter(|turn| score(turn) == Some(Score::Bad)) {
            next.extend(turn.parent);
            turns.insert(id, turn);
        }
    }
    Ok(())
}

/// Turns as they were read at the last look, so that a look costs what is new: all day long samples may wait
/// for their owner to leave.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    turns: BTreeMap<TurnId, Arc<Turn>>,
    /// The changes of verdicts that it knows of.
    n_changed: u64,
}

fn taken(decision: &SampleDecision, session: &[Arc<Turn>]) -> Option<Sample> {
    let turn = |id: &TurnId| session.iter().find(|turn| turn.id == *id).cloned();
    match decision {
        SampleDecision::Redo { failed, accepted } => Some(Sample::Correction(Correction {
            failed: turn(failed)?,
            accepted: turn(accepted)?,
        })),
        SampleDecision::Verdict(id) => Some(Sample::Verdict(turn(id)?)),
        SampleDecision::Wait | SampleDecision::Spend(..) => None,
    }
}

/// Ids of one base model mean nothing to another: the newest sample's base counts, the rest is spent.
fn of_one_base(mut found: Vec<Sample>, spent: Vec<(TurnId, &'static str)>) -> Found {
    found.sort_by_key(Sample::ended_ms);
    let base = found.last().and_then(Sample::base);
    let mut result = Found {
        base,
        spent,
        ..Found::default()
    };
    for sample in found {
        let of = sample.base().zip(result.base.as_ref());
        if of.is_none_or(|(own, newest)| !own.is(newest)) {
            let turns = sample.turns().into_iter();
            result
                .spent
                .extend(turns.map(|id| (id, reason::OTHER_BASE)));
            continue;
        }
        match sample {
            Sample::Correction(pair) => result.samples.corrections.push(pair),
            Sample::Verdict(turn) => result.samples.verdicts.push(turn),
        }
    }
    result
}

/// The usual reward of an agent's last 100 verdicts, tool turns and others apart.
pub(crate) async fn baselines(shared: &Shared, agent: &AgentId) -> Result<Baselines, LogError> {
    let filter = TurnFilter {
        agent: Some(agent.clone()),
        limit: LOOK_BACK,
        ..TurnFilter::default()
    };
    let listed = shared.persist(|| shared.log.list(filter.clone())).await?;
    let judged = listed
        .into_iter()
        .filter_map(|turn| Some((turn.id, turn.score?.value())));
    let (mut tool, mut chat) = (Vec::new(), Vec::new());
    for (id, reward) in judged.take(MEMORY) {
        let turn = shared.persist(|| shared.log.get(id)).await?;
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

// === impl Seen ===

impl Seen {
    /// Forgets all where some verdict is another one by now: that is seldom.
    fn forget_if(&mut self, n_changed: u64) {
        if n_changed != self.n_changed {
            self.turns.clear();
            self.n_changed = n_changed;
        }
    }

    /// A turn that the log lists in this state (none: it is not listed), without what no sample needs.
    async fn read(
        &self,
        shared: &Shared,
        id: TurnId,
        listed: Option<StateKind>,
    ) -> Result<Option<Arc<Turn>>, LogError> {
        let same = |turn: &&Arc<Turn>| is_still(turn, listed);
        if let Some(turn) = self.turns.get(&id).filter(same) {
            return Ok(Some(Arc::clone(turn)));
        }
        let turn = shared.persist(|| shared.log.get(id)).await?;
        Ok(turn.map(|turn| Arc::new(slim(turn))))
    }
}

/// Whether a turn that was read earlier still stands in the log as it was.
fn is_still(turn: &Turn, listed: Option<StateKind>) -> bool {
    match (&turn.state, listed) {
        // Another try may take the place of one that did not end well.
        (TurnState::Captured, Some(StateKind::Captured)) => turn.meta.end == StreamEnd::Complete,
        // Its ids may have come.
        (TurnState::Judged, Some(StateKind::Judged)) => turn.tokens.is_some(),
        (TurnState::Trained { .. } | TurnState::Spent { .. } | TurnState::HeldOut, None) => true,
        _ => false,
    }
}

/// Of what was asked only what is new: the rest of a long conversation need not wait in memory with each turn.
fn slim(mut turn: Turn) -> Turn {
    let old = turn.new_from.min(turn.request.messages.len());
    turn.request.messages.drain(..old);
    turn.new_from = 0;
    turn.request.tools = None;
    turn.served.system_block = None;
    turn
}

// === impl Sample ===

impl Sample {
    /// The turn that completed it.
    fn last(&self) -> &Turn {
        match self {
            Self::Correction(pair) => &pair.accepted,
            Self::Verdict(turn) => turn,
        }
    }

    fn ended_ms(&self) -> u64 {
        self.last().meta.ended_ms
    }

    fn base(&self) -> Option<BaseModel> {
        self.last().tokens.as_ref().map(BaseModel::of)
    }

    fn turns(&self) -> Vec<TurnId> {
        match self {
            Self::Correction(pair) => vec![pair.failed.id, pair.accepted.id],
            Self::Verdict(turn) => vec![turn.id],
        }
    }
}
