//! The harness: a home, the program in it, and an upstream that says what it is told to.

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

/// The key of the one who lists its models.
const KEY: &str = "Bearer sk-0123456789abcd";
/// For everything that is over at once.
const SOON: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `wanted`.
pub(crate) async fn until(mut wanted: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let watch = async {
        while !wanted().await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    timeout(SOON, watch).await.context("waited in vain")?
}

/// A home folder, gone when dropped.
pub(crate) struct TestHome {
    folder: TempDir,
    program: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

/// A running `metaclaw start`; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    /// What it printed until it listened.
    pub(crate) banner: String,
}

type Shown = Arc<Mutex<String>>;

/// Serves `routes` on a port of the system's choice until the task is dropped.
pub(crate) async fn serve(routes: Router) -> Result<(SocketAddr, JoinSet<std::io::Result<()>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await });
    Ok((address, tasks))
}

/// An upstream that answers every chat with the same words; ends when dropped.
pub(crate) struct Upstream {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    n_asked: Arc<AtomicUsize>,
    /// What the last chat showed as its authorisation.
    shown: Shown,
    _tasks: JoinSet<std::io::Result<()>>,
}

impl Upstream {
    pub(crate) async fn new() -> Result<Self> {
        let n_asked = Arc::new(AtomicUsize::new(0));
        let shown = Shown::default();
        let note = Arc::clone(&shown);
        let noted = from_fn(move |request: Request, next: Next| {
            let header = request.headers().get("authorization");
            let header = header.and_then(|it| it.to_str().ok()).unwrap_or_default();
            header.clone_into(&mut note.lock().unwrap_or_else(PoisonError::into_inner));
            next.run(request)
        });
        let routes = Router::new()
            .route("/v1/chat/completions", post(answer))
            .with_state(Arc::clone(&n_asked))
            .route_layer(noted)
            .route("/v1/models", get(models))
            .route("/v1/sample", post(sample))
            .route("/v1/load_lora_adapter", post(load));
        let (address, tasks) = serve(routes).await?;
        Ok(Self {
            url: format!("http://{address}/v1"),
            address,
            n_asked,
            shown,
            _tasks: tasks,
        })
    }

    /// What the last chat showed as its authorisation.
    pub(crate) fn shown(&self) -> String {
        let shown = self.shown.lock();
        shown.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many chats and verdicts it was asked for.
    pub(crate) fn n_asked(&self) -> usize {
        self.n_asked.load(Ordering::Relaxed)
    }
}

/// The models of a provider that knows one key.
async fn models(headers: HeaderMap) -> Response {
    let is_known = headers.get("authorization").is_some_and(|it| it == KEY);
    if is_known {
        let model = |id: &str| json!({"id": id, "object": "model"});
        Json(json!({"data": [model("scripted"), model("another")]})).into_response()
    } else {
        let error = json!({"message": "Incorrect API key provided."});
        let answer = (StatusCode::UNAUTHORIZED, Json(json!({"error": error})));
        answer.into_response()
    }
}

/// As a trainer for which another server answers chats, which refuses adapters called `refused…`.
async fn load(Json(request): Json<Value>) -> Response {
    let name = request["lora_name"].as_str().unwrap_or_default();
    if name.starts_with("refused") {
        let error = json!({"message": "its rank is too large", "code": "adapter_refused"});
        let answer = (StatusCode::BAD_REQUEST, Json(json!({"error": error})));
        return answer.into_response();
    }
    Json(json!({"status": "ok", "step": 1, "sha256": "", "bytes": 1})).into_response()
}

/// As a trainer that has every adapter but those called `lost…`; of those called `nan…` it can draw nothing.
async fn sample(Json(request): Json<Value>) -> Response {
    if let Some(lost) = lost(&request) {
        return lost;
    }
    if request["model"]
        .as_str()
        .is_some_and(|it| it.starts_with("nan"))
    {
        let error =
            json!({"message": "the model's logits are not finite", "code": "weights_not_finite"});
        let answer = (
            StatusCode::INTERNAL_SERVER_ERROR,
            Json(json!({"error": error})),
        );
        return answer.into_response();
    }
    let sequence = json!({"tokens": [1], "logprobs": [0.0], "stop_reason": "length"});
    Json(json!({"sequences": [sequence]})).into_response()
}

fn lost(request: &Value) -> Option<Response> {
    let model = request["model"].as_str()?;
    let error =
        json!({"message": format!("model {model:?} is not here"), "code": "model_not_found"});
    let answer = (StatusCode::NOT_FOUND, Json(json!({"error": error})));
    model.starts_with("lost").then(|| answer.into_response())
}

async fn answer(State(n_asked): State<Arc<AtomicUsize>>, Json(request): Json<Value>) -> Response {
    // What was typed, to hear wishes in it: an answer that says nothing leaves that to the rules.
    let system = request["messages"][0]["content"].as_str();
    if system.is_some_and(|text| text.starts_with("You read one message")) {
        let message = json!({"role": "assistant", "content": "I do not know."});
        return Json(json!({"choices": [{"message": message, "finish_reason": "stop"}]}))
            .into_response();
    }
    n_asked.fetch_add(1, Ordering::Relaxed);
    if let Some(lost) = lost(&request) {
        return lost;
    }
    let n_messages = request["messages"].as_array().map_or(0, Vec::len);
    Json(json!({
        "id": format!("chatcmpl-{n_messages}"),
        "object": "chat.completion",
        "model": request["model"],
        "choices": [{
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": format!("answer to {n_messages}")},
        }],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }))
    .into_response()
}

impl TestHome {
    pub(crate) fn new(config: &str) -> Result<Self> {
        let home = Self::bare()?;
        let file = home.path().join("config.yaml");
        std::fs::write(&file, config)?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        Ok(home)
    }

    /// A home where nothing is yet.
    pub(crate) fn bare() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))?;
        Ok(Self {
            folder,
            program: PathBuf::from(env!("CARGO_BIN_EXE_metaclaw")),
            variables: Vec::new(),
        })
    }

    /// With one variable more in the program's environment.
    pub(crate) fn with_variable(mut self, name: &'static str, value: &Path) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// A home whose proxy takes a free port and asks `upstream`.
    pub(crate) fn before(upstream: &Upstream) -> Result<Self> {
        Self::new(&format!(
            "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted, api_key: sk-0123456789abcd}}\n",
            upstream.url
        ))
    }

    /// The same, with a program beside it that plays the trainer: `script` is run by sh in the home.
    pub(crate) fn with_trainer(mut self, script: &str) -> Result<Self> {
        let folder = self.path().join("bin");
        std::fs::create_dir(&folder)?;
        let program = folder.join("metaclaw");
        std::fs::copy(&self.program, &program)?;
        self.program = program;
        let trainer = folder.join("metaclaw-trainer");
        let home = self.path().display();
        std::fs::write(&trainer, format!("#!/bin/sh\ncd {home}\n{script}\n"))?;
        std::fs::set_permissions(&trainer, std::fs::Permissions::from_mode(0o755))?;
        Ok(self)
    }

    /// The same, with the program in a folder without a trainer: a build has one beside it.
    pub(crate) fn by_itself(mut self) -> Result<Self> {
        let folder = self.path().join("bin");
        std::fs::create_dir(&folder)?;
        let program = folder.join("metaclaw");
        if std::fs::hard_link(&self.program, &program).is_err() {
            // The home may be on another disk.
            std::fs::copy(&self.program, &program)?;
        }
        self.program = program;
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("METACLAW_HOME", self.path())
            .env("METACLAW_CACHE", self.path().join("cache"))
            .env("HOME", self.path())
            .env("PATH", "/usr/bin:/bin")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a subcommand to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<Output> {
        let output = timeout(SOON, self.command(arguments).output()).await;
        Ok(output.with_context(|| format!("{arguments:?} takes too long"))??)
    }

    /// What a subcommand that must work prints.
    pub(crate) async fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        if !output.status.success() {
            bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// The same as JSON.
    pub(crate) async fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.ask(arguments).await?;
        serde_json::from_str(&text).with_context(|| format!("{arguments:?} printed {text}"))
    }

    /// What a subcommand that must fail says, with the home's own path left out.
    pub(crate) async fn refusal(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        if output.status.success() {
            bail!("{arguments:?} was not refused");
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = text.lines().filter(|line| !line.contains("INFO")).collect();
        Ok(self.neutral(&last.join("\n")))
    }

    /// A text without what differs from run to run.
    pub(crate) fn neutral(&self, text: &str) -> String {
        text.replace(&*self.path().to_string_lossy(), "HOME")
    }

    /// Starts the proxy, and waits until it listens.
    pub(crate) async fn start(&self) -> Result<Running> {
        let stderr = std::fs::File::create(self.path().join("stderr.log"))?;
        self.start_with(stderr.into(), &[]).await
    }

    /// The same, with an error output and variables of the test's choice.
    pub(crate) async fn start_with(
        &self,
        stderr: Stdio,
        variables: &[(&str, &str)],
    ) -> Result<Running> {
        let mut child = self
            .command(&["start"])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()?;
        let out = child.stdout.take().context("a pipe")?;
        let mut lines = BufReader::new(out).lines();
        let mut banner = Vec::new();
        let listening = async {
            while let Some(line) = lines.next_line().await? {
                let last = line.trim_start().starts_with("try ");
                banner.push(line);
                if last {
                    return Ok(());
                }
            }
            bail!(
                "it ended: {}",
                std::fs::read_to_string(self.path().join("stderr.log")).unwrap_or_default()
            )
        };
        timeout(SOON, listening)
            .await
            .context("it does not listen")??;
        let run: Value = serde_json::from_slice(&std::fs::read(self.path().join("run.json"))?)?;
        let url = run["base_url"].as_str().context("no base_url")?;
        Ok(Running {
            child,
            url: url.trim_end_matches("/v1").to_owned(),
            banner: banner.join("\n"),
        })
    }
}

/// A test that failed leaves nothing in the background.
impl Drop for TestHome {
    fn drop(&mut self) {
        let run = std::fs::read(self.path().join("run.json")).ok();
        let run: Option<Value> = run.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let pid = run.and_then(|run| i32::try_from(run["pid"].as_i64()?).ok());
        let line = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
        let is_ours = line.is_some_and(|line| String::from_utf8_lossy(&line).contains("metaclaw"));
        if let Some(pid) = pid.filter(|_| is_ours).and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

impl Running {
    /// One chat; its reply's words.
    pub(crate) async fn chat(&self, session: &str, words: &[&str]) -> Result<String> {
        let reply = self.post(session, words).await?;
        let (_, json) = reply.split_once("\r\n\r\n").context("no body")?;
        let json: Value = serde_json::from_str(json).with_context(|| reply.clone())?;
        let content = json["choices"][0]["message"]["content"].as_str();
        Ok(content.with_context(|| reply.clone())?.to_owned())
    }

    /// One chat; the answer as it came, head and body.
    pub(crate) async fn post(&self, session: &str, words: &[&str]) -> Result<String> {
        let roles = ["user", "assistant"].into_iter().cycle();
        let messages: Vec<Value> = words
            .iter()
            .zip(roles)
            .map(|(text, role)| json!({"role": role, "content": text}))
            .collect();
        let body = json!({"model": "default", "messages": messages});
        self.send("/v1/chat/completions", session, &body).await
    }

    /// One POST; the answer as it came, head and body.
    pub(crate) async fn send(&self, path: &str, session: &str, body: &Value) -> Result<String> {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\nx-session-id: {session}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        exchange(&self.url, &(head + &body)).await
    }

    /// The status line of a GET.
    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        let reply = self.get_whole(path).await?;
        Ok(reply.lines().next().unwrap_or_default().to_owned())
    }

    /// The answer to a GET, head and body.
    pub(crate) async fn get_whole(&self, path: &str) -> Result<String> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        exchange(&self.url, &head).await
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().context("it has ended")?;
        let pid = Pid::from_raw(pid.try_into()?).context("no process has number 0")?;
        Ok(kill_process(pid, signal)?)
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> Result<std::process::ExitStatus> {
        Ok(timeout(SOON, self.child.wait())
            .await
            .context("it does not end")??)
    }
}

/// One HTTP exchange, byte by byte: a client library would need a TLS provider for nothing.
pub(crate) async fn exchange(url: &str, request: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = url.trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    timeout(SOON, stream.read_to_string(&mut reply))
        .await
        .context("no reply")??;
    Ok(reply)
}
