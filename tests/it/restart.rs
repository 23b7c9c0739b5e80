//! Kills the proxy in the middle of a streamed reply. Its parent starts it again on the same port, and the agent goes on.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use metaclaw_tests::{
    agents::ClaudeCode,
    background::Background,
    client::Client,
    external,
    home::Home,
    openclaw::{Api, OpenClaw},
    upstream::{Asked, Play, Upstream},
    wait::until,
};
use serde_json::json;

const STORY: &str = "Tell me a long story.";
const BEGIN: &str = "Once upon a time";
const QUESTION: &str = "Are you there again?";
const ANSWER: &str = "Here I am.";
/// How long an agent may take until it asks its model: the slowest loads some hundred megabytes first.
const ASKS_WITHIN: Duration = Duration::from_secs(120);
/// How long the proxy may take to answer again on a busy machine. 3 s are promised, and the test prints what it took.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// The first streamed reply to the story stalls after its first words. Everything else is answered at once.
fn script() -> impl Fn(&Asked<'_>) -> Play + Send + Sync + 'static {
    let has_stalled = AtomicBool::new(false);
    move |asked| {
        let is_story = asked.is_told(STORY) && asked.body["stream"] == true;
        if is_story && !has_stalled.swap(true, Ordering::Relaxed) {
            Play::Stall(BEGIN)
        } else {
            Play::Text(ANSWER)
        }
    }
}

struct Running {
    home: Home,
    proxy: Background,
    upstream: Upstream,
}

impl Running {
    async fn start(dialect: &str) -> Self {
        let upstream = Upstream::scripted(script());
        let home = Home::before(&external::bin_dir(), &upstream, dialect, &json!({}));
        let proxy = Background::start(&home).await.expect("the proxy starts");
        Self {
            home,
            proxy,
            upstream,
        }
    }

    /// Waits until a reply to the story has begun, kills the proxy, and waits until it answers again.
    async fn kill_in_the_middle(&self) {
        let begun = until(ASKS_WITHIN, async || {
            let bodies = self.upstream.received().into_iter().map(|it| it.body);
            let mut texts = bodies.map(|body| String::from_utf8_lossy(&body).into_owned());
            texts.any(|text| text.contains(STORY))
        });
        begun.await.expect("the agent asks");
        self.proxy.kill().expect("the proxy runs");
        let killed = Instant::now();
        let client = Client::new(&self.proxy.base_url);
        let answers = async || {
            let messages = [json!({"role": "user", "content": "Hello."})];
            let reply = client.stream(&messages, &json!({"max_tokens": 16})).await;
            reply.is_ok()
        };
        until(AGAIN_WITHIN, answers).await.expect("it answers");
        println!("  a chat was answered {:?} after kill -9", killed.elapsed());
    }

    async fn has_turn(&self, text: &str) -> bool {
        let turns = self.home.ask(&["turns", "list", "--json"]).await;
        turns.is_ok_and(|it| it.to_string().contains(text))
    }
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_goes_on_after_a_kill_in_the_middle_of_a_stream() {
    let running = Running::start("openai").await;
    let openclaw = OpenClaw::installed();
    let url = &running.proxy.base_url;
    let gateway = openclaw.gateway(Api::Completions, url, "text").await;
    let (story, ()) = tokio::join!(gateway.say(STORY), running.kill_in_the_middle());
    println!(
        "  the turn that was cut: {}",
        story.said["result"]["payloads"]
    );
    let begun = Instant::now();
    let run = gateway.say(QUESTION).await;
    println!("  the next turn took {:?}", begun.elapsed());
    assert_eq!(run.said["result"]["payloads"][0]["text"], ANSWER, "{run:?}");
    assert!(running.has_turn(QUESTION).await);
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_goes_on_after_a_kill_in_the_middle_of_a_stream() {
    let running = Running::start("anthropic").await;
    let mut chat = ClaudeCode::installed().start(&running.proxy.base_url, "House rules: none.");
    let (story, ()) = tokio::join!(chat.say(STORY), running.kill_in_the_middle());
    println!("  the turn that was cut: {story}");
    let begun = Instant::now();
    assert_eq!(chat.say(QUESTION).await, ANSWER);
    println!("  the next turn took {:?}", begun.elapsed());
    assert!(running.has_turn(QUESTION).await);
}
