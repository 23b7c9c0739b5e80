//! Tests of rollouts: opened over HTTP, talked to at an address and with a key of their own.

use metaclaw_chat::Secret;
use metaclaw_turns::{TurnKind, TurnLog, TurnsConfig};
use serde_json::{Value, json};

use super::harness::{CHAT, Harness, SetUp, Upstream, post};
use crate::{Endpoint, Rollouts};

/// A gateway whose rollouts are in a log in a temporary folder.
struct WithRollouts {
    harness: Harness,
    policy: Upstream,
    _dir: tempfile::TempDir,
}

impl WithRollouts {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
        let rollouts = Rollouts::load(log).await.unwrap();
        let mut set_up = SetUp {
            rollouts: Some(rollouts),
            lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
            ..SetUp::default()
        };
        set_up.config.proxy.api_key = Some(Secret::from("sk-proxy"));
        let keys = r#"{"phone":{"key":"sk-phone","agents":["coder"]}}"#;
        set_up.config.proxy.keys = serde_json::from_str(keys).unwrap();
        let harness = Harness::with(set_up).await;
        let policy = Upstream::start(&harness.tasks).await;
        let url = format!("http://{}", policy.address);
        let endpoint = Endpoint::new(&url, Some(Secret::from("sk-trainer")), "base").unwrap();
        harness.serving.set_policy(Some(endpoint));
        Self {
            harness,
            policy,
            _dir: dir,
        }
    }

    async fn open(&self, body: &Value) -> (u16, Value) {
        self.call("/v1/rollouts", "authorization: Bearer sk-proxy\r\n", body)
            .await
    }

    async fn call(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let request = post(path, headers, &body.to_string());
        let seen = self.harness.refused(&request).await;
        (seen.status(), serde_json::from_str(seen.text()).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-proxy\r\n\r\n"
        );
        let seen = self.harness.refused(request.as_bytes()).await;
        (seen.status(), serde_json::from_str(seen.text()).unwrap())
    }

    /// Sends a chat to a rollout. Returns the head and the body that the policy model got.
    async fn chat(&mut self, opened: &Value) -> (String, String) {
        self.chat_with(opened, "").await
    }

    async fn chat_with(&mut self, opened: &Value, headers: &str) -> (String, String) {
        let path = format!("/rollout/{}/v1/chat/completions", text(opened, "id"));
        let key = text(opened, "api_key");
        let headers = format!("authorization: Bearer {key}\r\n{headers}");
        let mut client = self.harness.client().await;
        client.send(&post(&path, &headers, CHAT)).await;
        let mut exchange = self.policy.next().await;
        exchange.say("x").await;
        assert!(client.read().await.is_whole);
        (exchange.head.clone(), exchange.body().to_owned())
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

#[tokio::test]
async fn the_address_says_whose_turn_it_is_and_nothing_is_put_into_its_prompt() {
    let mut it = WithRollouts::start().await;
    let (status, opened) = it
        .open(
            &json!({"agent": "coder", "task": "t-1", "group": "g", "group_size": 4, "attempt": 3}),
        )
        .await;
    assert_eq!(status, 201, "{opened}");
    let base = format!("http://localhost/rollout/{}", text(&opened, "id"));
    assert_eq!(text(&opened, "base_url"), format!("{base}/v1"));
    assert_eq!(text(&opened, "anthropic_base_url"), base);
    assert!(opened.get("key_hash").is_none());
    it.harness
        .serving
        .set(&"coder".parse().unwrap(), Some("a-1"));
    let (head, body) = it.chat(&opened).await;
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
    assert!(
        head.contains("Bearer sk-trainer") && !head.contains("sk-rollout"),
        "{head}"
    );
    assert!(!body.contains("Be brief."), "{body}");
    assert!(body.contains("a-1"), "{body}");
    // A new adapter is for the rollouts that begin after it.
    it.harness
        .serving
        .set(&"coder".parse().unwrap(), Some("a-2"));
    assert!(it.chat(&opened).await.1.contains("a-1"));
    let turns = it.harness.log.wait(2).await;
    let mark = turns[0].served.rollout.clone().unwrap();
    assert_eq!(
        (mark.task.as_str(), mark.group.as_str(), mark.attempt),
        ("t-1", "g", 3)
    );
    for turn in &turns {
        assert_eq!(turn.meta.kind, TurnKind::Rollout);
        assert_eq!(turn.agent.as_str(), "coder");
        assert_eq!(turn.session, mark.id.session());
        assert_eq!(turn.served.adapter.as_deref(), Some("a-1"));
    }
    let (_, pinned) = it
        .open(&json!({"agent": "coder", "task": "t-2", "adapter": "a-0"}))
        .await;
    assert!(it.chat(&pinned).await.1.contains("a-0"));
}

#[tokio::test]
async fn a_header_puts_a_whole_rollout_off_the_record() {
    let mut it = WithRollouts::start().await;
    let (_, private) = it.open(&json!({"task": "t-1"})).await;
    let (_, other) = it.open(&json!({"task": "t-2"})).await;
    it.chat_with(&private, "x-metaclaw-learn: no\r\n").await;
    it.chat(&private).await;
    it.chat(&other).await;
    let turns = it.harness.log.wait(1).await;
    let tasks = turns.iter().map(|it| it.served.rollout.as_ref());
    let tasks: Vec<_> = tasks.map(|it| it.unwrap().task.as_str()).collect();
    assert_eq!(tasks, ["t-2"]);
    assert_eq!(it.harness.metrics.counts().off_record, 2);
}

#[tokio::test]
async fn only_its_own_key_opens_a_rollout_and_it_opens_nothing_else() {
    let mut it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"task": "t-1"})).await;
    let (_, other) = it.open(&json!({"task": "t-1"})).await;
    let chat: Value = serde_json::from_str(CHAT).unwrap();
    let path = format!("/rollout/{}/v1/chat/completions", text(&opened, "id"));
    let key = |of: &Value| format!("x-api-key: {}\r\n", text(of, "api_key"));
    for headers in [
        key(&other),
        "x-api-key: sk-proxy\r\n".to_owned(),
        String::new(),
    ] {
        let (status, answer) = it.call(&path, &headers, &chat).await;
        assert_eq!(status, 401, "{answer}");
    }
    let (status, answer) = it.call("/v1/chat/completions", &key(&opened), &chat).await;
    assert_eq!(status, 401, "{answer}");
    let score = json!({"rollout": text(&opened, "id"), "score": 1});
    for route in ["feedback", "rollouts", "admin/train_step"] {
        let path = format!("/rollout/{}/v1/{route}", text(&opened, "id"));
        assert_eq!(
            it.call(&path, &key(&opened), &score).await.0,
            403,
            "{route}"
        );
    }
    let proxy = "authorization: Bearer sk-proxy\r\n";
    let (status, closed) = it.call("/v1/feedback", proxy, &score).await;
    assert_eq!(
        (status, &closed["state"]),
        (200, &json!("scored")),
        "{closed}"
    );
    let (status, answer) = it.call("/v1/feedback", proxy, &score).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &json!("rollout_closed"))
    );
    let id = text(&opened, "id");
    let (status, answer) = it.call(&path, &key(&opened), &chat).await;
    assert_eq!(status, 404, "{answer}");
    assert_eq!(answer["error"]["code"], "no_such_rollout");
    let (status, shown) = it.get(&format!("/v1/rollouts/{id}")).await;
    assert_eq!(
        (status, &shown["state"], &shown["outcome"]),
        (200, &json!("scored"), &json!(1.0))
    );
    assert_eq!(it.get("/v1/rollouts/nonsense").await.0, 404);
    let (status, wanted) = it.get("/v1/rollouts/wanted?agent=coder").await;
    assert_eq!(
        (status, wanted),
        (200, json!({"adapter": null, "held_out": 0}))
    );
    assert!(it.chat(&other).await.0.starts_with("POST /v1/chat"));
}

/// Routes that only the owner's key opens, in several spellings.
const OF_THE_OWNER: [(&str, &str); 33] = [
    ("GET", "/v1/files"),
    ("GET", "/v1/files/file-1/content"),
    ("POST", "/v1/files"),
    ("DELETE", "/v1/files/file-1"),
    ("POST", "/v1/fine_tuning/jobs"),
    ("DELETE", "/v1/assistants/a"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/messages/batches"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/chat/completions/chatcmpl-1"),
    ("DELETE", "/v1/chat/completions/chatcmpl-1"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/conversations"),
    ("POST", "/v1/vector_stores/vs_1/search"),
    ("POST", "/v1/containers"),
    ("GET", "/v1/organization/admin_api_keys"),
    ("GET", "/v1/models/ft:mine"),
    ("DELETE", "/v1/models/ft:mine"),
    ("DELETE", "/v1/models"),
    ("PUT", "/v1/messages/count_tokens"),
    ("PATCH", "/v1/embeddings"),
    ("GET", "/v1/models/../files"),
    ("GET", "/v1/models%2f..%2ffiles"),
    ("GET", "/v1/models;/files"),
    ("DELETE", "/v1/%66iles/file-1"),
    ("DELETE", "/v1//files/file-1"),
    ("DELETE", "/v1/files//file-1"),
    ("DELETE", "/v1/v1/files/file-1"),
    ("POST", "/v1/chat/completions/../../files"),
    ("GET", "/v1/x?y=/v1/models"),
];

/// A program of the model's own making gets the key of a rollout. Such a key once deleted the owner's files.
#[tokio::test]
async fn keys_of_rollouts_and_of_agents_reach_nothing_that_is_stored_at_the_provider() {
    let mut it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"agent": "coder", "task": "t-1"})).await;
    let rollout = format!("/rollout/{}", text(&opened, "id"));
    let callers = [
        (rollout.as_str(), text(&opened, "api_key")),
        ("", "sk-phone"),
    ];
    let request = |(method, route): (&str, &str), prefix: &str, key: &str| {
        let head = format!("{method} {prefix}{route} HTTP/1.1\r\nhost: localhost");
        format!("{head}\r\nauthorization: Bearer {key}\r\ncontent-length: 2\r\n\r\n{{}}")
    };
    for route in OF_THE_OWNER {
        for (prefix, key) in callers {
            let seen = it
                .harness
                .refused(request(route, prefix, key).as_bytes())
                .await;
            let (seen, answer) = (seen.status(), seen.text().to_owned());
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(seen, 403, "{route:?} {prefix}: {answer}");
            let message = text(&answer["error"], "message");
            assert!(message.contains("GET /v1/models"), "{route:?}: {message}");
        }
    }
    // A path with two slashes before `v1` is none of a rollout: its key is unknown there.
    for route in ["//v1/files", "/%761/files", "/v1"] {
        let seen = request(("GET", route), &rollout, text(&opened, "api_key"));
        let seen = it.harness.refused(seen.as_bytes()).await;
        assert_eq!(seen.status(), 401, "{route}");
    }
    for (prefix, key) in callers {
        let mut client = it.harness.client().await;
        let models = request(("GET", "/v1/models"), prefix, key);
        client.send(models.as_bytes()).await;
        let list = r#"{"object":"list","data":[]}"#;
        it.policy.next().await.answer(list).await;
        let answer = client.read().await;
        assert_eq!(answer.status(), 200, "{prefix}: {}", answer.text());
    }
    let owner = (("DELETE", "/v1/files/file-1"), "sk-proxy");
    for (route, key) in [(("POST", "/v1/embeddings"), "sk-phone"), owner] {
        let (mut client, mut exchange) = it.harness.ask(request(route, "", key).as_bytes()).await;
        exchange.answer("{}").await;
        assert_eq!(client.read().await.status(), 200, "{route:?}");
    }
    // In a rollout, routes are fewer: its program needs chats.
    let embeddings = request(
        ("POST", "/v1/embeddings"),
        &rollout,
        text(&opened, "api_key"),
    );
    assert_eq!(
        it.harness.refused(embeddings.as_bytes()).await.status(),
        403
    );
}

/// Requests that name something in the owner's account: the route, the body, and the path of the field.
const OF_THE_ACCOUNT: [(&str, &str, &str); 8] = [
    (
        "responses",
        r#"{"input": "x", "conversation": "conv_1"}"#,
        "conversation",
    ),
    (
        "responses",
        r#"{"input": [{"type": "item_reference", "id": "m"}]}"#,
        "input[0].id",
    ),
    (
        "responses",
        r#"{"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}"#,
        "tools[0].vector_store_ids",
    ),
    (
        "messages",
        r#"{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]}"#,
        "messages[0].content[0].source.file_id",
    ),
    (
        "messages/count_tokens",
        r#"{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]}"#,
        "messages[0].content[0].source.file_id",
    ),
    (
        "messages",
        r#"{"container": "container_1", "messages": [{"role": "user", "content": "x"}]}"#,
        "container",
    ),
    (
        "chat/completions",
        r#"{"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}"#,
        "messages[0].content[0].file.file_id",
    ),
    (
        "chat/completions",
        r#"{"messages": [{"role": "user", "content": "x"}], "previous_response_id": "r"}"#,
        "previous_response_id",
    ),
];

/// The bodies of chats are checked for the key of a rollout and for the key of an agent.
#[tokio::test]
async fn a_body_of_a_rollout_or_of_an_agent_names_nothing_that_is_stored_at_the_provider() {
    let it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"agent": "coder", "task": "t-1"})).await;
    let rollout = format!("/rollout/{}", text(&opened, "id"));
    for (prefix, key) in [(&*rollout, text(&opened, "api_key")), ("", "sk-phone")] {
        let key = format!("authorization: Bearer {key}\r\n");
        for (route, body, field) in OF_THE_ACCOUNT {
            let body: Value = serde_json::from_str(body).unwrap();
            let (status, answer) = it.call(&format!("{prefix}/v1/{route}"), &key, &body).await;
            assert_eq!(status, 403, "{body}: {answer}");
            let message = text(&answer["error"], "message");
            assert!(message.starts_with(&format!("{field} names")), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_rollout_continues_only_its_own_replies_and_a_key_those_of_its_agent() {
    let mut it = WithRollouts::start().await;
    let mut callers = vec![(String::new(), "sk-proxy".to_owned())];
    for task in ["t-1", "t-2"] {
        let (_, opened) = it.open(&json!({"agent": "coder", "task": task})).await;
        let prefix = format!("/rollout/{}", text(&opened, "id"));
        callers.push((prefix, text(&opened, "api_key").to_owned()));
    }
    callers.push((String::new(), "sk-phone".to_owned()));
    let request = |(prefix, key): &(String, String), body: Value| {
        let headers = format!("authorization: Bearer {key}\r\n");
        post(
            &format!("{prefix}/v1/responses"),
            &headers,
            &body.to_string(),
        )
    };
    // The policy's server speaks chat completions.
    let reply = |id: &str| {
        let message = json!({"role": "assistant", "content": "ok"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        json!({"id": id, "object": "chat.completion", "choices": [choice]}).to_string()
    };
    for (n, caller) in callers.iter().enumerate() {
        let first = request(caller, json!({"model": "m", "input": "x"}));
        let mut client = it.harness.sent(&first).await;
        it.policy.next().await.answer(&reply(&n.to_string())).await;
        assert_eq!(client.read().await.status(), 200, "{n}");
    }
    it.harness.log.wait(callers.len()).await;
    for (who, caller) in callers.iter().enumerate().skip(1) {
        for of in 0..=callers.len() {
            let body = json!({"model": "m", "input": "y", "previous_response_id": format!("resp_mc_{of}")});
            let mut client = it.harness.sent(&request(caller, body)).await;
            // The agent's own key may continue the replies of its rollouts too.
            if who == of || who == 3 && (1..3).contains(&of) {
                it.policy.next().await.answer(&reply("resp_x")).await;
                assert_eq!(client.read().await.status(), 200, "{who} {of}");
                continue;
            }
            let seen = client.read().await;
            let said = seen.text();
            assert!(
                said.contains("previous_response_not_found"),
                "{who} {of}: {said}"
            );
            assert_eq!(seen.status(), 400);
        }
    }
}

#[tokio::test]
async fn a_key_of_some_agents_opens_rollouts_with_their_own_adapters_under_its_name() {
    let it = WithRollouts::start().await;
    let phone = "authorization: Bearer sk-phone\r\n";
    for (adapter, status) in [
        (json!(null), 201),
        (json!(""), 201),
        (json!("coder-1f2e3d4c-000007"), 201),
        (json!("main-1f2e3d4c-000007"), 400),
        (json!("coder-two-1f2e3d4c-000007"), 400),
        (json!("coder"), 400),
        (json!("coder-000007"), 400),
        (json!("base"), 400),
    ] {
        let body = json!({"task": "t", "adapter": adapter});
        let (seen, answer) = it.call("/v1/rollouts", phone, &body).await;
        assert_eq!(seen, status, "{adapter}: {answer}");
        if status == 201 {
            assert_eq!(answer["opened_by"], "phone");
        } else {
            let message = text(&answer["error"], "message");
            assert!(message.contains("is not one of agent coder"), "{message}");
        }
    }
    let body = json!({"agent": "coder", "task": "t", "adapter": "main-1f2e3d4c-000007"});
    let (status, answer) = it.open(&body).await;
    assert_eq!((status, answer.get("opened_by")), (201, None));
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_by_field_value_and_what_is_allowed() {
    let it = WithRollouts::start().await;
    for (body, said) in [
        (json!({}), "missing field `task`"),
        (json!({"task": ""}), "the name \"\" is not allowed"),
        (json!({"task": "t", "grup": "g"}), "unknown field `grup`"),
        (
            json!({"task": "t", "attempt": 1}),
            "group_size 1 with attempt 1 is not allowed",
        ),
        (json!({"task": "t", "group_size": 0}), "group_size 0"),
        (
            json!({"task": "t", "timeout_s": 0}),
            "timeout_s 0 is not allowed: 1 to 86400",
        ),
        (
            json!({"task": "t", "agent": "_shared"}),
            "_shared stands for all agents",
        ),
        (json!({"task": "t", "agent": "../x"}), "agent name"),
        (
            json!({"task": "t", "run": "x".repeat(513)}),
            "run has 513 bytes: at most 512 are allowed",
        ),
        (
            json!({"task": "t", "adapter": "x".repeat(1_000)}),
            "adapter has 1000 bytes",
        ),
    ] {
        let (status, answer) = it.open(&body).await;
        let message = text(&answer["error"], "message");
        assert!(
            status == 400 && message.contains(said),
            "{status} {message}"
        );
    }
    let (status, _) = it.call("/v1/rollouts", "", &json!({"task": "t"})).await;
    assert_eq!(status, 401);
    let unrecorded = Harness::start().await;
    let seen = unrecorded.refused(&post("/v1/rollouts", "", "{}")).await;
    assert_eq!(seen.status(), 503);
}
