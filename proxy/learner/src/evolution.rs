//! Asks a model for skills that would have prevented what went wrong.
//!
//! While the owner is away (in mode `rl` at any time), and after every so many main turns of an agent, the evolver gets
//! the agent's turns that were judged -1, one request at a time. The library stores with the proposals which turns were
//! evidence, so that none is evidence twice, and none is lost while the evolver does not answer. The turns' verdicts
//! and training states do not change. New skills are tried before they come into force (`trials`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use metaclaw_chat::{AgentId, Message, Score, TurnId, now_ms};
use metaclaw_skills::{
    EvolutionRun, Evolved, Failure, Library, Progress, Proposal, ProposalState, Reason, SkillRef,
    Trajectory,
};
use metaclaw_turns::{
    LessonRef, LogError, MAX_LIST, StateKind, StreamEnd, Turn, TurnKind, TurnSummary,
};
use tokio::task::JoinError;

use crate::{
    evolver::Evolver,
    shared::Shared,
    trials::{EvolutionError, Trial, tried},
    wish_detection::log_lesson,
};

/// The largest number of turns in one request, as in the Python original.
const MOST_AT_ONCE: usize = 6;
/// The follow-up of a failed turn is searched among this many turns after it.
const FOLLOWERS: usize = 8;
/// A skill in force is tried again after so long. The log keeps turns for a month.
const TRIED_AGAIN_MS: u64 = 14 * 24 * 3_600 * 1_000;
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(30))
    .with_max_delay(Duration::from_secs(30 * 60))
    .without_max_times();

struct Evolution {
    shared: Arc<Shared>,
    library: Library,
    evolver: Evolver,
    progress: BTreeMap<AgentId, Progress>,
    in_vain: BTreeMap<AgentId, u64>,
}

pub(crate) async fn run(shared: Arc<Shared>, library: Library, evolver: Evolver) {
    let look_every = evolver.look_every;
    let cancel = shared.cancel.clone();
    let mut task = Evolution {
        shared,
        library,
        evolver,
        progress: BTreeMap::new(),
        in_vain: BTreeMap::new(),
    };
    let looks = async {
        let mut pauses = PAUSES.build();
        let mut pause = look_every;
        loop {
            tokio::time::sleep(pause).await;
            let looked = task.look_at_agents().await;
            #[cfg(test)]
            crate::testing::progress::made();
            pause = match looked {
                Ok(()) => {
                    pauses = PAUSES.build();
                    look_every
                }
                Err(EvolutionError::Log(LogError::Closed)) => return,
                Err(error) => {
                    let pause = pauses.next().unwrap_or(look_every);
                    tracing::warn!(%error, ?pause, "no skills could be written from what went wrong; tried again");
                    pause.max(look_every)
                }
            };
        }
    };
    cancel.run_until_cancelled(looks).await;
}

// === impl Evolution ===

impl Evolution {
    async fn look_at_agents(&mut self) -> Result<(), EvolutionError> {
        let shared = Arc::clone(&self.shared);
        for agent in shared.agents().await? {
            self.look_at(&agent).await?;
        }
        Ok(())
    }

    async fn look_at(&mut self, agent: &AgentId) -> Result<(), EvolutionError> {
        let shared = Arc::clone(&self.shared);
        let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
        let mut progress = self.progress_of(agent).await?;
        if funnel.main < progress.n_main {
            // This is another log.
            progress = Progress::default();
        }
        let is_due = funnel.main >= progress.n_main.saturating_add(self.evolver.every_n_turns);
        let tries = shared.config.gate.lessons && self.in_vain.get(agent) != Some(&funnel.main);
        if !is_due && !tries || !(self.evolver.may_start)() || (shared.is_off)(agent) {
            return Ok(());
        }
        if !shared.may_cost(agent).await? {
            return Ok(());
        }
        if tries {
            if self.try_next(agent).await? {
                return Ok(());
            }
            self.in_vain.insert(agent.clone(), funnel.main);
        }
        if !is_due {
            return Ok(());
        }
        let failures = self.failures(agent, &progress).await?;
        let library = self.library.clone();
        if failures.is_empty() || blocking(move || library.review_is_full()).await?? {
            // There is nothing to ask, so the next check counts from here.
            progress.n_main = funnel.main;
            self.progress.insert(agent.clone(), progress);
            return Ok(());
        }
        let run = EvolutionRun {
            agent: agent.clone(),
            failures,
            n_main: funnel.main,
            at_ms: now_ms(),
            is_tried: shared.config.gate.lessons,
        };
        let evolved = self.ask(run).await?;
        self.progress.remove(agent);
        self.in_vain.remove(agent);
        if let Some(evolved) = evolved {
            tell(agent, &evolved);
            let in_force = evolved.proposals.iter().filter(|p| !p.is_waiting());
            let n = in_force.count() as u64;
            shared.count_lessons(agent, now_ms(), n).await;
        }
        Ok(())
    }

    /// Tries the first of an agent's new skills for which the tokens suffice. Returns false if there is none.
    async fn try_next(&self, agent: &AgentId) -> Result<bool, EvolutionError> {
        let shared = &*self.shared;
        let (library, of) = (self.library.clone(), agent.clone());
        let (untried, progress) = blocking(move || library.untried(&of)).await??;
        for proposal in untried {
            let spent = progress.trial_tokens;
            let trial = tried(shared, &self.library, &self.evolver, &proposal, spent).await?;
            let Trial::Made(figures) = trial else {
                tracing::debug!(%agent, proposal = proposal.n, "a skill is tried once the agent's chats are long enough");
                continue;
            };
            let library = self.library.clone();
            let settle = move || library.settle_trial(&proposal, &figures, now_ms());
            if let Some(settled) = blocking(settle).await?? {
                tell_trial(agent, &settled);
                let n = u64::from(settled.state == ProposalState::Accepted);
                shared.count_lessons(agent, now_ms(), n).await;
            }
            return Ok(true);
        }
        self.try_again(agent, progress.trial_tokens).await
    }

    async fn try_again(&self, agent: &AgentId, spent: u64) -> Result<bool, EvolutionError> {
        let (library, of) = (self.library.clone(), agent.clone());
        let since_ms = now_ms().saturating_sub(TRIED_AGAIN_MS);
        let due = blocking(move || library.to_try_again(&of, since_ms)).await??;
        for proposal in due {
            let (shared, evolver) = (&self.shared, &self.evolver);
            let trial = tried(shared, &self.library, evolver, &proposal, spent).await?;
            let Trial::Made(figures) = trial else {
                continue;
            };
            let library = self.library.clone();
            let settle = move || library.settle_again(&proposal, &figures, now_ms());
            let Some(settled) = blocking(settle).await?? else {
                continue;
            };
            if settled.state == ProposalState::AgedOut {
                tell_aged(agent, &settled);
            }
            return Ok(true);
        }
        Ok(false)
    }

    async fn progress_of(&self, agent: &AgentId) -> Result<Progress, EvolutionError> {
        if let Some(known) = self.progress.get(agent) {
            return Ok(known.clone());
        }
        let (library, agent) = (self.library.clone(), agent.clone());
        Ok(blocking(move || library.evolution(&agent)).await??)
    }

    /// Sends a request, or returns `None` if its turns were deleted meanwhile.
    async fn ask(&self, run: EvolutionRun) -> Result<Option<Evolved>, EvolutionError> {
        let messages = self.library.evolver_messages(&run);
        let asked = self.evolver.model.ask(&messages);
        let answer = asked.await.map_err(EvolutionError::Evolver)?;
        for failure in &run.failures {
            if self.get(failure.turn).await?.is_none() {
                return Ok(None);
            }
        }
        let library = self.library.clone();
        let evolved = blocking(move || library.evolve(&run, &answer)).await??;
        Ok(Some(evolved))
    }

    /// Returns the newest failed turns that were not evidence yet, oldest first.
    async fn failures(
        &self,
        agent: &AgentId,
        progress: &Progress,
    ) -> Result<Vec<Failure>, EvolutionError> {
        let shared = &self.shared;
        let listed = shared.list(agent, MAX_LIST).await?;
        let is_evidence = |turn: &&TurnSummary| {
            turn.score == Some(Score::Bad)
                && turn.kind == TurnKind::Main
                && turn.end == StreamEnd::Complete
                && turn.state.kind() != StateKind::HeldOut
                && !progress.used.contains(&turn.id)
        };
        let ids = listed.iter().filter(is_evidence).map(|turn| turn.id);
        let ids: Vec<TurnId> = ids.take(MOST_AT_ONCE).collect();
        // The newest third is kept for the trial of what is written now, and is evidence the next time.
        let is_tried = self.shared.config.gate.lessons;
        let n_kept = if is_tried { ids.len() / 3 } else { 0 };
        let mut failures = Vec::new();
        for id in ids.into_iter().skip(n_kept) {
            failures.extend(self.failure(id).await?);
        }
        failures.reverse();
        Ok(failures)
    }

    async fn failure(&self, id: TurnId) -> Result<Option<Failure>, LogError> {
        let Some(turn) = self.get(id).await? else {
            return Ok(None);
        };
        let Some(reply) = &turn.reply else {
            return Ok(None);
        };
        let next = self.next_state(&turn).await?;
        // The owner's words are in what followed.
        let verdict = turn.verdict.as_ref();
        let hint = verdict.and_then(|v| v.judge_hints.first().or(v.hint.as_ref()).cloned());
        Ok(Some(Failure {
            trajectory: Trajectory::read(&turn.request.messages, reply, &next),
            hint,
            skills: turn.served.skills.iter().filter_map(skill_ref).collect(),
            session: turn.session,
            turn: id,
        }))
    }

    /// Returns the reaction to a turn's reply: the new messages of the turn that continues it.
    async fn next_state(&self, turn: &Turn) -> Result<Vec<Message>, LogError> {
        let (shared, id) = (&self.shared, turn.id);
        let later = || shared.log.turns_after(id, FOLLOWERS);
        for later in shared.persist(later).await? {
            let later = self.get(later).await?;
            if let Some(later) = later.filter(|later| later.parent == Some(id)) {
                return Ok(later.evidence().to_vec());
            }
        }
        Ok(Vec::new())
    }

    async fn get(&self, id: TurnId) -> Result<Option<Turn>, LogError> {
        self.shared.turn(id).await
    }
}

fn skill_ref(skill: &LessonRef) -> Option<SkillRef> {
    Some(SkillRef {
        name: skill.name.parse().ok()?,
        version: skill.version.clone(),
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await
}

fn tell_trial(agent: &AgentId, settled: &Proposal) {
    let Proposal { n, name, .. } = settled;
    let is_figures = |why: &&Reason| matches!(why, Reason::Tried { .. });
    let figures = settled.why.iter().rfind(is_figures);
    let figures = figures.map(ToString::to_string).unwrap_or_default();
    let outcome = match settled.state {
        ProposalState::Accepted => "it is in force from the next session on",
        ProposalState::Declined => "it was declined",
        ProposalState::Waiting
        | ProposalState::Rejected
        | ProposalState::Reverted
        | ProposalState::AgedOut
        | ProposalState::Forgotten => "it waits for review",
    };
    log_lesson!(info, "skill {name} (proposal {n}): {figures}; {outcome}";
        agent, proposal = n, figures, outcome, "a skill was tried");
}

fn tell_aged(agent: &AgentId, aged: &Proposal) {
    let Proposal { n, name, .. } = aged;
    let is_figures = |why: &&Reason| matches!(why, Reason::TriedAgain { .. });
    let figures = aged.why.iter().rfind(is_figures).map(ToString::to_string);
    let figures = figures.unwrap_or_default();
    log_lesson!(info, "skill {name} aged out: {figures}  (back: metaclaw skills accept {n})";
        agent, proposal = n, figures, "a skill aged out");
}

/// Logs two lines for each proposal, one with its words and one without, as for wishes.
fn tell(agent: &AgentId, evolved: &Evolved) {
    for proposal in &evolved.proposals {
        let Proposal { n, name, .. } = proposal;
        if proposal.is_untried() {
            log_lesson!(info, "a skill was written from what went wrong: {name}; it is tried first";
                agent, proposal = n, "a skill was written that is tried first");
        } else if proposal.is_waiting() {
            log_lesson!(info, "a skill was written from what went wrong: {name}; it waits for your look  (metaclaw skills review)";
                agent, proposal = n, "a skill was written that waits for review");
        } else {
            log_lesson!(info, "a skill was written from what went wrong: {name}, from the next session on  (metaclaw skills revert {name})";
                agent, proposal = n, "a skill was written: it stands from the next session on");
        }
    }
    let n_refused = evolved.refused.len();
    if n_refused > 0 {
        tracing::info!(%agent, n_refused, "what the evolver wrote was refused: `metaclaw skills log` says why");
    }
}

#[cfg(test)]
mod tests;
