//! `metaclaw rollout list` and `metaclaw rollout show`: the rollouts of the log.

use anyhow::bail;
use clap::Args;
use metaclaw_chat::{AgentId, GroupId, RolloutId, TaskId};
use metaclaw_control::operations::rollouts::{
    GetRollout, ListRollouts, ListedRollout, ShownRollout,
};
use metaclaw_turns::{Rollout, RolloutState, TurnKind};

use crate::{
    commands::{calling::call, columns::short, context::Context, turns},
    out,
};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only rollouts of this agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Only rollouts of this task.
    #[arg(long)]
    task: Option<TaskId>,
    /// Only rollouts of this group.
    #[arg(long)]
    group: Option<GroupId>,
    /// Only rollouts of this run of `metaclaw rollout run`.
    #[arg(long)]
    run: Option<String>,
    /// The most rollouts that are listed.
    #[arg(short = 'n', long, default_value_t = 20)]
    limit: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The rollout's id, as `metaclaw rollout list` shows it.
    id: RolloutId,
    /// Show every message whole, and every field.
    #[arg(long)]
    full: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "full")]
    json: bool,
}

// === impl ListArgs ===

impl ListArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let query = ListRollouts {
            agent: self.agent,
            task: self.task,
            group: self.group,
            run: self.run,
            limit: self.limit,
            ..ListRollouts::default()
        };
        let listed = call(context, "rollout", query).await?;
        let head = [
            "rollout", "ago", "agent", "task", "group", "try", "ended", "turns",
        ];
        Ok(out::answer_table(&listed, self.json, &head, row)?)
    }
}

fn row(listed: &ListedRollout) -> Vec<String> {
    let it = &listed.rollout;
    vec![
        it.id.to_string(),
        out::since(it.opened_ms),
        it.agent.to_string(),
        short(it.task.as_str(), 24),
        short(it.group.as_str(), 24),
        format!("{} of {}", it.attempt + 1, it.group_size),
        ended(it),
        listed.n_turns.to_string(),
    ]
}

fn ended(rollout: &Rollout) -> String {
    let held_out = if rollout.held_out { ", held out" } else { "" };
    match &rollout.state {
        RolloutState::Open => "open".to_owned(),
        RolloutState::Scored { outcome, .. } => format!("score {outcome}{held_out}"),
        RolloutState::Failed { why, .. } => format!("failed: {}", short(why, 40)),
        RolloutState::Unfinished { .. } => "unfinished".to_owned(),
    }
}

// === impl ShowArgs ===

impl ShowArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.id;
        let Some(shown) = call(context, "rollout", GetRollout(id.clone())).await? else {
            bail!("there is no rollout {id}: `metaclaw rollout list` shows what there is");
        };
        Ok(out::answer(&shown, self.json, |one| text(one, self.full))?)
    }
}

/// Returns a rollout as text: the facts first, then turn by turn what was new in it and what was answered.
fn text(shown: &ShownRollout, full: bool) -> String {
    let ShownRollout { rollout, turns } = shown;
    let age = out::since(rollout.opened_ms);
    let mut lines = vec![
        format!(
            "rollout   {}, opened {age} ago: {}",
            rollout.id,
            ended(rollout)
        ),
        format!(
            "task      {}, try {} of {} in group {}",
            rollout.task,
            rollout.attempt + 1,
            rollout.group_size,
            rollout.group
        ),
        format!("agent     {}", rollout.agent),
    ];
    if let Some(adapter) = &rollout.adapter {
        lines.push(format!("adapter   {adapter}, as was asked for"));
    }
    if let Some(run) = &rollout.run {
        lines.push(format!("run       {run}"));
    }
    if let RolloutState::Failed { why, .. } = &rollout.state {
        lines.push(format!("failed    {why}"));
    }
    let mut step = 0;
    for turn in turns {
        let is_step = turn.meta.kind == TurnKind::Rollout;
        let reward = turn.verdict.as_ref().and_then(|verdict| verdict.reward);
        let reward = reward.map_or_else(String::new, |one| format!(", reward {one}"));
        step += usize::from(is_step);
        lines.push(String::new());
        lines.push(if is_step {
            format!("── step {step}{reward}")
        } else {
            "── an errand of the agent, no step".to_owned()
        });
        lines.push(turns::shown(turn, full));
    }
    if turns.is_empty() {
        lines.push(
            "no turns  its agent has not asked the model, or its turns were forgotten".to_owned(),
        );
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::now_ms;
    use serde_json::json;

    use super::*;

    fn shown(state: &serde_json::Value) -> ShownRollout {
        let mut rollout = json!({
            "id": "0199a0b1c2d3deadbeef", "agent": "coder", "task": "t-1", "group": "g-1",
            "group_size": 4, "attempt": 2, "adapter": "coder-3", "run": "monday", "key_hash": "",
            "opened_ms": now_ms() - 60_000, "deadline_ms": 5,
        });
        for (name, value) in state.as_object().unwrap() {
            rollout[name] = value.clone();
        }
        let turn = |kind: &str, said: &str| {
            json!({
                "id": "12-3", "agent": "coder", "session": "rollout:0199a0b1c2d3deadbeef",
                "kind": kind, "chain": "01".repeat(32), "end": {"how": "complete"},
                "started_ms": 1, "ended_ms": 2, "new_from": 0,
                "request": {"messages": [{"role": "user", "content": said}]},
                "reply": {"role": "assistant", "content": "done"},
                "served": {"upstream": "policy", "model": "demo"},
                "state": {"is": "judged"},
                "verdict": {"score": 1, "by": "rollout", "votes": [], "weight": 1.0, "reward": 0.5},
            })
        };
        let turns = json!([turn("rollout", "count the lines"), turn("side", "a title")]);
        serde_json::from_value(json!({"rollout": rollout, "turns": turns})).unwrap()
    }

    #[test]
    fn a_rollout_is_told_turn_by_turn() {
        let scored = shown(&json!({"state": "scored", "outcome": 0.5, "closed_ms": 4}));
        let text = text(&scored, false);
        for words in [
            "score 0.5",
            "task      t-1, try 3 of 4 in group g-1",
            "adapter   coder-3",
            "step 1, reward 0.5",
            "count the lines",
            "an errand of the agent, no step",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn a_failure_says_why() {
        let failed = shown(&json!({"state": "failed", "why": "no shell", "closed_ms": 4}));
        assert!(text(&failed, false).contains("failed    no shell"));
        let listed = ListedRollout {
            rollout: failed.rollout,
            n_turns: 2,
        };
        assert!(row(&listed).contains(&"failed: no shell".to_owned()));
    }
}
