//! The training server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use metaclaw_trainer_api::{
    AdapterName, BackendError, BackendFuture, CheckpointName, LossFn, RunId, TrainingBackend,
    wire::{
        AdapterInfo, Capabilities, CheckpointInfo, CheckpointSaveReply, CreateReply, CreateRequest,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, Health,
        LoadAdapterReply, OptimStepReply, OptimStepRequest, SampleReply, SampleRequest, Sampled,
        SaveWeightsReply, TokenizeReply, TokenizeRequest,
    },
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// What a call does instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody there; nothing was done.
    Unreachable,
    /// Nothing was done, and no answer came.
    LostBefore,
    /// It was done, and no answer came.
    LostAfter,
    /// It was done, and the answer is a 500.
    ErrorAfter,
    /// The server was killed before the call: it forgets its runs.
    Killed,
    /// The client is killed before the call is done.
    ClientKilledBefore,
    /// The client is killed after it.
    ClientKilledAfter,
    /// 400.
    Refused,
}

/// What was trained on: the first id of each datum, in order.
pub(crate) type Weights = Vec<u32>;

#[derive(Debug, Default, Clone)]
struct Run {
    weights: Weights,
    gradients: Weights,
    step: u64,
}

#[derive(Debug, Default)]
struct Inner {
    runs: BTreeMap<RunId, Run>,
    checkpoints: Vec<(CheckpointInfo, Run)>,
    adapters: BTreeMap<AdapterName, Weights>,
    sampled: BTreeMap<String, Sampled>,
    /// Calls that may fail, counted; and which of them do.
    n_calls: usize,
    failures: BTreeMap<usize, Failure>,
    next_run: u32,
    /// What each run and each optim_step was asked for.
    created: Vec<CreateRequest>,
    stepped: Vec<OptimStepRequest>,
    /// What was taken into memory, in order.
    loaded: Vec<AdapterName>,
    /// What each prune was told to keep.
    kept: Vec<Vec<CheckpointName>>,
    client: CancellationToken,
}

/// A training server in memory.
#[derive(Debug, Default, Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

// === impl World ===

impl World {
    /// Makes the `n`th call from now on fail; counts the calls of a step only, from 0.
    pub(crate) fn fail(&self, n: usize, failure: Failure) {
        let mut inner = self.inner();
        let at = inner.n_calls + n;
        inner.failures.insert(at, failure);
    }

    /// What ends when the client is killed.
    pub(crate) fn client(&self) -> CancellationToken {
        let client = CancellationToken::new();
        self.inner().client = client.clone();
        client
    }

    /// Remembers what a reply was sampled as.
    pub(crate) fn remember(&self, sampled: Sampled) {
        self.inner().sampled.insert(sampled.id.clone(), sampled);
    }

    /// The manifests and weights of all checkpoints.
    pub(crate) fn checkpoints(&self) -> Vec<(Value, Weights)> {
        let inner = self.inner();
        inner
            .checkpoints
            .iter()
            .map(|(info, run)| (info.manifest.clone(), run.weights.clone()))
            .collect()
    }

    /// The weights of an adapter.
    pub(crate) fn adapter(&self, name: &str) -> Option<Weights> {
        self.inner()
            .adapters
            .get(&name.parse::<AdapterName>().unwrap())
            .cloned()
    }

    /// The learning rates so far.
    pub(crate) fn rates(&self) -> Vec<f64> {
        let inner = self.inner();
        inner.stepped.iter().map(|it| it.learning_rate).collect()
    }

    /// What the last run, and its last step, were asked for.
    pub(crate) fn asked(&self) -> Option<(CreateRequest, OptimStepRequest)> {
        let inner = self.inner();
        Some((inner.created.last()?.clone(), inner.stepped.last()?.clone()))
    }

    /// The adapters that were taken into memory, in order.
    pub(crate) fn loaded(&self) -> Vec<String> {
        let inner = self.inner();
        inner.loaded.iter().map(AdapterName::to_string).collect()
    }

    /// What each prune was told to keep.
    pub(crate) fn kept(&self) -> Vec<Vec<String>> {
        let inner = self.inner();
        let names = |names: &Vec<CheckpointName>| names.iter().map(ToString::to_string).collect();
        inner.kept.iter().map(names).collect()
    }

    /// How many runs are open.
    pub(crate) fn n_runs(&self) -> usize {
        self.inner().runs.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// One call that may fail.
    fn call<'a, T: Send + 'a>(
        &'a self,
        call: &'static str,
        work: impl FnOnce(&mut Inner) -> Result<T, BackendError> + Send + 'a,
    ) -> BackendFuture<'a, T> {
        Box::pin(async move {
            let failure = {
                let mut inner = self.inner();
                inner.n_calls += 1;
                let at = inner.n_calls - 1;
                inner.failures.remove(&at)
            };
            let timeout = || BackendError::Timeout {
                call,
                url: "world".to_owned(),
                after: Duration::ZERO,
            };
            match failure {
                None => work(&mut self.inner()),
                Some(Failure::Unreachable) => Err(BackendError::NoEndpoint { call }),
                Some(Failure::LostBefore) => Err(timeout()),
                Some(Failure::LostAfter) => work(&mut self.inner()).and_then(|_| Err(timeout())),
                Some(Failure::ErrorAfter) => {
                    work(&mut self.inner()).and_then(|_| Err(status(call, 500, None)))
                }
                Some(Failure::Refused) => Err(status(call, 400, None)),
                Some(Failure::Killed) => {
                    self.inner().runs.clear();
                    Err(BackendError::NoEndpoint { call })
                }
                Some(Failure::ClientKilledBefore) => self.kill_client().await,
                Some(Failure::ClientKilledAfter) => {
                    work(&mut self.inner())?;
                    self.kill_client().await
                }
            }
        })
    }

    async fn kill_client<T>(&self) -> T {
        self.inner().client.cancel();
        std::future::pending().await
    }
}

fn status(call: &'static str, status: u16, code: Option<&str>) -> BackendError {
    let (url, message) = ("world".to_owned(), "no".to_owned());
    BackendError::Status {
        call,
        url,
        status,
        code: code.map(str::to_owned),
        message,
    }
}

impl Inner {
    fn run(&mut self, call: &'static str, run: &RunId) -> Result<&mut Run, BackendError> {
        self.runs
            .get_mut(run)
            .ok_or_else(|| status(call, 404, Some("run_not_found")))
    }
}

impl TrainingBackend for World {
    fn health(&self) -> BackendFuture<'_, Health> {
        Box::pin(async {
            let json = r#"{"status":"healthy"}"#;
            let health: Health = serde_json::from_str(json).unwrap();
            Ok(Health {
                capabilities: Capabilities::builtin(),
                ..health
            })
        })
    }

    fn create_run(&self, request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        self.call("create", |inner| {
            inner.created.push(request);
            inner.next_run += 1;
            let session_id: RunId = format!("{:08x}", inner.next_run).parse().unwrap();
            inner.runs.insert(session_id.clone(), Run::default());
            Ok(CreateReply {
                session_id,
                status: "ready".to_owned(),
                model: "base".to_owned(),
                rank: 16,
                trainable_params: "9.77M / 134.52M".to_owned(),
            })
        })
    }

    fn forward(&self, _: ForwardRequest) -> BackendFuture<'_, ForwardReply> {
        Box::pin(async { panic!("the learner asks for no forward pass") })
    }

    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply> {
        self.call("forward_backward", move |inner| {
            let run = inner.run("forward_backward", &request.session_id)?;
            for datum in &request.datums {
                let needed = match request.loss_fn {
                    LossFn::CrossEntropy => datum.parts().weights.is_some(),
                    _ => datum.parts().advantages.is_some(),
                };
                assert!(needed, "{datum:?}");
                run.gradients.push(datum.parts().model_input_tokens[0]);
            }
            Ok(ForwardBackwardReply {
                status: "ok".to_owned(),
                loss: 1.0,
                total_tokens: 1,
                num_datums: 1,
                loss_fn_outputs: Vec::new(),
            })
        })
    }

    fn optim_step(&self, request: OptimStepRequest) -> BackendFuture<'_, OptimStepReply> {
        self.call("optim_step", move |inner| {
            inner.stepped.push(request.clone());
            let run = inner.run("optim_step", &request.session_id)?;
            run.weights.append(&mut run.gradients);
            run.step += 1;
            let (step, learning_rate) = (run.step, request.learning_rate);
            Ok(OptimStepReply {
                status: "ok".to_owned(),
                step,
                grad_norm: 0.5,
                skipped: false,
                median_grad_norm: None,
                avg_loss: 1.0,
                learning_rate,
            })
        })
    }

    fn save_adapter(&self, run: RunId, name: AdapterName) -> BackendFuture<'_, SaveWeightsReply> {
        self.call("save_adapter", move |inner| {
            let run = inner.run("save_adapter", &run)?.clone();
            inner.adapters.insert(name, run.weights);
            Ok(SaveWeightsReply {
                status: "ok".to_owned(),
                adapter_path: String::new(),
                step: run.step,
                sha256: None,
            })
        })
    }

    fn save_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        manifest: Value,
    ) -> BackendFuture<'_, CheckpointSaveReply> {
        self.call("save_checkpoint", move |inner| {
            let run = inner.run("save_checkpoint", &run)?.clone();
            let info = CheckpointInfo {
                name,
                path: String::new(),
                step: run.step,
                sha256: None,
                manifest,
                created_ms: 0,
            };
            inner
                .checkpoints
                .retain(|(known, _)| known.name != info.name);
            inner.checkpoints.push((info, run));
            Ok(CheckpointSaveReply {
                status: "ok".to_owned(),
                path: String::new(),
            })
        })
    }

    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64> {
        self.call("load_checkpoint", move |inner| {
            let saved = inner
                .checkpoints
                .iter()
                .find(|(info, _)| info.name.as_str() == path);
            let saved = saved
                .map(|(_, run)| run.clone())
                .ok_or_else(|| status("load_checkpoint", 404, None))?;
            let run = inner.run("load_checkpoint", &run)?;
            *run = Run {
                gradients: Weights::new(),
                ..saved
            };
            Ok(run.step)
        })
    }

    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>> {
        self.call("checkpoints", |inner| {
            Ok(inner
                .checkpoints
                .iter()
                .map(|(info, _)| info.clone())
                .collect())
        })
    }

    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>> {
        Box::pin(async { panic!("the learner lists no adapters") })
    }

    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply> {
        Box::pin(async move {
            let mut inner = self.inner();
            assert!(inner.adapters.contains_key(&name), "{name} is not saved");
            inner.loaded.push(name);
            Ok(LoadAdapterReply {
                status: "ok".to_owned(),
                step: 0,
                sha256: String::new(),
                bytes: 0,
            })
        })
    }

    fn prune(&self, keep: Vec<CheckpointName>) -> BackendFuture<'_, Vec<CheckpointName>> {
        Box::pin(async move {
            self.inner().kept.push(keep);
            Ok(Vec::new())
        })
    }

    fn close_run(&self, run: RunId) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let closed = self.inner().runs.remove(&run).map(|_| ());
            closed.ok_or_else(|| status("close_run", 404, Some("run_not_found")))
        })
    }

    fn unload_adapter(&self, _: AdapterName) -> BackendFuture<'_, bool> {
        Box::pin(async { panic!("the learner unloads nothing") })
    }

    fn sample(&self, _: SampleRequest) -> BackendFuture<'_, SampleReply> {
        Box::pin(async { panic!("the learner samples nothing") })
    }

    fn tokenize(&self, _: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Box::pin(async { panic!("the learner tokenises nothing") })
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        Box::pin(async move { Ok(self.inner().sampled.get(&reply_id).cloned()) })
    }
}
