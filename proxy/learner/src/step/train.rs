//! The training server's half of a step: from checkpoint n-1 to checkpoint n, exactly once.
//!
//! No call is repeated on its own. After anything that leaves doubt the whole attempt begins again: the run is put back to
//! checkpoint n-1, which drops gradients, and the checkpoints are asked whether n is there with this step's hash. Putting
//! the run back comes first, because the trainer does one thing after another: once that is answered, nothing of an
//! earlier attempt can still be under way.
//!
//! Splits a step's examples into calls, so that none takes too long, and one that fails can be halved.
//!
//! A plan becomes a candidate adapter, or somebody is found to be at fault.
//!
//! A call that fails twice is halved until one sequence is left. That one is at fault if the server, from where the
//! step starts, can train on something else; else it is the server, or the weights, and no sample is lost.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{
    AdapterName, BackendError, Datum, ErrorCode, LossConfig, LossFn, RunId,
    wire::{
        ForwardBackwardReply, ForwardBackwardRequest, LossFnOutput, OptimStepReply,
        OptimStepRequest,
    },
};
use tokio::time::Instant;

use super::plan::Plan;
use crate::{
    config::Teacher,
    lineage::{Drift, KnownCheckpoint, Numbers, known},
    methods::{Example, Group, LogprobClient},
    sample::ExcludeReason,
    status::{Phase, StatusCell},
    trainer::{Patience, RunHandle, StepFailure, StepRunner, StepStage, seen},
};

#[derive(Debug)]
pub(crate) struct Trained {
    pub(crate) numbers: Numbers,
    /// Hash of the adapter's content, where the server says it.
    pub(crate) sha256: Option<String>,
}

/// One attempt at a step.
///
/// # Cancel safety
/// A dropped attempt leaves `run` in doubt, as a lost answer does.
pub(crate) struct Attempt<'a> {
    pub(crate) runner: &'a StepRunner,
    pub(crate) run: &'a mut RunHandle,
    pub(crate) plan: &'a Plan,
}

#[derive(Debug, Default)]
struct PassSums {
    loss: f64,
    losses: BTreeMap<String, f64>,
    n_tokens: usize,
    n_computed: usize,
    time: Duration,
    drift: DriftSums,
}

/// Sums over the sampled ids of log p now - log p when sampled.
#[derive(Debug, Default)]
struct DriftSums {
    n: usize,
    sum: f64,
    absolute: f64,
}

// === impl Attempt ===

impl Attempt<'_> {
    pub(crate) async fn train(&mut self, calls: &[MicroBatch]) -> Result<Trained, StepFailure> {
        let plan = self.plan;
        let standing = self.run.at.take().is_some_and(|at| at == plan.point);
        let id = match self.run.id.clone().filter(|_| standing) {
            Some(id) => id,
            None => self.runner.put_at(self.run, &plan.point).await?,
        };
        // A run that never left its start cannot have made the step.
        if !standing && let Some(made) = self.find().await? {
            let (runner, run) = (self.runner, &mut *self.run);
            runner.load(run, &id, &made.name, StepStage::Save).await?;
            let sha256 = runner.save_made(run, &id, &made, &plan.adapter).await?;
            run.at = Some(plan.after());
            let numbers = made.manifest.numbers;
            return Ok(Trained { numbers, sha256 });
        }
        let numbers = self.all_epochs(&id, calls).await?;
        let manifest = plan.manifest(numbers.clone(), self.runner.made(&plan.point));
        let manifest = serde_json::to_value(manifest).unwrap_or_default();
        self.run.save_asked = true;
        let backend = &self.runner.backend;
        let saved = backend.save_checkpoint(id.clone(), plan.checkpoint.clone(), manifest);
        seen(self.run, StepStage::Save, saved.await)?;
        let sha256 = self.runner.save_adapter(self.run, &id, &plan.adapter);
        let sha256 = sha256.await?;
        self.run.at = Some(plan.after());
        Ok(Trained { numbers, sha256 })
    }

    async fn find(&mut self) -> Result<Option<KnownCheckpoint>, StepFailure> {
        if !self.runner.capabilities.manifests {
            return Ok(None);
        }
        let checkpoints = self.runner.backend.checkpoints().await;
        let checkpoints = seen(self.run, StepStage::Server, checkpoints)?;
        let (name, hash) = (&self.plan.checkpoint, &self.plan.hash);
        let made = |known: &KnownCheckpoint| known.name == *name && known.manifest.hash == *hash;
        Ok(known(checkpoints).into_iter().find(made))
    }

    /// The steps on a batch: one, or one an epoch. The result has what the first epoch found and how far the last one went.
    async fn all_epochs(
        &mut self,
        id: &RunId,
        calls: &[MicroBatch],
    ) -> Result<Numbers, StepFailure> {
        // The weights of some examples depend on what the run is by then.
        let mut groups = self.plan.groups.clone();
        let sums = self.pass_all(id, calls, &mut groups).await?;
        let mut numbers = self.take_step(id, sums).await?;
        for _ in 1..self.plan.epochs {
            let sums = self.pass_all(id, calls, &mut groups).await?;
            numbers.goes_on(&self.take_step(id, sums).await?);
        }
        Ok(numbers)
    }

    async fn pass_all(
        &mut self,
        id: &RunId,
        calls: &[MicroBatch],
        groups: &mut [Group],
    ) -> Result<PassSums, StepFailure> {
        let mut sums = PassSums::default();
        let policy = LogprobClient {
            backend: &*self.runner.backend,
            run: id,
            teacher_has_adapter: self.runner.rl.teacher == Teacher::Current,
        };
        for (at, call) in calls.iter().enumerate() {
            let Some(group) = groups.get(call.group) else {
                continue;
            };
            let (method, loss_fn) = (group.method, group.loss);
            let loss_fn_config = group.loss_config.clone();
            let examples = call.examples_mut(groups);
            let began = Instant::now();
            let refreshed = method.refresh(examples, policy).await;
            let loss_here = seen(self.run, StepStage::Pass(at), refreshed)?;
            let request = ForwardBackwardRequest {
                session_id: id.clone(),
                datums: examples.iter().map(|e| e.datum.clone()).collect(),
                loss_fn,
                loss_fn_config,
            };
            let mut reply = self.pass(request, StepStage::Pass(at)).await?;
            // cross_entropy has the gradient of such a loss and not its value.
            reply.loss = loss_here.unwrap_or(reply.loss);
            let took = began.elapsed();
            self.run.passed(n_computed(examples), took);
            sums.add(method.name(), examples, &reply, took);
        }
        Ok(sums)
    }

    async fn pass(
        &mut self,
        request: ForwardBackwardRequest,
        stage: StepStage,
    ) -> Result<ForwardBackwardReply, StepFailure> {
        let done = self.runner.backend.forward_backward(request).await;
        seen(self.run, stage, done)
    }

    async fn take_step(&mut self, id: &RunId, sums: PassSums) -> Result<Numbers, StepFailure> {
        let request = self.step_request(id);
        let learning_rate = request.learning_rate;
        let stepped = self.runner.backend.optim_step(request).await;
        let stepped = seen(self.run, StepStage::Step, stepped)?;
        if stepped.skipped {
            // The checkpoint is made all the same: these samples are used up, the weights stay.
            tracing::warn!(
                grad_norm = stepped.grad_norm,
                median = stepped.median_grad_norm,
                "the trainer skipped a step whose gradient is out of line"
            );
        }
        Ok(sums.numbers(&stepped, learning_rate))
    }

    fn step_request(&self, id: &RunId) -> OptimStepRequest {
        let rl = &self.runner.rl;
        OptimStepRequest {
            session_id: id.clone(),
            learning_rate: self.plan.rate(rl, self.run.n_params),
            adam: rl.adam(),
        }
    }

    /// Finds out whether the server can train on something harmless from where the step starts, with the optimiser's part
    /// if `and_step`. What it does is dropped.
    pub(crate) async fn control(&mut self, and_step: bool) -> Result<(), StepFailure> {
        let session_id = self.runner.put_at(self.run, &self.plan.point).await?;
        let losses = &self.runner.capabilities.losses;
        let (loss_fn, datum) = if losses.contains(&LossFn::CrossEntropy) {
            let datum = Datum::cross_entropy(vec![0; 2], vec![0; 2], vec![1.0; 2]);
            (LossFn::CrossEntropy, datum)
        } else {
            let datum = Datum::policy(vec![0; 2], vec![0; 2], vec![-1.0; 2], vec![1.0; 2]);
            (LossFn::ImportanceSampling, datum)
        };
        let request = ForwardBackwardRequest {
            session_id: session_id.clone(),
            datums: datum.into_iter().collect(),
            loss_fn,
            loss_fn_config: LossConfig::new(),
        };
        self.pass(request, StepStage::Control).await?;
        if and_step {
            let request = self.step_request(&session_id);
            let stepped = self.runner.backend.optim_step(request).await;
            seen(self.run, StepStage::Control, stepped)?;
        }
        Ok(())
    }
}

// === impl StepRunner ===

impl StepRunner {
    /// Saves the adapter of a run that stands at a checkpoint that a step made, and sees that its content is the
    /// checkpoint's, whatever was there under its name.
    pub(crate) async fn save_made(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        made: &KnownCheckpoint,
        name: &AdapterName,
    ) -> Result<Option<String>, StepFailure> {
        let saved = self.save_adapter(run, id, name).await?;
        match (&saved, &made.sha256) {
            (Some(saved), Some(wanted)) if saved != wanted => {
                let error = BackendError::Unreadable {
                    call: "weights/save",
                    url: name.to_string(),
                    why: format!("it saved {saved}, its checkpoint has {wanted}"),
                };
                seen(run, StepStage::Save, Err(error))
            }
            _ => Ok(saved),
        }
    }

    /// Saves the adapter of a run that stands at its checkpoint; the hash of what was saved.
    async fn save_adapter(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        name: &AdapterName,
    ) -> Result<Option<String>, StepFailure> {
        let saved = self.backend.save_adapter(id.clone(), name.clone()).await;
        Ok(seen(run, StepStage::Save, saved)?.sha256)
    }
}

// === impl PassSums ===

impl PassSums {
    fn add(
        &mut self,
        method: &str,
        examples: &[Example],
        reply: &ForwardBackwardReply,
        time: Duration,
    ) {
        self.loss += reply.loss;
        *self.losses.entry(method.to_owned()).or_default() += reply.loss;
        self.n_tokens += examples.iter().map(Example::n_tokens).sum::<usize>();
        self.n_computed += n_computed(examples);
        self.time += time;
        for (example, output) in examples.iter().zip(&reply.loss_fn_outputs) {
            for moved in moved(example, output) {
                self.drift.n += 1;
                self.drift.sum += moved;
                self.drift.absolute += moved.abs();
            }
        }
    }

    fn numbers(self, stepped: &OptimStepReply, learning_rate: f64) -> Numbers {
        let DriftSums { n, sum, absolute } = self.drift;
        let drift = Drift {
            logprob_abs_diff: absolute / n.max(1) as f64,
            kl: -sum / n.max(1) as f64,
        };
        Numbers {
            loss: self.loss,
            losses: self.losses,
            grad_norm: stepped.grad_norm,
            learning_rate,
            skipped: stepped.skipped,
            n_tokens: self.n_tokens,
            n_computed: self.n_computed,
            train_seconds: self.time.as_secs_f64(),
            drift: (n > 0).then_some(drift),
        }
    }
}

/// How far each sampled id that an example pushes has moved; nothing of an example that is no policy's.
fn moved<'a>(example: &'a Example, output: &'a LossFnOutput) -> impl Iterator<Item = f64> + 'a {
    let parts = example.datum.parts();
    let sampled = parts.logprobs.iter().flatten();
    let pushed = parts.advantages.iter().flatten();
    let all = sampled.zip(pushed).zip(&output.logprobs);
    all.filter_map(|((sampled, advantage), now)| {
        let now = now.filter(|_| *advantage != 0.0)?;
        Some(f64::from(now) - f64::from(*sampled))
    })
}

/// One forward_backward call: some examples of one group. The server adds up the gradients of all calls of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MicroBatch {
    pub(crate) group: usize,
    range: Range<usize>,
}

/// Splits groups into calls of at most this many computed tokens; a longer example has a call of its own.
///
/// Within a call, what an example begins with in common with the one before it is computed once. So the turns of a rollout,
/// or of a session, cost little more than the longest of them, and are best in one call.
pub(crate) fn cut(groups: &[Group], most_tokens: usize) -> Vec<MicroBatch> {
    let mut calls: Vec<MicroBatch> = Vec::new();
    for (group, examples) in groups.iter().enumerate() {
        let mut room = 0;
        for (at, example) in examples.examples.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| examples.examples.get(at));
            let n_added = n_added(before, example);
            match calls.last_mut() {
                Some(call) if call.group == group && n_added <= room => {
                    call.range.end = at + 1;
                    room -= n_added;
                }
                Some(_) | None => {
                    let range = at..at + 1;
                    calls.push(MicroBatch { group, range });
                    room = most_tokens.saturating_sub(example.n_tokens());
                }
            }
        }
    }
    calls
}

/// Returns how many tokens of a call's examples a server computes that shares their beginnings, as MetaClaw's own does.
pub(crate) fn n_computed(examples: &[Example]) -> usize {
    let first = examples.first().map_or(0, |first| n_added(None, first));
    let rest = examples.windows(2).map(|both| match both {
        [before, example] => n_added(Some(before), example),
        _ => 0,
    });
    first + rest.sum::<usize>()
}

/// Returns how many of an example's tokens are not the beginning of the example before it.
fn n_added(before: Option<&Example>, example: &Example) -> usize {
    let own = ids(example).iter();
    let before = before.map(ids).unwrap_or_default();
    let shared = own.zip(before).take_while(|(one, other)| one == other);
    example.n_tokens() - shared.count()
}

fn ids(example: &Example) -> &[u32] {
    &example.datum.parts().model_input_tokens
}

/// Splits a call into two; returns `false` if it has a single example.
pub(crate) fn halve(calls: &mut Vec<MicroBatch>, at: usize) -> bool {
    let Some(call) = calls.get_mut(at).filter(|call| call.range.len() > 1) else {
        return false;
    };
    let middle = call.range.start + call.range.len() / 2;
    let second = MicroBatch {
        group: call.group,
        range: middle..call.range.end,
    };
    call.range.end = middle;
    calls.insert(at + 1, second);
    true
}

// === impl MicroBatch ===

impl MicroBatch {
    pub(crate) fn examples<'a>(&self, groups: &'a [Group]) -> &'a [Example] {
        let group = groups.get(self.group);
        let examples = group.and_then(|group| group.examples.get(self.range.clone()));
        examples.unwrap_or_default()
    }

    pub(crate) fn examples_mut<'a>(&self, groups: &'a mut [Group]) -> &'a mut [Example] {
        let group = groups.get_mut(self.group);
        let examples = group.and_then(|group| group.examples.get_mut(self.range.clone()));
        examples.unwrap_or_default()
    }

    pub(crate) fn turns(&self, groups: &[Group], at: usize) -> Option<Vec<TurnId>> {
        self.examples(groups).get(at).map(|e| e.turns.clone())
    }
}

/// Failures of passes before a sequence is doubted.
const STRIKES: usize = 2;

#[derive(Debug)]
pub(crate) struct StepRefusal {
    pub(crate) blame: Blame,
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The sample of these turns, and why they are set aside.
    Sample {
        turns: Vec<TurnId>,
        why: ExcludeReason,
    },
    /// A sample among several, whose gradients are only known together.
    SomeSample,
    /// The checkpoint that the step starts from: it is refused.
    Parent,
    /// The same: its weights answer what is no number.
    ParentsNumbers,
    /// The same, or the server for now: it fails at loading it.
    ParentOrServer,
    /// The server, or how it is asked.
    Server,
}

/// A sequence that was left after halving.
#[derive(Debug)]
struct Suspect {
    turns: Vec<TurnId>,
    why: ExcludeReason,
    /// Whether it failed at the step that follows the passes.
    at_step: bool,
    said: String,
}

#[derive(Debug, Default)]
struct FailurePolicy {
    patience: Patience,
    strikes: usize,
    suspect: Option<Suspect>,
}

/// Makes attempts until one gets through, or somebody is at fault. Where one got through, its checkpoint is there.
pub(crate) async fn make(
    mut attempt: Attempt<'_>,
    status: &StatusCell,
    phase: &Phase,
) -> Result<Trained, StepRefusal> {
    status.phase(phase.clone());
    attempt.run.save_asked = false;
    let plan = attempt.plan;
    let most_tokens = attempt.run.most_tokens(attempt.runner.backend.deadline());
    let mut calls = cut(&plan.groups, most_tokens);
    let mut policy = FailurePolicy::default();
    loop {
        let failed = match &policy.suspect {
            None => match attempt.train(&calls).await {
                Ok(trained) => return Ok(trained),
                Err(failed) => failed,
            },
            Some(suspect) => match attempt.control(suspect.at_step).await {
                Ok(()) => return Err(suspect.refusal()),
                Err(failed) => failed,
            },
        };
        let why = failed.to_string();
        if let Some(blame) = policy.failed(&failed, plan, &mut calls) {
            return Err(StepRefusal { blame, why });
        }
        tracing::warn!(error = why, "the step is tried again");
        status.phase(Phase::WaitingForTrainer { why });
        policy.patience.pause().await;
        status.phase(phase.clone());
    }
}

// === impl Suspect ===

impl Suspect {
    fn refusal(&self) -> StepRefusal {
        StepRefusal {
            blame: Blame::Sample {
                turns: self.turns.clone(),
                why: self.why,
            },
            why: self.said.clone(),
        }
    }
}

// === impl FailurePolicy ===

impl FailurePolicy {
    /// Takes note of a failure; who is at fault, if that is known now.
    fn failed(
        &mut self,
        failed: &StepFailure,
        plan: &Plan,
        calls: &mut Vec<MicroBatch>,
    ) -> Option<Blame> {
        let error = &failed.error;
        match failed.stage {
            StepStage::Pass(_) | StepStage::Step | StepStage::Control if error.is_of_weights() => {
                Some(Blame::ParentsNumbers)
            }
            StepStage::Control if error.is_not_finite() => Some(Blame::ParentsNumbers),
            _ if error.is_unreachable() => None,
            StepStage::Pass(at) => self.pass_failed(error, at, plan, calls),
            StepStage::Step if error.is_not_finite() => self.gradient_failed(error, plan),
            StepStage::Parent if failed.may_pass() => self.count(Blame::ParentOrServer),
            StepStage::Parent => Some(Blame::Parent),
            StepStage::Control if error.is_unknown_run() => self.count(Blame::Server),
            StepStage::Server | StepStage::Step | StepStage::Save if failed.may_pass() => {
                self.count(Blame::Server)
            }
            StepStage::Server | StepStage::Step | StepStage::Save | StepStage::Control => {
                Some(Blame::Server)
            }
        }
    }

    fn pass_failed(
        &mut self,
        error: &BackendError,
        at: usize,
        plan: &Plan,
        calls: &mut Vec<MicroBatch>,
    ) -> Option<Blame> {
        let turns = |datum: usize| calls.get(at)?.turns(&plan.groups, datum);
        if let Some(turns) = error.datum().and_then(turns) {
            let why = refusal(error);
            return Some(Blame::Sample { turns, why });
        }
        if error.is_unknown_run() {
            return self.count(Blame::Server);
        }
        let is_refused = matches!(error.status(), Some(400 | 413 | 422));
        if !is_refused && !error.is_ambiguous() {
            let busy = matches!(error.status(), Some(409 | 425 | 429));
            let blame = Blame::Server;
            return if busy { self.count(blame) } else { Some(blame) };
        }
        self.strikes += 1;
        // The same again would take as long, or be refused as well.
        let at_once = is_refused || error.is_timeout();
        if (at_once || self.strikes >= STRIKES) && halve(calls, at) {
            return None;
        }
        if self.strikes >= STRIKES {
            let why = if is_refused {
                ExcludeReason::Refused
            } else {
                ExcludeReason::Fails
            };
            let call = calls.get(at);
            let turns = call.and_then(|call| call.turns(&plan.groups, 0));
            self.suspect = Some(Suspect {
                turns: turns.unwrap_or_default(),
                why,
                at_step: false,
                said: error.to_string(),
            });
        }
        None
    }

    /// Each sequence's gradient would have to be asked for alone.
    fn gradient_failed(&mut self, error: &BackendError, plan: &Plan) -> Option<Blame> {
        if !plan.is_one_sample {
            return Some(Blame::SomeSample);
        }
        self.suspect = Some(Suspect {
            turns: plan.turns.clone(),
            why: ExcludeReason::GradientNotFinite,
            at_step: true,
            said: error.to_string(),
        });
        None
    }

    fn count(&mut self, blame: Blame) -> Option<Blame> {
        self.patience.ends().then_some(blame)
    }
}

fn refusal(error: &BackendError) -> ExcludeReason {
    match error.code() {
        Some(ErrorCode::OutOfMemory) => ExcludeReason::TooLong,
        Some(ErrorCode::LossNotFinite) => ExcludeReason::LossNotFinite,
        Some(_) | None => ExcludeReason::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::ALL;

    fn reply(loss: f64, logprobs: &[Option<f32>]) -> ForwardBackwardReply {
        ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens: 1,
            num_datums: 1,
            loss_fn_outputs: vec![LossFnOutput {
                logprobs: logprobs.to_vec(),
            }],
        }
    }

    fn stepped() -> OptimStepReply {
        serde_json::from_str(r#"{"step": 1, "grad_norm": 0.5, "skipped": true}"#).unwrap()
    }

    #[test]
    fn losses_are_told_apart_and_only_what_is_pushed_has_moved() {
        let sampled = vec![0.0, -1.0, -2.0];
        let advantages = vec![0.0, 0.5, 0.5];
        let datum = Datum::policy(vec![1, 2, 3], vec![2, 3, 4], sampled, advantages).unwrap();
        let pushed = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let datum = Datum::cross_entropy(vec![1], vec![2], vec![1.0]).unwrap();
        let target = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let mut passes = PassSums::default();
        let now = [Some(-9.0), Some(-1.5), Some(-1.75)];
        passes.add("binary_rl", &pushed, &reply(0.5, &now), Duration::ZERO);
        passes.add("redo", &target, &reply(2.0, &[Some(-3.0)]), Duration::ZERO);
        passes.add("redo", &target, &reply(1.0, &[]), Duration::from_secs(2));
        let numbers = passes.numbers(&stepped(), 0.1);
        assert!((numbers.loss - 3.5).abs() < 1e-9 && numbers.skipped);
        assert!((numbers.losses["redo"] - 3.0).abs() < 1e-9);
        assert!((numbers.losses["binary_rl"] - 0.5).abs() < 1e-9);
        assert_eq!((numbers.n_tokens, numbers.train_seconds), (5, 2.0));
        // -0.5 and +0.25; the prompt's has no advantage.
        let drift = numbers.drift.unwrap();
        assert!((drift.kl - 0.125).abs() < 1e-6, "{drift:?}");
        assert!((drift.logprob_abs_diff - 0.375).abs() < 1e-6, "{drift:?}");
    }

    #[test]
    fn a_server_that_says_no_log_probabilities_is_no_drift_of_zero() {
        let numbers = PassSums::default().numbers(&stepped(), 0.1);
        assert_eq!(numbers.drift, None);
    }

    fn group(lengths: &[usize]) -> Group {
        // No two begin with the same id.
        let ids = (0..).zip(lengths).map(|(first, n)| vec![first; *n]);
        of(ids)
    }

    fn of(ids: impl Iterator<Item = Vec<u32>>) -> Group {
        let example = |ids: Vec<u32>| {
            let n = ids.len();
            Example {
                datum: Datum::cross_entropy(ids, vec![1; n], vec![1.0; n]).unwrap(),
                turns: Vec::new(),
                state: None,
            }
        };
        Group {
            method: ALL[0],
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            examples: ids.map(example).collect(),
        }
    }

    /// Eight rollouts of four turns: 200 ids of a task, and 60 more from turn to turn.
    #[test]
    fn the_turns_of_a_rollout_are_computed_as_one_sequence() {
        let turn = |rollout: u32, turn: u32| {
            let task = std::iter::repeat_n(7, 200);
            let own = (0..60 * (turn + 1)).map(move |at| 1_000 * (rollout + 1) + at);
            task.chain(own).collect::<Vec<u32>>()
        };
        let all = (0..8).flat_map(|rollout| (0..4).map(move |at| (rollout, at)));
        let group = of(all.map(|(rollout, at)| turn(rollout, at)));
        let apart: usize = group.examples.iter().map(Example::n_tokens).sum();
        // The task once, and each rollout's own ids once.
        let shared = 200 + 8 * 240;
        assert_eq!((apart, n_computed(&group.examples)), (11_200, shared));
        let calls = cut(&[group], shared);
        assert_eq!(shown(&calls), [(0, 0..32)], "one call");
    }

    fn shown(calls: &[MicroBatch]) -> Vec<(usize, Range<usize>)> {
        let shown = |call: &MicroBatch| (call.group, call.range.clone());
        calls.iter().map(shown).collect()
    }

    #[test]
    fn a_call_has_one_loss_and_no_more_tokens_than_it_may() {
        let groups = [group(&[4, 4, 4, 20, 1]), group(&[2])];
        let calls = cut(&groups, 10);
        let expected = [(0, 0..2), (0, 2..3), (0, 3..4), (0, 4..5), (1, 0..1)];
        assert_eq!(shown(&calls), expected);
        assert_eq!(shown(&cut(&groups, 1_000)), [(0, 0..5), (1, 0..1)]);
        let n: usize = calls.iter().map(|call| call.examples(&groups).len()).sum();
        assert_eq!(n, 6);
    }

    #[test]
    fn halves_come_down_to_one_alone() {
        let mut calls = cut(&[group(&[1, 1, 1])], 10);
        assert!(halve(&mut calls, 0));
        assert_eq!(shown(&calls), [(0, 0..1), (0, 1..3)]);
        assert!(!halve(&mut calls, 0));
        assert!(halve(&mut calls, 1));
        assert_eq!(shown(&calls), [(0, 0..1), (0, 1..2), (0, 2..3)]);
        assert!(!halve(&mut calls, 3), "there is none");
    }
}
