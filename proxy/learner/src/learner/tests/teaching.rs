//! Tests of redo with a teacher: what it trains on, and what it does not.
//!
//! Tests with a teacher that cannot be reached: which turns wait, and which are left out.
//!
//! A larger model that is asked what it makes of the samples of a step.
//!
//! Weights trained again from the log: elsewhere, by other settings, and nothing else changes.

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use metaclaw_chat::Message;
use metaclaw_turns::Served;

use super::*;
use crate::{
    ReplayEvent, ReplayReport, ReplayWanted,
    judge::{Post, PostFailed},
    testing::{Habit, new_turn},
};

const WISH: &str = "Please answer in one short sentence.";

pub(super) fn with_wish(dir: &Path) -> Library {
    let library = library(dir);
    let agent = AgentId::default_agent();
    assert!(library.add_wish(&agent, WISH).unwrap());
    library
}

/// A question and thanks, served with the wish instead of the failed turn.
async fn wished(rig: &Rig, world: &World, number: u32, served: Served) {
    let session = format!("w{number}");
    let mut messages = Vec::new();
    for (at, said) in [format!("question {number}"), "Thanks.".to_owned()]
        .into_iter()
        .enumerate()
    {
        messages.push(Message::user(said));
        let reply_id = format!("{session}-{at}");
        let reply = Message::assistant("It is a short one.");
        let sampled = crate::testing::sampled(&reply_id, &messages, &reply.text());
        world.remember(sampled);
        let mut turn = new_turn(&session, &reply_id, &messages, reply.clone());
        turn.served = Served {
            upstream: turn.served.upstream,
            ..served.clone()
        };
        rig.log.append(turn).await.unwrap();
        messages.push(reply);
    }
}

/// The wish counts as learned only if the adapter follows it without the wish in its prompt.
#[tokio::test]
async fn a_wish_is_taught_by_every_turn_without_its_line() {
    let block = format!("## Standing wishes of the user\n\n- {WISH}");
    let places = [
        Served {
            user_line: Some(WISH.to_owned()),
            wishes: Some("v".to_owned()),
            ..Served::default()
        },
        Served {
            system_block: Some(block),
            wishes: Some("v".to_owned()),
            ..Served::default()
        },
    ];
    for served in places {
        let (dir, world) = (folder(), World::default());
        let library = Some(with_wish(dir.path()));
        let log = dir.path().join("log");
        let rig = Rig::start_with(&log, &world, again(1), library).await;
        wished(&rig, &world, 1, served.clone()).await;
        wished(&rig, &world, 2, served).await;
        assert!(rig.trained(2).await);
        for told in world.told() {
            assert!(told.ends_with(WISH), "{told:?}");
        }
        let taught = world.taught();
        let expected = [1, 2].map(|n| {
            let reply = format!("question {n} is answered.");
            (format!("question {n}"), reply)
        });
        assert_eq!(taught, expected);
        // The prompt is rendered again, because the turn's own ids contained the wish. The server recognises the reply
        // by its first letter.
        let q = u32::from(b'q');
        assert_eq!(world.passes()[0], [q, q]);
        rig.stop().await;
    }
}

/// The weights are not trained on what they already do.
#[tokio::test]
async fn a_reply_that_obeyed_without_the_line_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    // For this judge, the model's own five words are too many in one case and allowed in the other.
    for (most, is_taught) in [(5, false), (4, true)] {
        let rules = json!([
            {"on": "next", "pattern": "Thanks", "score": 1},
            {"on": "reply", "max_words": most, "score": 1},
        ]);
        let judged = config(&json!({"judge": {"rules": rules}}));
        let log = dir.path().join(format!("log-{most}"));
        let rig = Rig::start_with(&log, &world, judged, library.clone()).await;
        for number in [1, 2] {
            wished(&rig, &world, number, Served::default()).await;
        }
        if is_taught {
            assert!(rig.trained(2).await);
        } else {
            let why = "the model already does what you wish, without being told".to_owned();
            assert_eq!(rig.spent(2).await, [(why, 2)]);
            assert!(world.told().is_empty());
        }
        rig.stop().await;
    }
}

/// With `rl.consolidate: false`, the prompt keeps the wish, and only failed turns are answered again.
#[tokio::test]
async fn without_consolidation_what_was_accepted_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    let off = config(&json!({"rl": {"consolidate": false}, "judge": {"rules": [
        // The message contains nothing that counts as a wish.
        {"on": "next", "pattern": "no good", "score": -1},
        {"on": "reply", "max_words": 40, "score": 1},
    ]}}));
    let rig = Rig::start_with(&dir.path().join("log"), &world, off, library).await;
    wished(&rig, &world, 1, Served::default()).await;
    for number in [3, 4] {
        let talk = [
            said(&format!("question {number}"), "One two three.", 10 * number),
            said("That was no good.", "Four five six.", 10 * number + 1),
        ];
        append(&rig.log, &world, &format!("s{number}"), &talk).await;
    }
    assert!(rig.trained(2).await);
    assert_eq!(world.passes()[0], [30, 40], "by their own ids");
    // The teacher gets the wish, and what was said about this turn.
    let told = format!("question 3\n\n{WISH} That was no good.");
    assert_eq!(world.told()[0], told);
    rig.stop().await;
}

/// This is the degenerate case: a reply that satisfies the rule and answers nothing.
#[tokio::test]
async fn what_no_draw_passes_is_not_taught_and_says_why() {
    type Says = crate::testing::Answers;
    let greets: Says = |_, _| ("Hello!".to_owned(), true);
    let goes_round: Says = |said, _| (format!("{said} {}", "and on ".repeat(12)), false);
    let is_vague: Says = |said, k| match k {
        0 => ("That may well be so.".to_owned(), true),
        _ => (format!("{said} {}", "word ".repeat(60)), true),
    };
    let is_long: Says = |said, _| (format!("{said} {}", "word ".repeat(60)), true);
    let usable = "no reply of the teacher is long enough and complete";
    let relevant = "no reply of the teacher answers the question well enough";
    let obeys = "no reply of the teacher does what you wish";
    for (answers, why) in [
        (greets, usable),
        (goes_round, usable),
        (is_vague, relevant),
        (is_long, obeys),
    ] {
        let (dir, world) = (folder(), World::default());
        world.set_answers(answers);
        let rig = Rig::start(dir.path(), &world, again(1)).await;
        // There is no correction, because it would be one more reply to choose from.
        append(&rig.log, &world, "a", &corrected_talk(1)[..2]).await;
        append(&rig.log, &world, "b", &corrected_talk(2)[..2]).await;
        assert_eq!(rig.spent(2).await, [(why.to_owned(), 2)]);
        assert!(world.passes().is_empty());
        // The status changes a moment after the log.
        let is_told = async || {
            let status = rig.learner.status().await.unwrap();
            status.agents[0].not_taught.get(why) == Some(&2)
        };
        rig.until("the status says why", is_told).await;
        rig.stop().await;
    }
}

/// The session's own reply is checked by the same rules.
#[tokio::test]
async fn an_accepted_reply_is_taught_only_if_it_is_the_best() {
    let (dir, world) = (folder(), World::default());
    world.set_answers(|said, _| (format!("{said} {}", "word ".repeat(60)), true));
    // Nothing is drawn before a step is asked for.
    let auto = config(&json!({"mode": "auto"}));
    let rig = Rig::start(dir.path(), &world, auto).await;
    let long = "word ".repeat(60);
    for (number, reply) in [(1, "It is a short one."), (2, "question 2 is over.")] {
        let talk = [
            said(&format!("question {number}"), &long, 10 * number),
            said("Too long.", reply, 10 * number + 1),
            said("Thanks.", "You are welcome.", 10 * number + 2),
        ];
        append(&rig.log, &world, &format!("s{number}"), &talk).await;
    }
    rig.judged(4).await;
    let reports = rig.learner.train_now(None).await.unwrap();
    let taught = world.taught();
    assert_eq!(taught.len(), 1, "{taught:?} {reports:?}");
    assert_eq!(taught[0].1, "question 2 is over.");
    rig.stop().await;
}

#[tokio::test]
async fn while_the_teacher_is_away_turns_wait() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Unreachable));
    let rig = Rig::start(dir.path(), &world, again(1)).await;
    rig.talk(&world, &[1, 2]).await;
    let waits = async || {
        let status = rig.learner.status().await.unwrap();
        let phase = matches!(status.phase, Phase::WaitingForTrainer { .. });
        (phase, status.agents.first().map(|agent| agent.n_unanswered))
    };
    let is_waiting = async || waits().await == (true, Some(2));
    rig.until("two turns wait for the teacher", is_waiting)
        .await;
    assert_eq!(rig.spent(0).await, []);
    world.fail_text(None);
    assert!(rig.trained(2).await);
    rig.stop().await;
}

async fn two_failed(dir: &Path, world: &World) -> Rig {
    let auto = config(&json!({"mode": "auto"}));
    let rig = Rig::start(dir, world, auto).await;
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    rig
}

/// Before this test, a wrong key, an unknown route or three failures in a row excluded one turn after another from
/// redo.
#[tokio::test]
async fn a_server_that_has_no_turn_answered_spends_none() {
    let failures = [
        (401, Some("invalid_api_key")),
        (403, None),
        (404, None),
        (404, Some("model_not_found")),
        // The server reports for each prompt that it has no chat template.
        (400, None),
        (429, Some("queue_full")),
        (500, None),
        (500, Some("weights_not_finite")),
        (503, Some("no_model")),
    ];
    let failures = failures.map(|(status, code)| Failure::Answers(status, code));
    for failure in failures.into_iter().chain([Failure::LostBefore]) {
        println!("{failure:?}");
        let (dir, world) = (folder(), World::default());
        world.fail_text(Some(failure));
        let rig = two_failed(dir.path(), &world).await;
        for _ in 0..5 {
            let asked = rig.learner.train_now(None).await;
            let is_so = matches!(asked, Err(TrainError::NoTeacher { .. }));
            assert!(is_so, "{asked:?}");
        }
        assert_eq!(rig.spent(0).await, []);
        let status = rig.learner.status().await.unwrap();
        assert!(status.agents[0].not_taught.is_empty(), "{status:#?}");
        world.fail_text(None);
        let reports = rig.learner.train_now(None).await.unwrap();
        assert_eq!(reports[0].n_redo, 2);
        rig.stop().await;
    }
}

#[tokio::test]
async fn that_the_teacher_cannot_be_asked_is_shown() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Answers(401, None)));
    let rig = Rig::start(dir.path(), &world, again(1)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("the phase", |phase| matches!(phase, Phase::WaitingForTrainer { why } if why.starts_with("the teacher cannot be asked: tokenize: 401"))).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_that_alone_cannot_be_asked_is_left_out() {
    let refused = "the teacher cannot be asked it";
    let fails = "the training server fails at asking the teacher";
    let cases = [
        (Failure::Refused, refused),
        (Failure::Answers(422, None), refused),
        (Failure::Answers(503, Some("kv_budget_exceeded")), refused),
        (Failure::Answers(401, None), fails),
        (Failure::Answers(500, None), fails),
        (Failure::LostBefore, fails),
    ];
    for (failure, why) in cases {
        println!("{failure:?}");
        let (dir, world) = (folder(), World::default());
        world.fail_text_with("question 1", failure);
        let rig = two_failed(dir.path(), &world).await;
        let mut reports = rig.learner.train_now(None).await;
        while reports.is_err() {
            reports = rig.learner.train_now(None).await;
        }
        assert_eq!(rig.spent(1).await, [(why.to_owned(), 1)]);
        let reports = reports.unwrap();
        assert_eq!(reports.iter().map(|report| report.n_redo).sum::<usize>(), 1);
        assert!(world.taught()[0].0.ends_with("question 2"));
        rig.stop().await;
    }
}

/// The prompt is too large whatever the server's state, so it would be too large the next time.
#[tokio::test]
async fn a_prompt_that_is_too_large_is_left_out_at_once() {
    for code in ["context_length_exceeded", "body_too_large"] {
        let (dir, world) = (folder(), World::default());
        world.fail_text(Some(Failure::Answers(400, Some(code))));
        let rig = two_failed(dir.path(), &world).await;
        assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
        let why = "the teacher cannot be asked it".to_owned();
        assert_eq!(rig.spent(2).await, [(why, 2)]);
        rig.stop().await;
    }
}

/// The remaining turns are trained on.
#[tokio::test]
async fn without_a_teacher_steps_of_verdicts_go_on() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Answers(404, None)));
    let both = config(&json!({"rl": {"method": "redo+binary_rl"}, "gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, both).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    let status = rig.learner.status().await.unwrap();
    assert_eq!(status.agents[0].n_unanswered, 2, "{status:#?}");
    rig.stop().await;
}

#[derive(Debug, Default)]
struct Server {
    n_asked: Mutex<usize>,
    is_away: Mutex<bool>,
    /// The first id of a prompt at which it fails.
    fails_at: Mutex<Option<u64>>,
}

impl Post for Server {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        *self.n_asked.lock().unwrap() += 1;
        let ids = body["prompt"].as_array().unwrap();
        let fails = *self.fails_at.lock().unwrap();
        let fails = ids.len() > 4 && fails.is_some() && ids[0].as_u64() == fails;
        let was_asked = !*self.is_away.lock().unwrap();
        let answer = if fails || !was_asked {
            let why = "no".to_owned();
            Err(PostFailed { why, was_asked })
        } else {
            let logprobs = vec![-1.0; ids.len()];
            let logprobs = json!({"token_logprobs": logprobs});
            Ok(json!({"choices": [{"logprobs": logprobs}]}).to_string())
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Two talks of a failed and an accepted turn each, and a learner that trains when it is asked to.
async fn rig(dir: &Path, world: &World, server: &Arc<Server>, method: &str) -> Rig {
    let method = json!({"mode": "auto", "rl": {"method": method, "batch_size": 4}});
    let config = config(&method);
    let judge = Judge::Rules(Rules::compile(&config.judge.rules).unwrap());
    let post: Arc<dyn Post> = Arc::clone(server) as _;
    let teacher = ExternalTeacher::new(post, "large".to_owned(), 1.0);
    let rig = Rig::start_scored(dir, world, config, None, judge, Some(teacher)).await;
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    rig
}

#[tokio::test]
async fn turns_wait_while_it_is_away_and_are_asked_about_once() {
    let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
    *server.is_away.lock().unwrap() = true;
    let rig = rig(dir.path(), &world, &server, "binary_rl").await;
    let asked = rig.learner.train_now(None).await;
    let Err(TrainError::NoTeacher { why }) = &asked else {
        panic!("{asked:?}")
    };
    assert_eq!(why, "no");
    assert_eq!(rig.n(StateKind::Trained).await, 0);
    assert_eq!(rig.spent(0).await, [], "no turn is lost");
    *server.is_away.lock().unwrap() = false;
    *server.n_asked.lock().unwrap() = 0;
    let reports = rig.learner.train_now(None).await.unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(world.passes()[0].len(), 4);
    assert_eq!(*server.n_asked.lock().unwrap(), 4);
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_that_it_cannot_score_is_set_aside_alone() {
    let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
    *server.fails_at.lock().unwrap() = Some(10);
    let rig = rig(dir.path(), &world, &server, "binary_rl").await;
    rig.learner.train_now(None).await.unwrap();
    let mut marks = world.passes()[0].clone();
    marks.sort_unstable();
    assert_eq!(marks, [11, 20, 21]);
    let why = "the external teacher (opd.teacher_url) cannot score it".to_owned();
    assert_eq!(rig.spent(1).await, [(why, 1)]);
    rig.stop().await;
}

/// As in a replay with other settings.
#[tokio::test]
async fn a_method_without_advantages_asks_nobody() {
    for method in ["redo", "opd", "hybrid"] {
        let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
        let rig = rig(dir.path(), &world, &server, method).await;
        let reports = rig.learner.train_now(None).await.unwrap();
        assert_eq!(reports.len(), 1, "{method}");
        assert_eq!(*server.n_asked.lock().unwrap(), 0, "{method}");
        rig.stop().await;
    }
}

async fn trained(dir: &Path, world: &World, rl: Value) -> Rig {
    let rig = Rig::start(dir, world, config(&json!({"rl": rl}))).await;
    for n in 0..4 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    rig.trained(8).await;
    // A step is told after its turns are trained, and after old checkpoints were deleted.
    let n_steps = rig
        .log
        .steps(&AgentId::default_agent())
        .await
        .unwrap()
        .len();
    let are_told = async || rig.learner.counts().n_steps == n_steps as u64;
    rig.until("each step is told", are_told).await;
    rig
}

fn both() -> Value {
    json!({"method": "redo+binary_rl"})
}

fn wanted(rig: &Rig, rl: &Value) -> ReplayWanted {
    let mut all = serde_json::to_value(rig.learner.config()).unwrap();
    for (key, value) in rl.as_object().unwrap() {
        all["rl"][key] = value.clone();
    }
    ReplayWanted {
        name: "slow".to_owned(),
        agent: AgentId::default_agent(),
        since_ms: None,
        steps: None,
        seed: Some(7),
        config: serde_json::from_value(all).unwrap(),
    }
}

async fn replayed(
    rig: &Rig,
    wanted: ReplayWanted,
) -> Result<(ReplayReport, Vec<StepReport>), TrainError> {
    let dir = folder();
    let scratch = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
    let steps = Mutex::new(Vec::new());
    let told = |event| {
        if let ReplayEvent::Step(step) = event {
            steps.lock().unwrap().push(*step);
        }
    };
    let replay = rig
        .learner
        .replay(wanted, scratch.clone(), Recorder::default(), Box::new(told));
    let replayed = replay.await;
    scratch.close().await;
    let report = replayed?;
    Ok((report, steps.into_inner().unwrap()))
}

#[tokio::test]
async fn a_replay_is_the_same_steps_elsewhere_and_changes_nothing_here() {
    let (dir, world) = (folder(), World::default());
    let rl = json!({"method": "redo+binary_rl", "warmup_steps": 0});
    let rig = trained(dir.path(), &world, rl).await;
    let agent = AgentId::default_agent();
    let (steps, serving) = (
        rig.log.steps(&agent).await.unwrap(),
        rig.log.serving().await.unwrap(),
    );
    let funnel = rig.log.funnel(None).await.unwrap();
    let (swaps, made) = (rig.swaps(), world.checkpoints());
    let n_kept = world.kept().len();

    let other = json!({"learning_rate": 1e-5, "lora_rank": 4});
    let (report, told) = replayed(&rig, wanted(&rig, &other)).await.unwrap();
    assert_eq!(report.n_sessions, 4);
    assert_eq!((report.n_steps, told.len()), (steps.len(), steps.len()));
    assert_eq!(report.n_left, Some(0));
    let all = world.checkpoints();
    let replays = &all[made.len()..];
    // The same turns in the same steps, as far as the order of the log tells it.
    for ((manifest, _), (live, _)) in replays.iter().zip(&made) {
        assert_eq!(manifest["turns"], live["turns"]);
        assert_eq!(manifest["uses"], live["uses"]);
        assert_ne!(manifest["lineage"], live["lineage"]);
        let made = &manifest["made"];
        assert_eq!(
            (&made["seed"], &made["replay"]["name"]),
            (&7.into(), &"slow".into())
        );
        assert_eq!(made["config"]["learning_rate"], 1e-5);
        assert!(live["made"]["replay"].is_null(), "{live}");
    }
    let (created, stepped) = world.asked().unwrap();
    assert_eq!((created.rank, created.seed), (4, Some(7)));
    assert!((stepped.learning_rate - 1e-5).abs() < 1e-12);
    assert_eq!(report.adapter, told.last().map(|step| step.adapter.clone()));

    // Here all is as it was, and nobody is served by it.
    assert_eq!(rig.log.steps(&agent).await.unwrap(), steps);
    assert_eq!(rig.log.serving().await.unwrap(), serving);
    assert_eq!(rig.log.funnel(None).await.unwrap(), funnel);
    assert_eq!(*rig.swaps.lock().unwrap(), swaps);
    assert_eq!(world.kept().len(), n_kept, "it knows not what serves");
    rig.stop().await;
}

#[tokio::test]
async fn a_replay_ends_after_so_many_steps_and_begins_where_it_is_told() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    let one = ReplayWanted {
        steps: Some(1),
        ..wanted(&rig, &json!({}))
    };
    let (report, told) = replayed(&rig, one).await.unwrap();
    assert_eq!((report.n_steps, told.len(), report.n_left), (1, 1, None));
    let none = ReplayWanted {
        since_ms: Some(metaclaw_chat::now_ms() + 60_000),
        ..wanted(&rig, &json!({}))
    };
    let (report, _) = replayed(&rig, none).await.unwrap();
    assert_eq!(
        (report.n_sessions, report.n_steps, report.adapter),
        (0, 0, None)
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_the_gate_declines_in_a_replay_is_told_and_is_not_its_outcome() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    world.train_into(&[], Habit::Greets);
    let (report, told) = replayed(&rig, wanted(&rig, &json!({}))).await.unwrap();
    assert_eq!(report.adapter, None);
    assert!(!told.is_empty() && told.iter().all(|step| !step.serves));
    rig.stop().await;
}

#[tokio::test]
async fn a_replays_adapter_is_tested_before_it_may_serve() {
    let (dir, world) = (folder(), World::default());
    let rig = trained(dir.path(), &world, both()).await;
    let mut ungated = wanted(&rig, &json!({"lora_rank": 4}));
    ungated.config.gate.enabled = false;
    world.train_into(&[Habit::Greets, Habit::Fine], Habit::Fine);
    let (_, told) = replayed(&rig, ungated).await.unwrap();
    let test = async |step: &StepReport| {
        let name = step.adapter.parse().unwrap();
        rig.learner.test(&name).await.unwrap().unwrap()
    };
    let greets = test(&told[0]).await;
    assert_eq!(greets.failed().next().unwrap().name, "relevance");
    let fine = test(&told[1]).await;
    assert!(fine.passed() && !fine.tests.is_empty(), "{fine:?}");
    let nobody: AdapterName = "main-0badcafe-000009".parse().unwrap();
    assert_eq!(rig.learner.test(&nobody).await.unwrap(), None);
    rig.stop().await;
}
