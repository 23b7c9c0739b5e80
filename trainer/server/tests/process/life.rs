use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
};

use rustix::process::{Pid, Signal, kill_process};

use super::trainer::{command, ended, folder, start};

#[test]
fn it_ends_when_its_parent_lets_go() {
    let folder = folder();
    let mut trainer = start(folder.path());
    let (status, reply) = trainer.get("/v1/health");
    assert_eq!(status, 200, "{reply}");
    assert_eq!(reply["status"], "healthy");
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
    let is_ours = |line: &&str| line.starts_with("metaclaw-trainer: ");
    assert_eq!(said.lines().filter(is_ours).count(), 1, "{said}");
}

#[test]
fn a_reply_that_runs_is_finished_before_the_end() {
    let folder = folder();
    let mut trainer = start(folder.path());
    let body = r#"{"stream": true, "max_tokens": 200, "seed": 3, "messages": [{"role": "user", "content": "hi"}]}"#;
    let mut socket = TcpStream::connect(&trainer.address).unwrap();
    let head = trainer.head("POST", "/v1/chat/completions", body.len());
    write!(socket, "{head}\r\n{body}").unwrap();
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
    let words = "`cargo build -p metaclaw-trainer` makes both";
    assert!(said.contains(words), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
