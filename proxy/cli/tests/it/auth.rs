//! Tests of keys that are kept separately from the settings, and given on standard input.

use std::{os::unix::fs::PermissionsExt, process::Stdio};

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{TestHome, Upstream};

const KEY: &str = "sk-0123456789abcd";

/// Runs a subcommand with `text` on standard input; returns its output and its messages.
pub(crate) async fn given(home: &TestHome, text: &str, arguments: &[&str]) -> Result<String> {
    let mut child = home
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(text.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok(home.neutral(&String::from_utf8(said)?))
}

#[tokio::test]
async fn a_key_that_is_kept_opens_the_provider_and_is_never_shown() {
    let upstream = Upstream::new().await.unwrap();
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}', model_id: scripted}}\n",
        upstream.url
    );
    let home = TestHome::new(&config).unwrap();
    let paste = ["auth", "paste-key", "--provider", "mine"];
    let said = given(&home, &format!("{KEY}\n"), &paste).await.unwrap();
    insta::assert_snapshot!(said, @r"
    kept as mine:default (sk-…abcd)
    to use it: metaclaw config llm.provider mine, and its address in llm.api_base
    ");
    home.ask(&["config", "llm.provider", "mine"]).await.unwrap();
    insta::assert_snapshot!(home.ask(&["auth", "status"]).await.unwrap(), @r"
    profile       ends in   state
    mine:default  sk-…abcd  used by llm.*
    ");
    let key = home.ask(&["config", "llm.api_key"]).await.unwrap();
    assert_eq!(key, "sk-…abcd");
    let file = home.path().join("auth-profiles.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let settings = std::fs::read_to_string(home.path().join("config.yaml")).unwrap();
    assert!(!settings.contains(KEY), "{settings}");

    let proxy = home.start().await.unwrap();
    proxy.chat("s", &["Hello"]).await.unwrap();
    assert_eq!(upstream.shown(), format!("Bearer {KEY}"));
    home.ask(&["stop"]).await.unwrap();

    home.ask(&["auth", "remove", "mine:default"]).await.unwrap();
    let listed = home.json(&["auth", "status", "--json"]).await.unwrap();
    assert_eq!(listed, serde_json::json!([]));
    let refused = home
        .refusal(&["auth", "remove", "mine:default"])
        .await
        .unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: there is no profile mine:default: `metaclaw auth status` shows those there are");
}

#[tokio::test]
async fn a_token_says_how_it_is_used_and_what_is_none_is_refused() {
    let home = TestHome::new("").unwrap();
    let paste = ["auth", "paste-token", "--provider", "anthropic"];
    let said = given(&home, "sk-ant-oat01-0123456789", &paste)
        .await
        .unwrap();
    insta::assert_snapshot!(said, @r"
    kept as anthropic:manual (sk-…6789)
    to use it: metaclaw config llm.provider anthropic; metaclaw config llm.auth_method oauth_token
    ");
    home.ask(&["config", "llm.provider", "anthropic"])
        .await
        .unwrap();
    let listed = home.json(&["auth", "status", "--json"]).await.unwrap();
    assert_eq!(listed[0]["used"], true, "{listed}");
    let set = ["config", "llm.oauth_token", "-"];
    let said = given(&home, "sk-ant-oat01-another789", &set).await.unwrap();
    assert!(
        said.contains("kept as anthropic:manual (sk-…r789)"),
        "{said}"
    );
    let settings = std::fs::read_to_string(home.path().join("config.yaml")).unwrap();
    assert!(!settings.contains("oat01"), "{settings}");
    let refused = given(&home, "two words", &paste).await.unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: this is no key: it has spaces, line ends or characters that are not ASCII");
    let refused = given(&home, "", &paste).await.unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: nothing was given on standard input");
}

#[tokio::test]
async fn a_setting_may_come_on_standard_input_and_go_again() {
    let home = TestHome::new("# mine\nmode: rl # for now\n").unwrap();
    let said = given(&home, KEY, &["config", "set", "llm.api_key", "-"])
        .await
        .unwrap();
    assert_eq!(said.trim(), "llm.api_key is set in HOME/config.yaml");
    given(&home, "30001\n", &["config", "proxy.port", "-"])
        .await
        .unwrap();
    assert_eq!(
        home.ask(&["config", "llm.api_key"]).await.unwrap(),
        "sk-…abcd"
    );
    assert_eq!(home.ask(&["config", "proxy.port"]).await.unwrap(), "30001");
    home.ask(&["config", "unset", "llm.api_key"]).await.unwrap();
    home.ask(&["config", "unset", "proxy"]).await.unwrap();
    let file = std::fs::read_to_string(home.path().join("config.yaml")).unwrap();
    assert!(
        file.starts_with("# mine\nmode: rl # for now\n") && !file.contains(KEY),
        "{file}"
    );
    assert_eq!(home.ask(&["config", "proxy.port"]).await.unwrap(), "30000");
    let refused = home
        .refusal(&["config", "unset", "proxy.port"])
        .await
        .unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: proxy.port is not set in HOME/config.yaml");
}
