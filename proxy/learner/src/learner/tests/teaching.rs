//! Redo with a teacher: what is taught, what is not, and how often.

use metaclaw_chat::Message;
use metaclaw_skills::{SkillsConfig, WishesConfig};
use metaclaw_turns::Served;
use serde_json::{Value, json};

use super::*;
use crate::testing::new_turn;

const WISH: &str = "Please answer in one short sentence.";

pub(super) fn with_wish(dir: &Path) -> Library {
    let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
    let (library, _) = Library::open(dir.join("skills"), skills, wishes);
    let agent = AgentId::default_agent();
    assert!(library.add_wish(&agent, WISH).unwrap());
    library
}

fn again(reuse: usize) -> LearnerConfig {
    config(&json!({"rl": {"reuse": reuse}}))
}

/// A question and thanks, served with the wish in its place.
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

impl Rig {
    async fn spent(&self, n: u64) -> Vec<(String, u64)> {
        let spent = async || {
            let spent = self.log.funnel(None).await.unwrap().spent;
            let ordinary = "accepted, and no wish stands that could be consolidated";
            let spent = spent.into_iter().filter(|(why, _)| why != ordinary);
            spent.collect::<Vec<_>>()
        };
        let done = async || spent().await.iter().map(|(_, n)| n).sum::<u64>() >= n;
        self.until("turns are spent", done).await;
        spent().await
    }
}

/// Learned it is when the prompt no longer says it.
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
        // Rendered anew: the turn's own ids had the wish among them.
        // By its first letter.
        let q = u32::from(b'q');
        assert_eq!(world.passes()[0], [q, q]);
        rig.stop().await;
    }
}

/// What the weights do by themselves they are not taught again.
#[tokio::test]
async fn a_reply_that_obeyed_without_the_line_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    // Its own five words are too many for this judge, or not.
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
            // The other one waits for a batch.
            let why = "does what is wished without being told".to_owned();
            assert_eq!(rig.spent(1).await, [(why, 1)]);
            assert!(world.told().is_empty());
        }
        rig.stop().await;
    }
}

/// `rl.consolidate: false`: the prompt keeps the wish, and only what failed is answered again.
#[tokio::test]
async fn without_consolidation_what_was_accepted_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    let off = config(&json!({"rl": {"consolidate": false}, "judge": {"rules": [
        // Nothing that is heard as a wish.
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
    // Told the wish, and what was said about this turn.
    let told = format!("question 3\n\n{WISH} That was no good.");
    assert_eq!(world.told()[0], told);
    rig.stop().await;
}

/// The ruin: a reply that satisfies the rule and answers nothing.
#[tokio::test]
async fn what_no_draw_passes_is_not_taught_and_says_why() {
    type Says = crate::testing::Answers;
    let greets: Says = |_, _| ("Hello!".to_owned(), true);
    let goes_on: Says = |said, _| (format!("{said} is and"), false);
    let is_vague: Says = |said, k| match k {
        0 => ("That may well be so.".to_owned(), true),
        _ => (format!("{said} {}", "word ".repeat(60)), true),
    };
    let relevant = "no draw of the teacher answers the question well enough";
    let obeys = "no draw of the teacher does what is wished";
    for (answers, why) in [(greets, obeys), (goes_on, obeys), (is_vague, relevant)] {
        let (dir, world) = (folder(), World::default());
        world.set_answers(answers);
        let rig = Rig::start(dir.path(), &world, again(1)).await;
        // Without a correction, which would be one more to choose from.
        append(&rig.log, &world, "a", &corrected_talk(1)[..2]).await;
        append(&rig.log, &world, "b", &corrected_talk(2)[..2]).await;
        // The other one waits for a batch.
        assert_eq!(rig.spent(1).await, [(why.to_owned(), 1)]);
        assert!(world.passes().is_empty());
        // The status is told a moment after the log.
        let is_told = async || {
            let status = rig.learner.status().await.unwrap();
            status.agents[0].not_taught.get(why) == Some(&1)
        };
        rig.until("the status says why", is_told).await;
        rig.stop().await;
    }
}

/// One that the session itself gave is held to the same.
#[tokio::test]
async fn an_accepted_reply_is_taught_only_if_it_is_the_best() {
    let (dir, world) = (folder(), World::default());
    world.set_answers(|said, _| (format!("{said} {}", "word ".repeat(60)), true));
    // Nothing is drawn before it is asked for.
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
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let waits = async || {
        let status = rig.learner.status().await.unwrap();
        let phase = matches!(status.phase, Phase::WaitingForTrainer { .. });
        (phase, status.agents.first().map(|it| it.n_unanswered))
    };
    let is_waiting = async || waits().await == (true, Some(2));
    rig.until("two turns wait for the teacher", is_waiting)
        .await;
    assert_eq!(rig.spent(0).await, []);
    world.fail_text(None);
    assert!(rig.trained(2).await);
    rig.stop().await;
}

/// Two failed turns, and a learner that has them answered when it is asked for a step.
async fn two_failed(dir: &Path, world: &World) -> Rig {
    let auto = config(&json!({"mode": "auto"}));
    let rig = Rig::start(dir, world, auto).await;
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    rig
}

/// Found by reading: a wrong key, an unknown route or three failures in a row made one turn after the other not redo's.
#[tokio::test]
async fn a_server_that_has_no_turn_answered_spends_none() {
    let failures = [
        (401, Some("invalid_api_key")),
        (403, None),
        (404, None),
        (404, Some("model_not_found")),
        // No chat template, as each prompt is told.
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
            assert!(
                matches!(asked, Err(TrainError::NoTeacher { .. })),
                "{asked:?}"
            );
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
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let is_shown = async || {
        let phase = rig.learner.status().await.unwrap().phase;
        matches!(phase, Phase::WaitingForTrainer { why } if why.starts_with("the teacher cannot be asked: tokenize: 401"))
    };
    rig.until("the phase", is_shown).await;
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
        assert_eq!(reports.iter().map(|it| it.n_redo).sum::<usize>(), 1);
        assert!(world.taught()[0].0.ends_with("question 2"));
        rig.stop().await;
    }
}

/// Whatever the server is like: what is too large is so the next time.
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

/// What is there is learned from all the same.
#[tokio::test]
async fn without_a_teacher_steps_of_verdicts_go_on() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Answers(404, None)));
    let both = config(&json!({"rl": {"method": "redo+binary_rl"}, "gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, both).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    let status = rig.learner.status().await.unwrap();
    assert_eq!(status.agents[0].n_unanswered, 2, "{status:#?}");
    rig.stop().await;
}

/// Which turn of which use stands in the checkpoints behind an adapter: each once.
pub(super) fn behind(world: &World, adapter: &str) -> Vec<(String, u64)> {
    let manifests: Vec<Value> = world.checkpoints().into_iter().map(|it| it.0).collect();
    let name = |it: &Value| {
        let n = it["n"].as_u64().unwrap();
        let (agent, lineage) = (it["agent"].as_str(), it["lineage"].as_str());
        format!("{}-{}-{n:06}", agent.unwrap(), lineage.unwrap())
    };
    let (mut found, mut at) = (Vec::new(), Some(adapter.to_owned()));
    while let Some(manifest) = at.and_then(|at| manifests.iter().rfind(|it| name(it) == at)) {
        let turns = manifest["turns"].as_array().unwrap().iter();
        let uses = manifest["uses"].as_array().unwrap().iter();
        found.extend(
            turns
                .zip(uses)
                .map(|(turn, n)| (turn.to_string(), n.as_u64().unwrap())),
        );
        at = manifest["parent"].as_str().map(str::to_owned);
    }
    let unique: BTreeSet<_> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "twice: {found:?}");
    assert_eq!(world.adapter(adapter).unwrap().len(), found.len());
    found
}

#[tokio::test]
async fn a_batch_is_of_new_samples_and_as_many_again() {
    let (dir, world) = (folder(), World::default());
    let mut rig = Rig::start(dir.path(), &world, again(3)).await;
    for (first, n_trained) in [(1, 2), (3, 4), (5, 6)] {
        for number in [first, first + 1] {
            let session = format!("s{number}");
            append(&rig.log, &world, &session, &corrected_talk(number)).await;
        }
        assert!(rig.trained(n_trained).await);
        if first == 1 {
            // What it drew is forgotten; it is drawn again.
            rig.stop().await;
            rig = Rig::start(dir.path(), &world, again(3)).await;
        }
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let sorted = |weights: &[u32]| {
        let mut weights = weights.to_vec();
        weights.sort_unstable();
        weights
    };
    let weights = world.adapter(&serving).unwrap();
    let (second, third) = (sorted(&weights[2..6]), sorted(&weights[6..]));
    assert_eq!(second, [10, 20, 30, 40]);
    assert_eq!(third, [30, 40, 50, 60], "those that were used least");
    let mut uses: Vec<u64> = behind(&world, &serving).iter().map(|it| it.1).collect();
    uses.sort_unstable();
    assert_eq!(uses, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    let step = rig.learner.status().await.unwrap().agents[0]
        .last_step
        .clone();
    assert_eq!(step.map(|it| (it.n_redo, it.n_again)), Some((4, 2)));
    rig.stop().await;
}

#[tokio::test]
async fn no_turn_is_used_more_often_than_it_may() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, again(2)).await;
    // One new sample a step, by asking: the others are used up.
    for number in 1..=5 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
        rig.judged(2 * u64::from(number)).await;
        rig.learner.train_now(None).await.unwrap();
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let most = behind(&world, &serving).iter().map(|it| it.1).max();
    assert_eq!(most, Some(2));
    assert_eq!(
        rig.learner.train_now(None).await,
        Ok(Vec::new()),
        "none is new"
    );
    rig.stop().await;
}

/// What was trained into an adapter that the gate declined is not in the weights: it is tried again, and counts once.
/// What its owner went back behind is not either, and stays out.
#[tokio::test]
async fn what_was_declined_is_tried_again_and_what_was_undone_is_not() {
    for owner_went_back in [false, true] {
        let (dir, world, agent) = (folder(), World::default(), AgentId::default_agent());
        if !owner_went_back {
            world.damage("-000002", crate::testing::Damage::NotFinite);
        }
        let rig = Rig::start(dir.path(), &world, again(4)).await;
        let talk = async |numbers: [u32; 2], n_trained| {
            for number in numbers {
                let session = format!("s{number}");
                append(&rig.log, &world, &session, &corrected_talk(number)).await;
            }
            assert!(rig.trained(n_trained).await);
            rig.log.serving().await.unwrap()[0].1.clone()
        };
        let first = talk([1, 2], 2).await;
        let second = talk([3, 4], 4).await;
        assert_ne!(second, first, "if need be at the second attempt");
        if owner_went_back {
            rig.log.choose(&agent, Some(first.clone())).await.unwrap();
        }
        let last = talk([5, 6], 6).await;
        let weights = world.adapter(&last).unwrap();
        let mut later = weights[2..].to_vec();
        later.sort_unstable();
        if owner_went_back {
            assert_eq!(later, [10, 20, 50, 60]);
        } else {
            assert_eq!(later, [10, 20, 30, 30, 40, 40, 50, 60]);
        }
        behind(&world, &last);
        rig.stop().await;
    }
}

#[tokio::test]
async fn each_use_is_in_a_lineage_once_wherever_it_fails() {
    let failures = Failure::OF_ANY_CALL;
    for seeds in (0..28_usize).collect::<Vec<_>>().chunks(7) {
        let runs = seeds
            .iter()
            .map(|seed| survive_with_reuse(seed % 19, failures[seed % 7]));
        join_all(runs).await;
    }
}

/// Six turns, each in several steps, while a call fails; a killed client is started again.
async fn survive_with_reuse(call: usize, failure: Failure) {
    println!("{failure:?} at call {call}");
    let (dir, world) = (folder(), World::default());
    world.fail(call, failure);
    let mut rig = Rig::start(dir.path(), &world, again(3)).await;
    for number in 1..=6 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
    }
    while !rig.trained(6).await {
        rig.stop().await;
        rig = Rig::start(dir.path(), &world, again(3)).await;
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let behind = behind(&world, &serving);
    let turns: BTreeSet<String> = behind.into_iter().map(|it| it.0).collect();
    assert_eq!(turns.len(), 6, "each at least once");
    rig.stop().await;
}
