//! Tests of rollouts: opened over HTTP, talked to at an address and with a key of their own.

use metaclaw_test_kit::has;
use metaclaw_turns::{TurnKind, TurnLog, TurnsConfig};
use serde_json::{Value, json};

use super::harness::{
    BRIEF, CHAT, CHATS, Exchange, Harness, SetUp, Upstream, get, json_reply, post, request, says,
};
use crate::Rollouts;

/// The owner's key.
const OWNER: &str = "authorization: Bearer sk-proxy\r\n";

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
            lessons: vec![BRIEF],
            ..SetUp::with_key("sk-proxy")
        };
        let keys = r#"{"phone":{"key":"sk-phone","agents":["coder"]}}"#;
        set_up.config.proxy.keys = serde_json::from_str(keys).unwrap();
        let harness = Harness::with(set_up).await;
        let policy = harness.policy(|endpoint| endpoint).await;
        Self {
            harness,
            policy,
            _dir: dir,
        }
    }

    async fn open(&self, body: &Value) -> (u16, Value) {
        self.call("/v1/rollouts", OWNER, body).await
    }

    async fn call(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let request = post(path, headers, &body.to_string());
        let seen = self.harness.refused(&request).await;
        (seen.status(), seen.json())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let seen = self.harness.refused(&get(path, OWNER)).await;
        (seen.status(), seen.json())
    }

    /// Sends a chat to a rollout. Returns the request that the policy model got.
    async fn chat(&mut self, opened: &Value, headers: &str) -> Exchange {
        let path = format!("{}/v1/chat/completions", prefix(opened));
        let headers = format!("{}{headers}", bearer(text(opened, "api_key")));
        let mut client = self.harness.sent(&post(&path, &headers, CHAT)).await;
        let exchange = self.policy.answer(&says("x")).await;
        assert!(client.read().await.is_whole);
        exchange
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

/// Returns the address of a rollout.
fn prefix(opened: &Value) -> String {
    format!("/rollout/{}", text(opened, "id"))
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn the_address_says_whose_turn_it_is_and_nothing_is_put_into_its_prompt() {
    let mut it = WithRollouts::start().await;
    let task =
        json!({"agent": "coder", "task": "t-1", "group": "g", "group_size": 4, "attempt": 3});
    let (status, opened) = it.open(&task).await;
    assert_eq!(status, 201, "{opened}");
    let base = format!("http://localhost{}", prefix(&opened));
    assert_eq!(text(&opened, "base_url"), format!("{base}/v1"));
    assert_eq!(text(&opened, "anthropic_base_url"), base);
    assert!(opened.get("key_hash").is_none());
    let coder = "coder".parse().unwrap();
    it.harness.serving.set(&coder, Some("a-1"));
    let asked = it.chat(&opened, "").await;
    assert_eq!(asked.line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-trainer"));
    assert!(!asked.head.contains("sk-rollout"), "{}", asked.head);
    assert!(!asked.body().contains("Be brief."), "{}", asked.body());
    has(asked.body(), ["a-1"]);
    // A new adapter is for the rollouts that begin after it.
    it.harness.serving.set(&coder, Some("a-2"));
    has(it.chat(&opened, "").await.body(), ["a-1"]);
    let turns = it.harness.log.wait(2).await;
    let mark = turns[0].served.rollout.clone().unwrap();
    let marks = (mark.task.as_str(), mark.group.as_str(), mark.attempt);
    assert_eq!(marks, ("t-1", "g", 3));
    for turn in &turns {
        assert_eq!(turn.meta.kind, TurnKind::Rollout);
        assert_eq!(turn.agent, coder);
        assert_eq!(turn.session, mark.id.session());
        assert_eq!(turn.served.adapter.as_deref(), Some("a-1"));
    }
    let pinned = json!({"agent": "coder", "task": "t-2", "adapter": "a-0"});
    let (_, pinned) = it.open(&pinned).await;
    has(it.chat(&pinned, "").await.body(), ["a-0"]);
}

#[tokio::test]
async fn a_header_puts_a_whole_rollout_off_the_record() {
    let mut it = WithRollouts::start().await;
    let (_, private) = it.open(&json!({"task": "t-1"})).await;
    let (_, other) = it.open(&json!({"task": "t-2"})).await;
    it.chat(&private, "x-metaclaw-learn: no\r\n").await;
    it.chat(&private, "").await;
    it.chat(&other, "").await;
    let rollouts = it.harness.turns(1, |turn| turn.served.rollout).await;
    assert_eq!(rollouts[0].as_ref().unwrap().task.as_str(), "t-2");
    assert_eq!(it.harness.metrics.counts().off_record, 2);
}

#[tokio::test]
async fn only_its_own_key_opens_a_rollout_and_it_opens_nothing_else() {
    let mut it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"task": "t-1"})).await;
    let (_, other) = it.open(&json!({"task": "t-1"})).await;
    let chat: Value = serde_json::from_str(CHAT).unwrap();
    let path = format!("{}/v1/chat/completions", prefix(&opened));
    let key = |rollout: &Value| format!("x-api-key: {}\r\n", text(rollout, "api_key"));
    let own = key(&opened);
    for (path, headers) in [
        (&*path, &*key(&other)),
        (&path, "x-api-key: sk-proxy\r\n"),
        (&path, ""),
        (CHATS, &own),
    ] {
        let (status, answer) = it.call(path, headers, &chat).await;
        assert_eq!(status, 401, "{answer}");
    }
    let id = text(&opened, "id");
    let score = json!({"rollout": id, "score": 1});
    for route in ["feedback", "rollouts", "admin/train_step"] {
        let path = format!("{}/v1/{route}", prefix(&opened));
        assert_eq!(it.call(&path, &own, &score).await.0, 403, "{route}");
    }
    let (status, closed) = it.call("/v1/feedback", OWNER, &score).await;
    assert_eq!((status, text(&closed, "state")), (200, "scored"));
    for (path, headers, body, refused) in [
        ("/v1/feedback", OWNER, &score, (409, "rollout_closed")),
        (&path, &own, &chat, (404, "no_such_rollout")),
    ] {
        let (status, answer) = it.call(path, headers, body).await;
        assert_eq!((status, text(&answer["error"], "code")), refused);
    }
    let (status, shown) = it.get(&format!("/v1/rollouts/{id}")).await;
    assert_eq!((status, text(&shown, "state")), (200, "scored"));
    assert_eq!(shown["outcome"], 1.0);
    assert_eq!(it.get("/v1/rollouts/nonsense").await.0, 404);
    let wanted = it.get("/v1/rollouts/wanted?agent=coder").await;
    assert_eq!(wanted, (200, json!({"adapter": null, "held_out": 0})));
    assert_eq!(it.chat(&other, "").await.path(), CHATS);
}

/// Routes that only the owner's key opens, in several spellings.
const OF_THE_OWNER: &str = include_str!("data/owners_routes.txt");

/// A program of the model's own making gets the key of a rollout. Such a key once deleted the owner's files.
#[tokio::test]
async fn keys_of_rollouts_and_of_agents_reach_nothing_that_is_stored_at_the_provider() {
    let mut it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"agent": "coder", "task": "t-1"})).await;
    let rollout = prefix(&opened);
    let own = bearer(text(&opened, "api_key"));
    let phone = bearer("sk-phone");
    let callers = [(&*rollout, &own), ("", &phone)];
    for line in OF_THE_OWNER.lines() {
        let (method, route) = line.split_once(' ').unwrap();
        for (prefix, key) in callers {
            let request = request(method, &format!("{prefix}{route}"), key, "{}");
            let (status, message) = it.harness.refused(&request).await.refusal();
            assert_eq!(status, 403, "{method} {route} {prefix}: {message}");
            has(message, ["GET /v1/models"]);
        }
    }
    // A path with two slashes before `v1` is none of a rollout: its key is unknown there.
    for route in ["//v1/files", "/%761/files", "/v1"] {
        let request = get(&format!("{rollout}{route}"), &own);
        let seen = it.harness.refused(&request).await;
        assert_eq!(seen.status(), 401, "{route}");
    }
    for (prefix, key) in callers {
        let models = get(&format!("{prefix}/v1/models"), key);
        let mut client = it.harness.sent(&models).await;
        let list = r#"{"object":"list","data":[]}"#;
        it.policy.next().await.answer(list).await;
        let answer = client.read().await;
        assert_eq!(answer.status(), 200, "{prefix}: {}", answer.text());
    }
    for (method, route, key) in [
        ("POST", "/v1/embeddings", &*phone),
        ("DELETE", "/v1/files/file-1", OWNER),
    ] {
        let request = request(method, route, key, "{}");
        let (_, seen) = it.harness.exchange(&request, &json_reply("{}")).await;
        assert_eq!(seen.status(), 200, "{route}");
    }
    // In a rollout, routes are fewer: its program needs chats.
    let embeddings = post(&format!("{rollout}/v1/embeddings"), &own, "{}");
    assert_eq!(it.harness.refused(&embeddings).await.status(), 403);
}

/// A body with a file in the owner's account.
const WITH_FILE: &str = r#"{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]}"#;

/// Requests that name something in the owner's account: the route and the path of the field, and the body.
#[rustfmt::skip]
const OF_THE_ACCOUNT: [(&str, &str, &str); 8] = [
    ("responses", "conversation", r#"{"input": "x", "conversation": "conv_1"}"#),
    ("responses", "input[0].id", r#"{"input": [{"type": "item_reference", "id": "m"}]}"#),
    ("responses", "tools[0].vector_store_ids", r#"{"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}"#),
    ("messages", "messages[0].content[0].source.file_id", WITH_FILE),
    ("messages/count_tokens", "messages[0].content[0].source.file_id", WITH_FILE),
    ("messages", "container", r#"{"container": "container_1", "messages": [{"role": "user", "content": "x"}]}"#),
    ("chat/completions", "messages[0].content[0].file.file_id", r#"{"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}"#),
    ("chat/completions", "previous_response_id", r#"{"messages": [{"role": "user", "content": "x"}], "previous_response_id": "r"}"#),
];

/// The bodies of chats are checked for the key of a rollout and for the key of an agent.
#[tokio::test]
async fn a_body_of_a_rollout_or_of_an_agent_names_nothing_that_is_stored_at_the_provider() {
    let it = WithRollouts::start().await;
    let (_, opened) = it.open(&json!({"agent": "coder", "task": "t-1"})).await;
    let rollout = prefix(&opened);
    for (prefix, key) in [(&*rollout, text(&opened, "api_key")), ("", "sk-phone")] {
        for (route, field, body) in OF_THE_ACCOUNT {
            let request = post(&format!("{prefix}/v1/{route}"), &bearer(key), body);
            let (status, message) = it.harness.refused(&request).await.refusal();
            assert_eq!(status, 403, "{body}: {message}");
            let names = format!("{field} names");
            assert!(message.starts_with(&names), "{message}");
        }
    }
}

#[tokio::test]
async fn a_rollout_continues_only_its_own_replies_and_a_key_those_of_its_agent() {
    let mut it = WithRollouts::start().await;
    let mut callers = vec![(String::new(), OWNER.to_owned())];
    for task in ["t-1", "t-2"] {
        let (_, opened) = it.open(&json!({"agent": "coder", "task": task})).await;
        callers.push((prefix(&opened), bearer(text(&opened, "api_key"))));
    }
    callers.push((String::new(), bearer("sk-phone")));
    let request = |(prefix, key): &(String, String), body: Value| {
        post(&format!("{prefix}/v1/responses"), key, &body.to_string())
    };
    // The policy's server speaks chat completions.
    let reply = |id: &str| says("ok").replace("chatcmpl-1", id);
    for (n, caller) in callers.iter().enumerate() {
        let first = request(caller, json!({"model": "m", "input": "x"}));
        let mut client = it.harness.sent(&first).await;
        it.policy.answer(&reply(&format!("chatcmpl-{n}"))).await;
        assert_eq!(client.read().await.status(), 200, "{n}");
    }
    it.harness.log.wait(callers.len()).await;
    for (who, caller) in callers.iter().enumerate().skip(1) {
        for of in 0..=callers.len() {
            let previous = format!("resp_mc_chatcmpl-{of}");
            let body = json!({"model": "m", "input": "y", "previous_response_id": previous});
            let mut client = it.harness.sent(&request(caller, body)).await;
            // The agent's own key may continue the replies of its rollouts too.
            if who == of || who == 3 && (1..3).contains(&of) {
                it.policy.answer(&reply("chatcmpl-x")).await;
                assert_eq!(client.read().await.status(), 200, "{who} {of}");
                continue;
            }
            let seen = client.read().await;
            assert_eq!(seen.status(), 400, "{who} {of}");
            has(seen.text(), ["previous_response_not_found"]);
        }
    }
}

#[tokio::test]
async fn a_key_of_some_agents_opens_rollouts_with_their_own_adapters_under_its_name() {
    let it = WithRollouts::start().await;
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
        let (seen, answer) = it.call("/v1/rollouts", &bearer("sk-phone"), &body).await;
        assert_eq!(seen, status, "{adapter}: {answer}");
        if status == 201 {
            assert_eq!(answer["opened_by"], "phone");
        } else {
            let message = text(&answer["error"], "message");
            has(message, ["is not one of agent coder"]);
        }
    }
    let body = json!({"agent": "coder", "task": "t", "adapter": "main-1f2e3d4c-000007"});
    let (status, answer) = it.open(&body).await;
    assert_eq!((status, answer.get("opened_by")), (201, None));
}

#[tokio::test]
async fn what_cannot_be_opened_is_said_by_field_value_and_what_is_allowed() {
    let it = WithRollouts::start().await;
    #[rustfmt::skip]
    let cases = [
        (json!({"task": ""}), "the name \"\" is not allowed"),
        (json!({"grup": "g"}), "unknown field `grup`"),
        (json!({"attempt": 1}), "group_size 1 with attempt 1 is not allowed"),
        (json!({"group_size": 0}), "group_size 0"),
        (json!({"timeout_s": 0}), "timeout_s 0 is not allowed: 1 to 86400"),
        (json!({"agent": "_shared"}), "_shared stands for all agents"),
        (json!({"agent": "../x"}), "agent name"),
        (json!({"run": "x".repeat(513)}), "run has 513 bytes: at most 512 are allowed"),
        (json!({"adapter": "x".repeat(1_000)}), "adapter has 1000 bytes"),
    ];
    for (fields, said) in cases {
        let mut body = json!({"task": "t"});
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        let (status, answer) = it.open(&body).await;
        assert_eq!(status, 400, "{body}");
        has(text(&answer["error"], "message"), [said]);
    }
    let (_, answer) = it.open(&json!({})).await;
    has(text(&answer["error"], "message"), ["missing field `task`"]);
    let (status, _) = it.call("/v1/rollouts", "", &json!({"task": "t"})).await;
    assert_eq!(status, 401);
    let unrecorded = Harness::start().await;
    let seen = unrecorded.refused(&post("/v1/rollouts", "", "{}")).await;
    assert_eq!(seen.status(), 503);
}
