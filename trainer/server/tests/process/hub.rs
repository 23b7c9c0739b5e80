//! Models that are named as at the hub: a server of the test's own stands for it.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use metaclaw_test_kit::{Reply, Server};
use serde_json::{Value, json};

use crate::trainer::{Trainer, folder, started, without_model};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const WITHIN: Duration = Duration::from_secs(60);

/// Serves the files of `model` as those of `acme/small`; of `acme/gated` it says that its licence is to be accepted.
fn hub(model: PathBuf) -> Server {
    Server::new(move |request| {
        let refusal = |status, code: &str| Reply::status(status, "").header("x-error-code", code);
        let path = request.path();
        let file = path.strip_prefix("/acme/small/resolve/");
        match file.and_then(|rest| Some(rest.split_once('/')?.1)) {
            Some(file) => match fs::read(model.join(file)) {
                Ok(bytes) => Reply::bytes(bytes)
                    .header("x-repo-commit", COMMIT)
                    .header("etag", format!("\"{}\"", file.replace('.', "-"))),
                Err(_) => refusal(404, "EntryNotFound"),
            },
            None if path.starts_with("/acme/gated/") => refusal(403, "GatedRepo"),
            None => refusal(404, "RepoNotFound"),
        }
    })
}

/// Asks for a run of this model until the server has fetched it, or says why not: the last answer, and whether it was
/// told to ask again before.
fn asked(trainer: &Trainer, base: &str) -> ((u16, Value), bool) {
    let began = Instant::now();
    let mut has_waited = false;
    loop {
        let asked = json!({"base_model": base, "rank": 2});
        let (status, reply) = trainer.post("/v1/lora/create", &asked);
        if status != 503 || began.elapsed() > WITHIN {
            return ((status, reply), has_waited);
        }
        assert_eq!(reply["error"]["code"], "model_fetching", "{reply}");
        has_waited = true;
        std::thread::yield_now();
    }
}

#[test]
fn a_model_that_a_run_names_is_fetched_while_its_caller_is_told_to_wait() {
    let (place, ours) = (folder(), tempfile::tempdir().unwrap());
    let mut command = without_model(ours.path());
    let hub = hub(place.path().join("tiny"));
    command.env("HF_ENDPOINT", hub.url());
    let trainer = started(command);
    let mut said = String::new();
    for base in ["acme/absent", "acme/gated"] {
        let ((status, refused), has_waited) = asked(&trainer, base);
        assert_eq!((status, has_waited), (400, true), "{base}: {refused}");
        assert_eq!(refused["error"]["param"], "base_model");
        said += refused["error"]["message"].as_str().unwrap();
    }
    assert!(said.contains("there is no such model"), "{said}");
    assert!(said.contains("licence must be accepted"), "{said}");
    let ((status, created), _) = asked(&trainer, "acme/small");
    assert_eq!(status, 200, "{created}");
    assert_eq!(created["model"], "small");
    let kept = ours.path().join("hub/models--acme--small/refs/main");
    assert_eq!(fs::read_to_string(kept).unwrap(), COMMIT);
}

#[test]
fn the_model_of_the_start_is_fetched_or_why_not_is_said() {
    let (place, ours) = (folder(), tempfile::tempdir().unwrap());
    let hub = hub(place.path().join("tiny"));
    let with_model = |name: &str| {
        let mut command = without_model(ours.path());
        command
            .args(["--model", name])
            .env("HF_ENDPOINT", hub.url());
        command
    };
    let output = with_model("acme/gated").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("--model: acme/gated: "), "{said}");
    let trainer = started(with_model("acme/small"));
    let (_, listed) = trainer.get("/v1/models");
    assert_eq!(listed["data"][0]["id"], "small", "{listed}");
}
