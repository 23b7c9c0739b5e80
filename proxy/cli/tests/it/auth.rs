//! Tests of keys that are kept separately from the settings, and given on standard input.

use std::{os::unix::fs::PermissionsExt, process::Stdio};

use tokio::io::AsyncWriteExt as _;

use crate::harness::{Home, Upstream, has};

const KEY: &str = "sk-0123456789abcd";

/// Runs a subcommand with `text` on standard input; returns its output and its messages.
pub(crate) async fn given(home: &Home, text: &str, arguments: &[&str]) -> String {
    let mut child = home
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).await.unwrap();
    drop(input);
    let output = child.wait_with_output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    home.neutral(&String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn a_key_that_is_kept_opens_the_provider_and_is_never_shown() {
    let upstream = Upstream::new();
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted}}\n",
        upstream.url
    );
    let home = Home::new(&config);
    let paste = ["auth", "paste-key", "--provider", "mine"];
    let said = given(&home, &format!("{KEY}\n"), &paste).await;
    insta::assert_snapshot!(said, @r"
    kept as mine:default (sk-…abcd)
    to use it: metaclaw config llm.provider mine, and its address in llm.api_base
    ");
    home.ask(&["config", "llm.provider", "mine"]).await;
    insta::assert_snapshot!(home.ask(&["auth", "status"]).await, @r"
    profile       ends in   state
    mine:default  sk-…abcd  used by llm.*
    ");
    let key = home.ask(&["config", "llm.api_key"]).await;
    assert_eq!(key, "sk-…abcd");
    let file = home.path().join("auth-profiles.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let settings = home.read("config.yaml");
    assert!(!settings.contains(KEY), "{settings}");

    let proxy = home.start().await;
    proxy.chat("s", &["Hello"]).await;
    assert_eq!(upstream.shown(), format!("Bearer {KEY}"));
    home.ask(&["stop"]).await;

    home.ask(&["auth", "remove", "mine:default"]).await;
    let listed = home.json(&["auth", "status", "--json"]).await;
    assert_eq!(listed, serde_json::json!([]));
    let refused = home.refusal(&["auth", "remove", "mine:default"]).await;
    insta::assert_snapshot!(refused, @"metaclaw: there is no profile mine:default: `metaclaw auth status` shows those there are");
}

#[tokio::test]
async fn a_token_says_how_it_is_used_and_what_is_none_is_refused() {
    let home = Home::new("");
    let paste = ["auth", "paste-token", "--provider", "anthropic"];
    let said = given(&home, "sk-ant-oat01-0123456789", &paste).await;
    insta::assert_snapshot!(said, @r"
    kept as anthropic:manual (sk-…6789)
    to use it: metaclaw config llm.provider anthropic; metaclaw config llm.auth_method oauth_token
    ");
    home.ask(&["config", "llm.provider", "anthropic"]).await;
    let listed = home.json(&["auth", "status", "--json"]).await;
    assert_eq!(listed[0]["used"], true, "{listed}");
    let set = ["config", "llm.oauth_token", "-"];
    let said = given(&home, "sk-ant-oat01-another789", &set).await;
    has(&said, ["kept as anthropic:manual (sk-…r789)"]);
    let settings = home.read("config.yaml");
    assert!(!settings.contains("oat01"), "{settings}");
    let refused = given(&home, "two words", &paste).await;
    insta::assert_snapshot!(refused, @"metaclaw: this is no key: it has spaces, line ends or characters that are not ASCII");
    let refused = given(&home, "", &paste).await;
    insta::assert_snapshot!(refused, @"metaclaw: nothing was given on standard input");
}

#[tokio::test]
async fn a_setting_may_come_on_standard_input_and_go_again() {
    let home = Home::new("# mine\nmode: rl # for now\n");
    let said = given(&home, KEY, &["config", "set", "llm.api_key", "-"]).await;
    assert_eq!(said.trim(), "llm.api_key is set in HOME/config.yaml");
    given(&home, "30001\n", &["config", "proxy.port", "-"]).await;
    assert_eq!(home.ask(&["config", "llm.api_key"]).await, "sk-…abcd");
    assert_eq!(home.ask(&["config", "proxy.port"]).await, "30001");
    home.ask(&["config", "unset", "llm.api_key"]).await;
    home.ask(&["config", "unset", "proxy"]).await;
    let file = home.read("config.yaml");
    assert!(
        file.starts_with("# mine\nmode: rl # for now\n") && !file.contains(KEY),
        "{file}"
    );
    assert_eq!(home.ask(&["config", "proxy.port"]).await, "30000");
    let refused = home.refusal(&["config", "unset", "proxy.port"]).await;
    insta::assert_snapshot!(refused, @"metaclaw: proxy.port is not set in HOME/config.yaml");
}
