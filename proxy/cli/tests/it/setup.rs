//! Tests of `metaclaw setup`, by flags and by a person at a terminal.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{
    auth::given,
    harness::{Home, Upstream, has},
};

mod cloud;

const KEY: &str = "sk-0123456789abcd";

/// A person at a terminal, who waits for each question.
struct Person {
    terminal: File,
    seen: String,
}

impl Person {
    /// Waits until `question` is on the screen, and types an answer.
    fn answers(&mut self, question: &str, answer: &str) {
        let from = self.seen.len();
        while !self.seen[from..].contains(question) {
            let mut bytes = [0; 4096];
            let n = self.terminal.read(&mut bytes).unwrap_or(0);
            assert!(n != 0, "no {question:?} after:\n{}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..n]);
        }
        writeln!(self.terminal, "{answer}").unwrap();
    }

    /// Returns the rest of the output.
    fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        // Reading ends with an error when the other end is closed.
        self.terminal.read_to_end(&mut bytes).ok();
        self.seen += &String::from_utf8_lossy(&bytes);
        self.seen
    }
}

/// Runs `metaclaw setup` at a terminal with these answers; returns all output.
async fn at_terminal(
    home: &Home,
    arguments: &[&str],
    answers: &'static [(&'static str, &'static str)],
) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let name = name.to_str().unwrap();
    let side = || File::options().read(true).write(true).open(name);
    let mut command = home.command(arguments);
    command
        .stdin(side().unwrap())
        .stdout(side().unwrap())
        .stderr(side().unwrap());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut person = Person {
        terminal: File::from(terminal),
        seen: String::new(),
    };
    let talk = tokio::task::spawn_blocking(move || {
        for (question, answer) in answers {
            person.answers(question, answer);
        }
        person.rest()
    });
    let seen = talk.await.unwrap();
    child.wait().await.expect("setup");
    home.neutral(&seen.replace("\r\n", "\n"))
}

#[tokio::test]
async fn flags_say_it_all_where_nobody_can_be_asked() {
    let upstream = Upstream::new();
    let home = Home::new("# mine\nunheard: {of: 1}\n");
    let base = upstream.url.as_str();
    let flags = [
        "setup",
        "--api-base",
        base,
        "--model",
        "scripted",
        "--port",
        "30123",
        "--mode",
        "skills_only",
        "--api-key-stdin",
    ];
    let said = given(&home, &format!("{KEY}\n"), &flags).await;
    let said = said.replace(&upstream.address.to_string(), "UPSTREAM");
    insta::assert_snapshot!("by flags", said);
    let file = home.path().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    insta::assert_snapshot!(
        "file by flags",
        text.replace(&upstream.address.to_string(), "UPSTREAM")
    );
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = given(&home, &format!("{KEY}\n"), &flags).await;
    assert!(again.contains("says all of this already"), "{again}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn what_fails_is_said_and_nothing_is_written() {
    let upstream = Upstream::new();
    let home = Home::new("mode: auto\n");
    let refused = home.refusal(&["setup"]).await;
    insta::assert_snapshot!("without flags", refused);
    let base = upstream.url.as_str();
    let with = |model, more| ["setup", "--api-base", base, "--model", model, more];
    let said = given(
        &home,
        "sk-wrong-key-0123",
        &with("scripted", "--api-key-stdin"),
    )
    .await;
    let said = said.replace(&upstream.address.to_string(), "UPSTREAM");
    insta::assert_snapshot!("a wrong key", said);
    let said = given(&home, KEY, &with("skripted", "--api-key-stdin")).await;
    has(&said, ["\"skripted\" is not there; nearest: scripted"]);
    let text = || home.read("config.yaml");
    assert_eq!(text(), "mode: auto\n");
    let said = home
        .refusal(&["setup", "--provider", "opneai", "--model", "m"])
        .await;
    has(&said, ["--provider \"opneai\" is not known: openai, "]);
    let unchecked = [
        "setup",
        "--api-base",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
        "--no-check",
        "--non-interactive",
    ];
    home.ask(&unchecked).await;
    assert!(text().contains("model_id: m"), "{}", text());
}

#[tokio::test]
async fn a_person_is_asked_again_where_an_answer_fails() {
    let upstream = Upstream::new();
    let home = Home::new("");
    let base = ["setup", "--api-base", upstream.url.as_str()];
    let seen = at_terminal(
        &home,
        &base,
        &[
            ("What is to learn", ""),
            ("Its address", ""),
            ("Key (", "sk-wrong-key-0123"),
            ("Keep it", ""),
            ("Its address", ""),
            ("Key (", KEY),
            ("Model [", "skripted"),
            ("Keep it", "no"),
            ("Model [", "scripted"),
            ("skills that fit", ""),
            ("Folder", ""),
            ("Write new skills", ""),
            ("Port", "0"),
        ],
    )
    .await;
    let seen = seen.replace(&upstream.address.to_string(), "UPSTREAM");
    assert!(!seen.contains(KEY) && !seen.contains("sk-wrong"), "{seen}");
    insta::assert_snapshot!("asked", seen);
    let proxy = home.start().await;
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");
    proxy.kill().await;
}

#[tokio::test]
async fn enter_keeps_what_is_there() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let file = home.path().join("config.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let seen = at_terminal(
        &home,
        &["setup"],
        &[
            ("What is to learn [skills_only]", ""),
            ("Who has the model [custom]", ""),
            ("Its address", ""),
            ("Enter keeps sk-…abcd", ""),
            ("Model [scripted]", ""),
            ("skills that fit", ""),
            ("Folder", ""),
            ("Write new skills", ""),
            ("Port to listen on [0]", ""),
        ],
    )
    .await;
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("model_id: scripted") && after.contains(KEY),
        "{after}\n{seen}"
    );
    assert_eq!(after.replace(", provider: custom", ""), before, "{seen}");
}

/// Returns the path of OpenClaw's file, in the home of a person who has nothing of MetaClaw's yet.
fn openclaw(home: &Home, upstream: &Upstream) -> std::path::PathBuf {
    let folder = home.path().join(".openclaw");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("openclaw.json");
    let text = format!(
        "{{models: {{providers: {{cloud: {{baseUrl: '{}', apiKey: '${{CLOUD_KEY}}', api: 'openai-completions',\n  models: [{{id: 'scripted', name: 'S'}}]}}}}}},\n agents: {{defaults: {{model: 'cloud/scripted'}}}}}}\n",
        upstream.url
    );
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.join(".env"), format!("CLOUD_KEY={KEY}\n")).unwrap();
    file
}

#[tokio::test]
async fn enter_takes_what_openclaw_asks() {
    let upstream = Upstream::new();
    let home = Home::bare();
    let file = openclaw(&home, &upstream);
    let before = std::fs::read_to_string(&file).unwrap();
    let seen = at_terminal(
        &home,
        &["setup"],
        &[
            ("What is to learn [skills_only]", ""),
            ("Who has the model [custom]", ""),
            ("Its address", ""),
            ("Enter keeps sk-…abcd", ""),
            ("Model [scripted]", ""),
            ("skills that fit", ""),
            ("Folder", ""),
            ("Write new skills", ""),
            ("Port to listen on", "0"),
            ("Point OpenClaw at MetaClaw", ""),
        ],
    )
    .await;
    let seen = seen.replace(&upstream.address.to_string(), "UPSTREAM");
    assert!(!seen.contains(KEY), "{seen}");
    insta::assert_snapshot!("asked with OpenClaw", seen);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let proxy = home.start().await;
    has(&proxy.banner, ["OpenClaw asks metaclaw/scripted"]);
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");
    assert_eq!(upstream.shown(), format!("Bearer {KEY}"));
    home.ask(&["stop"]).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
}

#[tokio::test]
async fn openclaws_model_stands_in_for_flags_and_its_file_is_left_alone() {
    let upstream = Upstream::new();
    let home = Home::bare();
    let file = openclaw(&home, &upstream);
    let before = std::fs::read_to_string(&file).unwrap();
    let said = home.ask(&["setup", "--port", "0"]).await;
    let said = home
        .neutral(&said)
        .replace(&upstream.address.to_string(), "UPSTREAM");
    insta::assert_snapshot!(said, @r"
    written to HOME/config.yaml:
      proxy.port: 0
      llm.api_base: http://UPSTREAM/v1
      llm.model_id: scripted
      llm.api_key: sk-…abcd
    next: metaclaw start (with --yes OpenClaw is pointed at it, without it stays as it is)
    ");
    let proxy = home.start().await;
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");
    assert_eq!(upstream.shown(), format!("Bearer {KEY}"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    proxy.kill().await;
}
