//! Tests of `metaclaw setup`, by flags and by a person at a terminal.

use std::os::unix::fs::PermissionsExt as _;

use crate::{
    auth::given,
    harness::{Home, Upstream, has},
    output::at_terminal,
};

const KEY: &str = "sk-0123456789abcd";

/// Runs a command at a terminal with these answers. Returns the output, with `UPSTREAM` in place of the address.
async fn asked(
    home: &Home,
    upstream: &Upstream,
    arguments: &[&str],
    answers: &[(&str, &str)],
) -> String {
    let (seen, _) = at_terminal(home, arguments, answers).await;
    assert!(!seen.contains(KEY), "{seen}");
    seen.replace(&upstream.address.to_string(), "UPSTREAM")
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
    assert!(again.contains("has all of these values already"), "{again}");
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
async fn a_provider_needs_no_model_because_each_agent_names_its_own() {
    let home = Home::bare();
    let flags = [
        "setup",
        "--provider",
        "anthropic",
        "--no-check",
        "--non-interactive",
    ];
    home.ask(&flags).await;
    let text = home.read("config.yaml");
    has(&text, ["provider: anthropic"]);
    assert!(!text.contains("model_id"), "{text}");
}

#[tokio::test]
async fn a_person_is_asked_again_where_an_answer_fails() {
    let upstream = Upstream::new();
    let home = Home::new("");
    let setup = ["setup", "--port", "0", "--api-base", &upstream.url];
    let answers = [
        ("API key (", "sk-wrong-key-0123"),
        ("Keep it", ""),
        ("Its address", ""),
        ("API key (", KEY),
        ("Model [", "skripted"),
        ("Keep it", "no"),
        ("Model [", "scripted"),
    ];
    let seen = asked(&home, &upstream, &setup, &answers).await;
    assert!(!seen.contains("sk-wrong"), "{seen}");
    insta::assert_snapshot!("asked", seen);
    let proxy = home.start().await;
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");
    proxy.kill().await;
}

#[tokio::test]
async fn enter_keeps_what_is_there() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let before = home.read("config.yaml");
    let answers = [
        ("Which provider [custom]", ""),
        ("Its address", ""),
        ("Enter keeps sk-…abcd", ""),
        ("Model [scripted]", ""),
    ];
    let seen = asked(&home, &upstream, &["setup"], &answers).await;
    let after = home.read("config.yaml");
    assert_eq!(after.replace(", provider: custom", ""), before, "{seen}");
}

#[tokio::test]
async fn questions_that_end_early_leave_the_file_as_it_was() {
    let upstream = Upstream::new();
    let home = Home::new("mode: auto\n");
    let answers = [("Which provider", "custom"), ("Its address", "\u{4}")];
    let seen = asked(&home, &upstream, &["setup"], &answers).await;
    has(&seen, ["the questions ended: nothing was written"]);
    assert_eq!(home.read("config.yaml"), "mode: auto\n");
}

#[tokio::test]
async fn each_choice_asks_only_what_it_needs() {
    let upstream = Upstream::new();
    let provider = [
        ("Which provider [openai]", "2"),
        ("API key (", KEY),
        ("Model [claude-sonnet-4-6]", ""),
    ];
    let own_model = [
        ("Which provider", "none"),
        ("Model to train", "demo"),
        ("When are its weights trained [auto]", ""),
    ];
    let no_model = [
        ("Which provider [openai]", ""),
        ("API key (", KEY),
        ("Model [gpt-4o]", "-"),
    ];
    for (settings, answers, expected) in [
        (
            "",
            &provider[..],
            &[
                "provider: anthropic",
                "api_base: https://api.anthropic.com",
                "model_id: claude-sonnet-4-6",
                KEY,
            ][..],
        ),
        ("", &own_model[..], &["model: demo", "mode: auto"][..]),
        ("", &no_model[..], &["provider: openai", KEY][..]),
        (
            "mode: skills_only\njudge: {kind: rules}\n",
            &own_model[..],
            &["mode: auto", "model: demo", "kind: rules"][..],
        ),
    ] {
        let home = Home::new(settings);
        let seen = asked(&home, &upstream, &["setup", "--no-check"], answers).await;
        has(&seen, ["next: metaclaw start"]);
        has(home.read("config.yaml"), expected.iter().copied());
    }
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
    let answers = [
        ("Which provider [custom]", ""),
        ("Its address", ""),
        ("Enter keeps sk-…abcd", ""),
        ("Point OpenClaw at MetaClaw", ""),
    ];
    let seen = asked(&home, &upstream, &["setup", "--port", "0"], &answers).await;
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
