//! Tests of what a judge model is asked, by the use of its verdicts.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use metaclaw_chat::{Message, Score, Verdict};
use metaclaw_reward::{Policy, Rules};
use metaclaw_schedule::{Keyboard, Schedule};
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_turns::{StateKind, TurnKind, TurnLog, TurnState, TurnsConfig};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    config::LearnerConfig,
    evolver::Evolver,
    judge::{Ask, AskFailed, Judge, Post, PostFailed, RewardFunction},
    sample::ExcludeReason,
    shared::Parts,
    testing::{World, append, corrected_talk, new_turn, parts},
};

/// Always votes good, and counts its requests.
#[derive(Debug, Default)]
struct Kind(AtomicUsize);

impl Ask for Kind {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok("verdict: +1".to_owned()) })
    }
}

/// A reward function that fails until the test switches it on; then it scores every turn as good.
#[derive(Debug, Default)]
struct Function {
    is_there: AtomicBool,
    n_asked: AtomicUsize,
}

impl Post for Function {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        let n = body["turns"].as_array().unwrap().len();
        Box::pin(async move {
            if self.is_there.load(Ordering::Relaxed) {
                return Ok(json!({"scores": vec![0.5; n]}).to_string());
            }
            Err(PostFailed {
                why: "nobody there".to_owned(),
                was_asked: false,
            })
        })
    }
}

/// The log of a conversation of three turns, a judge model, and the shared state. Its owner is away.
struct Room {
    log: TurnLog,
    model: Arc<Kind>,
    shared: Arc<Shared>,
}

impl Room {
    async fn new(dir: &Path, config: &serde_json::Value, trains: bool) -> Self {
        let model = Arc::new(Kind::default());
        let judge = |config: &LearnerConfig| Judge::Model {
            rules: Rules::compile(&config.judge.rules).unwrap(),
            model: Arc::clone(&model) as Arc<dyn Ask>,
            others: Vec::new(),
            votes: config.judge.votes,
            consensus: 0.0,
            policy: Policy::NextState,
            is_base: false,
        };
        let (log, shared) = Self::with(dir, config, trains, judge).await;
        Self { log, model, shared }
    }

    async fn with(
        dir: &Path,
        config: &serde_json::Value,
        trains: bool,
        judge: impl FnOnce(&LearnerConfig) -> Judge,
    ) -> (TurnLog, Arc<Shared>) {
        let log = TurnLog::open(dir, &TurnsConfig::default()).unwrap();
        let world = World::default();
        append(&log, &world, "a", &corrected_talk(1)).await;
        let config: LearnerConfig = serde_json::from_value(config.clone()).unwrap();
        let at_once =
            serde_json::json!({"idle_minutes": 0, "sleep_start": "0:00", "sleep_end": "0:00"});
        let schedule = Schedule::local(serde_json::from_value(at_once).unwrap(), None);
        schedule.set_keyboard(Keyboard::Headless);
        let parts = Parts {
            judge: judge(&config),
            backend: trains.then(|| Arc::new(world) as _),
            schedule,
            ..parts(config, &log)
        };
        let shared = Shared::new(parts, CancellationToken::new());
        (log, Arc::new(shared))
    }

    /// Returns the number of requests as the turns arrive, and of turns that have a verdict then.
    async fn as_they_come(&self) -> (usize, usize) {
        let agent = AgentId::default_agent();
        for id in of_agent(&self.shared, &agent).await.unwrap().followers {
            let looked = look_at_follower(&self.shared, id, LookReason::Came).await;
            assert!(matches!(looked, Ok(LookResult::Done)));
        }
        self.counts().await
    }

    async fn for_a_step(&self) -> (usize, usize) {
        judge_now(&self.shared, &AgentId::default_agent())
            .await
            .unwrap();
        self.counts().await
    }

    async fn counts(&self) -> (usize, usize) {
        let agent = AgentId::default_agent();
        let judged = self.log.in_state(&agent, StateKind::Judged).await;
        let n_asked = self.model.0.load(Ordering::Relaxed);
        (n_asked, judged.unwrap().len())
    }
}

#[tokio::test]
async fn nothing_is_asked_whose_verdict_nobody_would_use() {
    for (mode, trains, asked) in [
        ("rl", true, (4, 2)),
        ("rl", false, (0, 2)),
        ("auto", true, (4, 2)),
        ("auto", false, (0, 2)),
        ("skills_only", true, (0, 2)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(dir.path(), &serde_json::json!({"mode": mode}), trains).await;
        assert_eq!(room.as_they_come().await, asked, "{mode}, {trains}");
        room.log.close().await;
    }
}

/// If no gate tests the adapters, `auto` trains when the owner asks: the votes are asked for then, and once.
#[tokio::test]
async fn in_auto_a_step_that_is_asked_for_brings_the_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let off = serde_json::json!({"enabled": false});
    let auto = serde_json::json!({"mode": "auto", "gate": off, "judge": {"votes": 5}});
    let room = Room::new(dir.path(), &auto, true).await;
    assert_eq!(room.as_they_come().await, (0, 0));
    let found = room.for_a_step().await;
    assert_eq!(found, (6, 2), "three votes decide of five");
    assert_eq!(room.for_a_step().await, (6, 2));
    room.log.close().await;
}

/// A verdict that costs nothing is not postponed.
#[tokio::test]
async fn in_auto_rules_judge_as_turns_come() {
    let dir = tempfile::tempdir().unwrap();
    let rules = serde_json::json!([{"on": "next", "pattern": "too long", "score": -1}]);
    let off = serde_json::json!({"enabled": false});
    let auto = serde_json::json!({"mode": "auto", "gate": off, "judge": {"rules": rules}});
    let room = Room::new(dir.path(), &auto, true).await;
    assert_eq!(room.as_they_come().await, (0, 1));
    room.log.close().await;
}

/// Where no weights learn, whether a model judges or there is none.
#[tokio::test]
async fn plain_thanks_and_complaints_are_verdicts_without_a_request() {
    for (writes_skills, has_model, kind, is_judged) in [
        (true, true, "llm", true),
        (false, true, "llm", true),
        (false, false, "rules", true),
        (false, false, "off", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = json!({"mode": "skills_only", "judge": {"kind": kind}});
        let mut room = Room::new(dir.path(), &config, false).await;
        let library = Library::open(
            dir.path().join("skills"),
            SkillsConfig::default(),
            WishesConfig::default(),
        )
        .0;
        let evolver = Evolver {
            model: Arc::clone(&room.model) as Arc<dyn Ask>,
            policy: None,
            every_n_turns: 100,
            may_start: Arc::new(|| false),
            look_every: Duration::from_secs(60),
        };
        let shared = Arc::get_mut(&mut room.shared).unwrap();
        shared.parts.evolver = writes_skills.then_some((library, evolver));
        if !has_model {
            shared.parts.judge = Judge::nobody();
        }
        let n_judged = if is_judged { 2 } else { 0 };
        assert_eq!(room.as_they_come().await, (0, n_judged), "{kind}");
        let told = verdicts(&room.log).await.into_iter().flatten();
        let told: Vec<_> = told
            .map(|verdict| (verdict.score, verdict.by, verdict.hint))
            .collect();
        let long = Some("Too long.".to_owned());
        let expected = [
            (Score::Bad, JudgedBy::Rules, long),
            (Score::Good, JudgedBy::Rules, None),
        ];
        assert_eq!(told, &expected[..n_judged], "{kind}");
        room.log.close().await;
    }
}

async fn verdicts(log: &TurnLog) -> Vec<Option<Verdict>> {
    let mut verdicts = Vec::new();
    for id in log.last_turns(1, 9).await.unwrap().into_iter().rev() {
        verdicts.push(log.get(id).await.unwrap().unwrap().verdict);
    }
    verdicts
}

async fn last(log: &TurnLog) -> TurnId {
    log.last_turns(1, 1).await.unwrap()[0]
}

/// A session is silent at once, so that no test waits.
fn ends_at_once(rest: &Value) -> Value {
    let mut config = json!({"mode": "rl", "judge": {"session_idle": "0 s"}});
    let judge = config["judge"].as_object_mut().unwrap();
    judge.extend(rest.as_object().unwrap().clone());
    config
}

#[tokio::test]
async fn the_owners_complaint_is_the_first_hint() {
    let dir = tempfile::tempdir().unwrap();
    let rules = json!([{"on": "next", "pattern": "too long", "score": -1}, {"on": "next", "pattern": "thanks", "score": 1}]);
    let config = json!({"mode": "rl", "judge": {"rules": rules}});
    let room = Room::new(dir.path(), &config, true).await;
    assert_eq!(room.as_they_come().await, (0, 2));
    let verdicts = verdicts(&room.log).await;
    let hint = |n: usize| verdicts[n].as_ref().unwrap().hint.clone();
    assert_eq!(hint(0).as_deref(), Some("Too long."));
    assert_eq!(hint(1), None, "it was thanks");
    room.log.close().await;
}

/// Judges a question that is followed by an errand of the agent and then by `follower`; returns the question's verdict.
async fn judged_behind_an_errand(follower: &[Message]) -> Option<Verdict> {
    let dir = tempfile::tempdir().unwrap();
    let rules = json!([{"on": "next", "pattern": "too long", "score": -1}, {"on": "next", "pattern": "thanks", "score": 1}]);
    let config = json!({"mode": "rl", "judge": {"rules": rules}});
    let room = Room::new(dir.path(), &config, true).await;
    let nothing = Message::assistant("Nothing to save.");
    let long = asked()[1].clone();
    let mut errand = new_turn("b", "b-2", &errand(), nothing);
    errand.meta.kind = TurnKind::Side;
    let mut ids = Vec::new();
    for turn in [
        new_turn("b", "b-1", &asked()[..1], long),
        errand,
        new_turn("b", "b-3", follower, Message::assistant("Shorter.")),
    ] {
        ids.push(room.log.append(turn).await.unwrap());
    }
    for id in &ids {
        let looked = look_at_follower(&room.shared, *id, LookReason::Came).await;
        assert!(matches!(looked, Ok(LookResult::Done)), "{looked:?}");
    }
    let turn = |n: usize| room.log.get(ids[n]);
    assert!(turn(1).await.unwrap().unwrap().verdict.is_none());
    let verdict = turn(0).await.unwrap().unwrap().verdict;
    room.log.close().await;
    verdict
}

fn asked() -> Vec<Message> {
    vec![
        Message::user("What is a proxy?"),
        Message::assistant("word ".repeat(60)),
    ]
}

fn errand() -> Vec<Message> {
    let mut messages = asked();
    messages.push(Message::user("Review what was said, thanks."));
    messages
}

#[tokio::test]
async fn an_errand_is_no_evidence_and_the_owners_next_words_are() {
    let complaint = Message::user("Too long.");
    let summary = "This session is being continued from a previous conversation that ran out of context. The owner asked what a proxy is.";
    let kept = [errand(), vec![Message::assistant("Nothing to save.")]].concat();
    for (what, before) in [
        ("it went its own way", asked()),
        ("it stays in the conversation", kept),
        (
            "it summed the conversation up",
            vec![Message::user(summary)],
        ),
    ] {
        let follower = [before, vec![complaint.clone()]].concat();
        let verdict = judged_behind_an_errand(&follower).await.expect(what);
        assert_eq!(verdict.score, Score::Bad, "{what}");
        assert_eq!(verdict.hint.as_deref(), Some("Too long."), "{what}");
    }
    for (what, follower) in [
        ("it begins anew", vec![complaint]),
        (
            "it goes on with what was asked before it was summed up",
            vec![asked().remove(0), Message::user(summary)],
        ),
    ] {
        assert_eq!(judged_behind_an_errand(&follower).await, None, "{what}");
    }
}

#[tokio::test]
async fn the_last_turn_of_a_session_that_ended_is_judged_by_itself_and_counts_less() {
    let dir = tempfile::tempdir().unwrap();
    let room = Room::new(dir.path(), &ends_at_once(&json!({})), true).await;
    let id = last(&room.log).await;
    let looked = look_at_end(&room.shared, id, LookReason::Came).await;
    assert!(matches!(looked, Ok(LookResult::Done)), "{looked:?}");
    let verdict = verdicts(&room.log).await[2].clone().unwrap();
    assert!(verdict.at_session_end && (verdict.weight - 0.3).abs() < 1e-6);
    let funnel = room.log.funnel(None).await.unwrap();
    assert_eq!((funnel.judged, funnel.judged_at_session_end), (1, 1));
    // If the session continues, the follower is the better evidence.
    let before = room.shared.n_changed_verdicts();
    let follower = follow_up(&room).await;
    let looked = look_at_follower(&room.shared, follower, LookReason::Came).await;
    assert!(matches!(looked, Ok(LookResult::Done)), "{looked:?}");
    let turn = room.log.get(id).await.unwrap().unwrap();
    assert!(!turn.verdict.unwrap().at_session_end);
    assert_eq!(turn.overruled.len(), 1);
    assert_eq!(room.shared.n_changed_verdicts(), before + 1);
    room.log.close().await;
}

async fn follow_up(room: &Room) -> TurnId {
    let id = last(&room.log).await;
    let turn = room.log.get(id).await.unwrap().unwrap();
    let mut messages = turn.request.messages.clone();
    messages.extend([turn.reply.unwrap(), Message::user("And then?")]);
    let reply = Message::assistant("Nothing.");
    let new = new_turn("a", "a-14", &messages, reply);
    room.log.append(new).await.unwrap()
}

#[tokio::test]
async fn a_session_in_which_somebody_spoke_just_now_has_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    let room = Room::new(dir.path(), &json!({"mode": "rl"}), true).await;
    let id = last(&room.log).await;
    let looked = look_at_end(&room.shared, id, LookReason::StepAskedFor).await;
    let half = Duration::from_secs(15 * 60);
    let is_so = matches!(looked, Ok(LookResult::NotSilent(rest)) if rest > half);
    assert!(is_so, "{looked:?}");
    assert_eq!(room.counts().await, (0, 0));
    room.log.close().await;
}

#[tokio::test]
async fn at_a_sessions_end_no_turn_is_spent_and_nothing_is_asked_that_nobody_would_use() {
    let next = json!([{"on": "next", "min_words": 1, "score": 1}]);
    let short = json!([{"on": "reply", "max_words": 9, "score": 1}]);
    for (judge, trains, asked) in [
        (json!({"rules": next.clone()}), false, (0, 0)),
        (json!({"rules": short}), false, (0, 1)),
        (json!({"session_end": false}), true, (0, 0)),
        (json!({}), false, (0, 0)),
        (json!({}), true, (2, 1)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(dir.path(), &ends_at_once(&judge), trains).await;
        let id = last(&room.log).await;
        let looked = look_at_end(&room.shared, id, LookReason::Came).await;
        assert!(matches!(looked, Ok(LookResult::Done)), "{looked:?}");
        assert_eq!(room.counts().await, asked, "{judge}, {trains}");
        let funnel = room.log.funnel(None).await.unwrap();
        assert!(funnel.spent.is_empty(), "{judge}: {funnel:?}");
        room.log.close().await;
    }
    // Only rules judge.
    let dir = tempfile::tempdir().unwrap();
    let rules = |config: &LearnerConfig| Judge::Rules(Rules::compile(&config.judge.rules).unwrap());
    let config = ends_at_once(&json!({"rules": next}));
    let (log, shared) = Room::with(dir.path(), &config, true, rules).await;
    let looked = look_at_end(&shared, last(&log).await, LookReason::Came).await;
    assert!(matches!(looked, Ok(LookResult::Done)), "{looked:?}");
    let turn = log.get(last(&log).await).await.unwrap().unwrap();
    assert_eq!(turn.state, TurnState::Captured);
    log.close().await;
}

/// Runs the task over a log until it is idle, and ends it.
#[tokio::test]
async fn the_task_judges_what_was_followed_and_what_ended() {
    let dir = tempfile::tempdir().unwrap();
    let room = Room::new(dir.path(), &ends_at_once(&json!({})), true).await;
    let tracker = TaskTracker::new();
    tracker.spawn(run(Arc::clone(&room.shared)));
    tracker.close();
    while room.counts().await.1 < 3 {
        tokio::task::yield_now().await;
    }
    room.shared.cancel.cancel();
    tracker.wait().await;
    let funnel = room.log.funnel(None).await.unwrap();
    assert_eq!((funnel.judged, funnel.judged_at_session_end), (3, 1));
    room.log.close().await;
}

/// With each kind of judge unreachable, each turn waits unchanged, and is judged when the judge is back.
#[tokio::test]
async fn while_the_judge_is_away_turns_wait_and_none_is_spent() {
    let kinds = ["model", "function", "nobody"];
    for kind in kinds {
        let dir = tempfile::tempdir().unwrap();
        let function = Arc::new(Function::default());
        let model = Arc::new(Away::default());
        let judge = |_: &LearnerConfig| match kind {
            "model" => Judge::Model {
                rules: Rules::default(),
                model: Arc::clone(&model) as Arc<dyn Ask>,
                others: Vec::new(),
                votes: 3,
                consensus: 0.0,
                policy: Policy::OpenclawRl,
                is_base: true,
            },
            "function" => Judge::Function {
                rules: Rules::default(),
                function: Arc::new(RewardFunction::new(Arc::clone(&function) as Arc<dyn Post>)),
            },
            _ => Judge::nobody(),
        };
        let config = ends_at_once(&json!({}));
        let (log, shared) = Room::with(dir.path(), &config, true, judge).await;
        let agent = AgentId::default_agent();
        let found = of_agent(&shared, &agent).await.unwrap();
        for id in found.followers.clone() {
            look_at_follower(&shared, id, LookReason::Came)
                .await
                .unwrap();
        }
        look_at_end(&shared, found.last[0], LookReason::Came)
            .await
            .unwrap();
        let waiting = log.in_state(&agent, StateKind::Captured).await.unwrap();
        assert_eq!(waiting.len(), 3, "{kind}");
        function.is_there.store(true, Ordering::Relaxed);
        model.0.store(true, Ordering::Relaxed);
        for id in found.followers {
            look_at_follower(&shared, id, LookReason::Came)
                .await
                .unwrap();
        }
        look_at_end(&shared, found.last[0], LookReason::Came)
            .await
            .unwrap();
        let judged = log.in_state(&agent, StateKind::Judged).await.unwrap();
        assert_eq!(judged.len(), if kind == "nobody" { 0 } else { 3 }, "{kind}");
        log.close().await;
    }
}

/// A model that fails until the test switches it on; then it votes good.
#[derive(Debug, Default)]
struct Away(AtomicBool);

impl Ask for Away {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let is_there = self.0.load(Ordering::Relaxed);
        let away = || AskFailed {
            why: "away".to_owned(),
        };
        let answer = is_there.then(|| r"verdict: +1 \boxed{1}".to_owned());
        Box::pin(async move { answer.ok_or_else(away) })
    }
}

/// The owner's own reward function costs nothing: it is asked as turns arrive, in every mode, and its scores train the
/// weights.
#[tokio::test]
async fn a_reward_function_is_asked_in_every_mode_and_one_without_an_opinion_spends_where_weights_learn()
 {
    let dir = tempfile::tempdir().unwrap();
    let function = Arc::new(Function::default());
    function.is_there.store(true, Ordering::Relaxed);
    let judge = |_: &LearnerConfig| Judge::Function {
        rules: Rules::default(),
        function: Arc::new(RewardFunction::new(Arc::clone(&function) as Arc<dyn Post>)),
    };
    let config = json!({"mode": "skills_only"});
    let (log, shared) = Room::with(dir.path(), &config, false, judge).await;
    let agent = AgentId::default_agent();
    for id in of_agent(&shared, &agent).await.unwrap().followers {
        look_at_follower(&shared, id, LookReason::Came)
            .await
            .unwrap();
    }
    let verdict = verdicts(&log).await[0].clone().unwrap();
    assert_eq!(verdict.score, Score::Good);
    assert!((verdict.weight - 0.5).abs() < 1e-6);
    log.close().await;

    for (trains, spent) in [(true, 2), (false, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let judge = |_: &LearnerConfig| Judge::Function {
            rules: Rules::default(),
            function: Arc::new(RewardFunction::new(Arc::new(NoOpinion))),
        };
        let (log, shared) = Room::with(dir.path(), &json!({"mode": "rl"}), trains, judge).await;
        for id in of_agent(&shared, &agent).await.unwrap().followers {
            look_at_follower(&shared, id, LookReason::Came)
                .await
                .unwrap();
        }
        let funnel = log.funnel(None).await.unwrap();
        let n = funnel.spent.get(ExcludeReason::NoScore.as_str()).copied();
        assert_eq!(n.unwrap_or_default(), spent, "{funnel:?}");
        log.close().await;
    }
}

#[derive(Debug)]
struct NoOpinion;

impl Post for NoOpinion {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        let n = body["turns"].as_array().unwrap().len();
        Box::pin(async move { Ok(json!({"scores": vec![Value::Null; n]}).to_string()) })
    }
}
