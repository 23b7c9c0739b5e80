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

use self::state::{Answer, JSON, Outcome, Saved, answer, refused, run_of};
pub(super) use self::state::{Fault, Inner, Manner};

fn listed_by_cursor(key: &str, all: &[Value]) -> Answer {
    let cursor = json!({"offset": 0, "limit": 100, "total_count": all.len()});
    answer(200, &json!({key: all, "cursor": cursor}))
}

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
        let (flags, empty) = (json!({}), Inner::default());
        let inner = Arc::new(Mutex::new(Inner {
            manner,
            flags,
            ..empty
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
        let of_path = inner.faults.entry(path.to_owned()).or_default();
        of_path.extend(faults.iter().cloned());
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
        let of_kind = inner.saved.iter().filter(|saved| saved.path.contains(kind));
        let copied = of_kind.map(|saved| (saved.path.clone(), saved.weights.clone()));
        copied.collect()
    }

    /// How often a path was asked.
    pub(super) fn n_asked(&self, path: &str) -> usize {
        let inner = self.inner();
        inner
            .asked
            .iter()
            .filter(|(asked, _)| asked == path)
            .count()
    }

    /// The last body of a path.
    pub(super) fn last_asked(&self, path: &str) -> Value {
        let inner = self.inner();
        let last = inner.asked.iter().rfind(|(asked, _)| asked == path);
        last.unwrap().1.clone()
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
            let asked = serde_json::from_slice(&body).unwrap_or(Value::Null);
            inner.asked.push((bare.clone(), asked));
            inner.faults.get_mut(&bare).and_then(VecDeque::pop_front)
        };
        let fails = match &fault {
            Some(Fault::Before) => return,
            Some(Fault::Answers(status, body)) => {
                return write(&mut socket, *status, JSON, body.as_bytes()).await;
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
    /// Numbers what is made.
    fn id(&mut self, kind: &str) -> String {
        self.n += 1;
        format!("{kind}-{}", self.n)
    }

    fn answer(
        &mut self,
        path: &str,
        is_protobuf: bool,
        body: &[u8],
        fails: Option<Value>,
    ) -> Answer {
        let ok = |value: Value| answer(200, &value);
        let gone = || refused(404, "Not Found");
        let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let bare = path.split('?').next().unwrap_or_default();
        match bare {
            "client/config" => ok(self.flags.clone()),
            "auth/token" => ok(json!({"jwt": "eyJ.e30.x"})),
            "get_server_capabilities" => ok(json!({"supported_models": [
                {"model_name": "Qwen/Qwen3-8B", "trainable": true}, {"model_name": "org/other", "trainable": false}
            ]})),
            "create_session" => {
                let id = self.id("sess");
                self.sessions.insert(id.clone());
                ok(json!({"session_id": id}))
            }
            "session_heartbeat" => {
                let is_known = self.sessions.contains(text(&asked, "session_id"));
                answer(if is_known { 200 } else { 410 }, &json!({}))
            }
            "create_sampling_session" => {
                let path = text(&asked, "model_path");
                let is_there = path.is_empty() || self.saved.iter().any(|saved| saved.is_at(path));
                if !self.sessions.contains(text(&asked, "session_id")) || !is_there {
                    return gone();
                }
                let id = self.id("sampler");
                self.samplers.insert(id.clone(), path.to_owned());
                ok(json!({"sampling_session_id": id}))
            }
            "retrieve_future" => match self.results.get(text(&asked, "request_id")) {
                Some(Outcome::Json(value)) => ok(value.clone()),
                Some(Outcome::Failed(why)) => refused(400, why),
                Some(Outcome::Protobuf(bytes)) => (200, "application/x-protobuf", bytes.clone()),
                None => gone(),
            },
            "asample" => self.asample(body),
            "checkpoints" if !self.manner.is_skyrl => {
                listed_by_cursor("checkpoints", &self.listed(|_| true))
            }
            "training_runs" => {
                let owners = self.saved.iter().map(|saved| run_of(&saved.path));
                let runs: BTreeSet<&str> = owners.collect();
                listed_by_cursor(
                    "training_runs",
                    &runs.into_iter().map(skyrl::run).collect::<Vec<_>>(),
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

    fn listed(&self, is_wanted: impl Fn(&Saved) -> bool) -> Vec<Value> {
        let all = self.saved.iter().enumerate();
        let wanted = all.filter(|(_, saved)| is_wanted(saved));
        wanted.map(|(at, saved)| listed(at, saved)).collect()
    }

    fn of_run(&mut self, path: &str) -> Answer {
        let rest = path.trim_start_matches("training_runs/");
        let (run, rest) = rest.split_once("/checkpoints").unwrap();
        if let Some(id) = rest.strip_prefix('/') {
            if self.manner.is_skyrl {
                return refused(404, "Not Found");
            }
            let path = format!("tinker://{run}/{id}");
            self.saved.retain(|saved| saved.path != path);
            return (204, JSON, Vec::new());
        }
        let all = self.listed(|saved| run_of(&saved.path) == run);
        answer(200, &json!({"checkpoints": all}))
    }

    fn asample(&mut self, body: &[u8]) -> Answer {
        let sample: SampleCall = serde_json::from_slice(body).unwrap();
        let sampler = sample.sampling_session_id.as_ref().unwrap().to_string();
        let Some(weights) = self.samplers.get(&sampler).cloned() else {
            return refused(404, "no such sampler");
        };
        let prompt = sample.prompt.clone().into_tokens().unwrap();
        let of_prompt = prompt.iter().enumerate();
        // A token's log-probability is minus a tenth of its id.
        let of_prompt = of_prompt.map(|(at, id)| (at > 0).then_some(*id as f32 * -0.1));
        let k = sample.topk_prompt_logprobs;
        let row = |at: usize| (at > 0).then(|| (0..k).map(|id| (id, id as f32 * -0.1)).collect());
        let sees = !self.manner.is_blind;
        let n = sample.sampling_params.max_tokens.unwrap() as usize;
        let sequence = Sequence {
            tokens: vec![7; n],
            logprobs: Some(vec![-0.7; n]),
            ..Sequence::default()
        };
        let is_asked = sees && sample.prompt_logprobs == Some(true);
        let output = SampleOutput {
            sequences: vec![sequence; sample.num_samples as usize],
            prompt_logprobs: is_asked.then(|| of_prompt.collect()),
            topk_prompt_logprobs: (sees && k > 0).then(|| (0..prompt.len()).map(row).collect()),
            ..SampleOutput::default()
        };
        let outcome = if self.manner.is_skyrl {
            self.by_slot(&weights, output)
        } else {
            Outcome::Protobuf(output.to_proto().encode_to_vec())
        };
        let id = self.id("req");
        self.results.insert(id.clone(), outcome);
        answer(
            200,
            &json!({"request_id": id, "sample_sequence_ids": ["a"]}),
        )
    }

    fn promise(
        &mut self,
        call: &str,
        is_protobuf: bool,
        body: &[u8],
        fails: Option<Value>,
    ) -> Answer {
        if is_protobuf && self.manner.is_skyrl {
            // It cannot write down what it got.
            return (500, JSON, b"Internal Server Error".to_vec());
        }
        let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let message = proto::ProtoForwardBackward::decode(body).unwrap_or_default();
        let (mut model, seq) = if is_protobuf {
            (message.model_id.clone(), Some(message.seq_id.into()))
        } else {
            (
                text(&asked, "model_id").to_owned(),
                asked["seq_id"].as_i64(),
            )
        };
        let makes = call == "create_model" || (call == "load_weights" && model.is_empty());
        if makes {
            if self.manner.is_skyrl && call == "load_weights" {
                return refused(422, "model_id: Field required");
            }
            let session = text(&asked, "session_id");
            if !self.sessions.contains(session) {
                return refused(404, "Session not found");
            }
            model = format!("{session}:train:{}", asked["model_seq_id"]);
            if self.manner.is_skyrl {
                self.n += 1;
                model = format!("model_{}", self.n);
            }
            self.models.entry(model.clone()).or_default().next = 1;
        }
        if !self.models.contains_key(&model) {
            return refused(404, "Model not found");
        }
        let key = (model.clone(), seq.unwrap_or(0));
        if !self.manner.is_skyrl && !makes && call != "unload_model" {
            if let Some((known, id)) = self.seen.get(&key) {
                if known != body {
                    return refused(409, "this number was of another request");
                }
                return answer(200, &json!({"request_id": id}));
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
        let id = self.id("req");
        self.results.insert(id.clone(), outcome);
        self.seen.insert(key, (body.to_vec(), id.clone()));
        answer(200, &json!({"request_id": id, "model_id": model}))
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
        let held = self.models.get_mut(model).unwrap();
        match call {
            "load_weights" => {
                let saved = self.saved.iter().find(|saved| saved.path == path);
                held.slot.loaded = None;
                let Some(saved) = saved else {
                    return Outcome::Json(json!({"error": "no such weights", "category": "user"}));
                };
                (held.weights, held.gradient) = (saved.weights.clone(), Vec::new());
                Outcome::Json(json!({"path": path, "model_id": model}))
            }
            "forward_backward" | "forward" => {
                let marks = datums
                    .iter()
                    .map(|datum| datum.parts().model_input_tokens[0]);
                if call == "forward_backward" && !forward_only {
                    held.gradient.extend(marks);
                }
                let targets = |datum: &Datum| {
                    let of = &datum.parts().target_tokens;
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
                held.weights.append(&mut held.gradient);
                Outcome::Json(json!({"metrics": {"grad_norm": 0.5}}))
            }
            "save_weights" | "save_weights_for_sampler" => {
                let is_sampler = call != "save_weights";
                let kind = if is_sampler {
                    "sampler_weights"
                } else {
                    "weights"
                };
                let weights = held.weights.clone();
                if path.is_empty() {
                    let id = self.id("sampler");
                    self.samplers.insert(id.clone(), String::new());
                    return Outcome::Json(json!({"sampling_session_id": id}));
                }
                let short = format!("tinker://{model}/{path}");
                let path = format!("tinker://{model}/{kind}/{path}");
                let is_skyrl = self.manner.is_skyrl;
                let metadata = if is_skyrl {
                    Value::Null
                } else {
                    asked["user_metadata"].clone()
                };
                let told = if is_skyrl && is_sampler {
                    short
                } else {
                    path.clone()
                };
                self.saved.push(Saved {
                    path,
                    weights,
                    metadata,
                });
                Outcome::Json(json!({"path": told}))
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
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let exact = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let value = head.split("content-length: ").nth(1);
    let told = value.and_then(|text| text.split("\r\n").next()?.parse().ok());
    let length: usize = told.unwrap_or(0);
    while bytes.len() < end + length {
        socket.read_buf(&mut bytes).await.ok()?;
    }
    let target = exact.split(' ').nth(1)?;
    let (_, path) = target.split_once("/api/v1/")?;
    Some((path.to_owned(), head, bytes[end..].to_vec()))
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
