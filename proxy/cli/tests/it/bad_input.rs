//! Tests of faults and their messages.

use std::path::PathBuf;

use tokio::net::TcpListener;

use crate::harness::{Home, Upstream, has};

#[tokio::test]
async fn a_port_in_use_is_refused_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = Home::new("mode: skills_only\n");
    let refusal = home.refusal(&["start", "--port", &port]).await;
    insta::assert_snapshot!(refusal.replace(&port, "PORT"), @r#"metaclaw: 127.0.0.1:PORT is in use by another program: `metaclaw start --port N` (or proxy.port) takes another one, 0 any free one"#);
}

#[tokio::test]
async fn values_that_are_not_allowed_stop_the_start_all_at_once() {
    let home = Home::new("mode: fast\nproxy: {port: 70000}\nrl: {batch_size: none}\n");
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"
    metaclaw: mode in HOME/config.yaml: "fast" is not allowed: auto, rl, skills_only
    proxy.port in HOME/config.yaml: "70000" is not allowed: a whole number from 0 to 65535
    rl.batch_size in HOME/config.yaml: "none" is not allowed: a whole number, 1 or more
    "#);
    let refusal = home
        .refusal(&["start", "--port", "many", "--mode", "rl"])
        .await;
    insta::assert_snapshot!(refusal, @r#"
    metaclaw: mode in HOME/config.yaml: "fast" is not allowed: auto, rl, skills_only
    proxy.port in HOME/config.yaml: "70000" is not allowed: a whole number from 0 to 65535
    rl.batch_size in HOME/config.yaml: "none" is not allowed: a whole number, 1 or more
    proxy.port in the command line: "many" is not allowed: a whole number from 0 to 65535
    "#);
}

#[tokio::test]
async fn a_world_that_may_come_in_without_a_key_is_refused() {
    let home = Home::new("proxy: {host: 192.0.2.7}\n");
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: proxy.host in HOME/config.yaml: "192.0.2.7" is not allowed: without a key, 127.0.0.1 or ::1; to be reached from elsewhere, set proxy.api_key (in the environment: METACLAW__PROXY__API_KEY), or make a key with `metaclaw keys add`"#);
}

#[tokio::test]
async fn a_model_that_is_not_there_is_missed_before_anything_runs() {
    let home = Home::new("mode: rl\ntrainer: {model: none.gguf}\n");
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: trainer.model: no file or folder HOME/none.gguf: give a folder in Hugging Face form, a GGUF file, or (trainer.model) the name of a model at the Hugging Face hub, as in Qwen/Qwen3-4B, which is fetched. If it is on the machine of a training server, set rl.model and rl.remote_url, the server's address"#);
    let home = Home::new("mode: rl\n");
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: mode rl needs a policy model: set trainer.model (a folder in Hugging Face form, a GGUF file, or demo), or mode: skills_only"#);
}

#[tokio::test]
async fn rules_that_cannot_hold_name_their_place() {
    let rules = "judge: {rules: [{on: reply, min_words: 9, max_words: 3, score: 1}]}\n";
    let home = Home::new(&format!("mode: skills_only\nproxy: {{port: 0}}\n{rules}"));
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: judge.rules[0] can never hold: min_words is 9 and max_words is 3"#);
    let home =
        Home::new("mode: skills_only\nproxy: {port: 0}\njudge: {rules: [{on: never, score: 1}]}\n");
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: judge.rules.0.on in HOME/config.yaml: "never" is not allowed: reply, next"#);
}

#[tokio::test]
async fn an_upstream_that_is_none_is_refused_where_it_stands() {
    let config = "mode: skills_only\nproxy: {port: 0}\nrouting: {order: [claude]}\n";
    let home = Home::new(config);
    insta::assert_snapshot!(home.refusal(&["start"]).await, @r#"metaclaw: routing.order in HOME/config.yaml: "claude" is no upstream; the upstreams are policy, llm"#);
}

#[tokio::test]
async fn a_file_that_was_named_must_be_there() {
    let home = Home::new("");
    insta::assert_snapshot!(home.refusal(&["start", "--config", "HOME/none.yaml"]).await, @r#"metaclaw: cannot read HOME/none.yaml: No such file or directory (os error 2)"#);
}

/// Unknown keys and unreadable skills are reported, and the start continues.
#[tokio::test]
async fn warnings_do_not_stop_the_start() {
    let upstream = Upstream::new();
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}'}}\nrl: {{batchsize: 8}}\nmemory: {{use_embeddings: true}}\n",
        upstream.url
    ));
    let skill = |name: &str, text: &[u8]| {
        let folder = home.path().join("skills").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), text).unwrap();
    };
    skill(
        "good",
        b"---\nname: good\ndescription: Use it when needed.\n---\nDo well.\n",
    );
    skill(
        "broken",
        b"---\nname: ../evil\ndescription: Escapes.\n---\nDo ill.\n",
    );
    skill("binary", &[0xff, 0xfe, 0x00]);
    let proxy = home.start().await;
    has(&proxy.banner, ["no effect memory.use_embeddings"]);
    let log = home.read("stderr.log");
    let warnings: Vec<String> = log
        .lines()
        .filter_map(|line| line.split_once(" WARN metaclaw::"))
        // The test machine may be very busy.
        .filter(|(_, said)| !said.contains("looking at the skills folder takes"))
        .map(|(_, said)| home.neutral(said))
        .collect();
    insta::assert_snapshot!(warnings.join("\n"), @r#"
    commands::start: unknown key rl.batchsize in HOME/config.yaml: did you mean rl.batch_size?
    assemble::lessons: HOME/skills/binary/SKILL.md: cannot be read: stream did not contain valid UTF-8; skipped
    assemble::lessons: HOME/skills/broken/SKILL.md: skill name "../evil" is not allowed: 1 to 64 letters, digits, spaces, _ - or ., beginning with a letter, a digit or _; skipped
    "#);
    let skills = home.json(&["skills", "list", "--json"]).await;
    let names: Vec<&str> = skills
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|skill| skill["name"].as_str())
        .collect();
    // These are the built-in skills, and the readable one.
    assert_eq!(names.len(), 42, "{names:?}");
    assert!(names.contains(&"good"));
    let shown = home.ask(&["skills", "show", "good"]).await;
    assert!(shown.contains("Do well."), "{shown}");
    let refusal = home.refusal(&["skills", "show", "../evil"]).await;
    insta::assert_snapshot!(refusal, @r#"
    error: invalid value '../evil' for '<NAME>': skill name "../evil" is not allowed: 1 to 64 letters, digits, spaces, _ - or ., beginning with a letter, a digit or _

    For more information, try '--help'.
    "#);
    assert!(!PathBuf::from(home.path()).join("evil").exists());
}

#[tokio::test]
async fn without_any_model_a_chat_is_told_what_to_set() {
    let home = Home::new("mode: skills_only\nproxy: {port: 0}\n");
    let proxy = home.start().await;
    let reply = proxy.post("s", &["Hello"]).await;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    insta::assert_snapshot!(body, @r#"{"error":{"message":"no upstream is configured: set llm.api_base, or a policy model","type":"server_error","param":null,"code":"no_upstream"}}"#);
    assert!(!head.to_lowercase().contains("retry-after"), "{head}");
}

#[tokio::test]
async fn a_name_with_a_separator_is_refused_wherever_it_is_given() {
    let home = Home::new("");
    let refusal = home.refusal(&["turns", "list", "--agent", "../x"]).await;
    insta::assert_snapshot!(refusal, @r#"
    error: invalid value '../x' for '--agent <AGENT>': agent name "../x" is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _

    For more information, try '--help'.
    "#);
    let refusal = home.refusal(&["train-step"]).await;
    insta::assert_snapshot!(refusal, @r#"metaclaw: metaclaw does not run in HOME: `metaclaw start` starts it"#);
}
