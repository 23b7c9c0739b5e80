//! The verdicts on what an agent was served with, in the order of time.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_turns::{LogError, Step, TurnFilter, TurnKind, TurnSummary};

use crate::{
    sample::{POLICY_UPSTREAM, is_tool_turn},
    shared::Shared,
};

/// Turns of a list in which verdicts are looked for, and the last verdicts that are watched.
const LISTED: usize = 400;
const WATCHED: usize = 200;

/// What the last look saw.
#[derive(Debug, Default)]
pub(crate) struct VerdictHistory {
    pub(crate) seen: Option<VerdictsSeen>,
    /// Whether turns call tools: to read a turn for that costs more than all the rest.
    tools: BTreeMap<TurnId, bool>,
}

/// How many verdicts there had been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerdictsSeen {
    pub(crate) n_judged: u64,
    /// How many were changed afterwards.
    pub(crate) n_changed: u64,
}

/// A verdict on a reply.
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
    let settled_ms = chosen.chain(choice.map(|it| it.at_ms)).max();
    let filter = TurnFilter {
        agent: Some(agent.clone()),
        limit: LISTED,
        ..TurnFilter::default()
    };
    let mut listed = shared.persist(|| shared.log.list(filter.clone())).await?;
    listed.retain(|turn| {
        turn.kind == TurnKind::Main
            && turn.upstream == POLICY_UPSTREAM
            && settled_ms.is_none_or(|ms| turn.started_ms > ms)
    });
    listed.sort_by_key(|turn| turn.ended_ms);
    let judged = listed.iter().filter_map(judged);
    let judged: Vec<(TurnId, JudgedReply)> = judged.collect();
    let (mut kinds, mut tools) = ([Vec::new(), Vec::new()], BTreeMap::new());
    for (id, judged) in judged.into_iter().rev().take(WATCHED).rev() {
        let is_tool = if let Some(known) = watched.tools.get(&id) {
            *known
        } else {
            let turn = shared.persist(|| shared.log.get(id)).await?;
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
