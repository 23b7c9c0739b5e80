//! How the process ends: with 0 after whatever it did, and never by a signal.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::trainer::{Trainer, ended, folder, start};

fn run(trainer: &Trainer) -> Value {
    let create = json!({"rank": 4, "seed": 1});
    trainer.ok("/v1/lora/create", &create)["session_id"].clone()
}

fn batch(run: &Value, n: usize) -> Value {
    let ids: Vec<usize> = (0..100).map(|i| 3 + i % 90).collect();
    let datum = json!({"model_input_tokens": ids, "target_tokens": ids, "weights": vec![1; 100]});
    json!({"session_id": run, "datums": vec![datum; n], "loss_fn": "cross_entropy"})
}

fn step(trainer: &Trainer) {
    let run = run(trainer);
    trainer.ok("/v1/train/forward_backward", &batch(&run, 2));
    let step = json!({"session_id": run, "learning_rate": 0.001});
    trainer.ok("/v1/train/optim_step", &step);
    trainer.ok(
        "/v1/weights/save",
        &json!({"session_id": run, "name": "kept"}),
    );
}

fn decode(trainer: &Trainer) {
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8});
    trainer.ok("/v1/chat/completions", &body);
}

/// The CPU time of the engine's thread, in ticks.
fn engine_ticks(trainer: &Trainer) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", trainer.child.id())).unwrap();
    let engine = tasks.flatten().map(|task| task.path()).find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "engine")
    });
    let stat = std::fs::read_to_string(engine.unwrap().join("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    fields[12].parse().unwrap()
}

/// A step that takes long, under way.
fn long_step(trainer: &Trainer) -> TcpStream {
    let run = run(trainer);
    let body = batch(&run, 3_000).to_string();
    let mut socket = TcpStream::connect(&trainer.address).unwrap();
    let head = trainer.head("POST", "/v1/train/forward_backward", body.len());
    let before = engine_ticks(trainer);
    write!(socket, "{head}\r\n{body}").unwrap();
    let begun = Instant::now();
    while engine_ticks(trainer) < before + 5 {
        assert!(begun.elapsed().as_secs() < 60, "the step does not begin");
        std::thread::yield_now();
    }
    socket
}

fn signal(trainer: &Trainer, signal: Signal) {
    kill_process(Pid::from_child(&trainer.child), signal).unwrap();
}

/// Tells a server to end, and checks that it ends with 0.
fn ends(mut trainer: Trainer, tell: Tell, what: &str) {
    match tell {
        Tell::ParentIsGone => drop(trainer.child.stdin.take()),
        Tell::TwoSignals => {
            signal(&trainer, Signal::TERM);
            signal(&trainer, Signal::INT);
        }
    }
    let status = ended(&mut trainer.child);
    assert_eq!(status.and_then(|s| s.code()), Some(0), "{what}, {tell:?}");
}

#[derive(Debug, Clone, Copy)]
enum Tell {
    ParentIsGone,
    /// The first lets a step end, the second does not. Two of a kind may arrive as one.
    TwoSignals,
}

/// `METACLAW_TEST_ENDS=20` ends it twenty times after each kind of work.
#[test]
fn it_ends_with_0_after_each_kind_of_work() {
    let folder = folder();
    let n = std::env::var_os("METACLAW_TEST_ENDS");
    let n = n.map_or(1, |n| n.to_str().unwrap().parse().unwrap());
    for _ in 0..n {
        for tell in [Tell::ParentIsGone, Tell::TwoSignals] {
            for (what, steps, replies) in [
                ("nothing", false, false),
                ("a step", true, false),
                ("a reply", false, true),
                ("both", true, true),
            ] {
                let trainer = start(folder.path());
                if steps {
                    step(&trainer);
                }
                if replies {
                    decode(&trainer);
                }
                ends(trainer, tell, what);
            }
            let trainer = start(folder.path());
            let mut socket = long_step(&trainer);
            ends(trainer, tell, "in the midst of a step");
            let mut answered = String::new();
            // The connection may be reset.
            let _ = socket.read_to_string(&mut answered);
            assert!(answered.is_empty(), "the step was at its end: {answered}");
        }
    }
}
