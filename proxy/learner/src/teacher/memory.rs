//! What is remembered of the teacher's results for an agent, as long as its wishes do not change.
//!
//! With it are the anchors: replies of the base model, told the wishes, to questions of ours, at which the weights are held
//! (`rl.anchor`). Without the wishes, an anchor would pull out what redo puts in.
//!
//! A call about a turn that fails may be the turn's fault or the server's. A refusal that says that this prompt is too large
//! is the turn's. Of everything else nothing is known before the server has been asked something harmless in the same way:
//! only one that answers that shows that it is the turn.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{TurnId, Verdict};
use metaclaw_trainer_api::{BackendError, ErrorCode};
use metaclaw_turns::Turn;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    conversation::TeacherConversation,
    draws::{TOP_K, TeachError, TeacherAnswers, after, line},
};
use crate::{
    config::{RlConfig, TargetForm, Teacher},
    methods::TrainingSignal,
    policy::{By, DrawRequest, PolicyModel, ScoredPair},
    sample::{AnchorReply, ExcludeReason, Hints, Targets, Taught, Teaching, all_hints},
    shared::Shared,
};

const JUDGE_REST: Duration = Duration::from_secs(60);

/// The teacher's results for an agent. All of them can be computed again, because the same turns have the same seeds.
#[derive(Debug, Default)]
pub(crate) struct TeacherMemory {
    pub(crate) targets: Targets,
    pub(crate) hints: Hints,
    pub(super) anchors: Anchors,
    /// The wishes that the teacher is told, without what was said about single turns.
    wishes: Option<String>,
    /// The sum of the relevances of all its replies, and their number.
    relevance: (f64, usize),
    /// Replies that were drawn and are not chosen from yet: drawn ahead, or because the judge does not answer.
    drawn: BTreeMap<TurnId, DrawnAnswers>,
    n_failures: BTreeMap<TurnId, usize>,
    rest: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct DrawnAnswers {
    id: TurnId,
    verdict: Option<Verdict>,
    answers: TeacherAnswers,
}

// === impl DrawnAnswers ===

impl DrawnAnswers {
    pub(super) fn new(turn: &Turn, answers: TeacherAnswers) -> Self {
        Self {
            id: turn.id,
            verdict: turn.verdict.clone(),
            answers,
        }
    }
}

// === impl TeacherMemory ===

impl TeacherMemory {
    /// Sets the wishes; if they changed, earlier results are dropped.
    pub(crate) fn is_told(&mut self, wishes: Option<String>) {
        if self.wishes != wishes {
            self.targets.forget();
            *self = Self {
                wishes,
                targets: std::mem::take(&mut self.targets),
                ..Self::default()
            };
        }
    }

    pub(crate) fn teaching(&self, rl: &RlConfig) -> Teaching<'_> {
        Teaching {
            targets: &self.targets,
            hints: &self.hints,
            consolidates: rl.consolidate && rl.teacher == Teacher::Base && self.wishes.is_some(),
        }
    }

    /// Returns the next `n` replies of the base model with the wishes, which the weights are kept near.
    ///
    /// # Errors
    /// Returns the server's errors.
    pub(crate) async fn anchors(
        &mut self,
        policy: &PolicyModel,
        n: usize,
    ) -> Result<Vec<Arc<AnchorReply>>, BackendError> {
        let wishes = self.wishes.as_deref();
        self.anchors.next(policy, wishes, n).await
    }

    pub(crate) fn wishes(&self) -> Option<&str> {
        self.wishes.as_deref()
    }

    pub(crate) fn rests(&mut self) {
        self.rest = Some(Instant::now() + JUDGE_REST);
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.rest.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn drawn(&self, turn: &Turn) -> Option<&TeacherAnswers> {
        let drawn = self.drawn.get(&turn.id)?;
        (drawn.verdict == turn.verdict).then_some(&drawn.answers)
    }

    pub(crate) fn drew(&mut self, drawn: DrawnAnswers) {
        for relevance in drawn.answers.own_relevances() {
            self.relevance.0 += relevance;
            self.relevance.1 += 1;
        }
        self.drawn.insert(drawn.id, drawn);
    }

    pub(super) fn forget(&mut self, id: TurnId) {
        self.drawn.remove(&id);
        self.n_failures.remove(&id);
    }

    /// Returns the relevance that a reply needs: a share of the mean of all replies with these wishes, and more than 0;
    /// with a share of 0, any.
    pub(super) fn least_relevance(&self, share: f64) -> f64 {
        if share <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let (sum, n) = self.relevance;
        (share * sum / n.max(1) as f64).max(f64::EPSILON)
    }

    pub(super) fn settled(&mut self, turn: &Turn, taught: Taught) {
        self.targets.put(turn, taught);
        self.n_failures.remove(&turn.id);
        self.drawn.remove(&turn.id);
        self.rest = None;
    }

    pub(crate) fn n_failures(&self, id: TurnId) -> usize {
        self.n_failures.get(&id).copied().unwrap_or(0)
    }

    pub(super) fn failed(&mut self, id: TurnId) -> usize {
        let n = self.n_failures.entry(id).or_default();
        *n += 1;
        *n
    }
}

/// Everyday questions, none of which the gate or the bench asks.
const QUESTIONS: &str = include_str!("anchors.txt");
/// As long as what the gate looks at.
const MOST_TOKENS: u32 = 64;
const SEED: u64 = 31;
/// The likeliest ids at each of a reply: what is left of the probability beyond them is little.
const ANCHOR_TOP_K: u32 = 20;

/// Replies by their question's number, while the wishes stay as they are.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    drawn: BTreeMap<usize, Arc<AnchorReply>>,
    next: usize,
}

// === impl Anchors ===

impl Anchors {
    /// The next `n` replies; what was not asked before is drawn.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn next(
        &mut self,
        policy: &PolicyModel,
        wishes: Option<&str>,
        n: usize,
    ) -> Result<Vec<Arc<AnchorReply>>, BackendError> {
        let questions: Vec<&str> = QUESTIONS.lines().collect();
        let numbered = (SEED..).zip(&questions).enumerate();
        let from_next = numbered
            .cycle()
            .skip(self.next)
            .take(n.min(questions.len()));
        let mut replies = Vec::new();
        for (at, (seed, question)) in from_next {
            let reply = match self.drawn.get(&at) {
                Some(reply) => Arc::clone(reply),
                None => Arc::new(reply(policy, question, wishes, seed).await?),
            };
            self.drawn.insert(at, Arc::clone(&reply));
            replies.push(reply);
        }
        self.next = (self.next + n) % questions.len().max(1);
        // Nothing can be predicted where nothing was said.
        replies.retain(|reply| !reply.ids.is_empty());
        Ok(replies)
    }
}

async fn reply(
    policy: &PolicyModel,
    question: &str,
    wishes: Option<&str>,
    seed: u64,
) -> Result<AnchorReply, BackendError> {
    let prompt = policy.render(vec![says(question)], None).await?;
    let told = match wishes {
        Some(wishes) => {
            let both = format!("{question}\n\n{wishes}");
            policy.render(vec![says(&both)], None).await?
        }
        None => prompt.clone(),
    };
    let request = DrawRequest {
        seed,
        ..DrawRequest::new(None, &told, MOST_TOKENS)
    };
    let ids = policy.draw_one(request).await?.ids;
    let mut reply = AnchorReply {
        prompt,
        ids,
        likely: Vec::new(),
        logprobs: Vec::new(),
    };
    if reply.ids.is_empty() {
        return Ok(reply);
    }
    let pair = ScoredPair {
        prompt: &told,
        reply: &reply.ids,
    };
    for row in policy.likeliest(pair, ANCHOR_TOP_K).await? {
        let (ids, probabilities): (Vec<u32>, Vec<f32>) = row.into_iter().unzip();
        reply.likely.push(ids);
        let logprobs = probabilities.into_iter().map(f32::ln);
        reply.logprobs.push(logprobs.collect());
    }
    Ok(reply)
}

fn says(question: &str) -> Value {
    json!({"role": "user", "content": question})
}

/// Hints of which the best is taken: OpenClaw-RL's, which found no use for more.
const MOST_HINTS: usize = 3;

/// Has a turn's conversation rendered with each hint, and remembers it. A turn that nobody said anything about has none.
///
/// # Errors
/// [`TeachError`]: nothing came of it yet.
pub(crate) async fn hint(
    shared: &Shared,
    policy: &PolicyModel,
    memory: &mut TeacherMemory,
    id: TurnId,
) -> Result<(), TeachError> {
    let Some(turn) = shared.turn(id).await? else {
        // It was forgotten meanwhile.
        return Ok(());
    };
    let told = match told(shared, policy, memory.wishes(), &turn).await {
        Err(TeachError::Server(error)) => {
            at_fault(policy, &shared.config.rl, memory, id, error).await?;
            Vec::new()
        }
        other => other?,
    };
    memory.hints.put(&turn, told);
    Ok(())
}

async fn told(
    shared: &Shared,
    policy: &PolicyModel,
    wishes: Option<&str>,
    turn: &Turn,
) -> Result<Vec<Vec<u32>>, TeachError> {
    let Some(conversation) = TeacherConversation::from_turn(turn) else {
        return Ok(Vec::new());
    };
    let of_owner = after(shared, turn).await?.hint;
    let mut told = Vec::new();
    for hint in first(all_hints(turn, of_owner)) {
        let method = shared.config.rl.method.learning_from(TrainingSignal::Hint);
        let said = method.and_then(|method| method.words_of_hint(&hint));
        let said = said.or_else(|| line(wishes, Some(&hint)));
        let Some(said) = said else { continue };
        let messages = conversation.told(&said);
        told.push(policy.render_for(turn, messages).await?);
    }
    Ok(told)
}

/// The shortest ones, shortest first: of two that agree with the student equally the shorter one is taken.
fn first(mut hints: Vec<String>) -> Vec<String> {
    hints.sort_by_key(String::len);
    hints.dedup();
    hints.truncate(MOST_HINTS);
    hints
}

/// Calls about one turn that fail while the server answers something else, before it is not redo's.
const MOST_FAILURES: usize = 3;
const HARMLESS: &str = "What is the capital of France?";
/// An answer to be scored: any id is one.
const REPLY: &[u32] = &[0];

#[derive(Debug)]
enum Fault {
    /// The turn is not redo's, and why.
    Turns(ExcludeReason),
    /// It may be the turn: it is tried again.
    Doubtful(BackendError),
    /// The server, which has no turn answered now.
    Servers(BackendError),
}

/// Why a turn is not the teacher's, where it is the turn's fault that a call about it failed.
///
/// # Errors
/// [`TeachError`]: it may be tried again.
pub(super) async fn at_fault(
    policy: &PolicyModel,
    rl: &RlConfig,
    memory: &mut TeacherMemory,
    id: TurnId,
    error: BackendError,
) -> Result<ExcludeReason, TeachError> {
    let said = error.to_string();
    match fault(policy, rl, memory, id, error).await {
        Fault::Turns(why) => {
            tracing::warn!(turn = %id, error = said, %why, "not answered by the teacher");
            Ok(why)
        }
        Fault::Doubtful(error) => Err(TeachError::Turn(error)),
        Fault::Servers(error) => Err(error.into()),
    }
}

async fn fault(
    policy: &PolicyModel,
    rl: &RlConfig,
    memory: &mut TeacherMemory,
    id: TurnId,
    error: BackendError,
) -> Fault {
    if error.is_unreachable() {
        return Fault::Servers(error);
    }
    if error.code().is_some_and(ErrorCode::is_prompt_too_large) || error.datum().is_some() {
        return Fault::Turns(ExcludeReason::TeacherRefused);
    }
    if error.is_busy() {
        return Fault::Servers(error);
    }
    if let Err(error) = ask_harmless(policy, rl).await {
        return Fault::Servers(error);
    }
    if matches!(error.status(), Some(400 | 413 | 422)) {
        // The same again would be refused as well.
        return Fault::Turns(ExcludeReason::TeacherRefused);
    }
    if memory.failed(id) >= MOST_FAILURES {
        return Fault::Turns(ExcludeReason::TeacherFails);
    }
    Fault::Doubtful(error)
}

async fn ask_harmless(policy: &PolicyModel, rl: &RlConfig) -> Result<(), BackendError> {
    let message = json!({"role": "user", "content": HARMLESS});
    let prompt = &policy.render(vec![message], None).await?;
    let draw = DrawRequest {
        // As many at once: there may be no room for so many.
        n: rl.draws,
        temperature: 0.0,
        ..DrawRequest::new(None, prompt, 1)
    };
    policy.draw(draw).await?;
    let pair = ScoredPair {
        prompt,
        reply: REPLY,
    };
    policy.score(By::Base, &[pair], REPLY.len()).await?;
    if rl.target == TargetForm::TopK {
        policy.likeliest(pair, TOP_K).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_anchor_is_asked_twice_or_by_the_gate() {
        let questions: BTreeSet<&str> = QUESTIONS.lines().collect();
        assert_eq!(questions.len(), QUESTIONS.lines().count());
        assert!(questions.iter().all(|question| question.ends_with('?')));
        let probes = concat!(
            include_str!("../gate/probes/questions.yaml"),
            include_str!("../gate/probes/capability.yaml"),
            include_str!("others.txt")
        );
        for question in questions {
            assert!(!probes.contains(question), "{question}");
        }
    }

    #[test]
    fn of_many_hints_the_shortest_are_asked_each_once() {
        let hints = [
            "Be brief.",
            "In one sentence.",
            "Be brief.",
            "x",
            "In French, please.",
        ];
        let found = first(hints.map(str::to_owned).to_vec());
        assert_eq!(found, ["x", "Be brief.", "In one sentence."]);
        assert!(first(Vec::new()).is_empty());
    }
}
