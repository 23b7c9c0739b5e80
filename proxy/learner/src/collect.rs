//! From the log to samples: which judged turns a step could take.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, StateKind, Turn, TurnFilter};

use crate::{
    advantage::{MEMORY, baseline},
    batch::{Baselines, Correction, Samples},
    sample::{Fate, Rules, fates, is_tool_turn, reason},
    shared::{Shared, now_ms},
};

/// Turns of a list in which the last verdicts are looked for.
const LOOK_BACK: usize = 400;

/// What an agent has to train on, and the base model that it was sampled from. Turns of no use are spent on the way.
pub(crate) async fn samples(
    shared: &Shared,
    agent: &AgentId,
) -> Result<(Samples, Option<String>), LogError> {
    let free = free_turns(shared, agent).await?;
    let without_ids = shared.without_ids();
    let rules = Rules {
        methods: &shared.config.rl.method,
        without_ids: &without_ids,
        now_ms: now_ms(),
        max_age: shared.config.rl.max_age.0,
    };
    let mut found = Vec::new();
    for session in free.sessions.values() {
        for fate in fates(session, rules) {
            if !fate.concerns().iter().all(|id| free.judged.contains(id)) {
                continue;
            }
            if let Fate::Spend(id, why) = fate {
                shared.spend(id, why).await?;
            } else {
                found.extend(taken(&fate, session));
            }
        }
    }
    of_one_base(shared, found).await
}

/// A sample with the turns that it is made of.
enum Sample {
    Correction(Correction),
    Verdict(Arc<Turn>),
}

/// Free turns, by session.
struct Free {
    sessions: BTreeMap<u64, Vec<Turn>>,
    /// Those that were judged at the first look. What becomes of others is for the next time.
    judged: BTreeSet<TurnId>,
}

/// The free turns of sessions that have a judged one.
///
/// Judging goes on meanwhile. A turn is judged after the one that follows it came into the log; so what follows
/// one that is judged at the first look is captured at the second or judged by the third, and cannot be missed.
async fn free_turns(shared: &Shared, agent: &AgentId) -> Result<Free, LogError> {
    let in_state = async |kind| shared.persist(|| shared.log.in_state(agent, kind)).await;
    let judged: BTreeSet<TurnId> = in_state(StateKind::Judged).await?.into_iter().collect();
    let numbers: BTreeSet<u64> = judged.iter().map(|id| id.session).collect();
    let mut ids = judged.clone();
    for kind in [StateKind::Captured, StateKind::Judged] {
        let more = in_state(kind).await?.into_iter();
        ids.extend(more.filter(|id| numbers.contains(&id.session)));
    }
    let mut sessions = BTreeMap::<u64, Vec<Turn>>::new();
    for id in ids {
        if let Some(turn) = shared.persist(|| shared.log.get(id)).await? {
            sessions.entry(id.session).or_default().push(turn);
        }
    }
    Ok(Free { sessions, judged })
}

fn taken(fate: &Fate, session: &[Turn]) -> Option<Sample> {
    let turn = |id: &TurnId| {
        session
            .iter()
            .find(|turn| turn.id == *id)
            .cloned()
            .map(Arc::new)
    };
    match fate {
        Fate::Redo { failed, accepted } => Some(Sample::Correction(Correction {
            failed: turn(failed)?,
            accepted: turn(accepted)?,
        })),
        Fate::Verdict(id) => Some(Sample::Verdict(turn(id)?)),
        Fate::Wait | Fate::Spend(..) => None,
    }
}

/// Ids of one base model mean nothing to another: the newest sample's base counts, the rest is spent.
async fn of_one_base(
    shared: &Shared,
    mut found: Vec<Sample>,
) -> Result<(Samples, Option<String>), LogError> {
    found.sort_by_key(Sample::ended_ms);
    let base = found.last().and_then(Sample::base).map(str::to_owned);
    let mut samples = Samples::default();
    for sample in found {
        if sample.base() != base.as_deref() {
            for id in sample.turns() {
                shared.spend(id, reason::OTHER_BASE).await?;
            }
            continue;
        }
        match sample {
            Sample::Correction(pair) => samples.corrections.push(pair),
            Sample::Verdict(turn) => samples.verdicts.push(turn),
        }
    }
    Ok((samples, base))
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
        self.last().ended_ms
    }

    fn base(&self) -> Option<&str> {
        self.last()
            .tokens
            .as_ref()
            .map(|tokens| tokens.base.as_str())
    }

    fn turns(&self) -> Vec<TurnId> {
        match self {
            Self::Correction(pair) => vec![pair.failed.id, pair.accepted.id],
            Self::Verdict(turn) => vec![turn.id],
        }
    }
}
