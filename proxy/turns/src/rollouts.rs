//! Rollouts: runs of an agent on a task, each in a session of its own.
//!
//! A rollout is opened before its agent starts, and closed with its outcome. Closing it judges its turns in the same
//! transaction. A turn may come into the log a moment after its rollout was closed, and is judged then.

pub(crate) mod closing;
pub(crate) mod record;

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, GroupId, RolloutId, TaskId, TurnId};
use serde::{Deserialize, Serialize};

use self::{
    closing::{close, get, put},
    record::{Rollout, RolloutEnd},
};
use crate::{
    keys,
    log::{LogFuture, TurnLog},
    read::turn_ids,
    session::SessionRecord,
    store::{Store, Table},
    txn::Txn,
    values::{self, TxnResult},
};

/// Selects rollouts for a list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RolloutFilter {
    /// Only rollouts of this agent.
    pub agent: Option<AgentId>,
    pub group: Option<GroupId>,
    pub task: Option<TaskId>,
    pub run: Option<String>,
    /// Only rollouts that nobody has closed.
    pub only_open: bool,
    /// At most this many; 0 means all.
    pub limit: usize,
}

// === impl TurnLog ===

impl TurnLog {
    /// Writes a rollout that was just opened.
    pub fn open_rollout(&self, rollout: Rollout) -> LogFuture<'_, ()> {
        self.write(move |txn| Ok(put(txn, &rollout)?))
    }

    /// Closes a rollout at a time in Unix milliseconds, and judges or excludes its turns. Returns the closed rollout.
    ///
    /// # Errors
    /// Returns `LogError::NoSuchRollout`, or `LogError::RolloutClosed` if it was closed before; nothing changes.
    pub fn close_rollout(
        &self,
        id: &RolloutId,
        end: RolloutEnd,
        closed_ms: u64,
    ) -> LogFuture<'_, Rollout> {
        let id = id.clone();
        self.write(move |txn| close(txn, &id, end, closed_ms))
    }

    /// Returns a rollout.
    pub fn rollout(&self, id: &RolloutId) -> LogFuture<'_, Option<Rollout>> {
        let id = id.clone();
        self.read(move |store| get(store, &id))
    }

    /// Returns the rollouts that a filter selects, the newest first.
    pub fn rollouts(&self, filter: RolloutFilter) -> LogFuture<'_, Vec<Rollout>> {
        self.read(move |store| list(store, &filter))
    }

    /// Returns the turns of rollouts, by rollout, in the order in which they came.
    pub fn rollout_turns(
        &self,
        ids: Vec<RolloutId>,
    ) -> LogFuture<'_, BTreeMap<RolloutId, Vec<TurnId>>> {
        let turns = move |store: &Store| {
            let mut found = BTreeMap::new();
            for id in ids {
                let Some(rollout) = get(store, &id)? else {
                    continue;
                };
                let number = SessionRecord::number(store, &rollout.agent, &id.session())?;
                let turns = number.map(|number| turn_ids(store, number)).transpose()?;
                found.insert(id, turns.unwrap_or_default());
            }
            Ok(found)
        };
        self.read(turns)
    }

    /// Removes rollouts that were closed before a time in Unix milliseconds and have no turns (any more). Returns their
    /// number.
    pub fn forget_rollouts_before(&self, before_ms: u64) -> LogFuture<'_, usize> {
        Box::pin(async move {
            let all = self.rollouts(RolloutFilter::default()).await?;
            let is_old =
                |rollout: &Rollout| rollout.closed_ms().is_some_and(|closed| closed < before_ms);
            let old: Vec<Rollout> = all.into_iter().filter(is_old).collect();
            let n_old = old.len();
            let remove = move |txn: &mut Txn<'_>| {
                for rollout in &old {
                    let session = rollout.id.session();
                    if SessionRecord::number(txn, &rollout.agent, &session)?.is_none() {
                        values::remove(txn, Table::Rollouts, &keys::rollout(&rollout.id))?;
                    }
                }
                Ok(())
            };
            self.write(remove).await?;
            Ok(n_old)
        })
    }
}

fn list(store: &Store, filter: &RolloutFilter) -> TxnResult<Vec<Rollout>> {
    let mut found: Vec<Rollout> = Vec::new();
    for (_, rollout) in values::readable_json::<Rollout>(store, Table::Rollouts, &[])? {
        let is_selected = filter
            .agent
            .as_ref()
            .is_none_or(|agent| *agent == rollout.agent)
            && filter
                .group
                .as_ref()
                .is_none_or(|group| *group == rollout.group)
            && filter
                .task
                .as_ref()
                .is_none_or(|task| *task == rollout.task)
            && (filter.run.is_none() || filter.run == rollout.run)
            && (!filter.only_open || rollout.is_open());
        if is_selected {
            found.push(rollout);
        }
    }
    found.reverse();
    if filter.limit > 0 {
        found.truncate(filter.limit);
    }
    Ok(found)
}
