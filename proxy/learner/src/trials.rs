//! Tries skills that a model wrote, before they come into force (`gate.lessons`).
//!
//! Earlier requests that would get the skill are answered with it and without it, and the judge compares. They are never
//! requests of the conversations that the skill was written from, because those would show only that it repeats them.

use std::iter;

use metaclaw_chat::{AgentId, Message, Role, Score};
use metaclaw_skills::{
    EvolveError, Lessons, Library, Proposal, ProposalState, SkillTrial, TRIAL_DRAWS, TrialFigures,
    TriedRequest, estimate_tokens,
};
use metaclaw_turns::{LogError, MAX_LIST, StreamEnd, Turn, TurnKind};
use tokio::task::JoinError;

use crate::{
    evolver::Evolver,
    judge::{AskFailed, Judge},
    sample::{POLICY_UPSTREAM, is_tool_turn},
    shared::Shared,
    teacher::with_lessons,
};

/// The largest number of requests of each kind: those that the agent had answered well, and those that it had not.
const MOST_OF_A_KIND: usize = 4;
/// Trials may cost this share of the tokens of the agent's chats, in percent.
const SHARE_OF_CHAT: u64 = 5;
/// Each prompt is read twice: by the model that answers, and by the judge. A judge that is no model reads for nothing,
/// and most judges read only the end of a prompt, so this is an upper bound.
const READERS: u64 = 2;

/// Why skills were not written, or not tried. It is done again later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvolutionError {
    #[error("the evolver did not answer: {}", .0.why)]
    Evolver(AskFailed),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Library(#[from] EvolveError),
    #[error("a skill could not be tried: {}", .0.why)]
    Trial(#[from] AskFailed),
    #[error("writing or trying a skill panicked: {0}")]
    Panicked(#[from] JoinError),
}

#[derive(Debug)]
pub(crate) enum Trial {
    Made(TrialFigures),
    /// It would cost more than the agent's chats allow so far.
    TooDear,
}

struct HeldOutRequest {
    turn: Turn,
    was_good: bool,
    with: Vec<Message>,
    without: Vec<Message>,
}

/// Tries one proposal, or a skill in force once more. `spent` is the number of tokens that the agent's trials have cost so far.
pub(crate) async fn tried(
    shared: &Shared,
    library: &Library,
    evolver: &Evolver,
    proposal: &Proposal,
    spent: u64,
) -> Result<Trial, EvolutionError> {
    let agent = &proposal.source.agent;
    let is_judged = !matches!(shared.judge, Judge::Rules(_)) || shared.judge.praises_replies();
    let Some(trial) = library.trial(proposal).filter(|_| is_judged) else {
        return Ok(Trial::Made(TrialFigures::default()));
    };
    let held_out = held_out(shared, &trial, proposal).await?;
    let allowed = chat_tokens(shared, agent).await? * SHARE_OF_CHAT / 100;
    let left = allowed.saturating_sub(spent);
    let affordable = affordable(held_out.iter().map(HeldOutRequest::cost), left);
    if affordable < held_out.len().min(metaclaw_skills::MIN_TRIED) {
        return Ok(Trial::TooDear);
    }
    let mut figures = TrialFigures::default();
    for request in held_out.iter().take(affordable) {
        let (tried, n_tokens) = request.tried(shared, evolver).await;
        let (library, agent) = (library.clone(), agent.clone());
        // Every trial is paid for, a broken one too.
        let charge = move || library.charge_trial(&agent, n_tokens);
        tokio::task::spawn_blocking(charge).await??;
        figures.requests.extend(tried?);
        if proposal.is_untried() && figures.is_worse() {
            break;
        }
    }
    Ok(Trial::Made(figures))
}

/// Returns how many requests, from the first on, cost no more than this.
fn affordable(costs: impl Iterator<Item = u64>, mut left: u64) -> usize {
    let mut fits = |cost: &u64| {
        let rest = left.checked_sub(*cost);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    costs.take_while(|cost| fits(cost)).count()
}

/// Returns the tokens of an agent's chats, as its upstreams count them, for as long as the log keeps counts.
async fn chat_tokens(shared: &Shared, agent: &AgentId) -> Result<u64, LogError> {
    let days = shared.persist(|| shared.log.statistics(0)).await?;
    let own = days.iter().filter(|day| day.agent == *agent);
    Ok(own
        .map(|day| day.counts.tokens_in + day.counts.tokens_out)
        .sum())
}

/// Returns the newest requests that would get the skill and can be asked again: one that was answered well, one that was
/// not, and so on.
async fn held_out(
    shared: &Shared,
    trial: &SkillTrial,
    proposal: &Proposal,
) -> Result<Vec<HeldOutRequest>, LogError> {
    let listed = shared.list(&proposal.source.agent, MAX_LIST).await?;
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    for summary in listed {
        let was_good = match summary.score {
            Some(Score::Good) => true,
            Some(Score::Bad) => false,
            Some(Score::Unclear) | None => continue,
        };
        let of_kind = if was_good { &mut good } else { &mut failed };
        let is_whole = summary.kind == TurnKind::Main && summary.end == StreamEnd::Complete;
        let is_known = if proposal.state == ProposalState::Accepted {
            // A failure in spite of the skill does not show whether the skill is still needed.
            !was_good
                && summary
                    .skills
                    .iter()
                    .any(|skill| *skill == proposal.name.as_str())
        } else {
            proposal.source.sessions.contains(&summary.session)
        };
        if !is_whole || of_kind.len() >= MOST_OF_A_KIND || is_known {
            continue;
        }
        let id = summary.id;
        let turn = shared.turn(id).await?;
        of_kind.extend(turn.and_then(|turn| HeldOutRequest::new(turn, was_good, trial)));
    }
    let (mut good, mut failed) = (good.into_iter(), failed.into_iter());
    let pairs = iter::from_fn(|| {
        let pair = [good.next(), failed.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    Ok(pairs.flatten().flatten().collect())
}

// === impl HeldOutRequest ===

impl HeldOutRequest {
    /// Returns `None` if the request would not get the skill, or a reply alone does not answer it.
    fn new(turn: Turn, was_good: bool, trial: &SkillTrial) -> Option<Self> {
        // The model is asked for words, without tools, so the conversation must be one of words.
        let is_of_tools = |m: &Message| m.role() == Role::Tool || !m.tool_calls().is_empty();
        if is_tool_turn(&turn) || turn.request.messages.iter().any(is_of_tools) {
            return None;
        }
        let [with, without] = trial.lessons(&turn.new_words()?.text)?;
        let prompt = |lessons: &Lessons| with_lessons(&turn, lessons);
        let (with, without) = (prompt(&with)?, prompt(&without)?);
        Some(Self {
            turn,
            was_good,
            with,
            without,
        })
    }

    /// Returns about how many tokens it costs to try it.
    fn cost(&self) -> u64 {
        let draws = TRIAL_DRAWS as u64;
        let reply = self.turn.reply.as_slice();
        let arm = |messages: &[Message]| READERS * (n_tokens(messages) + n_tokens(reply));
        draws * (arm(&self.with) + arm(&self.without))
    }

    /// Returns how many replies are good in each arm, and about how many tokens that cost. It is `None` where the judge
    /// cannot tell by a reply alone.
    async fn tried(
        &self,
        shared: &Shared,
        evolver: &Evolver,
    ) -> (Result<Option<TriedRequest>, AskFailed>, u64) {
        let wishes = shared.wishes(&self.turn.agent);
        let policy = evolver.policy.as_ref();
        let policy = policy.filter(|_| self.turn.served.upstream == POLICY_UPSTREAM);
        let model = policy.unwrap_or(&evolver.model);
        let mut cost = 0;
        let mut good = [0; 2];
        for _ in 0..TRIAL_DRAWS {
            for (arm, messages) in [&self.with, &self.without].into_iter().enumerate() {
                let reply = match model.ask(messages).await {
                    Ok(text) => Message::assistant(text),
                    Err(error) => return (Err(error), cost),
                };
                let n = n_tokens(messages) + n_tokens(std::slice::from_ref(&reply));
                cost += READERS * n;
                match shared.judge.of_reply(&self.turn, &reply, &wishes).await {
                    Ok(Some(Score::Good)) => good[arm] += 1,
                    Ok(Some(Score::Bad | Score::Unclear)) => {}
                    Ok(None) => return (Ok(None), cost),
                    Err(error) => return (Err(error), cost),
                }
            }
        }
        let [good_with, good_without] = good;
        let tried = TriedRequest {
            was_good: self.was_good,
            good_with,
            good_without,
        };
        (Ok(Some(tried)), cost)
    }
}

fn n_tokens(messages: &[Message]) -> u64 {
    let texts = messages.iter().map(|m| estimate_tokens(&m.text()) as u64);
    texts.sum()
}

#[cfg(test)]
mod tests;
