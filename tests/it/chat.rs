//! The first thing a newcomer does: ask the demo model a question through the proxy.

use std::time::Duration;

use metaclaw_tests::{
    client::Refusal,
    external,
    home::{Home, Proxy, signal, trainers_of},
    wait::until,
};
use rustix::process::Signal;
use serde_json::json;
use tokio::{process::Command, time::timeout};

/// A home as `cargo xtask start` makes it.
pub(crate) fn laptop_home() -> Home {
    let (bin_dir, model) = (external::bin_dir(), external::model());
    let config = include_str!("../../examples/laptop/config.yaml");
    let home = Home::new(&bin_dir, config);
    home.with_env("METACLAW__TRAINER__MODEL", model.to_string_lossy())
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test runs it"]
async fn the_demo_model_says_paris_token_by_token() {
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let question = [json!({"role": "user", "content": "What is the capital of France?"})];
    let reply = proxy
        .client()
        .stream(&question, &json!({"temperature": 0, "max_tokens": 32}))
        .await
        .unwrap();
    assert!(reply.text.contains("Paris"), "{reply:?}");
    assert_eq!(reply.finish_reason.as_deref(), Some("stop"), "{reply:?}");
    let distinct = |gap: &[Duration]| gap[1] > gap[0];
    let gaps = reply
        .arrivals
        .windows(2)
        .filter(|gap| distinct(gap))
        .count();
    assert!(
        gaps >= 3,
        "tokens arrive one after the other: {:?}",
        reply.arrivals
    );
    proxy.stop().await.unwrap();
}

/// The commands of README's section "Teach it a first wish", as somebody types them one after the other.
#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test runs it"]
async fn the_first_wish_of_the_readme_is_obeyed_and_is_on_the_page() {
    const WISH: &str = "please answer in one short sentence";
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let [says, asks, ui] = first_wish(&home, &proxy);
    assert!(bash(&says).await.contains("chat.completion"));
    let is_heard = async || {
        let wishes = home.ask(&["wishes", "list", "--json"]).await;
        wishes.is_ok_and(|it| it.to_string().contains(WISH))
    };
    until(Duration::from_secs(60), is_heard).await.unwrap();
    // The list shows a wish some milliseconds before the first session has it, and a turn is written after its answer.
    let is_obeyed = async || {
        assert!(bash(&asks).await.contains("chat.completion"));
        let turns = home.turns().await;
        let mut added = turns
            .iter()
            .filter_map(|turn| turn.served.user_line.as_deref());
        added.any(|line| line.contains(WISH))
    };
    until(Duration::from_secs(60), is_obeyed).await.unwrap();
    let link = bash(&ui).await;
    let (origin, _) = link.split_once("/ui/login").unwrap();
    let cookies = home.path().join("cookies");
    let cookies = cookies.display();
    let page = format!(
        "curl -sfL -c {cookies} {} && curl -sf -b {cookies} {origin}/ui",
        link.trim()
    );
    assert!(bash(&page).await.contains(WISH));
    proxy.stop().await.unwrap();
}

/// README's three commands, for the proxy of a test.
fn first_wish(home: &Home, proxy: &Proxy) -> [String; 3] {
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## Teach it a first wish").unwrap();
    let block = section.split("```").nth(1).unwrap();
    let block = block.strip_prefix("sh\n").unwrap();
    let program = external::bin_dir().join("metaclaw");
    let block = block
        .replace("127.0.0.1:30000", &proxy.base_url)
        .replace(
            "~/.cache/metaclaw/demo-home",
            &home.path().to_string_lossy(),
        )
        .replace("target/release/metaclaw", &program.to_string_lossy());
    let mut commands: Vec<String> = Vec::new();
    for line in block.lines() {
        match commands.last_mut() {
            // The rest of a command is indented.
            Some(last) if line.starts_with(' ') => *last += line,
            _ => commands.push(line.to_owned()),
        }
    }
    commands.try_into().unwrap()
}

/// Runs a command and returns what it prints.
async fn bash(command: &str) -> String {
    let output = Command::new("bash").args(["-c", command]).output().await;
    let output = output.unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// SIGSTOP is what a hang looks like from outside: the process lives, its socket takes connections.
#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_trainer_that_hangs_is_told_and_is_asked_again_when_it_answers() {
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let question = [json!({"role": "user", "content": "What is the capital of France?"})];
    let ask = || async {
        proxy
            .client()
            .stream(&question, &json!({"max_tokens": 16}))
            .await
    };
    let is = || async { home.ask(&["status", "--json"]).await.unwrap()["trainer"]["is"].clone() };
    let trainer = trainers_of(home.path())[0];
    ask().await.unwrap();
    assert_eq!(is().await, "ready");
    signal(trainer, Signal::STOP).unwrap();
    let refused = timeout(Duration::from_secs(60), ask()).await;
    let refused = refused.expect("a chat does not wait without end");
    assert!(
        matches!(refused, Err(Refusal::Status { status: 503, .. })),
        "{refused:?}"
    );
    assert_eq!(is().await, "silent");
    signal(trainer, Signal::CONT).unwrap();
    let answers = async || ask().await.is_ok();
    until(Duration::from_secs(60), answers).await.unwrap();
    assert_eq!(is().await, "ready");
    assert_eq!(trainers_of(home.path()), [trainer]);
    proxy.stop().await.unwrap();
}
