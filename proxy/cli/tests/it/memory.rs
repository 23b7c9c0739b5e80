//! Tests of memory: with the settings and the calls of the original's benchmark, recorded from its runner
//! (`benchmark/src/infer/infer_cmd.py`, `benchmark/scripts/memory_run.py`), and with commands.

use serde_json::{Value, json};

use crate::harness::{Home, Running, Upstream, exchange, has, until};

/// The settings of `benchmark/scripts/config/memory.yaml`, with its variables replaced as its script does it.
fn settings(upstream: &Upstream, manual: bool) -> String {
    format!(
        "llm:\n  api_base: {}\n  api_key: sk-0123456789abcd\n  model_id: scripted\n  provider: custom\nmode: skills_only\n\
         proxy:\n  host: 0.0.0.0\n  port: 0\nrl:\n  enabled: false\nscheduler:\n  calendar:\n    enabled: false\n  enabled: false\n\
         skills:\n  auto_evolve: false\n  enabled: false\n  retrieval_mode: template\n  task_specific_top_k: 10\n  top_k: 6\n\
         memory:\n  enabled: true\n  scope: default\n  retrieval_mode: hybrid\n  embedding_mode: semantic\n  embedding_model: all-MiniLM-L6-v2\n  \
         auto_extract: true\n  auto_consolidate: true\n  max_injected_units: 10\n  max_injected_tokens: 1500\n  ignore_turn_type: true\n  \
         manual_trigger: {manual}\n  flush_every: 3\nmax_context_tokens: 50000\n",
        upstream.url
    )
}

/// A call as `urllib.request` makes it: without a key and without our headers.
async fn call(proxy: &Running, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = exchange(&proxy.url, &request).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").expect("no body");
    let status = head.split(' ').nth(1).expect("no status").parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn given(home: &Home, session: &str) -> String {
    let turns = ["turns", "list", "--session", session, "--json"];
    let turns = home.json_until(&turns, |it| it[0]["id"].is_string()).await;
    home.ask(&["turns", "show", turns[0]["id"].as_str().unwrap_or_default()])
        .await
}

#[tokio::test]
async fn the_calls_of_the_originals_benchmark_are_answered_in_its_shapes() {
    let upstream = Upstream::new();
    let home = Home::new(&settings(&upstream, true));
    let folder = home.path().join("memory");
    std::fs::create_dir(&folder).unwrap();
    let policy = r#"{"version":1,"retrieval_mode":"hybrid","max_injected_units":10,"type_boosts":{"semantic":1.3}}"#;
    std::fs::write(folder.join("policy.json"), policy).unwrap();
    let proxy = home.start().await;
    let empty = json!({});
    let ingest = async || call(&proxy, "POST", "/v1/memory/ingest", Some(&empty)).await;
    assert_eq!(
        ingest().await,
        (
            200,
            json!({"added": 0, "buffered_turns": 0, "sessions": []})
        )
    );

    // --memory: a scene of chats, and then what was said is read.
    proxy
        .chat("day01", &["My name is Anna. What is rain?"])
        .await;
    proxy
        .chat("day02", &["We use Postgres 16 in the shop."])
        .await;
    let buffer = folder.join(".buffer.jsonl");
    let buffered = || std::fs::read_to_string(&buffer).unwrap_or_default();
    until(
        "two turns",
        async || buffered(),
        |it| it.lines().count() == 2,
    )
    .await;
    let (status, read) = ingest().await;
    assert_eq!(
        (status, &read["added"], &read["buffered_turns"]),
        (200, &json!(2), &json!(2))
    );
    let first = json!({"session_id": "day01", "added": 1, "turns": 1});
    assert_eq!(read["sessions"][0], first);

    // What memory_run.py asks at its end.
    let get = async |path: &str| call(&proxy, "GET", path, None).await;
    let (_, stats) = get("/v1/memory/stats").await;
    assert_eq!(
        (&stats["active"], &stats["scope_id"]),
        (&json!(2), &json!("default")),
        "{stats}"
    );
    assert_eq!(
        stats["active_by_type"],
        json!({"project_state": 1, "semantic": 1})
    );
    assert_eq!(
        get("/v1/memory/summary").await.1["policy"]["max_injected_units"],
        10
    );
    assert_eq!(get("/v1/memory/health").await.1["passed"], true);
    for unreachable in ["operator-report", "feedback-analysis"] {
        let reply = get(&format!("/v1/memory/{unreachable}")).await;
        assert_eq!(reply, (404, json!({"detail": "memory not found"})));
    }
    let hits = get("/v1/memory/search?q=postgres&limit=5").await.1;
    assert_eq!(hits[0]["content"], "We use Postgres 16 in the shop.");

    home.ask(&["stop"]).await;
}

#[tokio::test]
async fn the_benchmarks_rounds_are_buffered_and_the_next_day_knows_them() {
    let upstream = Upstream::new();
    let home = Home::new(&settings(&upstream, true));
    let proxy = home.start().await;
    for (path, body, detail) in [
        ("flush_session", json!({}), "session_id: a text is needed"),
        (
            "buffer_turn",
            json!({"session_id": "s"}),
            "turn.prompt_text: a text is needed",
        ),
        (
            "buffer_turn",
            json!({"session_id": "a\u{0}b", "turn": {}}),
            "session_id: ",
        ),
        (
            "ingest",
            json!([]),
            "the request body must be a JSON object",
        ),
    ] {
        let (status, reply) =
            call(&proxy, "POST", &format!("/v1/memory/{path}"), Some(&body)).await;
        let told = reply["detail"].as_str().unwrap_or_default();
        assert!(status == 400 && told.starts_with(detail), "{path}: {told}");
    }
    // --buffer-turns: each round, and then the end of the scene.
    let round = |text: &str| json!({"session_id": "day03", "turn": {"prompt_text": text, "response_text": "I live on Mars."}});
    for (text, expected) in [
        (
            "I prefer tabs over spaces.",
            json!({"flushed": false, "added": null}),
        ),
        ("What is snow?", json!({"flushed": false, "added": null})),
        (
            "My dog is called Rex.",
            json!({"flushed": true, "added": 2}),
        ),
        ("I live in Rome.", json!({"flushed": false, "added": null})),
    ] {
        let (_, reply) = call(&proxy, "POST", "/v1/memory/buffer_turn", Some(&round(text))).await;
        assert_eq!(reply, expected, "{text}");
    }
    let flush = json!({"session_id": "day03", "final": true});
    let flushed = call(&proxy, "POST", "/v1/memory/flush_session", Some(&flush)).await;
    assert_eq!(flushed, (200, json!({"added": 1})));

    // The next day knows it, and nothing of the replies.
    proxy.chat("day04", &["Why is Postgres slow?"]).await;
    let served = given(&home, "day04").await;
    assert!(served.contains("## What the user has told you"), "{served}");
    for told in ["I prefer tabs", "My dog is called Rex.", "I live in Rome."] {
        assert!(served.contains(told), "{told}: {served}");
    }
    assert!(!served.contains("Mars"), "{served}");
    home.ask(&["stop"]).await;
}

#[tokio::test]
async fn memories_come_and_go_by_command_and_with_their_session() {
    let upstream = Upstream::new();
    let config = settings(&upstream, false).replace("flush_every: 3", "flush_every: 1");
    let home = Home::new(&config);
    let proxy = home.start().await;
    let contents = async || {
        let list = home.json(&["memory", "list", "--json"]).await;
        let all = list.as_array().expect("a list").iter();
        let content = |it: &Value| it["content"].as_str().unwrap_or_default().to_owned();
        all.map(content).collect::<Vec<_>>()
    };
    proxy
        .chat("s", &["Hello", "answer", "I live in Rome."])
        .await;
    until("a memory", contents, |it| *it == ["I live in Rome."]).await;
    let added = home
        .ask(&["memory", "add", "--agent", "_default", "My name is Anna."])
        .await;
    has(&added, ["from the next session on: My name is Anna."]);
    let found = home.ask(&["memory", "search", "rome"]).await;
    assert!(
        found.contains("I live in Rome.") && !found.contains("Anna"),
        "{found}"
    );
    proxy.chat("t", &["Where do I live?"]).await;
    assert!(given(&home, "t").await.contains("I live in Rome."));

    let forgotten = home.ask(&["forget", "s"]).await;
    assert!(forgotten.contains("1 lesson"), "{forgotten}");
    assert_eq!(contents().await, ["My name is Anna."]);
    // What another session was given of it is masked.
    let served = given(&home, "t").await;
    assert!(
        !served.contains("I live in Rome.") && served.contains("[forgotten]"),
        "{served}"
    );
    let list = home.json(&["memory", "list", "--json"]).await;
    let id = list[0]["memory_id"].as_str().unwrap();
    assert_eq!(
        home.ask(&["memory", "forget", id]).await,
        "forgotten: My name is Anna."
    );
    let unknown = home.refusal(&["memory", "forget", id]).await;
    assert!(unknown.contains("there is no memory"), "{unknown}");
    home.ask(&["stop"]).await;
    // Where nothing runs, the command works on the files.
    home.ask(&[
        "memory",
        "add",
        "--agent",
        "_default",
        "--pin",
        "I am deaf in one ear.",
    ])
    .await;
    assert_eq!(contents().await, ["I am deaf in one ear."]);
}
