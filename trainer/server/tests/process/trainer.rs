//! A trainer with a tiny model, and a client that knows nothing but HTTP.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) struct Trainer {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) key: Option<&'static str>,
}

/// A trainer without a model, whose files are in `folder`.
pub(crate) fn without_model(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metaclaw-trainer"));
    command.arg("--cache-dir").arg(folder.join("cache"));
    command.args(["--dtype", "f32", "--threads", "1", "--parent-stdin"]);
    command
        .env_remove("METACLAW_API_KEY")
        .env("METACLAW_PORT", "0");
    command.env("METACLAW_CHECKPOINT_DIR", folder.join("checkpoints"));
    command.env("HF_HUB_CACHE", folder.join("hub"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) fn command(folder: &Path) -> Command {
    let mut command = without_model(folder);
    command.arg("--model").arg(folder.join("tiny"));
    command
}

pub(crate) fn start(folder: &Path) -> Trainer {
    started(command(folder))
}

pub(crate) fn started(mut command: Command) -> Trainer {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    reader.read_line(&mut line).unwrap();
    if line.is_empty() {
        let said = std::io::read_to_string(child.stderr.take().unwrap());
        panic!("no ready line: {}", said.unwrap());
    }
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["ready"], true);
    // The launcher became the engine: one process, one id.
    assert_eq!(ready["pid"], child.id());
    let address = ready["address"].as_str().unwrap().to_owned();
    Trainer {
        child,
        address,
        key: None,
    }
}

pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_model(&folder.path().join("tiny"));
    folder
}

pub(crate) fn write_model(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    metaclaw_engine::testing::write_tiny_model(folder, 7).unwrap();
}

/// Waits for the end, or kills it.
pub(crate) fn ended(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    None
}

impl Trainer {
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, &body.to_string())
    }

    /// A POST that must succeed.
    pub(crate) fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, reply) = self.post(path, body);
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let mut head = self.head(method, path, body.len());
        head += "\r\n";
        socket.write_all((head + body).as_bytes()).unwrap();
        answer(socket)
    }

    /// All of a head but the empty line.
    pub(crate) fn head(&self, method: &str, path: &str, length: usize) -> String {
        let header = |key| format!("authorization: Bearer {key}\r\n");
        let key = self.key.map(header);
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{}",
            key.unwrap_or_default()
        )
    }

    /// The most memory that the process ever had, in bytes.
    pub(crate) fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = peak.unwrap().trim().trim_end_matches(" kB");
        number.parse::<usize>().unwrap() << 10
    }
}

impl Drop for Trainer {
    fn drop(&mut self) {
        // It has ended already if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the body; a text where it is no JSON.
pub(crate) fn answer(mut socket: TcpStream) -> (u16, Value) {
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    let status = status.unwrap_or_else(|| panic!("no status: {reply:?}"));
    (status, body)
}
