//! Tests with OpenClaw itself, in both of its APIs: through the proxy, it gets and does the same as without it at the
//! same time.

use std::collections::BTreeMap;

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    openclaw::{Api, OpenClaw, Run},
    upstream::{
        Asked, CACHED_TOKENS, COMPLETION_TOKENS, Failure, PROMPT_TOKENS, Play, Received, Upstream,
    },
};
use serde_json::{Value, json};

const GREETING: &str = "Hello from the mock upstream.";

/// The upstream's behaviour, by the model's name.
fn script(asked: &Asked<'_>) -> Play {
    match (asked.model, asked.n_before) {
        ("tool", _) => Play::Tool {
            command: "echo hi-from-tool",
            then: "The tool said hi.",
        },
        ("stormy", 0) => Play::Refuse(Failure::RateLimit),
        ("stormy", 1) => Play::Cut(GREETING),
        ("overflow", _) => Play::Refuse(Failure::ContextOverflow),
        _ => Play::Text(GREETING),
    }
}

/// An upstream for OpenClaw alone, and another one behind a proxy.
struct Pair {
    openclaw: OpenClaw,
    api: Api,
    alone: Upstream,
    behind: Upstream,
    home: Home,
    proxy: Proxy,
}

/// Runs the same turn, without the proxy and with it.
struct Twice {
    direct: Run,
    proxied: Run,
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn a_text_turn_and_a_tool_turn_are_as_without_us() {
    for api in [Api::Completions, Api::Messages] {
        let pair = Pair::start(api).await;
        let text = pair.exec("text", "Say hello.").await;
        assert_eq!(text.proxied.said["final"], GREETING, "{:?}", text.proxied);
        assert_eq!(text.proxied.said["usage"], usage(1), "{:?}", text.proxied);
        let tool = pair.exec("tool", "Run the tool.").await;
        assert_eq!(tool.proxied.said["final"], "The tool said hi.");
        // The number of calls is only in a summary of the tools that were used.
        assert_eq!(tool.proxied.said["toolSummary"]["calls"], 1);
        assert_eq!(tool.proxied.said["usage"], usage(2), "{:?}", tool.proxied);

        for run in [&text, &tool] {
            let [direct, proxied] = [&run.direct, &run.proxied].map(outcome);
            assert_eq!(direct, proxied, "what OpenClaw made of it, {api:?}");
        }
        pair.assert_requests_are_the_same(3);
        let sessions = pair.sessions().await;
        let n_turns = |run: &Twice| sessions.get(&session(&run.proxied)).copied();
        assert_eq!(n_turns(&text), Some(1), "{api:?}: {sessions:?}");
        assert_eq!(n_turns(&tool), Some(2), "{api:?}: {sessions:?}");
        pair.proxy.stop().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn errors_and_cuts_are_met_and_retried_as_without_us() {
    for api in [Api::Completions, Api::Messages] {
        let pair = Pair::start(api).await;
        let stormy = pair.exec("stormy", "Say hello.").await;
        assert_eq!(
            stormy.proxied.said["final"], GREETING,
            "{:?}",
            stormy.proxied
        );
        let [limited, torn] = retries(&stormy.proxied)[..] else {
            panic!("two retries: {:?}", stormy.proxied);
        };
        assert!(limited.ends_with("reason=rate_limit"), "{limited}");
        assert!(torn.ends_with("reason=timeout"), "{torn}");
        let told = stormy.proxied.logs.contains("Retry-After: 1 seconds");
        assert!(told, "{:?}", stormy.proxied);
        let overflow = pair.exec("overflow", "Say hello.").await;
        let kind = &overflow.proxied.said["error"]["kind"];
        assert_eq!(*kind, "context_overflow", "{:?}", overflow.proxied);

        for run in [&stormy, &overflow] {
            let [direct, proxied] = [&run.direct, &run.proxied].map(outcome);
            assert_eq!(direct, proxied, "what OpenClaw made of it, {api:?}");
        }
        // There are two failures and a success, and one failure that must not be retried: a retry by the proxy would
        // have saved OpenClaw one of its own. Endless failures would be no better test: OpenClaw waits a random time
        // between its retries, so the number varies.
        pair.assert_requests_are_the_same(4);
        pair.proxy.stop().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn a_gateway_s_second_turn_remembers_the_first() {
    for api in [Api::Completions, Api::Messages] {
        let pair = Pair::start(api).await;
        let (direct, proxied) = tokio::join!(
            pair.openclaw.gateway(api, &pair.alone.base_url, "text"),
            pair.openclaw.gateway(api, &pair.proxy.base_url, "text"),
        );
        for text in ["Remember the word PLUM.", "Which word?"] {
            let (direct, proxied) = tokio::join!(direct.say(text), proxied.say(text));
            let [direct, proxied] = [&direct, &proxied].map(answer);
            assert_eq!(direct, proxied, "{api:?}");
            assert_eq!(proxied["payloads"][0]["text"], GREETING);
            assert_eq!(proxied["usage"], usage(1));
        }
        pair.assert_requests_are_the_same(2);
        let second: Value = serde_json::from_slice(&pair.behind.received()[1].body).unwrap();
        let history = second["messages"].to_string();
        assert!(history.contains("PLUM") && history.contains(GREETING));
        let sessions = pair.sessions().await;
        let counts: Vec<usize> = sessions.values().copied().collect();
        assert_eq!(counts, [2], "one session, both turns: {sessions:?}");
        pair.proxy.stop().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn a_tool_turn_goes_to_an_upstream_of_the_other_api() {
    let (openclaw, bin_dir) = (OpenClaw::installed(), external::bin_dir());
    // The proxy finds out that an OpenAI-compatible server has no messages route.
    let only_chat = |asked: &Asked<'_>| match asked.path {
        "/v1/chat/completions" => script(asked),
        _ => Play::Unknown,
    };
    let chat = Upstream::scripted(only_chat);
    let messages = Upstream::scripted(script);
    let before_chat = Home::before(&bin_dir, &chat, "openai", &Value::Null);
    let before_messages = Home::before(&bin_dir, &messages, "anthropic", &Value::Null);
    let [to_chat, to_messages] = [
        before_chat.start().await.unwrap(),
        before_messages.start().await.unwrap(),
    ];
    let (from_messages, from_chat) = tokio::join!(
        openclaw.exec(Api::Messages, &to_chat.base_url, "tool", "Run the tool."),
        openclaw.exec(Api::Completions, &to_messages.base_url, "tool", "Run it."),
    );
    for run in [&from_messages, &from_chat] {
        assert_eq!(run.said["final"], "The tool said hi.", "{run:?}");
        assert_eq!(run.said["toolSummary"]["calls"], 1, "{run:?}");
        assert_eq!(run.said["usage"], usage(2), "{run:?}");
    }
    let routes = |upstream: &Upstream| {
        let received = upstream.received().into_iter();
        received
            .map(|sent| sent.target().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(routes(&chat)[1..], ["/v1/chat/completions"; 2]);
    assert_eq!(routes(&messages), ["/v1/messages"; 2]);
    to_chat.stop().await.unwrap();
    to_messages.stop().await.unwrap();
}

// === impl Pair ===

impl Pair {
    /// Starts everything.
    async fn start(api: Api) -> Self {
        let (openclaw, bin_dir) = (OpenClaw::installed(), external::bin_dir());
        let alone = Upstream::scripted(script);
        let behind = Upstream::scripted(script);
        let dialect = match api {
            Api::Completions => "openai",
            Api::Messages => "anthropic",
        };
        let home = Home::before(&bin_dir, &behind, dialect, &Value::Null);
        let proxy = home.start().await.unwrap();
        Self {
            openclaw,
            api,
            alone,
            behind,
            home,
            proxy,
        }
    }

    /// Runs one headless turn, without the proxy and with it.
    async fn exec(&self, model: &str, instruction: &str) -> Twice {
        let run = |base_url| self.openclaw.exec(self.api, base_url, model, instruction);
        let (direct, proxied) = tokio::join!(run(&self.alone.base_url), run(&self.proxy.base_url));
        Twice { direct, proxied }
    }

    /// Both upstreams got as many requests of the same length with the same headers.
    fn assert_requests_are_the_same(&self, n: usize) {
        let [direct, proxied] = [self.alone.received(), self.behind.received()];
        assert_eq!((direct.len(), proxied.len()), (n, n), "{:?}", self.api);
        for (direct, proxied) in direct.iter().zip(&proxied) {
            assert_eq!(shape(direct), shape(proxied), "{:?}", self.api);
        }
    }

    /// Returns the sessions in the log, with the number of their turns.
    async fn sessions(&self) -> BTreeMap<String, usize> {
        let turns = self.home.ask(&["turns", "list", "--json"]).await.unwrap();
        let mut sessions = BTreeMap::new();
        for turn in turns.as_array().expect("a list") {
            let name = turn["session"].as_str().expect("a session").to_owned();
            *sessions.entry(name).or_default() += 1;
        }
        sessions
    }
}

/// Returns what must not differ between two runs' requests. Names and times in the texts differ, and have the same
/// length.
fn shape(request: &Received) -> (String, BTreeMap<String, String>) {
    let mut headers = request.end_to_end();
    assert!(headers.remove("traceparent").is_some(), "{headers:?}");
    (request.target().to_owned(), headers)
}

/// Returns OpenClaw's view of a turn, without what differs between any two runs.
fn outcome(run: &Run) -> Value {
    let mut said = run.said.clone();
    if let Some(said) = said.as_object_mut() {
        said.remove("sessionId");
        said.remove("toolSummary");
    }
    let calls = &run.said["toolSummary"]["calls"];
    json!({"code": run.code, "said": said, "calls": calls, "retries": retries(run)})
}

/// Returns OpenClaw's reason for each retry.
fn retries(run: &Run) -> Vec<&str> {
    let lines = run
        .logs
        .lines()
        .filter(|line| line.contains("same-model retry"));
    lines
        .map(|line| line.split(": delayMs").next().unwrap_or(line))
        .collect()
}

/// Returns a gateway's answer, without what differs between any two.
fn answer(run: &Run) -> Value {
    let result = &run.said["result"];
    json!({"code": run.code, "status": run.said["status"], "payloads": result["payloads"],
        "usage": result["meta"]["agentMeta"]["usage"]})
}

/// The session by OpenClaw's own name.
fn session(run: &Run) -> String {
    run.said["sessionId"]
        .as_str()
        .expect("a session")
        .to_owned()
}

/// OpenClaw must count cached tokens separately from new ones.
fn usage(n_requests: u64) -> Value {
    let input = (PROMPT_TOKENS - CACHED_TOKENS) * n_requests;
    let (cached, output) = (CACHED_TOKENS * n_requests, COMPLETION_TOKENS * n_requests);
    json!({"input": input, "output": output, "cacheRead": cached, "cacheWrite": 0,
        "total": input + cached + output, "cost": {"total": 0}})
}
