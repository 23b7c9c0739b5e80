//! What the handlers of the page share.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use maud::{Markup, html};
use metaclaw_chat::{AgentId, lock, now_ms};
use metaclaw_control::replies::Funnel;
use metaclaw_control::{
    browser_logins::BrowserLogins,
    instance::{Instance, Rooms},
    operation::{Operation, OperationFailure, with_causes},
    operations::{lessons::GetJournal, turns::TurnsQuery},
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::failure::PageFailure;

const MAX_AGENTS: usize = 50;
const REMEMBERED: usize = 5;

/// What every handler of the page uses. Clones share it.
#[derive(derive_more::Debug, Clone)]
#[debug("PageState({instance:?})")]
pub struct PageState {
    instance: Arc<Instance>,
    pub(crate) token: Arc<str>,
    pub(crate) logins: Arc<BrowserLogins>,
    tasks: TaskTracker,
    long_tasks: Arc<Mutex<VecDeque<LongTask>>>,
    last_hash: Arc<tokio::sync::Mutex<Option<SharedHash>>>,
}

struct SharedHash {
    made: Instant,
    hash: blake3::Hash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedAgents {
    pub(crate) shown: Vec<AgentId>,
    pub(crate) n_more: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LongTask {
    n: u64,
    pub(crate) label: String,
    pub(crate) begun_ms: u64,
    pub(crate) progress: TaskProgress,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TaskProgress {
    Running,
    Done(String),
    Failed(String),
}

// === impl ListedAgents ===

impl ListedAgents {
    pub(crate) fn left_out(&self) -> Markup {
        html! { @if self.n_more > 0 {
            p.soft { (self.n_more) " more agents with fewer turns are not listed. Write one’s name into the address, as in " code { "?agent=NAME" } "." }
        } }
    }
}

// === impl PageState ===

impl PageState {
    /// `token` is that of the run file. Long tasks run on `tasks`.
    pub fn new(
        instance: Arc<Instance>,
        token: &str,
        logins: Arc<BrowserLogins>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            instance,
            token: token.into(),
            logins,
            tasks,
            long_tasks: Arc::default(),
            last_hash: Arc::default(),
        }
    }

    pub(crate) fn running(&self) -> Option<&Rooms> {
        self.instance.running()
    }

    /// Returns a hash that all callers share: the last one, if it is younger than `age`, else what `new` computes.
    pub(crate) async fn shared_hash(
        &self,
        age: Duration,
        new: impl Future<Output = blake3::Hash>,
    ) -> blake3::Hash {
        let mut last = self.last_hash.lock().await;
        match &*last {
            Some(last) if last.made.elapsed() < age => last.hash,
            _ => {
                let (hash, made) = (new.await, Instant::now());
                *last = Some(SharedHash { made, hash });
                hash
            }
        }
    }

    /// Returns when the process is to end; never where none runs.
    pub(crate) async fn ended(&self) {
        match self.instance.running() {
            Some(rooms) => rooms.run.ending.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) async fn ask<O: Operation>(&self, operation: O) -> Result<O::Reply, PageFailure> {
        Ok(operation.perform(&self.instance).await?)
    }

    pub(crate) async fn agents(&self) -> Result<ListedAgents, PageFailure> {
        let of_log = match self.instance.log_if_any().await.map_err(refused)? {
            Some(log) => log.funnels().await.map_err(|error| refused(error.into()))?,
            None => Vec::new(),
        };
        let lessons = self.ask(GetJournal).await?;
        let of_lessons = lessons.into_iter().map(|it| it.origin.agent);
        let most = of_log
            .iter()
            .take(MAX_AGENTS)
            .map(|(agent, _)| agent.clone());
        let shown: BTreeSet<AgentId> = most.chain(of_lessons).collect();
        let is_left_out = |(agent, _): &&(AgentId, Funnel)| !shown.contains(agent);
        Ok(ListedAgents {
            n_more: of_log.iter().filter(is_left_out).count(),
            shown: shown.into_iter().collect(),
        })
    }

    /// The agent that spoke last; before anybody spoke, one of `agents`, else the one without a name.
    pub(crate) async fn newest_agent(&self, agents: &[AgentId]) -> Result<AgentId, PageFailure> {
        let newest = TurnsQuery {
            limit: 1,
            ..TurnsQuery::default()
        };
        let turns = self.ask(newest).await?;
        let spoke = turns.first().map(|turn| turn.agent.clone());
        let any = spoke.or_else(|| agents.first().cloned());
        Ok(any.unwrap_or_else(AgentId::default_agent))
    }

    /// Begins an operation that may take minutes; `told` says in words what it came to.
    pub(crate) fn begin<O: Operation>(
        &self,
        label: String,
        operation: O,
        told: impl FnOnce(O::Reply) -> String + Send + 'static,
    ) {
        let begun_ms = now_ms();
        let n = {
            let mut tasks = self.lock();
            let n = tasks.back().map_or(1, |last| last.n + 1);
            let progress = TaskProgress::Running;
            tasks.push_back(LongTask {
                n,
                label,
                begun_ms,
                progress,
            });
            if tasks.len() > REMEMBERED {
                tasks.pop_front();
            }
            n
        };
        let state = self.clone();
        self.tasks.spawn(async move {
            let done = operation.perform(&state.instance).await;
            let progress = match done {
                Ok(reply) => TaskProgress::Done(told(reply)),
                Err(OperationFailure { error, .. }) => TaskProgress::Failed(with_causes(&error)),
            };
            let mut tasks = state.lock();
            if let Some(task) = tasks.iter_mut().find(|it| it.n == n) {
                task.progress = progress;
            }
        });
    }

    pub(crate) fn long_tasks(&self) -> Vec<LongTask> {
        self.lock().iter().rev().cloned().collect()
    }

    /// A panic elsewhere leaves a usable list, because each change is one call.
    fn lock(&self) -> MutexGuard<'_, VecDeque<LongTask>> {
        lock(&self.long_tasks)
    }
}

fn refused(error: anyhow::Error) -> PageFailure {
    OperationFailure::unavailable(error).into()
}
