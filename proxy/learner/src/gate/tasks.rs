//! Whether an agent that does tasks still succeeds at tasks that it has not learned from.
//!
//! A runner tries the held-out tasks with the candidate, and the results are paired by task with those of what serves. An
//! adapter is declined only where it is nearly sure that it succeeds less: a rollout either succeeds or not, and there are
//! few.

use std::{collections::BTreeMap, time::Duration};

use metaclaw_chat::{RolloutId, TaskId, TurnId, now_ms};
use metaclaw_turns::{LogError, Rollout, StepOutcome};
use tokio::time::Instant;

use super::report::{Bound, GateTest};
use crate::{
    formulas::upper_bound, held_out_rollouts::WantedRollouts, lineage::Candidate, shared::Shared,
};

const NAME: &str = "tasks";
const FEWEST: usize = 8;
/// The largest number of held-out tasks in a test; those that were tried last.
const MOST: usize = 64;
/// Of the tasks that succeed; what is lost beyond it is too much.
const LEAST: f64 = -0.05;
const PAUSE: Duration = Duration::from_millis(500);
/// After this time without an open rollout, the runner makes no more.
const QUIET: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LearnedFrom {
    pub(super) chats: bool,
    pub(super) rollouts: bool,
}

pub(super) struct TaskTest<'a> {
    pub(super) shared: &'a Shared,
    pub(super) candidate: &'a Candidate,
}

type Successes = BTreeMap<TaskId, f64>;

/// Returns what an agent's steps, the candidate's among them, were made of.
///
/// # Errors
/// Returns the log's errors.
pub(super) async fn learned_from(
    shared: &Shared,
    candidate: &Candidate,
) -> Result<LearnedFrom, LogError> {
    let steps = shared.steps(&candidate.agent).await?;
    let is_made = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Trained { .. });
    let made = steps
        .iter()
        .filter(|step| step.outcome.as_ref().is_some_and(is_made));
    let batches = made.map(|step| &step.begun.turns).chain([&candidate.turns]);
    let mut learned = LearnedFrom {
        // A candidate without turns was trained from a data set, or elsewhere: it may say anything.
        chats: candidate.turns.is_empty(),
        rollouts: false,
    };
    // No step has turns of both kinds.
    for first in batches.filter_map(|turns| turns.first()) {
        match is_of_rollout(shared, *first).await? {
            Some(true) => learned.rollouts = true,
            Some(false) => learned.chats = true,
            None => {}
        }
    }
    Ok(learned)
}

async fn is_of_rollout(shared: &Shared, turn: TurnId) -> Result<Option<bool>, LogError> {
    let turn = shared.turn(turn).await?;
    Ok(turn.map(|turn| turn.served.rollout.is_some()))
}

// === impl TaskTest ===

impl TaskTest<'_> {
    /// Tests the candidate, if a runner is there and there are held-out tasks.
    ///
    /// # Errors
    /// Returns the log's errors.
    pub(super) async fn run(&self) -> Result<GateTest, LogError> {
        let (shared, agent) = (self.shared, &self.candidate.agent);
        if !shared.rollout_requests.has_runner(agent) {
            let why = "no program asks for held-out tasks to try: `metaclaw rollout run` does";
            return Ok(GateTest::skipped(NAME, why));
        }
        let mut tasks: Vec<TaskId> = Vec::new();
        for rollout in self.held_out().await? {
            if tasks.len() < MOST && !tasks.contains(&rollout.task) {
                tasks.push(rollout.task);
            }
        }
        let n = tasks.len();
        if n < FEWEST {
            return Ok(Self::too_few(n, "were tried yet"));
        }
        let until = Instant::now() + shared.config.rl.rollouts.gate_wait.0;
        let mut serving = self.of_what_serves().await?;
        if serving.len() < FEWEST {
            self.wait_for(None, n, until).await?;
            serving = self.of_what_serves().await?;
        }
        let own = self.wait_for(Some(self.candidate.adapter.as_str()), n, until);
        let own = successes(own.await?);
        let gained: Vec<f64> = own
            .iter()
            .filter_map(|(task, own)| Some(own - serving.get(task)?))
            .collect();
        if gained.len() < FEWEST {
            let when = "were tried both with it and with what serves, within rl.rollouts.gate_wait";
            return Ok(Self::too_few(gained.len(), when));
        }
        let unit = format!(
            "of success at most, beside what serves, by 90 % and {} held-out tasks",
            gained.len()
        );
        Ok(GateTest::measured(
            NAME,
            upper_bound(&gained),
            Bound::AtLeast,
            LEAST,
            &unit,
        ))
    }

    fn too_few(n: usize, when: &str) -> GateTest {
        let why = format!("{n} held-out tasks {when}, and {FEWEST} are needed");
        GateTest::skipped(NAME, &why)
    }

    async fn held_out(&self) -> Result<Vec<Rollout>, LogError> {
        let all = self.shared.rollouts(&self.candidate.agent).await?;
        Ok(all.into_iter().filter(|rollout| rollout.held_out).collect())
    }

    async fn of_what_serves(&self) -> Result<Successes, LogError> {
        let (shared, agent) = (self.shared, &self.candidate.agent);
        let serving = shared.serving(agent).await?;
        let mut of_it = Vec::new();
        for rollout in self.held_out().await? {
            if rollout.outcome().is_some() && self.adapter(&rollout).await? == Some(serving.clone())
            {
                of_it.push(rollout);
            }
        }
        Ok(successes(of_it))
    }

    /// Returns the adapter that answered in a rollout (the inner `None` is the base model), or `None` if nobody did.
    async fn adapter(&self, rollout: &Rollout) -> Result<Option<Option<String>>, LogError> {
        if rollout.adapter.is_some() {
            return Ok(Some(rollout.adapter.clone()));
        }
        let shared = self.shared;
        let ids: Vec<RolloutId> = vec![rollout.id.clone()];
        let turns = shared
            .persist(|| shared.log.rollout_turns(ids.clone()))
            .await?;
        let first = turns.into_values().flatten().next();
        let Some(first) = first else { return Ok(None) };
        let turn = shared.turn(first).await?;
        Ok(turn.map(|turn| turn.served.adapter))
    }

    async fn wait_for(
        &self,
        adapter: Option<&str>,
        n: usize,
        until: Instant,
    ) -> Result<Vec<Rollout>, LogError> {
        let (shared, agent) = (self.shared, &self.candidate.agent);
        let began_ms = now_ms();
        let wanted = WantedRollouts {
            adapter: adapter.map(str::to_owned),
            held_out: n,
        };
        let _request = shared.rollout_requests.ask(agent, wanted);
        let mut quiet_since = Instant::now();
        loop {
            let mut all = self.held_out().await?;
            all.retain(|r| r.opened_ms >= began_ms && r.adapter.as_deref() == adapter);
            let n_closed = all.iter().filter(|rollout| !rollout.is_open()).count();
            let n_open = all.len() - n_closed;
            if n_closed == 0 || n_open > 0 {
                quiet_since = Instant::now();
            }
            let is_there = shared.rollout_requests.has_runner(agent);
            let is_over = n_closed >= n
                || Instant::now() >= until
                || has_stopped(n_closed, n_open, is_there, quiet_since.elapsed());
            if is_over || !shared.sleep(PAUSE).await {
                all.retain(|rollout| rollout.outcome().is_some());
                return Ok(all);
            }
        }
    }
}

/// Returns whether a runner makes no more rollouts that has closed and opened so many, with none open for `quiet`.
fn has_stopped(n_closed: usize, n_open: usize, is_there: bool, quiet: Duration) -> bool {
    match (n_closed, n_open) {
        (0, 0) => !is_there,
        (_, 0) => quiet >= QUIET,
        // While it is busy with them, it may not ask what else is wanted.
        (_, _) => false,
    }
}

fn successes(rollouts: Vec<Rollout>) -> Successes {
    let mut of: BTreeMap<TaskId, Vec<f64>> = BTreeMap::new();
    for rollout in rollouts {
        if let Some(outcome) = rollout.outcome() {
            let succeeded = f64::from(u8::from(outcome > 0.0));
            of.entry(rollout.task).or_default().push(succeeded);
        }
    }
    let mean = |each: Vec<f64>| each.iter().sum::<f64>() / each.len() as f64;
    of.into_iter()
        .map(|(task, each)| (task, mean(each)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_with_open_rollouts_goes_on_though_it_asks_for_no_more() {
        let (soon, long) = (Duration::ZERO, QUIET);
        assert!(!has_stopped(0, 0, true, long));
        assert!(has_stopped(0, 0, false, soon));
        assert!(!has_stopped(0, 3, false, soon));
        assert!(!has_stopped(2, 1, false, long));
        assert!(!has_stopped(3, 0, false, soon));
        assert!(has_stopped(3, 0, true, long));
    }
}
