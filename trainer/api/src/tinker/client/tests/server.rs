//! A server of Tinker's API in memory, which fails as it is told to.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use prost::Message as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

mod skyrl;
mod state;

use crate::{
    Datum, Tensor2,
    tinker::{
        SampleOutput, Sequence, TrainOutput, from_json, from_proto,
        json::{ForwardBackward, SampleCall},
        proto,
    },
};

pub(super) use self::state::{Fault, Inner, Manner};
use self::state::{JSON, Outcome, Saved, run_of};

/// A call that trains or saves.
struct TrainingCall<'a> {
    call: &'a str,
    asked: &'a Value,
    is_protobuf: bool,
    forward_only: bool,
    datums: &'a [Datum],
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) url: String,
    inner: Arc<Mutex<Inner>>,
}

// === impl Server ===

impl Server {
    pub(super) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Mutex::new(Inner {
            manner,
            flags: json!({}),
            ..Inner::default()
        }));
        let server = Self { url, inner };
        let serving = server.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.one(socket).await });
            }
        });
        server
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// The next calls of a path fail so.
    pub(super) fn fail(&self, path: &str, faults: &[Fault]) {
        let mut inner = self.inner();
        inner
            .faults
            .entry(path.to_owned())
            .or_default()
            .extend(faults.iter().cloned());
    }

    pub(super) fn flags(&self, flags: Value) {
        self.inner().flags = flags;
    }

    /// Killed and started again: what was saved stays.
    pub(super) fn restart(&self) {
        let mut inner = self.inner();
        if inner.manner.is_skyrl {
            return inner.forget_models();
        }
        inner.sessions.clear();
        inner.models.clear();
        inner.samplers.clear();
        inner.results.clear();
        inner.seen.clear();
    }

    /// What the checkpoints of this beginning hold.
    pub(super) fn saved(&self, kind: &str) -> Vec<(String, Vec<u32>)> {
        let inner = self.inner();
        let of_kind = inner.saved.iter().filter(|it| it.path.contains(kind));
        of_kind
            .map(|it| (it.path.clone(), it.weights.clone()))
            .collect()
    }

    /// How often a path was asked.
    pub(super) fn n_asked(&self, path: &str) -> usize {
        self.inner()
            .asked
            .iter()
            .filter(|(it, _)| it == path)
            .count()
    }

    /// The network goes, or is there again.
    pub(super) fn set_away(&self, is_away: bool) {
        self.inner().is_away = is_away;
    }

    async fn one(&self, mut socket: TcpStream) {
        {
            let mut inner = self.inner();
            if inner.is_away {
                inner.n_dropped += 1;
                return;
            }
        }
        let Some((path, head, body)) = read(&mut socket).await else {
            return;
        };
        let is_protobuf = head.contains("application/x-protobuf\r\ncontent-length")
            || head.contains("content-type: application/x-protobuf");
        let bare = path.split('?').next().unwrap_or_default().to_owned();
        let fault = {
            let mut inner = self.inner();
            inner.heads.push(head.clone());
            inner.asked.push((
                bare.clone(),
                serde_json::from_slice(&body).unwrap_or(Value::Null),
            ));
            inner.faults.get_mut(&bare).and_then(VecDeque::pop_front)
        };
        let fails = match &fault {
            Some(Fault::Before) => return,
            Some(Fault::Answers(status, body)) => {
                return write(&mut socket, *status, "application/json", body.as_bytes()).await;
            }
            Some(Fault::Fails(category, why)) => Some(json!({"error": why, "category": category})),
            Some(Fault::After) | None => None,
        };
        let (status, kind, answer) = self.inner().answer(&path, is_protobuf, &body, fails);
        match fault {
            Some(Fault::After) => {}
            _ => write(&mut socket, status, kind, &answer).await,
        }
    }
}

// === impl Inner ===

impl Inner {
    fn answer(
        &mut self,
        path: &str,
        is_protobuf: bool,
        body: &[u8],
        fails: Option<Value>,
    ) -> (u16, &'static str, Vec<u8>) {
        let ok = |value: Value| (200, JSON, value.to_string().into_bytes());
        let gone = || (404, JSON, br#"{"detail":"Not Found"}"#.to_vec());
        let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let bare = path.split('?').next().unwrap_or_default();
        match bare {
            "client/config" => ok(self.flags.clone()),
            "auth/token" => ok(json!({"jwt": "eyJ.e30.x"})),
            "get_server_capabilities" => ok(json!({"supported_models": [
                {"model_name": "Qwen/Qwen3-8B", "trainable": true}, {"model_name": "org/other", "trainable": false}
            ]})),
            "create_session" => {
                self.n += 1;
                let id = format!("sess-{}", self.n);
                self.sessions.insert(id.clone());
                ok(json!({"session_id": id}))
            }
            "session_heartbeat" if self.sessions.contains(text(&asked, "session_id")) => {
                ok(json!({}))
            }
            "session_heartbeat" => (410, JSON, b"{}".to_vec()),
            "create_sampling_session" => {
                let path = text(&asked, "model_path");
                let is_there = path.is_empty() || self.saved.iter().any(|it| it.is_at(path));
                if !self.sessions.contains(text(&asked, "session_id")) || !is_there {
                    return gone();
                }
                self.n += 1;
                let id = format!("sampler-{}", self.n);
                self.samplers.insert(id.clone(), path.to_owned());
                ok(json!({"sampling_session_id": id}))
            }
            "retrieve_future" => match self.results.get(text(&asked, "request_id")) {
                Some(Outcome::Json(value)) => ok(value.clone()),
                Some(Outcome::Failed(why)) => {
                    let body = json!({"detail": why}).to_string();
                    (400, JSON, body.into_bytes())
                }
                Some(Outcome::Protobuf(bytes)) => (200, "application/x-protobuf", bytes.clone()),
                None => gone(),
            },
            "asample" => self.asample(body),
            "checkpoints" if !self.manner.is_skyrl => {
                let all: Vec<Value> = self
                    .saved
                    .iter()
                    .enumerate()
                    .map(|(at, it)| listed(at, it))
                    .collect();
                let n = all.len();
                ok(
                    json!({"checkpoints": all, "cursor": {"offset": 0, "limit": 100, "total_count": n}}),
                )
            }
            "training_runs" => {
                let runs: BTreeSet<&str> = self.saved.iter().map(|it| run_of(&it.path)).collect();
                let runs: Vec<Value> = runs.into_iter().map(skyrl::run).collect();
                let n = runs.len();
                ok(
                    json!({"training_runs": runs, "cursor": {"offset": 0, "limit": 100, "total_count": n}}),
                )
            }
            "weights_info" if self.manner.is_skyrl => {
                self.weights_info(text(&asked, "tinker_path"))
            }
            _ if bare.starts_with("training_runs/") => self.of_run(bare),
            "create_model"
            | "load_weights"
            | "forward_backward"
            | "forward"
            | "optim_step"
            | "save_weights"
            | "save_weights_for_sampler"
            | "unload_model" => self.promise(bare, is_protobuf, body, fails),
            _ => gone(),
        }
    }

    fn of_run(&mut self, path: &str) -> (u16, &'static str, Vec<u8>) {
        let rest = path.trim_start_matches("training_runs/");
        let (run, rest) = rest.split_once("/checkpoints").unwrap();
        if let Some(id) = rest.strip_prefix('/') {
            if self.manner.is_skyrl {
                return (404, JSON, br#"{"detail":"Not Found"}"#.to_vec());
            }
            let path = format!("tinker://{run}/{id}");
            self.saved.retain(|it| it.path != path);
            return (204, JSON, Vec::new());
        }
        let all = self.saved.iter().enumerate();
        let all = all.filter(|(_, it)| run_of(&it.path) == run);
        let all: Vec<Value> = all.map(|(at, it)| listed(at, it)).collect();
        let body = json!({"checkpoints": all}).to_string();
        (200, JSON, body.into_bytes())
    }

    fn asample(&mut self, body: &[u8]) -> (u16, &'static str, Vec<u8>) {
        let sample: SampleCall = serde_json::from_slice(body).unwrap();
        let sampler = sample.sampling_session_id.as_ref().unwrap().to_string();
        let Some(weights) = self.samplers.get(&sampler).cloned() else {
            return (404, JSON, br#"{"detail":"no such sampler"}"#.to_vec());
        };
        let prompt = sample.prompt.clone().into_tokens().unwrap();
        let of_prompt = prompt.iter().enumerate();
        // A token's log-probability is minus a tenth of its id.
        let of_prompt = of_prompt.map(|(at, id)| (at > 0).then_some(*id as f32 * -0.1));
        let k = sample.topk_prompt_logprobs;
        let row = |at: usize| (at > 0).then(|| (0..k).map(|id| (id, id as f32 * -0.1)).collect());
        let sees = !self.manner.is_blind;
        let sequence = Sequence {
            tokens: vec![7; sample.sampling_params.max_tokens.unwrap() as usize],
            logprobs: Some(vec![
                -0.7;
                sample.sampling_params.max_tokens.unwrap() as usize
            ]),
            ..Sequence::default()
        };
        let output = SampleOutput {
            sequences: vec![sequence; sample.num_samples as usize],
            prompt_logprobs: (sees && sample.prompt_logprobs == Some(true))
                .then(|| of_prompt.collect()),
            topk_prompt_logprobs: (sees && k > 0).then(|| (0..prompt.len()).map(row).collect()),
            ..SampleOutput::default()
        };
        let outcome = if self.manner.is_skyrl {
            self.by_slot(&weights, output)
        } else {
            Outcome::Protobuf(output.to_proto().encode_to_vec())
        };
        self.n += 1;
        let id = format!("req-{}", self.n);
        self.results.insert(id.clone(), outcome);
        let body = json!({"request_id": id, "sample_sequence_ids": ["a"]});
        (200, JSON, body.to_string().into_bytes())
    }

    fn promise(
        &mut self,
        call: &str,
        is_protobuf: bool,
        body: &[u8],
        fails: Option<Value>,
    ) -> (u16, &'static str, Vec<u8>) {
        let status = |status: u16, why: &str| {
            (
                status,
                JSON,
                json!({"detail": why}).to_string().into_bytes(),
            )
        };
        if is_protobuf && self.manner.is_skyrl {
            // It cannot write down what it got.
            return (500, JSON, b"Internal Server Error".to_vec());
        }
        let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let message = proto::ProtoForwardBackward::decode(body).unwrap_or_default();
        let (mut model, mut seq) = (
            text(&asked, "model_id").to_owned(),
            asked["seq_id"].as_i64(),
        );
        if is_protobuf {
            (model, seq) = (message.model_id.clone(), Some(message.seq_id.into()));
        }
        let makes = call == "create_model" || (call == "load_weights" && model.is_empty());
        if makes {
            if self.manner.is_skyrl && call == "load_weights" {
                return status(422, "model_id: Field required");
            }
            let session = text(&asked, "session_id");
            if !self.sessions.contains(session) {
                return status(404, "Session not found");
            }
            model = format!("{session}:train:{}", asked["model_seq_id"]);
            if self.manner.is_skyrl {
                self.n += 1;
                model = format!("model_{}", self.n);
            }
            self.models.entry(model.clone()).or_default().next = 1;
        }
        if !self.models.contains_key(&model) {
            return status(404, "Model not found");
        }
        let key = (model.clone(), seq.unwrap_or(0));
        if !self.manner.is_skyrl && !makes && call != "unload_model" {
            if let Some((known, id)) = self.seen.get(&key) {
                if known != body {
                    return status(409, "this number was of another request");
                }
                let again = json!({"request_id": id}).to_string();
                return (200, JSON, again.into_bytes());
            }
            let next = self.models[&model].next;
            assert_eq!(seq, Some(next), "{call}: numbers are without a gap");
            self.models.get_mut(&model).unwrap().next += 1;
        }
        let datums = match (is_protobuf, call) {
            (true, _) => from_proto(message.data.clone()).unwrap(),
            (false, "forward" | "forward_backward") => {
                let input: ForwardBackward = serde_json::from_slice(body).unwrap();
                from_json(input.forward_backward_input.data).unwrap()
            }
            _ => Vec::new(),
        };
        let outcome = match fails {
            Some(failed) => Outcome::Json(failed),
            None if self.manner.is_skyrl && makes => self.make(&model),
            None if !self.is_held(&model) => Outcome::Failed(skyrl::not_loaded(&model)),
            None => {
                let training = TrainingCall {
                    call,
                    asked: &asked,
                    is_protobuf,
                    forward_only: message.forward_only,
                    datums: &datums,
                };
                self.carry_out(&model, &training)
            }
        };
        self.n += 1;
        let id = format!("req-{}", self.n);
        self.results.insert(id.clone(), outcome);
        self.seen.insert(key, (body.to_vec(), id.clone()));
        let promise = json!({"request_id": id, "model_id": model}).to_string();
        (200, JSON, promise.into_bytes())
    }

    fn carry_out(&mut self, model: &str, training: &TrainingCall<'_>) -> Outcome {
        let &TrainingCall {
            call,
            asked,
            is_protobuf,
            forward_only,
            datums,
        } = training;
        let path = text(asked, "path");
        let it = self.models.get_mut(model).unwrap();
        match call {
            "load_weights" => {
                let saved = self.saved.iter().find(|it| it.path == path);
                it.slot.loaded = None;
                let Some(saved) = saved else {
                    return Outcome::Json(json!({"error": "no such weights", "category": "user"}));
                };
                (it.weights, it.gradient) = (saved.weights.clone(), Vec::new());
                Outcome::Json(json!({"path": path, "model_id": model}))
            }
            "forward_backward" | "forward" => {
                let marks = datums.iter().map(|it| it.parts().model_input_tokens[0]);
                if call == "forward_backward" && !forward_only {
                    it.gradient.extend(marks);
                }
                let targets = |it: &Datum| {
                    let of = &it.parts().target_tokens;
                    let values = of.values().iter().map(|id| *id as f32 * -0.1).collect();
                    Tensor2::shaped(values, &of.shape()).unwrap()
                };
                let mut output = TrainOutput::new(datums.iter().map(targets).collect(), 5.0);
                if self.manner.is_skyrl {
                    output.metrics.clear();
                }
                if is_protobuf {
                    return Outcome::Protobuf(output.to_proto().encode_to_vec());
                }
                Outcome::Json(serde_json::to_value(output.to_json()).unwrap())
            }
            "optim_step" => {
                let gradient = std::mem::take(&mut it.gradient);
                it.weights.extend(gradient);
                Outcome::Json(json!({"metrics": {"grad_norm": 0.5}}))
            }
            "save_weights" | "save_weights_for_sampler" => {
                let kind = if call == "save_weights" {
                    "weights"
                } else {
                    "sampler_weights"
                };
                let weights = it.weights.clone();
                if path.is_empty() {
                    self.n += 1;
                    let id = format!("sampler-{}", self.n);
                    self.samplers.insert(id.clone(), String::new());
                    return Outcome::Json(json!({"sampling_session_id": id}));
                }
                let short = format!("tinker://{model}/{path}");
                let path = format!("tinker://{model}/{kind}/{path}");
                let metadata = if self.manner.is_skyrl {
                    Value::Null
                } else {
                    asked["user_metadata"].clone()
                };
                self.saved.push(Saved {
                    path: path.clone(),
                    weights,
                    metadata,
                });
                let is_short = self.manner.is_skyrl && kind == "sampler_weights";
                Outcome::Json(json!({"path": if is_short { short } else { path }}))
            }
            "unload_model" if self.manner.is_skyrl => self.unload(model),
            _ => Outcome::Json(json!({"model_id": model})),
        }
    }
}

fn text<'a>(body: &'a Value, key: &str) -> &'a str {
    body[key].as_str().unwrap_or_default()
}

fn listed(at: usize, saved: &Saved) -> Value {
    let id = saved.path.splitn(4, '/').nth(3).unwrap_or_default();
    json!({
        "checkpoint_id": id, "checkpoint_type": "training", "tinker_path": saved.path,
        "time": format!("2026-01-01T00:{:02}:{:02}", at / 60, at % 60), "user_metadata": saved.metadata,
    })
}

async fn read(socket: &mut TcpStream) -> Option<(String, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let exact = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.split("content-length: ").nth(1);
    let length = length
        .and_then(|it| it.split("\r\n").next()?.parse::<usize>().ok())
        .unwrap_or(0);
    while bytes.len() < end + length {
        socket.read_buf(&mut bytes).await.ok()?;
    }
    let path = exact
        .split(' ')
        .nth(1)?
        .split_once("/api/v1/")?
        .1
        .to_owned();
    Some((path, head, bytes[end..].to_vec()))
}

async fn write(socket: &mut TcpStream, status: u16, kind: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = socket.write_all(head.as_bytes()).await;
    let _ = socket.write_all(body).await;
    let _ = socket.shutdown().await;
}
