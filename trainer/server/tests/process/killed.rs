//! Killed in the middle of a checkpoint, again and again.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::trainer::{folder, start};

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

/// Counts what was not whole when its writer ended.
fn n_hidden(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_hidden =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    entries.filter(is_hidden).count()
}

#[test]
#[ignore = "needs 12 s, cargo xtask test --all runs it"]
fn killed_thirty_times_in_a_checkpoint_it_goes_on_from_the_newest_whole_one() {
    let folder = folder();
    let datum = json!({"model_input_tokens": [104, 105, 5], "target_tokens": [5, 5, 5], "weights": [1, 1, 1]});
    let (mut answered, mut n_torn) = (0, 0);
    for round in 0..30_u64 {
        let mut trainer = start(folder.path());
        let kept = folder.path().join("checkpoints/checkpoints");
        assert_eq!(n_hidden(&kept), 0, "swept at the start");
        let create = json!({"rank": 16, "seed": round});
        let run = trainer.ok("/v1/lora/create", &create)["session_id"].clone();
        let (_, listed) = call(&trainer.address, "GET", "/v1/checkpoints", &Value::Null).unwrap();
        let listed = listed["checkpoints"].as_array().unwrap();
        // All that was answered is there, and at most the one besides that was whole before its answer.
        assert_eq!(listed.len() as u64, listed.last().map_or(0, number));
        let newest = listed.last().map_or(0, number);
        let is_whole = (answered..=answered + 1).contains(&newest);
        assert!(is_whole, "{answered} {newest}");
        if let Some(newest) = listed.last() {
            let load = json!({"session_id": run, "path": newest["name"]});
            let loaded = trainer.ok("/v1/checkpoint/load", &load);
            assert_eq!(loaded["step"], round);
            assert_eq!(newest["step"], round);
            assert_eq!(newest["manifest"], number(newest));
        }
        // Training goes on.
        let batch = json!({"session_id": run, "datums": [datum], "loss_fn": "cross_entropy"});
        trainer.ok("/v1/train/forward_backward", &batch);
        let step = json!({"session_id": run, "learning_rate": 0.001});
        assert_eq!(trainer.ok("/v1/train/optim_step", &step)["step"], round + 1);

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
        n_torn += n_hidden(&kept);
    }
    assert!(n_torn > 0, "no kill hit a write");
}
