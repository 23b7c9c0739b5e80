//! The page over HTTP, on the files of a home.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, Response, StatusCode, header},
};
use futures_util::{StreamExt as _, future::BoxFuture};
use http_body_util::BodyExt as _;
use metaclaw_chat::{AgentId, JudgedBy, Message, Score, SessionId, TurnId, Verdict, now_ms};
use metaclaw_control::{
    browser_logins::BrowserLogins,
    costs::ModelPrices,
    home::Home,
    instance::{FileSettings, IdleLearner, Instance, LogOpening, OpenParts},
};
use metaclaw_skills::{Library, MemoryConfig, MemoryStore, SkillsConfig, WishesConfig};
use metaclaw_turns::{
    NewMessage, NewStep, NewTurn, Served, StepOutcome, TurnLog, TurnMeta, TurnsConfig,
};
use serde_json::json;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::{PageState, router};

mod access;
mod talks;

const TOKEN: &str = "token of the run file";
const MARKUP: &str = "<script>alert('x')</script><b>bold</b>";
#[derive(Debug)]
struct FilesOfDefaults(Home);

impl OpenParts for FilesOfDefaults {
    fn settings(&self) -> anyhow::Result<FileSettings> {
        Ok(FileSettings {
            turns: TurnsConfig::default(),
            checkpoints: self.0.trainer(),
            is_gated: true,
            step_figures: self.0.learning(),
            prices: ModelPrices::default(),
        })
    }

    fn library(&self) -> anyhow::Result<Library> {
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        Ok(Library::open(self.0.skills(), skills, wishes).0)
    }

    fn memory(&self) -> anyhow::Result<MemoryStore> {
        Ok(MemoryStore::open(self.0.memory(), MemoryConfig::default()))
    }

    fn learner<'a>(&'a self, _: &'a TurnLog) -> BoxFuture<'a, anyhow::Result<IdleLearner>> {
        Box::pin(async { anyhow::bail!("there is no policy model here") })
    }
}

struct PageFixture {
    _dir: tempfile::TempDir,
    instance: Arc<Instance>,
    logins: Arc<BrowserLogins>,
    routes: Router,
}

impl PageFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        home.create().unwrap();
        let logins = Arc::new(BrowserLogins::open(&home).unwrap());
        let opener = Arc::new(FilesOfDefaults(home.clone()));
        let instance = Instance::of_files(home, "test", LogOpening::OrBegin, opener);
        let instance = Arc::new(instance);
        let tasks = TaskTracker::new();
        let state = PageState::new(Arc::clone(&instance), TOKEN, Arc::clone(&logins), tasks);
        Self {
            _dir: dir,
            instance,
            logins,
            routes: router(state),
        }
    }

    async fn log(&self) -> &TurnLog {
        self.instance.log().await.unwrap()
    }

    async fn turn(&self, asked: &[Message], reply: &str) -> TurnId {
        self.put(new_turn(asked, Message::assistant(reply))).await
    }

    async fn put(&self, turn: NewTurn) -> TurnId {
        self.log().await.append(turn).await.unwrap()
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.routes.clone().oneshot(request).await.unwrap()
    }

    async fn seen(&self, address: &str) -> String {
        let response = self.send(get(address, &self.cookie())).await;
        assert_eq!(response.status(), StatusCode::OK, "{address}");
        text(response).await
    }

    async fn sent(&self, action: &str, fields: &str) -> Response<Body> {
        let request = Request::post(format!("/ui/do/{action}"))
            .header(header::HOST, "127.0.0.1:30080")
            .header(header::ORIGIN, "http://127.0.0.1:30080")
            .header(header::COOKIE, self.cookie())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(fields.to_owned())).unwrap())
            .await
    }

    fn cookie(&self) -> String {
        let now = now_ms();
        let value = self.logins.redeem(&self.logins.new_code(now), now).unwrap();
        format!("other=1; metaclaw_30080={value}")
    }
}

fn new_turn(asked: &[Message], reply: Message) -> NewTurn {
    let messages = NewMessage::all(&agent(), asked).unwrap();
    NewTurn {
        session: "a".parse().unwrap(),
        meta: TurnMeta::whole(messages.last().unwrap().chain, now_ms()),
        messages,
        continues: None,
        tools: None,
        params: serde_json::Map::new(),
        reply: Some(reply),
        served: Served {
            upstream: "llm".to_owned(),
            model: "demo".to_owned(),
            ..Served::default()
        },
        tokens: None,
        agent: agent(),
    }
}

fn agent() -> AgentId {
    "main".parse().unwrap()
}

fn get(address: &str, cookie: &str) -> Request<Body> {
    let request = Request::get(address)
        .header(header::HOST, "127.0.0.1:30080")
        .header(header::COOKIE, cookie);
    request.body(Body::empty()).unwrap()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn location(response: &Response<Body>) -> &str {
    response.headers()[header::LOCATION].to_str().unwrap()
}

#[tokio::test]
async fn every_reply_has_the_policy_and_no_text_has_style_or_script_in_it() {
    let page = PageFixture::new();
    let asked = [Message::user("What is rain, in short?")];
    page.turn(&asked, "Water.").await;
    for address in [
        "/ui",
        "/ui/sessions",
        "/ui/session?agent=main&session=a",
        "/ui/lessons",
        "/ui/training",
        "/ui/cost",
        "/ui/privacy",
    ] {
        let response = page.send(get(address, &page.cookie())).await;
        let policy = policy(response.headers()).to_owned();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let shown = text(response).await;
        let bare = shown.replace("<script src=\"/ui/live.js\" defer></script>", "");
        for inline in [
            "<script",
            "style=",
            "<style",
            " onclick",
            "javascript:",
            "http://",
            "https://",
        ] {
            assert!(!bare.contains(inline), "{address}: {inline}");
        }
    }
    let refused = page.send(get("/ui", "")).await;
    assert!(!policy(refused.headers()).is_empty());
}

fn policy(headers: &HeaderMap) -> &str {
    headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap()
}

#[tokio::test]
async fn a_wish_is_written_down_changed_and_taken_back() {
    let page = PageFixture::new();
    let done = page
        .sent(
            "wish",
            "what=add&agent=main&wish=Be+brief.&back=/ui/lessons",
        )
        .await;
    assert!(
        location(&done).starts_with("/ui/lessons?done=in%20force"),
        "{}",
        location(&done)
    );
    let shown = page.seen("/ui/lessons?agent=main").await;
    assert!(
        shown.contains("Be brief.") && shown.contains("aria-label=\"Undo: Be brief.\""),
        "{shown}"
    );
    let done = page
        .sent(
            "wish",
            "what=edit&agent=main&wish=Be+brief.&to=Be+very+brief.&back=/ui",
        )
        .await;
    assert_eq!(done.status(), StatusCode::SEE_OTHER);
    // The wish that it took the place of stands again.
    for undone in ["Be%20very%20brief.", "Be%20brief."] {
        let done = page.sent("wish", "what=undo&back=/ui").await;
        let undone = format!("undone%3A%20{undone}");
        assert!(location(&done).contains(&undone), "{}", location(&done));
    }
    let shown = page.seen("/ui/lessons?agent=main").await;
    assert!(shown.contains("No wish is in force"), "{shown}");
    let empty = page
        .sent("wish", "what=add&agent=main&wish=+&back=/ui")
        .await;
    assert_eq!(empty.status(), StatusCode::CONFLICT);
    let unknown = page.sent("wish", "what=sing&agent=main&back=/ui").await;
    assert_eq!(unknown.status(), StatusCode::BAD_REQUEST);
    let none = page.sent("wish", "what=undo&n=99&back=/ui").await;
    assert_eq!(none.status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_verdict_is_shown_with_what_followed() {
    let page = PageFixture::new();
    let asked = [Message::user("What is the capital of France, please?")];
    let first = page
        .turn(&asked, "Paris, which has been the capital since 508.")
        .await;
    let mut more = asked.to_vec();
    more.push(Message::assistant(
        "Paris, which has been the capital since 508.",
    ));
    more.push(Message::user("That was far too long for me."));
    let second = page.turn(&more, "Paris.").await;
    let verdict = Verdict {
        hint: Some("Answer in one word.".to_owned()),
        ..Verdict::new(Score::Bad, JudgedBy::Llm)
    };
    assert!(page.log().await.judge(first, verdict).await.unwrap());
    let shown = page.seen(&format!("/ui/turns/{first}")).await;
    for part in [
        "mark bad",
        "by the judge model",
        "Answer in one word.",
        "What followed",
        "far too long",
        "name=\"score\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains(&format!("/ui/turns/{second}")), "{shown}");
}

#[tokio::test]
async fn a_conversation_is_forgotten_after_it_was_confirmed() {
    let page = PageFixture::new();
    let id = page
        .turn(&[Message::user("My number is 7, remember it.")], "I do.")
        .await;
    let session: SessionId = "a".parse().unwrap();
    let shown = page.seen("/ui/session?agent=main&session=a").await;
    assert!(
        shown.contains("<summary>Forget this conversation"),
        "{shown}"
    );
    let nothing = page.sent("forget", "back=/ui").await;
    assert_eq!(nothing.status(), StatusCode::BAD_REQUEST);
    let done = page
        .sent(
            "forget",
            &format!("agent=main&session={}&back=/ui/sessions", session.as_str()),
        )
        .await;
    assert!(location(&done).contains("forgotten"), "{}", location(&done));
    assert!(page.log().await.get(id).await.unwrap().is_none());
    let response = page
        .send(get(&format!("/ui/turns/{id}"), &page.cookie()))
        .await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_empty_home_says_what_to_do_next() {
    let page = PageFixture::new();
    for (address, said) in [
        ("/ui", "Connect your agent"),
        ("/ui", "metaclaw wire"),
        ("/ui", "Say one sentence to it"),
        ("/ui/cost", "Nothing was spent in these days"),
        ("/ui/sessions", "appears here within a second or two"),
        ("/ui/lessons", "or write it here"),
        ("/ui/privacy", "Nothing was sent to a model"),
        (
            "/ui/curves",
            "Nothing to draw yet: Complaints in 20 replies, Words of first replies, Good verdicts",
        ),
    ] {
        let shown = page.seen(address).await;
        assert!(shown.contains(said), "{address}: {shown}");
    }
}

#[tokio::test]
async fn an_agent_is_only_relayed_and_learns_again() {
    let page = PageFixture::new();
    let done = page
        .sent("switch", "off=true&agent=main&back=/ui/privacy")
        .await;
    assert!(
        location(&done).contains("relay%20only"),
        "{}",
        location(&done)
    );
    assert!(page.instance.home().off().exists());
    let done = page.sent("switch", "off=false&back=/ui/privacy").await;
    assert!(
        location(&done).contains("on%20again"),
        "{}",
        location(&done)
    );
    assert!(!page.instance.home().off().exists());
}

#[tokio::test]
async fn a_browser_is_told_of_a_new_turn() {
    let page = PageFixture::new();
    let response = page.send(get("/ui/events", &page.cookie())).await;
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/event-stream"
    );
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
    let mut events = response.into_body().into_data_stream();
    let first = events.next().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: change\ndata: "), "{first:?}");
    page.turn(&[Message::user("What is rain, in short?")], "Water.")
        .await;
    let second = events.next().await.unwrap().unwrap();
    assert!(
        second.starts_with(b"event: change\n") && second != first,
        "{second:?}"
    );
}

#[tokio::test]
async fn a_step_is_shown_with_each_test_of_the_gate() {
    let page = PageFixture::new();
    let id = page
        .turn(&[Message::user("What is rain, in short?")], "Water.")
        .await;
    let verdict = Verdict {
        hint: Some("That was <b>too</b> long.".to_owned()),
        ..Verdict::new(Score::Bad, JudgedBy::Rules)
    };
    page.log().await.judge(id, verdict).await.unwrap();
    let step = NewStep {
        agent: agent(),
        lineage: "0badcafe".to_owned(),
        n: 1,
        attempt: 0,
        turns: vec![id],
        max_uses: 1,
        ancestors: Vec::new(),
        parent: None,
        hash: "77ab".to_owned(),
        choice_ms: None,
    };
    page.log().await.take(step).await.unwrap();
    let shown = page.seen("/ui/training").await;
    assert!(shown.contains("under way"), "{shown}");
    let test = |name: &str, passed: bool, why: &str| json!({"name": name, "value": 0.3, "limit": 0.5, "passed": passed, "why": why});
    let why = "relevance 0.31 of the reference's, at least 0.50";
    let outcome = StepOutcome::Declined {
        adapter: "main-0badcafe-000001".to_owned(),
        checkpoint: "main-0badcafe-000001".to_owned(),
        why: why.to_owned(),
        gate: json!({"tests": [test("fluency", true, "fluency 1.00"), test("relevance", false, why)], "seconds": 2.0,
            "pair": {"question": "What is snow?", "before": "It is ice, and more.", "after": "Ice."}}),
        at_ms: now_ms(),
        n_judged: 1,
    };
    assert!(
        page.log()
            .await
            .finish_step(&agent(), 1, outcome)
            .await
            .unwrap()
    );
    let shown = page.seen("/ui/training").await;
    for part in [
        "declined",
        "2 tests, 1 failed",
        "fluency 1.00",
        "at least 0.50",
        "“That was &lt;b&gt;too&lt;/b&gt; long.”",
        "What is snow?",
        "It is ice, and more.",
        &format!("/ui/turns/{id}"),
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// Once, a list of 20,000 agents was sent with every view.
#[tokio::test]
async fn of_many_agents_the_views_list_some_and_say_how_many_there_are() {
    let page = PageFixture::new();
    page.turn(&[Message::user("What is rain?")], "Water.").await;
    page.turn(&[Message::user("And snow?")], "Water, too.")
        .await;
    let log = page.log().await;
    for n in 0..60 {
        let agent: AgentId = format!("agent-{n}").parse().unwrap();
        let messages = NewMessage::all(&agent, &[Message::user("Hello.")]).unwrap();
        let turn = NewTurn {
            session: "a".parse().unwrap(),
            meta: TurnMeta::whole(messages[0].chain, now_ms()),
            messages,
            continues: None,
            tools: None,
            params: serde_json::Map::new(),
            reply: Some(Message::assistant("Hello.")),
            served: Served::default(),
            tokens: None,
            agent,
        };
        log.append(turn).await.unwrap();
    }
    for address in ["/ui/lessons", "/ui/curves", "/ui/privacy"] {
        let seen = page.seen(address).await;
        assert!(seen.contains("11 more agents"), "{address}");
        assert!(
            seen.contains("main") && !seen.contains("agent-55"),
            "{address}"
        );
    }
    let one = page.seen("/ui/lessons?agent=agent-55").await;
    assert!(one.contains("Notes that agent-55 keeps itself"), "{one}");
}
