//! Models that are named as at the hub: a server of the test's own stands for it.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::trainer::{Trainer, folder, started, without_model};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const WITHIN: Duration = Duration::from_secs(60);

/// Serves the files of `model` as those of `acme/small`; of `acme/gated` it says that its licence is to be accepted.
fn hub(model: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&model, stream.unwrap());
        }
    });
    url
}

fn answer(model: &Path, mut stream: TcpStream) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let empty = "content-length: 0\r\nconnection: close\r\n\r\n";
    let refusal = |status: &str, code: &str| {
        format!("HTTP/1.1 {status}\r\nx-error-code: {code}\r\n{empty}").into_bytes()
    };
    let file = path.strip_prefix("/acme/small/resolve/");
    let file = file.and_then(|rest| Some(rest.split_once('/')?.1));
    let bytes = file.and_then(|file| fs::read(model.join(file)).ok());
    let answer = match (file, bytes) {
        (Some(file), Some(bytes)) => {
            let (size, etag) = (bytes.len(), file.replace('.', "-"));
            let head = format!(
                "HTTP/1.1 200 OK\r\nx-repo-commit: {COMMIT}\r\netag: \"{etag}\"\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
            );
            let body = if method == "HEAD" { Vec::new() } else { bytes };
            [head.into_bytes(), body].concat()
        }
        (Some(_), None) => refusal("404 Not Found", "EntryNotFound"),
        (None, _) if path.starts_with("/acme/gated/") => refusal("403 Forbidden", "GatedRepo"),
        (None, _) => refusal("404 Not Found", "RepoNotFound"),
    };
    // Whoever left needs no answer.
    let _ = stream.write_all(&answer);
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
    command.env("HF_ENDPOINT", hub(place.path().join("tiny")));
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
    assert_eq!(
        (status, &created["model"]),
        (200, &json!("small")),
        "{created}"
    );
    let kept = ours.path().join("hub/models--acme--small/refs/main");
    assert_eq!(fs::read_to_string(kept).unwrap(), COMMIT);
}

#[test]
fn the_model_of_the_start_is_fetched_or_why_not_is_said() {
    let (place, ours) = (folder(), tempfile::tempdir().unwrap());
    let url = hub(place.path().join("tiny"));
    let with_model = |name: &str| {
        let mut command = without_model(ours.path());
        command.args(["--model", name]).env("HF_ENDPOINT", &url);
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
