//! Tests of the way from turns to an adapter that serves, without failures.
//!
//! Tests of samples that redo uses in several steps: how often, and each use once in a lineage.
//!
//! Agents take turns: what one has to learn keeps no other waiting for longer than a few turns' teaching, or one step.
//!
//! Tests of when a step is made: on request, or while the owner is away.
//!
//! Tests of what is recorded of each step: its numbers, and its checkpoint's manifest.
//!
//! Tests of `gate.accept_without`: with a training server that cannot score a reply, the tests that need scores are
//! skipped.
//!
//! Tests of turns that no step uses, and of the recorded reason.
//!
//! Tests of held-out sessions: none of their turns is trained on, and the gate tests adapters with them.

use std::fmt::Debug;

use metaclaw_chat::Score;
use metaclaw_schedule::{Keyboard, Schedule};

use super::*;
use crate::{
    gate::GateTest,
    testing::{Habit, append_for},
};

#[tokio::test]
async fn corrections_become_a_step_and_are_served() {
    let (_dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    assert_each_trained_once(&rig, &world).await;
    // The step was trained on the failed turns' prompts, the questions.
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [10, 20]);
    let is_so = serving[0].1.starts_with("_default-") && serving[0].1.ends_with("-000001");
    assert!(is_so, "{serving:?}");
    assert_eq!(
        world.loaded(),
        [serving[0].1.as_str()],
        "in memory before it serves"
    );
    assert_eq!(*rig.swaps_in_memory.lock().unwrap(), [true]);
    let is_pruned = async || !world.kept().is_empty();
    rig.until("old checkpoints are deleted", is_pruned).await;
    assert!(world.kept()[0].contains(&serving[0].1), "not what serves");
    let status = rig.learner.status().await.unwrap();
    let step = status.agents[0].last_step.as_ref().unwrap();
    assert_eq!(
        (step.n, step.n_redo, step.n_binary_rl, step.n_turns),
        (1, 2, 0, 2)
    );
    assert_eq!(status.agents[0].funnel.trained, 2);
    // The rate is 5e-4 by model size, in the first of three warm-up steps.
    let is_so = (world.rates()[0] - 5e-4 / 3.0).abs() < 1e-12;
    assert!(is_so, "{:?}", world.rates());
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_in_the_lineage_and_serves_again() {
    let (dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    rig.stop().await;

    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert!(rig.swaps.lock().unwrap()[0].ends_with("-000001"));
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    assert_each_trained_once(&rig, &world).await;
    let lineages: BTreeSet<String> = world
        .checkpoints()
        .iter()
        .map(|(m, _)| m["lineage"].to_string())
        .collect();
    assert_eq!(lineages.len(), 1);
    rig.stop().await;
}

/// This test exists because at first nothing could undo weights that had changed too much.
#[tokio::test]
async fn the_next_step_starts_from_what_the_owner_chose() {
    let (dir, world, agent) = (folder(), World::default(), AgentId::default_agent());
    let mut rig = Rig::start(dir.path(), &world, usual()).await;
    let talk = async |rig: &Rig, first: u32| {
        for number in [first, first + 1] {
            let session = format!("s{number}");
            append(&rig.log, &world, &session, &corrected_talk(number)).await;
        }
        assert!(rig.trained(first as usize + 1).await);
        rig.log.serving().await.unwrap()[0].1.clone()
    };
    let first = talk(&rig, 1).await;
    let ruined = talk(&rig, 3).await;
    assert_eq!(world.adapter(&ruined).unwrap(), [10, 20, 30, 40]);
    rig.log.choose(&agent, None).await.unwrap();
    let anew = talk(&rig, 5).await;
    assert_eq!(world.adapter(&anew).unwrap(), [50, 60]);
    assert_eq!(world.n_runs(), 1, "the run of the lineage before is closed");
    rig.log.choose(&agent, Some(first.clone())).await.unwrap();
    // A restart serves the adapter, and continues from it.
    rig.stop().await;
    rig = Rig::start(dir.path(), &world, usual()).await;
    let served = rig.swaps();
    assert_eq!(served, std::slice::from_ref(&first));
    let last = talk(&rig, 7).await;
    assert_eq!(world.adapter(&last).unwrap(), [10, 20, 70, 80]);
    // The counter changes a moment after the turns are trained.
    let is_counted = async || rig.learner.counts().n_steps > 0;
    rig.until("the step is counted", is_counted).await;
    let counts = rig.learner.counts();
    assert_eq!((counts.n_steps, counts.n_refused), (1, 0));
    assert_eq!((counts.n_bad, counts.n_good), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn both_methods_make_one_step() {
    let (dir, world) = (folder(), World::default());
    let both =
        json!({"rl": {"method": "redo+binary_rl", "learning_rate": 0.001, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&both)).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(4).await);
    let checkpoints = world.checkpoints();
    // The step has two replies of the teacher, and the verdicts of four turns, those of the failed ones once.
    let mut weights = checkpoints.last().unwrap().1.clone();
    assert_eq!(weights[..2], [10, 20], "the teacher's replies first");
    weights.sort_unstable();
    assert_eq!(weights, [10, 10, 11, 20, 20, 21]);
    assert!(
        world
            .rates()
            .iter()
            .all(|rate| (rate - 0.001).abs() < 1e-12)
    );
    rig.stop().await;
}

/// Every number of `rl.*` for the training server reaches it.
#[tokio::test]
async fn the_training_server_is_asked_for_what_is_configured() {
    let (dir, world) = (folder(), World::default());
    let other = json!({"rl": {
        "beta1": 0.5, "beta2": 0.6, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 7.0,
        "lora_rank": 3, "lora_alpha": 5, "targets": "q_proj+v_proj",
    }});
    let rig = Rig::start(dir.path(), &world, config(&other)).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    let (run, step) = world.asked().unwrap();
    assert_eq!((run.rank, run.lora_alpha), (3, Some(5.0)));
    assert_eq!(run.targets.unwrap(), ["q_proj", "v_proj"]);
    let adam = step.adam;
    assert_eq!(
        (adam.beta1, adam.beta2, adam.eps),
        (Some(0.5), Some(0.6), Some(1e-3))
    );
    assert_eq!(
        (adam.weight_decay, adam.grad_clip_norm),
        (Some(0.1), Some(7.0))
    );
    rig.stop().await;
}

#[tokio::test]
async fn after_two_complaints_both_prompts_are_answered_again() {
    let (_dir, world, rig) = begin(usual()).await;
    let long = "word ".repeat(60);
    let twice = [
        said("question", &long, 1),
        said("Too long.", &long, 2),
        said("Still too long.", "It is a short one.", 3),
        said("Thanks.", "You are welcome.", 4),
    ];
    append(&rig.log, &world, "a", &twice).await;
    assert!(rig.trained(2).await);
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [1, 2]);
    rig.stop().await;
}

#[tokio::test]
async fn what_was_said_before_the_start_is_judged_and_learned() {
    let (dir, world) = (folder(), World::default());
    let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
    append(&log, &world, "a", &corrected_talk(1)).await;
    append(&log, &world, "b", &corrected_talk(2)).await;
    log.close().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert!(rig.trained(2).await);
    assert_eq!(rig.n(StateKind::Captured).await, 2, "the two last ones");
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}

/// Returns the uses of turns in the checkpoints behind an adapter; each use must occur once.
pub(super) fn behind(world: &World, adapter: &str) -> Vec<(String, u64)> {
    let manifests: Vec<Value> = world.checkpoints().into_iter().map(|c| c.0).collect();
    let name = |value: &Value| {
        let n = value["n"].as_u64().unwrap();
        let (agent, lineage) = (value["agent"].as_str(), value["lineage"].as_str());
        format!("{}-{}-{n:06}", agent.unwrap(), lineage.unwrap())
    };
    let (mut found, mut at) = (Vec::new(), Some(adapter.to_owned()));
    while let Some(manifest) = at.and_then(|at| manifests.iter().rfind(|m| name(m) == at)) {
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
    let (dir, world, mut rig) = begin(again(3)).await;
    for (first, n_trained) in [(1, 2), (3, 4), (5, 6)] {
        for number in [first, first + 1] {
            let session = format!("s{number}");
            append(&rig.log, &world, &session, &corrected_talk(number)).await;
        }
        assert!(rig.trained(n_trained).await);
        if first == 1 {
            // The drawn replies are lost, and are drawn again.
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
    let mut uses: Vec<u64> = behind(&world, &serving).iter().map(|used| used.1).collect();
    uses.sort_unstable();
    assert_eq!(uses, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    let step = rig.learner.status().await.unwrap().agents[0]
        .last_step
        .clone();
    assert_eq!(step.map(|step| (step.n_redo, step.n_again)), Some((4, 2)));
    rig.stop().await;
}

#[tokio::test]
async fn no_turn_is_used_more_often_than_it_may() {
    let (_dir, world, rig) = begin(again(2)).await;
    // Each requested step has one new sample, because the others are used up.
    for number in 1..=5 {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
        rig.judged(2 * u64::from(number)).await;
        rig.learner.train_now(None).await.unwrap();
    }
    let serving = rig.log.serving().await.unwrap()[0].1.clone();
    let most = behind(&world, &serving).iter().map(|used| used.1).max();
    assert_eq!(most, Some(2));
    assert_eq!(
        rig.learner.train_now(None).await,
        Ok(Vec::new()),
        "none is new"
    );
    rig.stop().await;
}

/// Samples of an adapter that the gate declined are not in the weights, so they are used again and count once. Samples
/// of a step that the owner undid are not in the weights either, and are not used again.
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

/// Trains six turns in several steps each while a call fails, and restarts a killed client.
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
    let turns: BTreeSet<String> = behind.into_iter().map(|used| used.0).collect();
    assert_eq!(turns.len(), 6, "each at least once");
    rig.stop().await;
}

fn work() -> AgentId {
    "work".parse().unwrap()
}

impl Rig {
    async fn talks(&self, agent: &AgentId, world: &World, numbers: &[u32]) {
        for number in numbers {
            let session = format!("s{number}");
            let talk = corrected_talk(*number);
            append_for(agent, &self.log, world, &session, &talk).await;
        }
    }

    async fn ready(&self, agent: &AgentId, score: Score, n: usize) {
        let are_ready = async || {
            let mut n_ready = 0;
            for id in self.log.in_state(agent, StateKind::Judged).await.unwrap() {
                let turn = self.log.get(id).await.unwrap();
                let turn = turn.filter(|turn| turn.tokens.is_some());
                let verdict = turn.and_then(|turn| turn.verdict);
                n_ready += usize::from(verdict.is_some_and(|verdict| verdict.score == score));
            }
            n_ready >= n
        };
        self.until("verdicts and ids", are_ready).await;
    }
}

fn position(events: &[impl AsRef<str> + Debug], of: &str) -> usize {
    let mut found = events.iter().map(AsRef::as_ref);
    let found = found.position(|event| event.ends_with(of));
    found.unwrap_or_else(|| panic!("no {of:?}: {events:?}"))
}

/// The teacher answered all turns of a step that was asked for before anything else was looked at.
#[tokio::test]
async fn a_step_that_is_asked_for_keeps_no_other_agents_waiting() {
    let (dir, world, own) = (folder(), World::default(), AgentId::default_agent());
    let mixed = config(&json!({"mode": "auto", "agents": {"work": {"mode": "rl"}}}));
    let rig = Rig::start(dir.path(), &world, mixed).await;
    rig.talks(&own, &world, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        .await;
    rig.ready(&own, Score::Bad, 10).await;
    let draws = world.hold_draws();
    let asked = rig.learner.train_now(Some(own.clone()));
    let meanwhile = async {
        let has_begun = async || !world.events().is_empty();
        rig.until("the first draw", has_begun).await;
        rig.talks(&work(), &world, &[11, 12]).await;
        rig.ready(&work(), Score::Bad, 2).await;
        draws.add_permits(1_000);
    };
    let (reports, ()) = tokio::join!(asked, meanwhile);
    assert_eq!(reports.unwrap()[0].n_redo, 10);
    let events = world.events();
    let last = events
        .iter()
        .rposition(|event| event.starts_with("draws") && event.contains("question 10"));
    let is_so = position(&events, "passed [110, 120]") < last.unwrap();
    assert!(is_so, "{events:?}");
    rig.stop().await;
}

/// All batches that an agent had were trained before another's first.
#[tokio::test]
async fn agents_with_several_batches_take_turns() {
    let (dir, world, own) = (folder(), World::default(), AgentId::default_agent());
    let verdicts = |mode: &str| {
        let rl = json!({"method": "binary_rl"});
        config(&json!({"mode": mode, "rl": rl, "gate": {"enabled": false}}))
    };
    let rig = Rig::start(dir.path(), &world, verdicts("skills_only")).await;
    rig.talks(&own, &world, &[1, 2, 3]).await;
    rig.talks(&work(), &world, &[5]).await;
    for score in [Score::Bad, Score::Good] {
        rig.ready(&own, score, 3).await;
        rig.ready(&work(), score, 1).await;
    }
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, verdicts("rl")).await;
    assert!(rig.trained(6).await);
    let events = world.events();
    assert_eq!(position(&events, "passed [50, 51]"), 1, "{events:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_step_can_be_asked_for() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto", "gate": {"enabled": false}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    rig.talk(&world, &[1, 2, 3]).await;
    rig.phase("it waits to be asked", |phase| {
        phase == Phase::AwaitingRequest
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    let reports = rig.learner.train_now(None).await.unwrap();
    // The step uses all samples, not only one batch.
    assert_eq!((reports.len(), reports[0].n_redo), (1, 3));
    rig.stop().await;
}

#[tokio::test]
async fn with_the_manual_trigger_no_mode_trains_by_itself() {
    let (dir, world) = (folder(), World::default());
    let manual = json!({"mode": "rl", "rl": {"manual_train_trigger": true}});
    let rig = Rig::start(dir.path(), &world, config(&manual)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it waits to be asked", |phase| {
        phase == Phase::AwaitingRequest
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    assert_eq!(rig.learner.train_now(None).await.unwrap().len(), 1);
    rig.stop().await;
}

/// With a gate, a step begins when the owner is away, without a request.
#[tokio::test]
async fn in_auto_a_batch_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto"});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it waits for its owner to leave", |phase| {
        phase == Phase::AwaitingWindow
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "its owner chats");
    rig.stop().await;
}

/// A person who asks for something of the training task ends the pause.
#[tokio::test]
async fn in_auto_a_step_pauses_between_its_calls_while_its_owner_chats() {
    let (dir, world) = (folder(), World::default());
    let auto = config(&json!({"mode": "auto"}));
    let hours = json!({"idle_minutes": 0, "sleep_start": "0:00", "sleep_end": "0:00"});
    let schedule = Schedule::local(serde_json::from_value(hours).unwrap(), None);
    schedule.set_keyboard(Keyboard::Headless);
    let change = |parts| Parts {
        schedule,
        is_chatting: Arc::new(|| true),
        ..parts
    };
    let rig = Rig::start_changed(dir.path(), &world, auto, change).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it lets the chat go first", |phase| {
        matches!(phase, Phase::Paused { .. })
    })
    .await;
    assert_eq!(world.passes().len(), 0);
    rig.learner.train_now(None).await.unwrap();
    assert!(rig.trained(2).await);
    rig.stop().await;
}

#[tokio::test]
async fn what_costs_something_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto", "agents": {"busy": {"mode": "rl"}}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    let (any, busy) = (AgentId::default_agent(), "busy".parse().unwrap());
    assert!(rig.learner.may_cost(&any).await.unwrap(), "nobody is here");
    rig.talk(&world, &[1]).await;
    assert!(!rig.learner.may_cost(&any).await.unwrap());
    let is_so = rig.learner.may_cost(&busy).await.unwrap();
    assert!(is_so, "mode rl waits for nobody");
    let window = rig.learner.status().await.unwrap().window;
    let why = |window| match window {
        Window::Closed { why } => Some(why),
        Window::Open { .. } => None,
    };
    assert!(matches!(why(window), Some(Obstacle::Chatting { .. })));
    rig.stop().await;
}

fn lines(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("learning/steps.jsonl")).unwrap_or_default();
    let read = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(read).collect()
}

async fn recorded(rig: &Rig, dir: &Path, n: usize) -> Vec<Value> {
    let written = async || lines(dir).len() >= n;
    rig.until("the numbers of a step are written", written)
        .await;
    lines(dir)
}

#[tokio::test]
async fn each_step_leaves_its_numbers_and_how_it_was_made() {
    let (dir, world) = (folder(), World::default());
    let both = config(&json!({"rl": {"method": "redo+binary_rl"}}));
    let rig = Rig::start(dir.path(), &world, both).await;
    for n in 0..2 {
        append(&rig.log, &world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    assert!(rig.trained(4).await);
    let line = recorded(&rig, dir.path(), 1).await.remove(0);
    assert_eq!((&line["step"], &line["n"]), (&1.into(), &1.into()));
    assert_eq!(line["samples"]["context_distillation"], 2);
    for name in [
        "loss/total",
        "loss/context_distillation",
        "loss/binary",
        "reward/std",
    ] {
        assert!(line[name].is_number(), "{name}: {line}");
    }
    assert_eq!(line["gradient/norm"], 0.5);
    let agent = AgentId::default_agent();
    let lineage = line["lineage"].as_str().unwrap();
    let run = dir.path().join("learning/tensorboard");
    assert!(run.join(agent.as_str()).join(lineage).is_dir());

    let (manifest, _) = world.checkpoints().remove(0);
    let turns = manifest["turns"].as_array().unwrap();
    let scores = manifest["scores"].as_object().unwrap();
    assert_eq!(turns.len(), scores.len());
    assert!(scores.values().any(|score| *score == -1) && scores.values().any(|score| *score == 1));
    let made = &manifest["made"];
    assert_eq!(made["version"], env!("CARGO_PKG_VERSION"));
    let seed = u64::from_str_radix(lineage, 16).unwrap();
    assert_eq!(made["seed"], seed);
    assert_eq!(made["config"]["batch_size"], 2);
    assert_eq!(manifest["shape"]["base_fingerprint"], "0badcafe");
    rig.stop().await;
}

/// The process is killed when the checkpoint exists and the step is not yet recorded as made.
#[tokio::test]
async fn a_step_that_was_interrupted_is_recorded_when_it_is_settled() {
    let (dir, world) = (folder(), World::default());
    let redo = usual();
    let rig = Rig::start(dir.path(), &world, redo.clone()).await;
    // The calls are checkpoints, create, checkpoints, forward_backward, optim_step and save_checkpoint; then the
    // process is killed.
    world.fail(5, Failure::ClientKilledAfter);
    for n in 0..2 {
        append(&rig.log, &world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    assert!(!rig.trained(2).await, "it was killed");
    rig.stop().await;
    assert!(lines(dir.path()).is_empty());
    let rig = Rig::start(dir.path(), &world, redo).await;
    assert!(rig.trained(2).await);
    let line = recorded(&rig, dir.path(), 1).await.remove(0);
    assert_eq!((&line["step"], &line["n"]), (&1.into(), &1.into()));
    assert_eq!(line["samples"]["context_distillation"], 2);
    assert!(line["perf/step_time"].is_null(), "nobody measured it");
    rig.stop().await;
    assert_eq!(lines(dir.path()).len(), 1, "once");
}

/// The method needs no scores; the teacher of redo would need them as well.
fn without(parts: &[&str]) -> LearnerConfig {
    config(&json!({
        "rl": {"method": "binary_rl"},
        "gate": {"accept_without": parts},
    }))
}

#[tokio::test]
async fn a_test_that_cannot_be_made_and_is_accepted_stands_in_the_record_of_its_step() {
    let (dir, world) = (folder(), World::default());
    world.lack_scores();
    let accepted = without(&["replies", "capability", "preference"]);
    let rig = Rig::start(dir.path(), &world, accepted).await;
    rig.talk(&world, &[1, 2]).await;
    let serves = async || !rig.served().await.is_empty();
    rig.until("an adapter serves", serves).await;
    let tests = rig.last_step().await.gate.unwrap().tests;
    let named = |name: &str| tests.iter().find(|test| test.name == name).unwrap();
    for part in ["replies", "capability"] {
        let test = named(part);
        assert_eq!((test.passed, test.value), (None, None), "{part}");
        assert!(
            test.why.starts_with(&format!(
                "{part} skipped: it could not be made: forward: world"
            )),
            "{}",
            test.why
        );
    }
    assert_eq!(
        named("tools").passed,
        Some(true),
        "what can be made is made"
    );
    rig.stop().await;
}

/// The remaining tests still decide.
#[tokio::test]
async fn what_fails_a_test_that_can_be_made_does_not_serve() {
    let (dir, world) = (folder(), World::default());
    world.lack_scores();
    world.train_into(&[], Habit::Chats);
    let accepted = without(&["replies", "capability", "preference"]);
    let rig = Rig::start(dir.path(), &world, accepted).await;
    rig.talk(&world, &[1, 2]).await;
    let declined = rig.declined_in_a_row(1).await;
    assert!(declined.why.contains("tools "), "{declined:?}");
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    rig.stop().await;
}

#[tokio::test]
async fn a_test_that_cannot_be_made_and_is_not_accepted_keeps_every_adapter_from_serving() {
    for (accepted, lacking) in [
        (&[][..], "replies, capability, preference"),
        (&["replies", "preference"][..], "capability"),
        (&["replies", "capability", "tools"][..], "preference"),
    ] {
        let (dir, world) = (folder(), World::default());
        world.lack_scores();
        let rig = Rig::start(dir.path(), &world, without(accepted)).await;
        rig.talk(&world, &[1, 2]).await;
        let told = format!(
            "the gate's tests {lacking} cannot be made (forward: world does not answer this: it scores no given ids), and nothing that is not tested serves: name them in gate.accept_without"
        );
        rig.phase(
            "it says why",
            |phase| matches!(phase, Phase::WaitingForTrainer { why } if why.contains(&told)),
        )
        .await;
        let asked = rig.learner.train_now(None).await.unwrap_err();
        assert!(asked.to_string().contains(&told), "{asked}");
        assert!(world.asked().is_none(), "nothing was trained");
        assert!(rig.n(StateKind::Judged).await > 0, "its turns wait");
        assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
        rig.stop().await;
    }
}

#[tokio::test]
async fn what_is_of_no_use_is_spent_with_a_reason() {
    let (_dir, world, rig) = begin(usual()).await;
    let accepted = [said("q", "Short.", 1), said("Thanks.", "Welcome.", 2)];
    let uncorrected = [
        said("q", &"w ".repeat(50), 3),
        said("Too long.", &"w ".repeat(50), 4),
        said("Hm.", "x", 5),
    ];
    append(&rig.log, &world, "a", &accepted).await;
    append(&rig.log, &world, "b", &uncorrected).await;
    let funnel = async || rig.log.funnel(None).await.unwrap();
    let are_spent = async || funnel().await.spent.values().sum::<u64>() >= 2;
    rig.until("two turns are spent", are_spent).await;
    let spent = funnel().await.spent;
    let expected = [
        (
            "the reply was good, and no wish is in force to learn from it",
            1,
        ),
        ("no rule fits", 1),
    ];
    assert_eq!(spent, expected.map(|(why, n)| (why.to_owned(), n)).into());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_older_than_rl_max_age_is_left_out() {
    let (dir, world) = (folder(), World::default());
    let none = json!({"rl": {"max_age": "0 s"}});
    let rig = Rig::start(dir.path(), &world, config(&none)).await;
    // A turn has an age only once the log has noted the clock, and only if the turn is older than that note. The note is
    // in a minute, so the turns below are older.
    let in_a_minute = now_ms() + 60_000;
    let noted = rig.log.note_clock(Duration::ZERO, in_a_minute).await;
    noted.unwrap().unwrap();
    rig.talk(&world, &[1, 2]).await;
    let left_out = async || {
        let spent = rig.log.funnel(None).await.unwrap().spent;
        spent.get("older than rl.max_age").copied().unwrap_or(0)
    };
    rig.until("four turns are too old", async || left_out().await >= 4)
        .await;
    assert!(world.asked().is_none(), "no step was made");
    rig.stop().await;
}

/// There are sixty sessions with a complaint each. Nothing is trained before the owner asks for a step.
async fn talked(dir: &Path, world: &World) -> Rig {
    let seldom = json!({"rl": {"batch_size": 1_000}, "gate": {"held_out": 0.5}});
    let rig = Rig::start(dir, world, config(&seldom)).await;
    for number in 1..=60 {
        let session = format!("h{number}");
        append(&rig.log, world, &session, &corrected_talk(number)).await;
    }
    let is_looked_at = async || rig.n(StateKind::HeldOut).await >= 12;
    rig.until("some are held out", is_looked_at).await;
    rig
}

async fn preference(rig: &Rig) -> GateTest {
    let report = rig.learner.train_now(None).await.unwrap().remove(0);
    let mut tests = report.gate.unwrap().tests.into_iter();
    tests.find(|test| test.name == "preference").unwrap()
}

#[tokio::test]
async fn what_is_held_out_is_not_learned_from_and_is_asked_about() {
    let (dir, world) = (folder(), World::default());
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(
        (test.passed, test.value),
        (Some(true), Some(0.0)),
        "{}",
        test.why
    );
    let agent = AgentId::default_agent();
    let held_out = rig.log.in_state(&agent, StateKind::HeldOut).await.unwrap();
    let sessions: BTreeSet<u64> = held_out.iter().map(|id| id.session).collect();
    assert!(sessions.iter().all(|session| *session > 32), "{sessions:?}");
    let serving = rig.log.serving().await.unwrap().remove(0).1;
    let weights = world.adapter(&serving).unwrap();
    // A turn's mark is ten times the number of its session.
    let learned = |session: &u64| weights.contains(&(10 * u32::try_from(*session).unwrap()));
    assert!(!weights.is_empty() && !sessions.iter().any(learned));
    rig.stop().await;
}

#[tokio::test]
async fn an_adapter_that_likes_less_what_was_accepted_is_declined() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Sulks);
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(test.passed, Some(false), "{}", test.why);
    assert!(test.why.starts_with("preference -0.50 nat"), "{}", test.why);
    assert!(rig.log.serving().await.unwrap().is_empty());
    rig.stop().await;
}

/// Returns the marks of the turns that two asked-for steps train on, before and after another complaint, and the turns
/// that were excluded, by reason.
async fn trained_by_rule(rule: &str) -> ([Vec<u32>; 2], Vec<(String, u64)>) {
    let (dir, world) = (folder(), World::default());
    let library = library(dir.path());
    let binary = json!({"rl": {"method": "binary_rl", "batch_size": 64, "support_query": rule}});
    let heard = Some(library.clone());
    let rig = Rig::start_with(dir.path(), &world, config(&binary), heard).await;
    rig.talk(&world, &[1, 2]).await;
    rig.judged(4).await;
    let agent = AgentId::default_agent();
    let is_heard = async || !library.wishes(&agent).is_empty();
    rig.until("the second complaint is a wish", is_heard).await;
    let mut marks = Vec::new();
    for talk in [None, Some(corrected_talk(3))] {
        if let Some(talk) = talk {
            append(&rig.log, &world, "c", &talk).await;
            rig.judged(6).await;
        }
        let n_passes = world.passes().len();
        rig.learner.train_now(None).await.unwrap();
        let mut of_step: Vec<u32> = world.passes()[n_passes..].concat();
        of_step.sort_unstable();
        marks.push(of_step);
    }
    let spent = rig.log.funnel(None).await.unwrap().spent;
    rig.stop().await;
    let marks = <[Vec<u32>; 2]>::try_from(marks).unwrap();
    (marks, spent.into_iter().collect())
}

#[tokio::test]
async fn the_verdicts_that_led_to_a_wish_are_not_trained_on_beside_it() {
    let (marks, spent) = trained_by_rule("own").await;
    assert_eq!(marks, [vec![], vec![30, 31]], "{spent:?}");
    let why = "support: a lesson in force came from it (rl.support_query)";
    assert!(spent.contains(&(why.to_owned(), 4)), "{spent:?}");
}

#[tokio::test]
async fn without_separation_every_verdict_is_trained_on() {
    let (marks, spent) = trained_by_rule("off").await;
    assert_eq!(marks, [vec![10, 11, 20, 21], vec![30, 31]], "{spent:?}");
}
