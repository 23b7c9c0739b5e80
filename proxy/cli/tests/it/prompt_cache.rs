//! Tests that the share of cached prompt tokens is shown, and what broke the prefix of a prompt.

use serde_json::json;

use crate::harness::{Home, Reply, Running, Server, has, n_of};

/// Answers every chat, with three of four prompt tokens from the cache.
fn upstream() -> Server {
    let mut reply = metaclaw_test_kit::chat::says("Water that falls.");
    reply["usage"] = json!({
        "prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104,
        "prompt_tokens_details": {"cached_tokens": 75},
    });
    Server::new(move |_| Reply::json(&reply))
}

async fn chat(home: &Home, proxy: &Running, words: &[&str], n_turns: usize) {
    proxy.chat("day-1", words).await;
    home.json_until(&["turns", "list", "--json"], |it| n_of(it) == n_turns)
        .await;
}

#[tokio::test]
async fn status_and_report_say_what_the_cache_served_and_what_broke_the_prefix() {
    let upstream = upstream();
    let address = upstream.address;
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nskills: {{refresh: turn}}\n\
         llm: {{api_base: 'http://{address}/v1', model_id: scripted, api_key: sk-0123456789abcd}}\n"
    ));
    let proxy = home.start().await;
    let (first, reply) = ("What is rain, on Monday?", "Water that falls.");
    chat(&home, &proxy, &[first], 1).await;
    chat(&home, &proxy, &[first, reply, "And snow?"], 2).await;
    let status = home.ask(&["status"]).await;
    has(
        &status,
        ["\ncache:   75 % of today's 200 prompt tokens from the provider's cache"],
    );
    assert!(!status.contains("broke"), "{status}");

    // The wish is in force from the next instruction on, because of `skills.refresh`.
    home.ask(&["wishes", "add", "--agent", "_default", "Answer in German."])
        .await;
    let third = [first, reply, "And snow?", reply, "And hail?"];
    chat(&home, &proxy, &third, 3).await;
    // The client writes its history anew.
    let changed = "What is rain, on Tuesday?";
    let last = [
        changed,
        reply,
        "And snow?",
        reply,
        "And hail?",
        reply,
        "And fog?",
    ];
    chat(&home, &proxy, &last, 4).await;

    let report = home.ask(&["report"]).await;
    has(
        &report,
        ["Chat: 400 in (300 of them, 75 %, from the provider's cache), 16 out."],
    );
    let section = report.split("## Prompt cache\n\n").nth(1).unwrap();
    let section = section.split("\n\n## ").next().unwrap();
    let (counts, lines) = section.split_once("\n\n").unwrap();
    assert_eq!(
        counts,
        "In these days a change early in the prompt cost the cache 2 times: 1 by a lesson or an adapter, 1 by the agent."
    );
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines[0],
        "- turn 1-3: _default: the client's message 1 of 7 (user): \"Monday?\" became \"Tuesday?\""
    );
    assert!(
        lines[1].starts_with("- turn 1-2: _default: a wish was added: "),
        "{lines:?}"
    );
    assert!(lines[1].contains("Answer in German."), "{lines:?}");

    let json = home.json(&["report", "--json"]).await;
    assert_eq!(
        json["prefix"]["counts"],
        json!({"own": 1, "client": 1, "upstream": 0})
    );
    let today = json["days"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&today["prompt"], &today["cached"]),
        (&json!(400), &json!(300))
    );
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["prefix"]["latest"][0]["cause"], "history");
    let metrics = proxy.get_whole("/metrics").await;
    has(
        &metrics,
        [
            "metaclaw_prompt_tokens_total 400\n",
            "metaclaw_cached_prompt_tokens_total 300\n",
            "metaclaw_prefix_breaks_total{by=\"own\"} 1\n",
            "metaclaw_prefix_breaks_total{by=\"client\"} 1\n",
        ],
    );
    home.stop(proxy).await;
}

#[tokio::test]
async fn a_wish_breaks_no_session_that_keeps_its_lessons() {
    let upstream = upstream();
    let address = upstream.address;
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\n\
         llm: {{api_base: 'http://{address}/v1', model_id: scripted, api_key: sk-0123456789abcd}}\n"
    ));
    let proxy = home.start().await;
    chat(&home, &proxy, &["What is rain?"], 1).await;
    home.ask(&["wishes", "add", "--agent", "_default", "Answer in German."])
        .await;
    let next = ["What is rain?", "Water that falls.", "And snow?"];
    chat(&home, &proxy, &next, 2).await;
    let json = home.json(&["report", "--json"]).await;
    assert_eq!(json["prefix"]["latest"], json!([]));
    home.stop(proxy).await;
}
