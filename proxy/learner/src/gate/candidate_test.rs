//! A candidate before the gate: what it is compared with, and what is done while the trainer does not answer.
//!
//! Finds the wishes for the gate's reference: the agent's standing wishes, or, if it has none, the hint that it was
//! trained on.

use std::collections::BTreeSet;

use metaclaw_chat::{Score, TurnId, now_ms};
use metaclaw_trainer_api::{AdapterName, BackendError, RunId};
use metaclaw_turns::{LogError, Step, Turn, TurnKind, TurnSummary};
use tokio::time::Instant;

use super::{
    evaluation::{Gate, TestSubject},
    preference::pairs,
    report::GateReport,
    tasks::{TaskTest, learned_from},
};
use crate::{
    lineage::{Ancestry, BaseModel, Candidate, ResumePoint},
    shared::Shared,
    status::Phase,
    trainer::{Patience, RunHandle, StepFailure, StepRunner},
};

pub(crate) struct CandidateTest<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) runner: &'a StepRunner,
    pub(crate) candidate: &'a Candidate,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AdapterTestError {
    /// The server does not answer.
    #[error(transparent)]
    Server(#[from] BackendError),
    #[error("{adapter} is of {base}, which is not served now")]
    OtherBase {
        adapter: AdapterName,
        base: BaseModel,
    },
    #[error("the training server scores no replies, so that nothing can be tested (gate.enabled)")]
    NoScores,
    /// The server failed too often, or in a way that no further try can mend.
    #[error(transparent)]
    Failed(#[from] StepFailure),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Tests an adapter that no step of the log is making, by what its checkpoint says of itself; none where it has no
/// checkpoint of ours.
///
/// # Errors
/// [`AdapterTestError`].
pub(crate) async fn test_adapter(
    shared: &Shared,
    gate: &mut Gate,
    mut runner: StepRunner,
    run: &mut RunHandle,
    adapter: &AdapterName,
) -> Result<Option<GateReport>, AdapterTestError> {
    let known = runner.checkpoints().await?.into_iter().flatten();
    let mut known = known.filter(|known| known.name.as_str() == adapter.as_str());
    let Some(known) = known.next() else {
        return Ok(None);
    };
    let shape = &known.manifest.shape;
    if !shape.base.may_be(runner.base.as_deref()) {
        return Err(AdapterTestError::OtherBase {
            adapter: adapter.clone(),
            base: shape.base.clone(),
        });
    }
    // Its shape may be another than that of the settings.
    runner.rl.lora_rank = shape.rank;
    runner.rl.lora_alpha = shape.alpha;
    runner.rl.targets.0.clone_from(&shape.targets);
    let candidate = Candidate::from_checkpoint(&known, adapter.clone());
    // Its owner waits for an answer: that nobody can try it now is one.
    runner.try_adapter(&candidate).await?;
    let test = CandidateTest {
        shared,
        runner: &runner,
        candidate: &candidate,
    };
    test.run(gate, run).await.map(Some)
}

// === impl CandidateTest ===

impl CandidateTest<'_> {
    /// What the gate finds of the candidate. `run` is the agent's.
    ///
    /// # Errors
    /// [`AdapterTestError`].
    pub(crate) async fn run(
        &self,
        gate: &mut Gate,
        run: &mut RunHandle,
    ) -> Result<GateReport, AdapterTestError> {
        let (shared, candidate) = (self.shared, self.candidate);
        if let Some(unfit) = self.find_unfit().await? {
            return Ok(GateReport::unfit(unfit));
        }
        if !gate.is_on() {
            return Ok(GateReport::default());
        }
        if !self.runner.capabilities.forward {
            return Err(AdapterTestError::NoScores);
        }
        let base = self.runner.base.as_deref();
        let library = shared.library.as_ref();
        let standing = library.map(|library| library.wishes_to_teach(&candidate.agent));
        let standing = standing.unwrap_or_default();
        let wishes = wishes(shared, candidate).await?;
        let pairs = pairs(shared, candidate, base).await?;
        let learned = learned_from(shared, candidate).await?;
        let mut patience = Patience::default();
        loop {
            shared.status.phase(self.phase());
            let tested = match self.standing_run(run).await {
                Err(failed) => Err(failed),
                Ok(id) => {
                    let subject = TestSubject {
                        agent: &candidate.agent,
                        adapter: candidate.adapter.as_str(),
                        run: &id,
                        base,
                        wishes: &wishes,
                        standing: &standing,
                        judge: &shared.judge,
                        pairs: &pairs,
                        steps: candidate.point.steps,
                        has_chats: learned.chats,
                    };
                    gate.test(subject).await.map_err(|error| {
                        run.failed(&error);
                        StepFailure::at_server(error)
                    })
                }
            };
            match tested {
                Ok(mut report) => {
                    if learned.rollouts && report.passed() {
                        let began = Instant::now();
                        let test = TaskTest { shared, candidate };
                        report.tests.push(test.run().await?);
                        report.seconds += began.elapsed().as_secs_f64();
                    }
                    return Ok(report);
                }
                Err(failed) if failed.error.is_of_weights() => {
                    return Ok(GateReport::unfit(failed.to_string()));
                }
                Err(failed) => {
                    let is_away = failed.error.is_unreachable();
                    self.wait(&mut patience, failed, is_away).await?;
                }
            }
        }
    }

    /// Has the candidate tried where it is to answer; why it is not fit to serve, if it is not. While nobody can say, because
    /// the server that answers chats is away, what served before goes on.
    ///
    /// # Errors
    /// Why it could not be tried.
    async fn find_unfit(&self) -> Result<Option<String>, StepFailure> {
        let mut patience = Patience::default();
        loop {
            self.shared.status.phase(self.phase());
            let error = match self.runner.try_adapter(self.candidate).await {
                Ok(unfit) => return Ok(unfit),
                Err(error) => error,
            };
            let is_away = error.is_unreachable() || error.status() == Some(503);
            let failed = StepFailure::at_server(error);
            self.wait(&mut patience, failed, is_away).await?;
        }
    }

    fn phase(&self) -> Phase {
        Phase::Testing {
            agent: self.candidate.agent.clone(),
            adapter: self.candidate.adapter.to_string(),
            since_ms: now_ms(),
        }
    }

    /// Waits before the next try. A trainer that is away is waited for without an end.
    ///
    /// # Errors
    /// The failure, if there is to be no other try.
    async fn wait(
        &self,
        patience: &mut Patience,
        failed: StepFailure,
        is_away: bool,
    ) -> Result<(), StepFailure> {
        if !failed.may_pass() || (!is_away && patience.ends()) {
            return Err(failed);
        }
        let why = failed.to_string();
        tracing::warn!(agent = %self.candidate.agent, error = why, "the new adapter is tested again");
        self.shared.status.phase(Phase::WaitingForTrainer { why });
        patience.pause().await;
        Ok(())
    }

    /// The agent's run, which stands at the candidate's checkpoint: as the step left it, or put there again.
    async fn standing_run(&self, run: &mut RunHandle) -> Result<RunId, StepFailure> {
        let candidate = self.candidate;
        let at = run.at.as_ref().and_then(|at| at.checkpoint.as_ref());
        if let Some(id) = &run.id
            && at == Some(&candidate.checkpoint)
        {
            return Ok(id.clone());
        }
        let point = candidate.point.clone();
        let id = self.runner.put_at(run, &point).await?;
        run.at = Some(point);
        Ok(id)
    }
}

/// The number of failed turns that must carry one hint before it counts as a wish, because a single hint may be a
/// correction.
const HINTED: usize = 2;
/// Failed turns are searched among this many of the newest: turns of earlier steps, and judged turns of the agent.
const LOOK_BACK: usize = 64;
const LISTED: usize = 400;

/// Returns the agent's standing wishes. If it has none, returns the hint that most failed turns carry, because the step
/// trains on that: the turns of this step; else those of earlier steps, because a batch of good verdicts alone
/// continues what was trained before; else the agent's last ones.
pub(crate) async fn wishes(
    shared: &Shared,
    candidate: &Candidate,
) -> Result<Vec<String>, LogError> {
    let agent = &candidate.agent;
    let standing = shared.library.as_ref().map(|library| {
        let in_force = library.lessons(agent, "").wish_ids;
        let wishes = library.wishes_to_teach(agent).into_iter();
        let wishes = wishes.filter(|wish| in_force.contains(&wish.id()));
        wishes.map(|wish| wish.text).collect::<Vec<String>>()
    });
    if let Some(standing) = standing.filter(|wishes| !wishes.is_empty()) {
        return Ok(standing);
    }
    let mut hint = hint_of(shared, &candidate.turns).await?;
    if hint.is_none() {
        hint = hint_of(shared, &taught_before(shared, candidate).await?).await?;
    }
    if hint.is_none() {
        hint = hint_of(shared, &last_judged(shared, candidate).await?).await?;
    }
    Ok(hint.into_iter().collect())
}

async fn taught_before(shared: &Shared, candidate: &Candidate) -> Result<Vec<TurnId>, LogError> {
    let steps = shared.steps(&candidate.agent).await?;
    let lineage = &candidate.point.lineage;
    let own = |step: &&Step| step.begun.lineage == *lineage && step.begun.n == candidate.n;
    let own = steps.iter().filter(own).max_by_key(|s| s.begun.attempt);
    let parent = own.and_then(|step| step.begun.parent.as_ref());
    let point = ResumePoint {
        checkpoint: parent.and_then(|parent| parent.parse().ok()),
        ..candidate.point.clone()
    };
    let ancestry = Ancestry::new(&steps, &point);
    let mut behind: Vec<&Step> = steps.iter().filter(|s| ancestry.has_step(s)).collect();
    behind.sort_by_key(|step| std::cmp::Reverse(step.taken_ms));
    let turns = behind.iter().flat_map(|step| &step.begun.turns);
    Ok(turns.take(LOOK_BACK).copied().collect())
}

async fn last_judged(shared: &Shared, candidate: &Candidate) -> Result<Vec<TurnId>, LogError> {
    let listed = shared.list(&candidate.agent, LISTED).await?;
    let is_judged = |turn: &TurnSummary| turn.kind == TurnKind::Main && turn.score.is_some();
    let judged = listed.into_iter().filter(is_judged);
    Ok(judged.map(|turn| turn.id).take(LOOK_BACK).collect())
}

async fn hint_of(shared: &Shared, turns: &[TurnId]) -> Result<Option<String>, LogError> {
    let (mut hints, mut n_failed) = (Vec::new(), 0);
    // A turn that was used twice counts once.
    for id in BTreeSet::from_iter(turns) {
        let Some(turn) = shared.turn(*id).await? else {
            continue;
        };
        let is_failed = |turn: &Turn| {
            let verdict = turn.verdict.as_ref();
            verdict.is_some_and(|verdict| verdict.score == Score::Bad)
        };
        if is_failed(&turn) {
            n_failed += 1;
            hints.extend(turn.verdict.and_then(|verdict| verdict.hint));
        }
    }
    Ok(shared_hint(&hints, n_failed))
}

/// Returns the hint that at least half of the failed turns carry, and at least two.
fn shared_hint(hints: &[String], n_failed: usize) -> Option<String> {
    let count = |hint: &String| hints.iter().filter(|other| *other == hint).count();
    let most = hints.iter().max_by_key(|hint| count(hint))?;
    let n = count(most);
    (n >= HINTED && 2 * n >= n_failed).then(|| most.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_wish_that_most_failed_turns_carry() {
        let shared = |hints: &[&str], n_failed| {
            let hints: Vec<String> = hints.iter().map(|&hint| hint.to_owned()).collect();
            shared_hint(&hints, n_failed)
        };
        let brief = Some("Be brief.".to_owned());
        assert_eq!(
            shared(&["Be brief.", "No, Tuesday.", "Be brief."], 4),
            brief
        );
        assert_eq!(shared(&["Be brief."], 1), None, "once may be a correction");
        assert_eq!(
            shared(&["Be brief.", "Be brief."], 5),
            None,
            "of two in five"
        );
        assert_eq!(shared(&[], 0), None);
    }
}
