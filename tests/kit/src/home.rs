//! A home folder of the program, and the program in it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use crate::wait::{SOON, until};

/// A home folder, gone when dropped, and with it what runs there.
pub struct Home {
    folder: TempDir,
    program: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

/// A running `metaclaw start`; killed when dropped.
pub struct Running {
    pub child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// What it printed until it listened.
    pub banner: String,
}

// === impl Home ===

impl Home {
    /// A home with this `config.yaml`, of the program that was built beside this test.
    pub fn new(config: &str) -> Self {
        let home = Self::bare();
        let file = home.path().join("config.yaml");
        fs::write(&file, config).expect("a writable home");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our file");
        home
    }

    /// A home where nothing is yet.
    pub fn bare() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("our folder");
        let test = std::env::current_exe().expect("a path");
        let built = test
            .ancestors()
            .nth(2)
            .expect("a test is in a folder of the built ones");
        Self {
            folder,
            program: built.join("metaclaw"),
            variables: Vec::new(),
        }
    }

    /// A home whose proxy takes a free port and asks this upstream.
    pub fn before(upstream: &str) -> Self {
        Self::new(&format!(
            "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{upstream}', model_id: scripted, api_key: sk-0123456789abcd}}\n"
        ))
    }

    /// With one variable more in the program's environment.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// The same, with a program beside it that plays the trainer: `script` is run by sh in the home.
    #[must_use]
    pub fn with_trainer(self, script: &str) -> Self {
        let home = self.by_itself();
        let trainer = home.path().join("bin/metaclaw-trainer");
        let script = format!("#!/bin/sh\ncd {}\n{script}\n", home.path().display());
        fs::write(&trainer, script).expect("a writable home");
        fs::set_permissions(&trainer, Permissions::from_mode(0o755)).expect("our file");
        home
    }

    /// The same, with the program in a folder without a trainer: a build has one beside it.
    #[must_use]
    pub fn by_itself(mut self) -> Self {
        let program = self.path().join("bin/metaclaw");
        fs::create_dir(self.path().join("bin")).expect("a writable home");
        // The home may be on another disk.
        if fs::hard_link(&self.program, &program).is_err() {
            fs::copy(&self.program, &program).expect("a writable home");
        }
        self.program = program;
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the home as text, empty if there is none.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Writes a file of the home, and the folders around it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().expect("a home")).expect("a writable home");
        fs::write(file, content).expect("a writable home");
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
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
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let output = timeout(SOON, self.command(arguments).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{arguments:?} takes too long"));
        output.expect("the program runs")
    }

    /// What a subcommand that must work prints.
    pub async fn ask(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim_end()
            .to_owned()
    }

    /// The same as JSON.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ask(arguments).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?} printed {text}"))
    }

    /// What a subcommand prints as JSON, once it is as wanted.
    pub async fn json_until(&self, arguments: &[&str], is_so: impl Fn(&Value) -> bool) -> Value {
        let what = format!("what `metaclaw {}` prints", arguments.join(" "));
        until(&what, async || self.json(arguments).await, is_so).await
    }

    /// What a subcommand that must fail says, with the home's own path left out.
    pub async fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments:?} was not refused");
        let text = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = text.lines().filter(|line| !line.contains("INFO")).collect();
        self.neutral(&last.join("\n"))
    }

    /// A text without what differs from run to run.
    pub fn neutral(&self, text: &str) -> String {
        text.replace(&*self.path().to_string_lossy(), "HOME")
    }

    /// Starts the proxy, and waits until it listens.
    pub async fn start(&self) -> Running {
        let stderr = fs::File::create(self.path().join("stderr.log"));
        self.start_with(stderr.expect("a writable home").into(), &[])
            .await
    }

    /// Stops the proxy, which ends well.
    pub async fn stop(&self, proxy: Running) {
        self.ask(&["stop"]).await;
        assert!(proxy.ended().await.success());
    }

    /// The same, with an error output and variables of the test's choice.
    pub async fn start_with(&self, stderr: Stdio, variables: &[(&str, &str)]) -> Running {
        let mut command = self.command(&["start"]);
        command
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = command.spawn().expect("the program runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut banner = Vec::new();
        let listening = async {
            while let Some(line) = lines.next_line().await.expect("text") {
                let last = line.trim_start().starts_with("try ");
                banner.push(line);
                if last {
                    return;
                }
            }
            panic!("it ended: {}", self.read("stderr.log"))
        };
        timeout(SOON, listening).await.expect("it listens in time");
        let run: Value = serde_json::from_str(&self.read("run.json")).expect("run.json");
        let url = run["base_url"].as_str().expect("a base_url");
        Running {
            child,
            url: url.trim_end_matches("/v1").to_owned(),
            banner: banner.join("\n"),
        }
    }
}

/// A test that failed leaves nothing in the background.
impl Drop for Home {
    fn drop(&mut self) {
        let run: Value = serde_json::from_str(&self.read("run.json")).unwrap_or_default();
        let pid = run["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let line = pid.and_then(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
        let is_ours = line.is_some_and(|line| String::from_utf8_lossy(&line).contains("metaclaw"));
        if let Some(pid) = pid.filter(|_| is_ours).and_then(Pid::from_raw) {
            // It may have ended meanwhile.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

// === impl Running ===

impl Running {
    /// One chat; its reply's words.
    pub async fn chat(&self, session: &str, words: &[&str]) -> String {
        let reply = self.post(session, words).await;
        let json = reply
            .split_once("\r\n\r\n")
            .map(|(_, body)| serde_json::from_str(body));
        let json: Value = json.and_then(Result::ok).unwrap_or_default();
        let content = json["choices"][0]["message"]["content"].as_str();
        content
            .unwrap_or_else(|| panic!("no reply: {reply}"))
            .to_owned()
    }

    /// One chat; the answer as it came, head and body.
    pub async fn post(&self, session: &str, words: &[&str]) -> String {
        let message = |(text, role): (&&str, _)| json!({"role": role, "content": text});
        let roles = ["user", "assistant"].into_iter().cycle();
        let messages: Vec<Value> = words.iter().zip(roles).map(message).collect();
        let body = json!({"model": "default", "messages": messages});
        self.send("/v1/chat/completions", session, &body).await
    }

    /// One POST; the answer as it came, head and body.
    pub async fn send(&self, path: &str, session: &str, body: &Value) -> String {
        let headers = format!("x-session-id: {session}\r\n");
        post(&self.url, path, &headers, body)
            .await
            .expect("an answer")
    }

    /// The status line of a GET.
    pub async fn get(&self, path: &str) -> String {
        let reply = self.get_whole(path).await;
        reply.lines().next().unwrap_or_default().to_owned()
    }

    /// The answer to a GET, head and body.
    pub async fn get_whole(&self, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        exchange(&self.url, &head).await.expect("an answer")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self
            .child
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("it runs"), signal).expect("it runs");
    }

    /// `kill -9`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it ran");
    }

    /// Waits for its end.
    pub async fn ended(mut self) -> ExitStatus {
        let status = timeout(SOON, self.child.wait())
            .await
            .expect("it ends in time");
        status.expect("a child")
    }
}

/// One POST of JSON with these headers, each with its line end; the answer as it came, head and body.
///
/// # Errors
/// The connection fails, or there is no answer soon.
pub async fn post(url: &str, path: &str, headers: &str, body: &Value) -> std::io::Result<String> {
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let kind = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    exchange(url, &format!("{head}{kind}{headers}\r\n{body}")).await
}

/// One HTTP exchange, byte by byte: a client library would need a TLS provider for nothing.
///
/// # Errors
/// The connection fails, or there is no answer soon.
pub async fn exchange(url: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    timeout(SOON, stream.read_to_string(&mut reply)).await??;
    Ok(reply)
}
