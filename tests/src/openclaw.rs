//! OpenClaw as its users run it: one turn without a gateway, and a gateway that is asked in turns.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use metaclaw_test_kit::until_within;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::external;

/// How long a gateway may take to come up: it loads some hundred megabytes of JavaScript.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// Deadline of a turn, in OpenClaw's own words: seconds.
const TURN_SECONDS: &str = "90";

/// Which API OpenClaw speaks to its model's provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `openai-completions`.
    Completions,
    /// `anthropic-messages`.
    Messages,
}

/// OpenClaw as it is installed.
#[derive(Debug, Clone)]
pub struct OpenClaw {
    program: PathBuf,
    node: PathBuf,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Run {
    /// Exit code: 0 answered, 1 failed, 2 out of time.
    pub code: Option<i32>,
    /// What it printed, `{ok, status, final, usage, toolSummary, error, ..}`.
    pub said: Value,
    pub logs: String,
}

/// A gateway of OpenClaw in a home of its own; killed when dropped.
#[derive(Debug)]
pub struct OpenClawGateway<'a> {
    openclaw: &'a OpenClaw,
    folder: TempDir,
    _child: Child,
}

// === impl Api ===

impl Api {
    /// The configuration by which OpenClaw asks `base_url`, `http://HOST:PORT`, for `model`.
    fn config(self, base_url: &str, model: &str) -> Value {
        let (api, base_url) = match self {
            Self::Completions => ("openai-completions", format!("{base_url}/v1")),
            Self::Messages => ("anthropic-messages", base_url.to_owned()),
        };
        let entry = json!({"id": model, "name": model, "reasoning": false,
            "input": ["text"], "contextWindow": 128_000, "maxTokens": 4096,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}});
        let provider =
            json!({"baseUrl": base_url, "apiKey": "sk-agent", "api": api, "models": [entry]});
        json!({
            "models": {"mode": "replace", "providers": {"proxied": provider}},
            "agents": {"defaults": {"model": {"primary": format!("proxied/{model}")}}}})
    }
}

// === impl OpenClaw ===

impl OpenClaw {
    /// The one that `cargo xtask test` has installed.
    pub fn installed() -> Self {
        let (folder, node) = external::openclaw();
        let program = folder.join("node_modules/.bin/openclaw");
        Self { program, node }
    }

    /// One turn in a fresh home, without a gateway.
    pub async fn exec(&self, api: Api, base_url: &str, model: &str, instruction: &str) -> Run {
        let folder = home(&api.config(base_url, model));
        let config = config_path(folder.path());
        let mut command = self.command(folder.path());
        command.args(["agent", "exec", instruction, "--json"]);
        command.args(["--timeout", TURN_SECONDS, "--config"]);
        Run::of(&command.arg(config).output().await.expect("openclaw runs"))
    }

    /// Starts a gateway and waits until it takes turns.
    pub async fn gateway(&self, api: Api, base_url: &str, model: &str) -> OpenClawGateway<'_> {
        self.start(api.config(base_url, model)).await
    }

    /// The same, where each request names its session in headers, as in an OpenClaw that
    /// `metaclaw start` has pointed at itself.
    pub async fn gateway_that_names_sessions(
        &self,
        base_url: &str,
        model: &str,
    ) -> OpenClawGateway<'_> {
        let mut config = Api::Completions.config(base_url, model);
        let entry = &mut config["models"]["providers"]["proxied"]["models"][0];
        entry["compat"] = json!({"sendSessionAffinityHeaders": true});
        self.start(config).await
    }

    /// The same with our extension, installed from `package`, the archive that npm packed, with these settings.
    pub async fn gateway_with_extension(
        &self,
        base_url: &str,
        model: &str,
        package: &Path,
        settings: &Value,
    ) -> OpenClawGateway<'_> {
        let mut config = Api::Completions.config(base_url, model);
        config["plugins"]["entries"]["metaclaw-openclaw"] = json!({"config": settings});
        let (folder, port) = Self::gateway_home(config);
        let install = format!("npm-pack:{}", package.display());
        let mut command = self.command(folder.path());
        command.args(["plugins", "install", &install]);
        let output = command.args(["--force", "--accept-capabilities"]).output();
        let output = output.await.expect("openclaw runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{install}: {said}");
        self.run_gateway(folder, &port).await
    }

    async fn start(&self, config: Value) -> OpenClawGateway<'_> {
        let (folder, port) = Self::gateway_home(config);
        self.run_gateway(folder, &port).await
    }

    /// A home for a gateway, and the port that it will listen on.
    fn gateway_home(mut config: Value) -> (TempDir, String) {
        let port = free_port().to_string();
        config["gateway"] = json!({"mode": "local", "port": port.parse::<u16>().expect("a port"),
            "bind": "loopback", "auth": {"mode": "token", "token": TOKEN}});
        (home(&config), port)
    }

    async fn run_gateway(&self, folder: TempDir, port: &str) -> OpenClawGateway<'_> {
        let log = folder.path().join("gateway.log");
        let out = std::fs::File::create(&log).expect("a writable home");
        let mut command = self.command(folder.path());
        command.args(["gateway", "run", "--bind", "loopback", "--port", port]);
        command.args(["--auth", "token", "--token", TOKEN]);
        command.stdout(out.try_clone().expect("a second handle"));
        let child = command.stderr(out).spawn().expect("openclaw runs");
        let said = async || std::fs::read_to_string(&log).unwrap_or_default();
        let is_ready = |said: &String| said.contains("[gateway] ready");
        until_within(READY_WITHIN, "the gateway", said, is_ready).await;
        OpenClawGateway {
            openclaw: self,
            folder,
            _child: child,
        }
    }

    /// OpenClaw in this home and no other, with no word of the caller's environment.
    fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.node.display());
        command
            .current_dir(home)
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .env("OPENCLAW_STATE_DIR", home.join(".openclaw"))
            .env("OPENCLAW_CONFIG_PATH", config_path(home))
            .env("OPENCLAW_GATEWAY_TOKEN", TOKEN)
            .env("NO_COLOR", "1")
            // A MetaClaw that OpenClaw starts takes a port that is free.
            .env("METACLAW__PROXY__PORT", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

const TOKEN: &str = "tok-e2e";

fn home(config: &Value) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(config_path(folder.path()), config.to_string()).expect("a writable home");
    folder
}

fn config_path(home: &Path) -> PathBuf {
    home.join("openclaw.json")
}

/// OpenClaw's gateway takes no port of the system's choice, so one is chosen for it and let go.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("bound").port()
}

// === impl Run ===

impl Run {
    fn of(output: &Output) -> Self {
        let said = String::from_utf8_lossy(&output.stdout);
        let logs = String::from_utf8_lossy(&output.stderr).into_owned();
        let said =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{logs}"));
        Self {
            code: output.status.code(),
            said,
            logs,
        }
    }
}

// === impl OpenClawGateway ===

impl OpenClawGateway<'_> {
    /// Its `openclaw.json`.
    pub fn config(&self) -> PathBuf {
        config_path(self.folder.path())
    }

    /// The folder that it takes for the user's home.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("gateway.log")).unwrap_or_default()
    }

    /// Runs `openclaw plugins ARGS`, which must succeed.
    pub async fn plugins(&self, args: &[&str]) {
        let mut command = self.openclaw.command(self.folder.path());
        let output = command.arg("plugins").args(args).output().await;
        let output = output.expect("openclaw runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "plugins {args:?}: {said}");
    }

    /// One turn of its main agent.
    pub async fn say(&self, text: &str) -> Run {
        self.say_within(text, TURN_SECONDS).await
    }

    /// The same, with a deadline in OpenClaw's own words: seconds.
    pub async fn say_within(&self, text: &str, seconds: &str) -> Run {
        let mut command = self.openclaw.command(self.folder.path());
        command.args(["agent", "--agent", "main", "-m", text, "--json"]);
        let output = command.args(["--timeout", seconds]).output().await;
        Run::of(&output.expect("openclaw runs"))
    }
}
