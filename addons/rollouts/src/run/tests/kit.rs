//! A scripted proxy and host, and the folder of a run.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use metaclaw_chat::{AgentId, Message, RolloutId};
use metaclaw_test_kit::{Reply, Request, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    file::{RewardSource, RolloutFile},
    host::{EpisodeTurn, RunHost, TrainedStep},
    proxy::ProxyAddress,
    run::{RunSetup, RunTasks, TaskRunSummary, run},
    task::RolloutTask,
};

#[derive(Debug, Default)]
pub(super) struct ProxyLog {
    pub(super) opened: Vec<Value>,
    pub(super) closed: BTreeMap<String, Value>,
    wanted: Value,
    /// The next question about a rollout is never answered.
    pub(super) hangs: bool,
    /// The next outcome is taken, and the answer to it is lost.
    pub(super) loses_answer: bool,
}

pub(super) type SharedLog = Arc<Mutex<ProxyLog>>;

/// A proxy of which each rollout has one turn.
pub(super) struct ScriptedProxy {
    pub(super) address: ProxyAddress,
    pub(super) log: SharedLog,
    _server: Server,
}

impl ScriptedProxy {
    pub(super) fn start() -> Self {
        let log = SharedLog::default();
        let noted = Arc::clone(&log);
        let server = Server::new(move |request| answer(&mut noted.lock().unwrap(), request));
        Self {
            address: ProxyAddress {
                base_url: format!("{}/v1", server.url()).parse().unwrap(),
                key: None,
            },
            log,
            _server: server,
        }
    }

    pub(super) fn n_opened(&self) -> usize {
        self.log.lock().unwrap().opened.len()
    }
}

fn answer(log: &mut ProxyLog, request: &Request) -> Reply {
    let body = request.json();
    match request.path() {
        "/v1/rollouts" => {
            // No other test has it: a program is ended by the id in its environment.
            let id = RolloutId::new(log.opened.len() as u64, rand::random());
            log.opened.push(body);
            let address = format!("http://127.0.0.1:9/rollout/{id}");
            let opened = json!({
                "id": id, "state": "open", "api_key": "sk-rollout-1",
                "base_url": format!("{address}/v1"), "anthropic_base_url": address,
            });
            Reply::status(201, opened)
        }
        "/v1/rollouts/wanted" => Reply::json(&log.wanted),
        "/v1/feedback" => {
            let id = body["rollout"].as_str().unwrap().to_owned();
            if log.closed.contains_key(&id) {
                let error = json!({"error": {"message": "it is closed already"}});
                return Reply::status(409, error);
            }
            log.closed.insert(id, body);
            let is_lost = std::mem::take(&mut log.loses_answer);
            Reply::status(if is_lost { 503 } else { 200 }, json!({}))
        }
        path => {
            let Some(id) = path.strip_prefix("/v1/rollouts/") else {
                return Reply::status(404, "");
            };
            if std::mem::take(&mut log.hangs) {
                return Reply::silence();
            }
            let is_closed = log.closed.contains_key(id);
            let state = if is_closed { "scored" } else { "open" };
            Reply::json(json!({"id": id, "state": state, "turns": ["1-0"]}))
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ScriptedHost {
    pub(super) n_steps: Mutex<usize>,
    /// What the gate wants during a step, and the proxy that says so.
    pub(super) gate: Option<SharedLog>,
}

#[async_trait::async_trait(?Send)]
impl RunHost for ScriptedHost {
    async fn train(&self, _agent: &AgentId) -> anyhow::Result<TrainedStep> {
        *self.n_steps.lock().unwrap() += 1;
        if let Some(log) = &self.gate {
            log.lock().unwrap().wanted = json!({"adapter": "a-1", "held_out": 2});
            let tried = |log: &ProxyLog| {
                let of = log.opened.iter().filter(|it| it["adapter"] == "a-1");
                of.count() == 2 && log.closed.len() == log.opened.len()
            };
            while !tried(&log.lock().unwrap()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            log.lock().unwrap().wanted = json!({"adapter": null, "held_out": 0});
        }
        Ok(TrainedStep {
            n_turns: 1,
            line: "a-1 serves now".to_owned(),
        })
    }

    async fn turns(&self, ids: &[String]) -> anyhow::Result<Vec<EpisodeTurn>> {
        let turn = |id: &String| EpisodeTurn {
            id: id.clone(),
            messages: vec![Message::user("do it")],
            new_from: 0,
            reply: Some(Message::assistant("done")),
        };
        Ok(ids.iter().map(turn).collect())
    }

    async fn ask_judge(
        &self,
        _source: &RewardSource,
        messages: Vec<Message>,
    ) -> anyhow::Result<String> {
        assert!(messages[1].text().contains("[agent] done"));
        Ok("It was done.\n{\"score\": 0.25}".to_owned())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
}

pub(super) struct RunFolder(pub(super) TempDir);

impl RunFolder {
    pub(super) fn new(yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file.yaml"), yaml).unwrap();
        Self(folder)
    }

    pub(super) fn file(&self) -> RolloutFile {
        RolloutFile::read(&self.0.path().join("file.yaml"), None).unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn numbered(n: usize) -> Vec<RolloutTask> {
    let task = |n: usize| {
        let Value::Object(fields) = json!({"id": format!("t{n}"), "n": n}) else {
            panic!("no object");
        };
        RolloutTask {
            id: format!("t{n}"),
            fields,
        }
    };
    (0..n).map(task).collect()
}

pub(super) fn tasks(n: usize, n_held_out: usize) -> RunTasks {
    RunTasks {
        train: numbered(n),
        held_out: numbered(n_held_out),
    }
}

pub(super) fn http() -> reqwest::Client {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .build()
        .unwrap()
}

pub(super) fn setup<'a>(
    file: &'a RolloutFile,
    host: &'a ScriptedHost,
    proxy: &ScriptedProxy,
    folder: &RunFolder,
) -> RunSetup<'a> {
    RunSetup {
        file,
        host,
        folder: folder.path("runs"),
        name: None,
        eval: None,
        metaclaw: "/nowhere".into(),
        proxy: proxy.address.clone(),
        local_http: http(),
        http: http(),
        environment_key: None,
        print: |line| println!("{line}"),
    }
}

/// Succeeds at every second try of each task: the number of tries so far is in a file.
pub(super) const ALTERNATES: &str = r#"
shell: true
command: |
  n=$(python3 -c "import json,os; print(json.load(open(os.environ['METACLAW_TASK']))['n'])")
  mkdir tries-$n-$(ls -d tries-$n-* 2>/dev/null | wc -l) || exit 1
  [ $(($(ls -d tries-$n-* | wc -l) % 2)) = 0 ]
group_size: 2
tasks_per_step: 2
at_once: 1
"#;

pub(super) async fn ran(setup: &RunSetup<'_>, tasks: &RunTasks) -> Result<TaskRunSummary, String> {
    let run = run(setup, tasks, &CancellationToken::new()).await;
    run.map_err(|error| error.to_string())
}
