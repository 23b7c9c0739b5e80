//! The process as a parent sees it: ready line, lock, end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

struct Trainer {
    child: Child,
    address: String,
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metaclaw-trainer"));
    command
        .arg("--model")
        .arg(folder.join("tiny"))
        .arg("--cache-dir")
        .arg(folder.join("cache"))
        .arg("--checkpoint-dir")
        .arg(folder.join("checkpoints"))
        .args([
            "--port",
            "0",
            "--dtype",
            "f32",
            "--threads",
            "1",
            "--parent-stdin",
        ])
        .env_remove("METACLAW_API_KEY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(folder: &Path) -> Trainer {
    let mut child = command(folder).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    if line.is_empty() {
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        panic!("no ready line: {said}");
    }
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["ready"], true);
    // The launcher became the engine: one process, one id.
    assert_eq!(ready["pid"], child.id());
    let address = ready["address"].as_str().unwrap().to_owned();
    Trainer { child, address }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny");
    std::fs::create_dir(&model).unwrap();
    metaclaw_engine::testing::write_tiny_model(&model, 7).unwrap();
    folder
}

/// Waits for the end, or kills it.
fn ended(child: &mut Child) -> Option<ExitStatus> {
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

#[test]
fn it_ends_when_its_parent_lets_go() {
    let folder = folder();
    let mut trainer = start(folder.path());
    let mut socket = TcpStream::connect(&trainer.address).unwrap();
    socket
        .write_all(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    assert!(
        reply.starts_with("HTTP/1.1 200") && reply.contains("\"healthy\""),
        "{reply}"
    );
    drop(trainer.child.stdin.take());
    assert!(ended(&mut trainer.child).unwrap().success());
}

#[test]
fn a_second_one_is_refused_and_told_who_holds_the_folder() {
    let folder = folder();
    let mut first = start(folder.path());
    let second = command(folder.path()).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success());
    assert!(second.stdout.is_empty());
    let holder = format!("in use by process {}", first.child.id());
    assert!(said.contains(&holder), "{said}");
    // Told to end, it ends; then the folder is free.
    kill_process(Pid::from_child(&first.child), Signal::TERM).unwrap();
    assert!(ended(&mut first.child).unwrap().success());
    drop(start(folder.path()).child.stdin.take());
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let folder = folder();
    std::fs::remove_dir_all(folder.path().join("tiny")).unwrap();
    let output = command(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("tiny"), "{said}");
    assert_eq!(
        said.lines()
            .filter(|line| line.starts_with("metaclaw-trainer: "))
            .count(),
        1,
        "{said}"
    );
}

#[test]
fn a_reply_that_runs_is_finished_before_the_end() {
    let folder = folder();
    let mut trainer = start(folder.path());
    let body = r#"{"stream": true, "max_tokens": 200, "seed": 3, "messages": [{"role": "user", "content": "hi"}]}"#;
    let mut socket = TcpStream::connect(&trainer.address).unwrap();
    write!(
        socket,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut first = [0; 16];
    socket.read_exact(&mut first).unwrap();
    kill_process(Pid::from_child(&trainer.child), Signal::TERM).unwrap();
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(ended(&mut trainer.child).unwrap().success());
}

#[test]
fn a_launcher_without_its_engine_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("metaclaw-trainer");
    std::fs::copy(env!("CARGO_BIN_EXE_metaclaw-trainer"), &alone).unwrap();
    let output = Command::new(&alone).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        said.contains("`cargo build -p metaclaw-trainer` makes both"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A call, and what was answered; none where the process ended before it.
fn call(address: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).ok()?;
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut reply = String::new();
    socket.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

fn ok(trainer: &Trainer, path: &str, body: &Value) -> Value {
    let (status, reply) = call(&trainer.address, "POST", path, body).unwrap();
    assert_eq!(status, 200, "{path}: {reply}");
    reply
}

/// The number in `main@12`.
fn number(checkpoint: &Value) -> u64 {
    let name = checkpoint["name"].as_str().unwrap();
    name.strip_prefix("main@").unwrap().parse().unwrap()
}

/// Saves one checkpoint after the other until the process is killed; returns the last that was answered.
fn save_until_killed(address: &str, run: &Value, mut last: u64, saved: &mpsc::Sender<()>) -> u64 {
    loop {
        let body =
            json!({"session_id": run, "name": format!("main@{}", last + 1), "manifest": last + 1});
        match call(address, "POST", "/v1/checkpoint/save", &body) {
            Some((200, _)) => last += 1,
            Some(refusal) => panic!("{refusal:?}"),
            None => return last,
        }
        // Nobody waits for the second.
        saved.send(()).ok();
    }
}

#[test]
fn killed_thirty_times_in_a_checkpoint_it_goes_on_from_the_newest_whole_one() {
    let folder = folder();
    let datum = json!({"model_input_tokens": [104, 105, 5], "target_tokens": [5, 5, 5], "weights": [1, 1, 1]});
    let (mut answered, mut n_torn) = (0, 0);
    for round in 0..30_u64 {
        let mut trainer = start(folder.path());
        let kept = folder.path().join("checkpoints/checkpoints");
        if let Ok(entries) = std::fs::read_dir(&kept) {
            let hidden =
                |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
            assert_eq!(
                entries.flatten().filter(hidden).count(),
                0,
                "swept at the start"
            );
        }
        let create = json!({"rank": 16, "seed": round});
        let run = ok(&trainer, "/v1/lora/create", &create)["session_id"].clone();
        let (_, listed) = call(&trainer.address, "GET", "/v1/checkpoints", &Value::Null).unwrap();
        let listed = listed["checkpoints"].as_array().unwrap();
        // All that was answered is there, and at most the one besides that was whole before its answer.
        assert_eq!(listed.len() as u64, listed.last().map_or(0, number));
        let newest = listed.last().map_or(0, number);
        assert!(
            (answered..=answered + 1).contains(&newest),
            "{answered} {newest}"
        );
        if let Some(newest) = listed.last() {
            let load = json!({"session_id": run, "path": newest["name"]});
            assert_eq!(
                ok(&trainer, "/v1/checkpoint/load", &load)["step"],
                newest["step"]
            );
            assert_eq!(newest["step"], round);
            assert_eq!(newest["manifest"], number(newest));
        }
        // Training goes on.
        let batch = json!({"session_id": run, "datums": [datum], "loss_fn": "cross_entropy"});
        ok(&trainer, "/v1/train/forward_backward", &batch);
        let step = json!({"session_id": run, "learning_rate": 0.001});
        assert_eq!(
            ok(&trainer, "/v1/train/optim_step", &step)["step"],
            round + 1
        );

        let (saved, has_saved) = mpsc::channel();
        let address = trainer.address.clone();
        answered = std::thread::scope(|scope| {
            let saving = scope.spawn(|| save_until_killed(&address, &run, newest, &saved));
            has_saved.recv().unwrap();
            // Somewhere in the next few, which take some milliseconds each.
            let later = Instant::now() + Duration::from_micros(round * 7919 % 12_000);
            while Instant::now() < later {
                std::thread::yield_now();
            }
            trainer.child.kill().unwrap();
            trainer.child.wait().unwrap();
            saving.join().unwrap()
        });
        let torn = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        n_torn += std::fs::read_dir(&kept)
            .unwrap()
            .flatten()
            .filter(torn)
            .count();
    }
    assert!(n_torn > 0, "no kill hit a write");
}
