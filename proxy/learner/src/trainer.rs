//! The training server as steps and the gate use it: what it can do, what it stores, and one training run for each agent.

use std::{sync::Arc, time::Duration};

use metaclaw_trainer_api::{
    AdapterName, BackendError, CheckpointName, ErrorCode, RunId, TrainingBackend,
    wire::{Capabilities, CreateRequest, SampleRequest},
};

use crate::{
    config::{RlConfig, TargetForm},
    error::TrainError,
    formulas::n_params,
    lineage::{Candidate, KnownCheckpoint, Provenance, Replayed, ResumePoint, known},
    methods::Group,
};

#[derive(Debug, Clone)]
pub(crate) struct StepRunner {
    pub(crate) backend: Arc<dyn TrainingBackend>,
    pub(crate) rl: RlConfig,
    pub(crate) base: Option<String>,
    /// The calls that it can answer. If checkpoints have no manifests (another server), every attempt begins at
    /// checkpoint n-1 again and overwrites n.
    pub(crate) capabilities: Capabilities,
    pub(crate) replay: Option<Replayed>,
}

// === impl StepRunner ===

impl StepRunner {
    /// Loads a candidate where it has to serve, and asks it for a token; returns why it cannot serve, if so.
    ///
    /// # Errors
    /// Returns an error if that cannot be found out now, because the server, or the one that serves chats for it, does
    /// not answer.
    pub(crate) async fn try_adapter(
        &self,
        candidate: &Candidate,
    ) -> Result<Option<String>, BackendError> {
        // Another server loads what it saves.
        if !self.capabilities.manifests {
            return Ok(None);
        }
        match self.load_and_ask(candidate).await {
            Err(error) if error.code().is_some_and(ErrorCode::is_unfit_adapter) => {
                Ok(Some(error.to_string()))
            }
            // A third-party server may have no such call; then the first request loads the adapter.
            Err(error) if matches!((error.status(), error.code()), (Some(404 | 405), None)) => {
                tracing::warn!(adapter = %candidate.adapter, %error, "not tried before it serves");
                Ok(None)
            }
            tried => tried,
        }
    }

    async fn load_and_ask(&self, candidate: &Candidate) -> Result<Option<String>, BackendError> {
        let name = &candidate.adapter;
        let loaded = self.backend.load_adapter(name.clone()).await?;
        let saved = candidate.sha256.as_ref();
        if let Some(saved) = saved.filter(|saved| **saved != loaded.sha256) {
            let is = loaded.sha256;
            return Ok(Some(format!(
                "it is {is}, and {saved} was saved under its name"
            )));
        }
        let request = SampleRequest::one_token(name.to_string());
        self.backend.sample(request).await.map(|_| None)
    }

    /// Gives back the memory of an adapter that does not serve. A failure costs that memory only, until the server needs it.
    pub(crate) async fn unload(&self, adapter: &AdapterName) {
        if let Err(error) = self.backend.unload_adapter(adapter.clone()).await {
            tracing::debug!(%adapter, %error, "not unloaded");
        }
    }

    pub(crate) fn seed(&self, point: &ResumePoint) -> u64 {
        let chosen = self.replay.as_ref().and_then(|replay| replay.seed);
        chosen.unwrap_or_else(|| point.seed())
    }

    pub(crate) fn made(&self, point: &ResumePoint) -> Provenance {
        Provenance::here(self.seed(point), &self.rl, self.replay.clone())
    }

    pub(crate) async fn answers(&self, name: &AdapterName) -> Result<bool, BackendError> {
        match self
            .backend
            .sample(SampleRequest::one_token(name.to_string()))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_unreachable() || error.status() == Some(503) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Deletes old checkpoints, except those that are needed. What cannot be deleted now is deleted the next time.
    pub(crate) async fn prune(&self, needed: Vec<CheckpointName>) {
        // Other servers delete nothing, and a replay does not know what serves.
        if !self.capabilities.manifests || self.replay.is_some() {
            return;
        }
        match self.backend.prune(needed).await {
            Ok(deleted) if deleted.is_empty() => {}
            Ok(deleted) => tracing::info!(n = deleted.len(), "old checkpoints deleted"),
            Err(error) => tracing::warn!(%error, "old checkpoints were not deleted"),
        }
    }

    pub(crate) fn has(&self, groups: &[Group]) -> Result<(), TrainError> {
        let not_taken = |why: String| Err(TrainError::NotTaken { why });
        if self.rl.target == TargetForm::TopK && !self.capabilities.matrix_targets {
            let why = "the training server takes one target a token: set rl.target to one_hot";
            return not_taken(why.to_owned());
        }
        for Group {
            method,
            loss,
            loss_config,
            examples,
        } in groups
        {
            let method = method.name();
            if !self.capabilities.losses.contains(loss) {
                return Err(TrainError::NoLoss {
                    loss: loss.as_str(),
                    method: method.to_owned(),
                });
            }
            let is_asked = examples.iter().any(|example| example.state.is_some());
            if is_asked && !(self.capabilities.forward && self.capabilities.matrix_targets) {
                return not_taken(format!(
                    "{method} asks the training server for log-probabilities and has it take several targets a token, and this one does not do \
                     both: run metaclaw-trainer there, or set rl.method to binary_rl and rl.anchor to 0"
                ));
            }
            if !loss_config.is_empty() && !self.capabilities.loss_config {
                return not_taken(format!(
                    "the training server reads no bounds of {loss} (rl.clip_low, rl.clip_high), which {method} is held by: run \
                     metaclaw-trainer there, or set rl.loss_fn to importance_sampling, which has none"
                ));
            }
        }
        Ok(())
    }

    /// Returns MetaClaw's checkpoints at the server, or `None` if it cannot list them.
    pub(crate) async fn checkpoints(&self) -> Result<Option<Vec<KnownCheckpoint>>, BackendError> {
        if !self.capabilities.manifests {
            return Ok(None);
        }
        Ok(Some(known(self.backend.checkpoints().await?)))
    }

    /// A run that stands where a step starts, with no gradients.
    pub(crate) async fn put_at(
        &self,
        run: &mut RunHandle,
        point: &ResumePoint,
    ) -> Result<RunId, StepFailure> {
        let id = match (run.id.clone(), &point.checkpoint) {
            (Some(id), Some(_)) => id,
            // Only a new run has a fresh adapter.
            _ => self.create(run, point).await?,
        };
        if let Some(checkpoint) = &point.checkpoint {
            self.load(run, &id, checkpoint, StepStage::Parent).await?;
        }
        Ok(id)
    }

    async fn create(&self, run: &mut RunHandle, point: &ResumePoint) -> Result<RunId, StepFailure> {
        run.close(&*self.backend).await;
        let request = CreateRequest {
            rank: self.rl.lora_rank,
            lora_alpha: Some(self.rl.lora_alpha),
            seed: Some(self.seed(point)),
            targets: Some(self.rl.targets.0.clone()),
            ..CreateRequest::default()
        };
        let created = self.backend.create_run(request).await;
        let reply = seen(run, StepStage::Server, created)?;
        run.n_params = n_params(&reply.trainable_params);
        run.id = Some(reply.session_id.clone());
        Ok(reply.session_id)
    }

    pub(crate) async fn load(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        checkpoint: &CheckpointName,
        stage: StepStage,
    ) -> Result<(), StepFailure> {
        let loaded = self
            .backend
            .load_checkpoint(id.clone(), checkpoint.to_string())
            .await;
        seen(run, stage, loaded).map(|_| ())
    }
}

/// Failures in a row that may pass, before they count as the server's refusal.
const MOST_FAILURES: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, smart_default::SmartDefault)]
pub(crate) struct Patience {
    n_failures: usize,
    #[default(FIRST_PAUSE)]
    pause: Duration,
}

// === impl Patience ===

impl Patience {
    /// Counts a failure; whether it was one too many.
    pub(crate) fn ends(&mut self) -> bool {
        self.n_failures += 1;
        self.n_failures >= MOST_FAILURES
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tokens of a call while it is not known how long they take: seconds on two cores.
const FIRST_TOKENS: usize = 4_096;
/// Tokens of a call at most, however fast the server is.
const MOST_TOKENS: usize = 65_536;
/// The part of a call's deadline that its tokens are to take: chats may slow training down.
const SHARE: f64 = 0.1;
/// A shorter call tells more of the network than of the server.
const MEASURED: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct RunHandle {
    pub(crate) id: Option<RunId>,
    /// Where the run stands; none after anything that leaves doubt.
    pub(crate) at: Option<ResumePoint>,
    pub(crate) n_params: Option<f64>,
    /// Whether the step that is being made has been asked to be written, so that it may be at any time.
    pub(crate) save_asked: bool,
    /// Tokens a second of the last pass.
    pace: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepStage {
    /// Opening a run, listing checkpoints.
    Server,
    /// Loading the checkpoint that it starts from.
    Parent,
    /// A pass: the call of this number among the step's.
    Pass(usize),
    Step,
    /// Training on something harmless, to see whether the server can.
    Control,
    Save,
}

#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct StepFailure {
    pub(crate) stage: StepStage,
    #[source]
    pub(crate) error: Box<BackendError>,
}

// === impl RunHandle ===

impl RunHandle {
    pub(crate) async fn close(&mut self, backend: &dyn TrainingBackend) {
        self.at = None;
        if let Some(run) = self.id.take()
            && let Err(error) = backend.close_run(run.clone()).await
        {
            // It is gone already, or goes when the server wants its memory.
            tracing::debug!(%run, %error, "not closed");
        }
    }

    pub(crate) fn failed(&mut self, error: &BackendError) {
        self.at = None;
        if error.is_unreachable() || error.is_unknown_run() {
            // Whoever answers next may be another process.
            self.id = None;
        }
    }

    pub(crate) fn passed(&mut self, n_tokens: usize, time: Duration) {
        if n_tokens >= MEASURED && !time.is_zero() {
            self.pace = Some(n_tokens as f64 / time.as_secs_f64());
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range is brought to its end, and the bound is far below"
    )]
    pub(crate) fn most_tokens(&self, deadline: Duration) -> usize {
        let by_pace = |pace: f64| (pace * deadline.as_secs_f64() * SHARE) as usize;
        self.pace
            .map_or(FIRST_TOKENS, |pace| by_pace(pace).min(MOST_TOKENS))
    }
}

/// The result of a call; a failure leaves the run in doubt.
pub(crate) fn seen<T>(
    run: &mut RunHandle,
    stage: StepStage,
    result: Result<T, BackendError>,
) -> Result<T, StepFailure> {
    result.map_err(|error| {
        run.failed(&error);
        let error = Box::new(error);
        StepFailure { stage, error }
    })
}

// === impl StepFailure ===

impl StepFailure {
    /// A failure that says nothing about the step itself.
    pub(crate) fn at_server(error: BackendError) -> Self {
        let (stage, error) = (StepStage::Server, Box::new(error));
        Self { stage, error }
    }

    /// Whether it may go another time: nobody there, no telling what was done, or too much to do.
    pub(crate) fn may_pass(&self) -> bool {
        let error = &self.error;
        let busy = matches!(error.status(), Some(409 | 425 | 429));
        busy || error.is_unreachable() || error.is_ambiguous() || error.is_unknown_run()
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_trainer_api::{Datum, LossConfig, LossFn};

    use super::*;
    use crate::{
        methods::{ALL, AnchorTerm, Example, ExampleState},
        sample::AnchorReply,
        testing::World,
    };

    fn runner(capabilities: Capabilities) -> StepRunner {
        StepRunner {
            backend: Arc::new(World::default()),
            rl: RlConfig::default(),
            base: None,
            replay: None,
            capabilities,
        }
    }

    fn refusal(capabilities: Capabilities, group: Group) -> String {
        let lacks = runner(capabilities).has(&[group]).unwrap_err();
        lacks.to_string()
    }

    fn group(loss: LossFn, bound: Option<f64>) -> Group {
        let bound = bound.map(|bound| ("clip_high_threshold".to_owned(), bound));
        Group {
            method: ALL[1],
            loss,
            loss_config: LossConfig::from_iter(bound),
            examples: Vec::new(),
        }
    }

    #[test]
    fn what_a_server_lacks_is_said_before_anything_is_taken() {
        let fork = Capabilities::default;
        let bounded = group(LossFn::Cispo, Some(2.0));
        assert!(
            runner(Capabilities::builtin())
                .has(std::slice::from_ref(&bounded))
                .is_ok()
        );
        let unbounded = group(LossFn::ImportanceSampling, None);
        assert!(runner(fork()).has(&[unbounded]).is_ok());
        let said = refusal(fork(), bounded);
        assert!(said.contains("reads no bounds of cispo"), "{said}");
        let is_so = said.contains("set rl.loss_fn to importance_sampling");
        assert!(is_so, "{said}");
        let said = refusal(fork(), group(LossFn::CrossEntropy, None));
        assert_eq!(
            said,
            "the training server has no cross_entropy, which binary_rl needs"
        );
        let mut distilled = group(LossFn::CrossEntropy, None);
        distilled.examples = vec![Example {
            datum: Datum::cross_entropy(vec![1], vec![2], vec![0.0]).unwrap(),
            turns: Vec::new(),
            state: Some(ExampleState::Anchor(AnchorTerm {
                reply: Arc::new(AnchorReply::default()),
                share: 1.0,
            })),
        }];
        let without = Capabilities {
            forward: false,
            ..Capabilities::builtin()
        };
        assert!(
            runner(Capabilities::builtin())
                .has(std::slice::from_ref(&distilled))
                .is_ok()
        );
        let said = refusal(without, distilled);
        let is_so = said.contains("asks the training server for log-probabilities");
        assert!(is_so, "{said}");
    }

    #[test]
    fn a_call_takes_a_part_of_its_deadline() {
        let mut run = RunHandle::default();
        let most = |run: &RunHandle| run.most_tokens(Duration::from_secs(600));
        assert_eq!(most(&run), FIRST_TOKENS);
        run.passed(4_000, Duration::from_secs(20));
        assert_eq!(most(&run), 12_000, "a minute at 200 tokens a second");
        run.passed(10, Duration::from_secs(5));
        assert_eq!(most(&run), 12_000);
        run.passed(10_000, Duration::from_millis(100));
        assert_eq!(most(&run), MOST_TOKENS);
    }
}
