//! OpenClaw itself: a text turn and a tool turn through the proxy to a scripted upstream.

use std::{path::Path, process::Stdio};

use metaclaw_tests::{
    external,
    home::Home,
    need,
    upstream::{CACHED_TOKENS, COMPLETION_TOKENS, PROMPT_TOKENS, Play, Upstream},
};
use serde_json::{Value, json};
use tokio::process::Command;

fn proxy_config(upstream: &Upstream) -> String {
    format!(
        "mode: skills_only\nllm:\n  api_base: {}/v1\n  model_id: mock-model\n  api_key: sk-upstream\n",
        upstream.base_url
    )
}

/// One headless turn of OpenClaw against `base_url`, in a home of its own.
async fn agent_exec(base_url: &str, instruction: &str) -> Value {
    let (openclaw, node) = external::openclaw().expect("checked by the test");
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "models": {"mode": "replace", "providers": {"proxied": {
            "baseUrl": format!("{base_url}/v1"), "apiKey": "sk-proxy-test",
            "api": "openai-completions",
            "models": [{"id": "mock-model", "name": "Mock", "reasoning": false, "input": ["text"],
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                "contextWindow": 128_000, "maxTokens": 4096}]}}},
        "agents": {"defaults": {"model": {"primary": "proxied/mock-model"}}}});
    let config_path = folder.path().join("openclaw.json");
    std::fs::write(&config_path, config.to_string()).unwrap();
    let output = Command::new(openclaw.join("node_modules/.bin/openclaw"))
        .args([
            "agent",
            "exec",
            instruction,
            "--json",
            "--timeout",
            "60",
            "--config",
        ])
        .arg(&config_path)
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", path_with(&node))
        .env("HOME", folder.path())
        .env("OPENCLAW_STATE_DIR", folder.path().join(".openclaw"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("openclaw runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let logs = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "openclaw: {}\n{said}\n{logs}",
        output.status
    );
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{logs}"))
}

fn path_with(node: &Path) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", node.display())
}

/// What OpenClaw counts must be what the upstream said: cached tokens apart from new ones.
fn assert_usage(usage: &Value, n_requests: u64) {
    assert_eq!(
        usage["input"],
        (PROMPT_TOKENS - CACHED_TOKENS) * n_requests,
        "{usage}"
    );
    assert_eq!(usage["cacheRead"], CACHED_TOKENS * n_requests, "{usage}");
    assert_eq!(usage["output"], COMPLETION_TOKENS * n_requests, "{usage}");
}

#[tokio::test]
async fn openclaw_takes_a_text_turn_and_a_tool_turn_each_in_a_session_of_its_own() {
    need!(external::openclaw());
    let bin_dir = need!(external::bin_dir());

    let upstream = Upstream::start(Play::Text("Hello from the mock upstream.")).await;
    let home = Home::new(&bin_dir, &proxy_config(&upstream));
    let proxy = home.start().await.unwrap();
    let run = agent_exec(&proxy.base_url, "Say hello.").await;
    assert_eq!(run["final"], "Hello from the mock upstream.", "{run}");
    assert_usage(&run["usage"], 1);
    let again = agent_exec(&proxy.base_url, "Say hello.").await;
    assert_eq!(again["ok"], true, "{again}");
    let turns = home.ask(&["turns", "list", "--json"]).await.unwrap();
    let sessions = sessions_of(&turns);
    assert_eq!(
        sessions.len(),
        2,
        "two runs, two sessions, a turn each: {turns}"
    );
    assert_eq!(upstream.received().len(), 2);
    let sent = &upstream.received()[0];
    assert_eq!(
        sent.headers["authorization"], "Bearer sk-upstream",
        "the configured key goes up"
    );
    assert!(
        sent.headers.contains_key("traceparent"),
        "{:?}",
        sent.headers
    );
    proxy.stop().await.unwrap();

    let play = Play::Tool {
        command: "echo hi-from-tool",
        then: "The tool said hi.",
    };
    let upstream = Upstream::start(play).await;
    let home = Home::new(&bin_dir, &proxy_config(&upstream));
    let proxy = home.start().await.unwrap();
    let run = agent_exec(&proxy.base_url, "Run the tool.").await;
    assert_eq!(run["final"], "The tool said hi.", "{run}");
    assert_eq!(run["toolSummary"]["calls"], 1, "{run}");
    let turns = home.ask(&["turns", "list", "--json"]).await.unwrap();
    let sessions = sessions_of(&turns);
    assert_eq!(sessions.len(), 1, "one run, one session: {turns}");
    assert_eq!(sessions[0].1, 2, "with both its turns: {turns}");
    proxy.stop().await.unwrap();
}

/// Each session with the number of its turns.
fn sessions_of(turns: &Value) -> Vec<(String, usize)> {
    let mut sessions: Vec<(String, usize)> = Vec::new();
    for turn in turns.as_array().expect("a list") {
        let name = turn["session"].as_str().expect("a session").to_owned();
        match sessions.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => sessions.push((name, 1)),
        }
    }
    sessions
}
