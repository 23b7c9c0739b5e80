//! The training server's calls.

use std::time::Duration;

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

use super::{
    super::crash,
    World,
    failure::refusal,
    model,
    state::{Damage, Run, Saved, Weights, mark},
};

fn content(weights: &Weights) -> String {
    format!("{weights:?}")
}

/// The rank of a run by which the base model scores; steps use other ranks.
const SCORING: u32 = 1;

impl World {
    fn scoring_run(&self) -> Result<CreateReply, BackendError> {
        let mut inner = self.inner();
        inner.text_fails("create", "")?;
        inner.next_run += 1;
        let session_id: RunId = format!("{:08x}", inner.next_run).parse().unwrap();
        inner.scoring.insert(session_id.clone());
        Ok(CreateReply {
            session_id,
            status: "ready".to_owned(),
            model: inner.base.0.clone(),
            rank: SCORING,
            trainable_params: String::new(),
        })
    }

    async fn begin_draw(&self, prompt: &str) {
        let draws = {
            let mut inner = self.inner();
            inner.events.push(format!("draws {prompt}"));
            inner.draws.clone()
        };
        if let Some(draws) = draws {
            draws.acquire().await.unwrap().forget();
        }
    }
}

impl TrainingBackend for World {
    fn deadline(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn surely_scores(&self) -> bool {
        !self.inner().lacks_scores
    }

    fn health(&self) -> BackendFuture<'_, Health> {
        Box::pin(async {
            let json = r#"{"status":"healthy"}"#;
            let health: Health = serde_json::from_str(json).unwrap();
            let mut inner = self.inner();
            inner.health_fails()?;
            Ok(Health {
                base_fingerprint: Some(inner.base.1.clone()),
                capabilities: Capabilities {
                    forward: inner.scores,
                    ..Capabilities::builtin()
                },
                ..health
            })
        })
    }

    fn create_run(&self, request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        if request.rank == SCORING {
            return Box::pin(async { self.scoring_run() });
        }
        self.call("create", |inner| {
            if request.rank > inner.max_rank {
                return Err(refusal("create", 400, None));
            }
            let rank = request.rank;
            inner.created.push(request);
            inner.next_run += 1;
            let session_id: RunId = format!("{:08x}", inner.next_run).parse().unwrap();
            let run = Run {
                is_finite: true,
                ..Run::default()
            };
            inner.runs.insert(session_id.clone(), run);
            Ok(CreateReply {
                session_id,
                status: "ready".to_owned(),
                model: inner.base.0.clone(),
                rank,
                trainable_params: "9.77M / 134.52M".to_owned(),
            })
        })
    }

    fn forward(&self, request: ForwardRequest) -> BackendFuture<'_, ForwardReply> {
        Box::pin(async move {
            let said = request
                .datums
                .iter()
                .map(|datum| model::text(&datum.parts().model_input_tokens));
            let said = said.collect::<Vec<_>>().concat();
            self.inner().text_fails("forward", &said)?;
            if !self.inner().scores {
                return Err(refusal("forward", 404, Some("unknown_route")));
            }
            if self.inner().lacks_scores {
                return Err(BackendError::NotSupported {
                    call: "forward",
                    url: "world".to_owned(),
                    what: "it scores no given ids".to_owned(),
                });
            }
            let failure = self.inner().scoring_fails();
            self.or_fails("forward", failure, move |inner| inner.forward(&request))
                .await
        })
    }

    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply> {
        let call = "forward_backward";
        self.call(call, move |inner| {
            let marks: Weights = request.datums.iter().map(mark).collect();
            inner.passes.push(marks.clone());
            inner.events.push(format!("passed {marks:?}"));
            let run = inner.run(call, &request.session_id)?;
            if !run.is_finite {
                return Err(refusal(call, 400, Some("weights_not_finite")));
            }
            inner.suffers(&request.datums)?;
            for datum in &request.datums {
                let needed = match request.loss_fn {
                    LossFn::CrossEntropy => datum.parts().weights.is_some(),
                    _ => datum.parts().advantages.is_some(),
                };
                assert!(needed, "{datum:?}");
            }
            if request.loss_fn == LossFn::CrossEntropy {
                inner.targets.extend(request.datums);
            }
            let run = inner.run(call, &request.session_id)?;
            run.gradients.extend(marks);
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
        let call = "optim_step";
        self.call(call, move |inner| {
            let gradients = inner.run(call, &request.session_id)?.gradients.clone();
            if inner.ruins(&gradients) {
                inner.run(call, &request.session_id)?.gradients.clear();
                return Err(refusal(call, 400, Some("gradient_not_finite")));
            }
            inner.stepped.push(request.clone());
            let run = inner.run(call, &request.session_id)?;
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
            let habit = inner.coming.pop_front().unwrap_or(inner.then);
            inner.run("save_adapter", &run)?.habit = habit;
            inner.habits.insert(name.clone(), habit);
            let run = inner.run("save_adapter", &run)?.clone();
            let sha256 = Some(content(&run.weights));
            let keeps = inner.keeps_adapters && inner.adapters.contains_key(&name);
            if !keeps {
                inner.adapters.insert(name, run.weights);
            }
            Ok(SaveWeightsReply {
                status: "ok".to_owned(),
                adapter_path: String::new(),
                step: run.step,
                sha256,
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
                sha256: Some(content(&run.weights)),
                manifest,
                created_ms: 0,
            };
            let others = |saved: &Saved| saved.info.name != info.name;
            inner.checkpoints.retain(others);
            let base = inner.base.1.clone();
            inner.checkpoints.push(Saved { info, run, base });
            Ok(CheckpointSaveReply {
                status: "ok".to_owned(),
                path: String::new(),
            })
        })
    }

    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64> {
        self.call("load_checkpoint", move |inner| {
            let saved = inner.load(&path)?;
            let run = inner.run("load_checkpoint", &run)?;
            *run = saved;
            Ok(run.step)
        })
    }

    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>> {
        self.call("checkpoints", |inner| {
            let saved = inner.checkpoints.iter();
            Ok(saved.map(|saved| saved.info.clone()).collect())
        })
    }

    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>> {
        Box::pin(async { panic!("the learner lists no adapters") })
    }

    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply> {
        Box::pin(async move {
            let mut inner = self.inner();
            let fails = inner.text_fails("load", "");
            inner.n_failed_loads += usize::from(fails.is_err());
            fails?;
            let weights = inner.adapters.get(&name);
            let weights = weights.ok_or_else(|| refusal("load", 404, Some("model_not_found")))?;
            let sha256 = content(weights);
            inner.loaded.push(name);
            Ok(LoadAdapterReply {
                status: "ok".to_owned(),
                step: 0,
                sha256,
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
            closed.ok_or_else(|| refusal("close_run", 404, Some("run_not_found")))
        })
    }

    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool> {
        Box::pin(async move {
            let loaded = &mut self.inner().loaded;
            let n_before = loaded.len();
            loaded.retain(|other| *other != name);
            Ok(loaded.len() < n_before)
        })
    }

    fn sample(&self, request: SampleRequest) -> BackendFuture<'_, SampleReply> {
        Box::pin(async move {
            crash::moment().await;
            if request.num_samples > 1 {
                self.begin_draw(&model::text(&request.tokens)).await;
            }
            self.inner().streams(i64::from(request.num_samples));
            tokio::task::yield_now().await;
            let mut inner = self.inner();
            inner.streams(-i64::from(request.num_samples));
            inner.text_fails("sample", &model::text(&request.tokens))?;
            let model = request.model.clone().unwrap_or_default();
            if inner.damage_of(&model) == Some(Damage::NotFinite) {
                return Err(refusal("sample", 500, Some("weights_not_finite")));
            }
            inner.sample(&request)
        })
    }

    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Box::pin(async move {
            let tokens = model::tokenize(&request);
            self.inner().text_fails("tokenize", &model::text(&tokens))?;
            Ok(TokenizeReply {
                count: u32::try_from(tokens.len()).unwrap(),
                max_model_len: 8_192,
                reply_start: request.split_reply.then(|| model::reply_start(&request)),
                tokens,
            })
        })
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        Box::pin(async move { Ok(self.inner().sampled.get(&reply_id).cloned()) })
    }
}
