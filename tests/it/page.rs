//! Tests of the page at `/ui` in Chromium: what a person sees, clicks and types. Where there is no Chromium, they print
//! why and pass.

mod access;
mod gallery;
mod keyboard;
mod live;
mod questions;

use std::time::Duration;

use metaclaw_tests::{
    browser::{Browser, BrowserWindow},
    client::Client,
    external,
    home::{Home, Proxy},
    judge::Judge,
    lived_in,
    upstream::{Asked, Play, Upstream},
    wait::found,
};
use serde_json::{Value, json};

/// How long until a turn is in the log, judged or heard.
const NOTED_WITHIN: Duration = Duration::from_secs(20);

/// A home with two weeks of use, its proxy, and a browser.
struct PageWorld {
    home: Home,
    proxy: Proxy,
    browser: Browser,
    /// `http://127.0.0.1:PORT` of the control listener.
    base_url: String,
    /// The token of `run.json`.
    token: String,
    _upstream: Upstream,
    _judge: Judge,
}

// === impl PageWorld ===

impl PageWorld {
    /// Starts it; `None`, with a printed reason, where there is no browser.
    async fn start() -> Option<Self> {
        let Some(places) = external::chromium() else {
            println!(
                "skipped: there is no Chromium here, so that METACLAW_TEST_CHROMIUM is not set"
            );
            return None;
        };
        let upstream = Upstream::scripted(script);
        let judge = Judge::start();
        let more = json!({"judge": {"kind": "http", "url": judge.url}});
        let home = Home::before(&external::bin_dir(), &upstream, "openai", &more);
        lived_in::fill(home.path(), now_ms()).await;
        let proxy = home.start().await.expect("the proxy starts");
        let run = std::fs::read(home.path().join("run.json")).expect("a run file");
        let run: Value = serde_json::from_slice(&run).expect("JSON");
        let text = |field: &str| run[field].as_str().expect("a text").to_owned();
        Some(Self {
            browser: Browser::start(&places, BrowserWindow::WIDE).await,
            base_url: format!("http://{}", text("control")),
            token: text("token"),
            home,
            proxy,
            _upstream: upstream,
            _judge: judge,
        })
    }

    /// The same with the browser signed in, at the front page.
    async fn signed_in() -> Option<Self> {
        let mut world = Self::start().await?;
        world.sign_in().await;
        Some(world)
    }

    /// An operation of the control listener, as a command would ask for it.
    async fn ask(&self, path: &str, request: &Value) -> Value {
        let authorization = format!("Bearer {}", self.token);
        let client = Client::with_headers(&self.base_url, &[("authorization", &authorization)]);
        let reply = client.post(path, request).send().await;
        let reply = reply.expect("the control listener answers");
        assert!(reply.status().is_success(), "{path}: {}", reply.status());
        reply.json().await.expect("JSON")
    }

    /// A login link, as `metaclaw ui` prints it.
    async fn login_link(&self) -> String {
        let code = self.ask("/login", &json!({"ends_others": false})).await;
        let code = code["code"].as_str().expect("a code");
        format!("{}/ui/login?code={code}", self.base_url)
    }

    async fn sign_in(&mut self) {
        let link = self.login_link().await;
        assert_eq!(self.browser.goto(&link).await, 200);
        self.browser.wait_at("/ui").await;
        self.browser.wait_for("Last conversations").await;
    }

    /// Opens a view of the page.
    async fn goto(&mut self, path: &str) {
        let status = self.browser.goto(&format!("{}{path}", self.base_url)).await;
        assert_eq!(status, 200, "{path}");
    }

    /// The owner says something to the agent, as the next message of the conversation, and gets the reply.
    async fn say(&self, conversation: &mut Vec<Value>, text: &str) {
        conversation.push(json!({"role": "user", "content": text}));
        let client = Client::with_headers(&self.proxy.base_url, &[("x-agent-id", "main")]);
        let reply = client.stream(conversation, &json!({})).await;
        let reply = reply.expect("the upstream answers");
        conversation.push(json!({"role": "assistant", "content": reply.text}));
    }

    /// Waits until these words of the owner's were heard; the lesson in the journal.
    async fn wait_for_lesson(&self, words: &str) -> Value {
        let lesson = found(NOTED_WITHIN, async || {
            let journal = self.ask("/journal", &Value::Null).await;
            let mut lessons = journal.as_array().expect("lessons").iter();
            Ok(lessons.find(|it| it["heard"] == words).cloned())
        });
        lesson.await.expect("the wish is heard")
    }

    /// The owner says these words; the wish that was heard.
    async fn wish(&self, words: &str) -> String {
        self.say(&mut Vec::new(), words).await;
        let lesson = self.wait_for_lesson(words).await;
        lesson["wish"].as_str().expect("a text").to_owned()
    }

    /// The journal's entry of a wish.
    async fn lesson(&self, wish: &str) -> Value {
        let journal = self.ask("/journal", &Value::Null).await;
        let mut lessons = journal.as_array().expect("lessons").iter();
        lessons
            .find(|it| it["wish"] == wish)
            .expect("the lesson")
            .clone()
    }

    /// No view complained, and nothing was sent to another machine, since the window was opened.
    async fn assert_is_quiet(&mut self) {
        let seen = self.browser.seen().await;
        assert_eq!(seen.complaints, Vec::<String>::new());
        for request in &seen.requests {
            assert!(request.starts_with(&self.base_url), "sent to {request}");
        }
    }

    /// The same, and the proxy ends as it should.
    async fn end(mut self) {
        self.assert_is_quiet().await;
        self.proxy.stop().await.expect("the proxy ends");
    }
}

fn script(asked: &Asked<'_>) -> Play {
    let newest = asked.newest().to_string();
    if newest.contains("capital") {
        return Play::Text("Copenhagen.");
    }
    Play::Text("As you wish.")
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("a time after 1970").as_millis();
    u64::try_from(now).expect("a time of this age")
}
