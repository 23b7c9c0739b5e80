use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use metaclaw_reward::Rules;
use metaclaw_schedule::{Keyboard, Obstacle, Schedule, Window};
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{StateKind, StepOutcome, TurnLog, TurnsConfig};
use tempfile::TempDir;

use super::*;
use crate::{
    config::LearnerConfig,
    judge::Judge,
    metrics::{Recorder, ReportTo},
    testing::{Failure, Poison, World, append, corrected_talk, said},
};

mod dry_run;
mod gate;
mod in_turn;
mod records;
mod teaching;
mod wedges;

/// A learner over a log in a folder and a trainer that outlives it.
struct Rig {
    log: TurnLog,
    learner: Learner,
    tracker: TaskTracker,
    cancel: CancellationToken,
    swaps: Arc<Mutex<Vec<String>>>,
    /// Whether the trainer had each in memory by then.
    swaps_in_memory: Arc<Mutex<Vec<bool>>>,
}

fn config(json: &serde_json::Value) -> LearnerConfig {
    let mut all = serde_json::json!({
        "mode": "rl",
        "judge": {"rules": [
            {"on": "next", "pattern": "too long", "score": -1},
            {"on": "reply", "max_words": 40, "score": 1},
        ]},
        "rl": {"method": "redo", "batch_size": 2, "reuse": 1},
    });
    for (section, keys) in json.as_object().unwrap() {
        match keys {
            serde_json::Value::Object(keys) => {
                for (key, value) in keys {
                    all[section][key] = value.clone();
                }
            }
            value => all[section] = value.clone(),
        }
    }
    serde_json::from_value(all).unwrap()
}

/// A headless host without sleep hours.
fn away() -> Schedule {
    let config = serde_json::json!({"sleep_start": "0:00", "sleep_end": "0:00"});
    let schedule = Schedule::local(serde_json::from_value(config).unwrap(), None);
    schedule.set_keyboard(Keyboard::Headless);
    schedule
}

impl Rig {
    async fn start(dir: &Path, world: &World, config: LearnerConfig) -> Self {
        Self::start_with(dir, world, config, None).await
    }

    /// The same with a library of wishes.
    async fn start_with(
        dir: &Path,
        world: &World,
        config: LearnerConfig,
        library: Option<Library>,
    ) -> Self {
        let log = TurnLog::open(dir, &TurnsConfig::default()).unwrap();
        let (tracker, cancel, swaps) = (
            TaskTracker::new(),
            world.client(),
            Arc::new(Mutex::new(Vec::new())),
        );
        let swaps_in_memory = Arc::new(Mutex::new(Vec::new()));
        let (told, were_loaded) = (Arc::clone(&swaps), Arc::clone(&swaps_in_memory));
        let trainer = world.clone();
        let parts = Parts {
            is_off: Arc::new(|_| false),
            library,
            evolver: None,
            recorder: Recorder::new(
                dir.join("learning"),
                &[ReportTo::Tensorboard, ReportTo::Jsonl],
            ),
            judge: Judge::Rules(Rules::compile(&config.judge.rules).unwrap()),
            config,
            log: log.clone(),
            schedule: away(),
            backend: Some(Arc::new(world.clone())),
            on_swap: Arc::new(move |_, adapter| {
                let name = adapter.map_or("base", AdapterName::as_str).to_owned();
                were_loaded
                    .lock()
                    .unwrap()
                    .push(trainer.loaded().contains(&name));
                told.lock().unwrap().push(name);
            }),
        };
        let learner = Learner::start(parts, &tracker, cancel.clone())
            .await
            .unwrap();
        Self {
            log,
            learner,
            tracker,
            cancel,
            swaps,
            swaps_in_memory,
        }
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        drop(self.learner);
        self.log.close().await;
    }

    async fn n(&self, kind: StateKind) -> usize {
        self.n_of(&AgentId::default_agent(), kind).await
    }

    async fn n_of(&self, agent: &AgentId, kind: StateKind) -> usize {
        let ids = self.log.in_state(agent, kind).await;
        ids.map_or(0, |ids| ids.len())
    }

    /// Waits until so many turns have a verdict.
    async fn judged(&self, n: u64) {
        let done = async {
            while self.log.funnel(None).await.unwrap().judged < n {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(30), done).await;
        assert!(done.is_ok(), "{:?}", self.log.funnel(None).await);
    }

    /// Waits until so many turns are trained, or the client was killed.
    async fn trained(&self, n: usize) -> bool {
        self.trained_by(&AgentId::default_agent(), n).await
    }

    async fn trained_by(&self, agent: &AgentId, n: usize) -> bool {
        let done = async {
            while self.n_of(agent, StateKind::Trained).await < n {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = done => true,
            () = self.cancel.cancelled() => false,
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("no step: {:#?}", self.learner.status().await),
        }
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// No use of a turn in two manifests of a lineage; the last checkpoint holds exactly what the log calls trained.
async fn assert_each_trained_once(rig: &Rig, world: &World) {
    let mut seen = BTreeSet::new();
    let checkpoints = world.checkpoints();
    for (manifest, _) in &checkpoints {
        let uses = manifest["uses"].as_array().unwrap();
        let turns = manifest["turns"].as_array().unwrap();
        assert_eq!(turns.len(), uses.len());
        for (turn, n) in turns.iter().zip(uses) {
            let lineage = manifest["lineage"].to_string();
            let key = (lineage, turn.to_string(), n.to_string());
            assert!(seen.insert(key.clone()), "twice: {key:?}");
        }
    }
    let trained = rig.n(StateKind::Trained).await;
    assert_eq!(seen.len(), trained);
    let serving = rig.log.serving().await.unwrap();
    let weights = world.adapter(&serving[0].1).unwrap();
    let unique: BTreeSet<&u32> = weights.iter().collect();
    assert_eq!(
        unique.len(),
        weights.len(),
        "a sample was used twice: {weights:?}"
    );
    assert_eq!(weights.len(), trained, "{weights:?}");
    let served = async {
        while rig.swaps.lock().unwrap().last() != Some(&serving[0].1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served)
        .await
        .expect("the new adapter is served");
}

#[tokio::test]
async fn corrections_become_a_step_and_are_served() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    assert_each_trained_once(&rig, &world).await;
    // The failed turns' prompts, the questions, were what was trained on.
    let serving = rig.log.serving().await.unwrap();
    assert_eq!(world.adapter(&serving[0].1).unwrap(), [10, 20]);
    assert!(
        serving[0].1.starts_with("_default-") && serving[0].1.ends_with("-000001"),
        "{serving:?}"
    );
    assert_eq!(
        world.loaded(),
        [serving[0].1.as_str()],
        "in memory before it serves"
    );
    assert_eq!(*rig.swaps_in_memory.lock().unwrap(), [true]);
    let pruned = async {
        while world.kept().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let pruned = tokio::time::timeout(Duration::from_secs(20), pruned).await;
    pruned.expect("old checkpoints are deleted");
    assert!(world.kept()[0].contains(&serving[0].1), "not what serves");
    let status = rig.learner.status().await.unwrap();
    let step = status.agents[0].last_step.as_ref().unwrap();
    assert_eq!(
        (step.n, step.n_redo, step.n_binary_rl, step.n_turns),
        (1, 2, 0, 2)
    );
    assert_eq!(status.agents[0].funnel.trained, 2);
    // 5e-4 by size, first of three warm-up steps.
    assert!(
        (world.rates()[0] - 5e-4 / 3.0).abs() < 1e-12,
        "{:?}",
        world.rates()
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_in_the_lineage_and_serves_again() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    rig.stop().await;

    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    assert!(rig.swaps.lock().unwrap()[0].ends_with("-000001"));
    append(&rig.log, &world, "c", &corrected_talk(3)).await;
    append(&rig.log, &world, "d", &corrected_talk(4)).await;
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

/// First hour, A16: there was no way back from weights that went too far.
#[tokio::test]
async fn the_next_step_starts_from_what_the_owner_chose() {
    let (dir, world, agent) = (folder(), World::default(), AgentId::default_agent());
    let mut rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
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
    // A restart serves it, and goes on from there.
    rig.stop().await;
    rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let served = rig.swaps.lock().unwrap().clone();
    assert_eq!(served, std::slice::from_ref(&first));
    let last = talk(&rig, 7).await;
    assert_eq!(world.adapter(&last).unwrap(), [10, 20, 70, 80]);
    // It is counted a moment after its turns are trained.
    let counted = async {
        while rig.learner.counts().n_steps == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(20), counted).await;
    counted.expect("the step is counted");
    let counts = rig.learner.counts();
    assert_eq!((counts.n_steps, counts.n_refused), (1, 0));
    assert_eq!((counts.n_bad, counts.n_good), (2, 2));
    rig.stop().await;
}

#[tokio::test]
async fn what_is_of_no_use_is_spent_with_a_reason() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let accepted = [said("q", "Short.", 1), said("Thanks.", "Welcome.", 2)];
    let uncorrected = [
        said("q", &"w ".repeat(50), 3),
        said("Too long.", &"w ".repeat(50), 4),
        said("Hm.", "x", 5),
    ];
    append(&rig.log, &world, "a", &accepted).await;
    append(&rig.log, &world, "b", &uncorrected).await;
    let funnel = async || rig.log.funnel(None).await.unwrap();
    let settled = async {
        while funnel().await.spent.values().sum::<u64>() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled)
        .await
        .unwrap();
    let spent = funnel().await.spent;
    let expected = [
        ("accepted, and no wish stands that could be consolidated", 1),
        ("no rule fits", 1),
    ];
    assert_eq!(spent, expected.map(|(why, n)| (why.to_owned(), n)).into());
    rig.stop().await;
}

#[tokio::test]
async fn both_methods_make_one_step() {
    let (dir, world) = (folder(), World::default());
    let both = serde_json::json!({"rl": {"method": "redo+binary_rl", "learning_rate": 0.001, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&both)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(4).await);
    let checkpoints = world.checkpoints();
    // Two replies of the teacher, and the verdicts of four turns, those of the failed ones once.
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

/// Every number of `rl.*` that is the training server's business reaches it.
#[tokio::test]
async fn the_training_server_is_asked_for_what_is_configured() {
    let (dir, world) = (folder(), World::default());
    let other = serde_json::json!({"rl": {
        "beta1": 0.5, "beta2": 0.6, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 7.0,
        "lora_rank": 3, "lora_alpha": 5, "targets": "q_proj+v_proj",
    }});
    let rig = Rig::start(dir.path(), &world, config(&other)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
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
async fn what_is_older_than_rl_max_age_is_left_out() {
    let (dir, world) = (folder(), World::default());
    let none = serde_json::json!({"rl": {"max_age": "0 s"}});
    let rig = Rig::start(dir.path(), &world, config(&none)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let left_out = async || {
        let spent = rig.log.funnel(None).await.unwrap().spent;
        spent.get("older than rl.max_age").copied().unwrap_or(0)
    };
    let settled = async {
        while left_out().await < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), settled).await;
    assert!(settled.is_ok(), "{:?}", rig.log.funnel(None).await);
    assert!(world.asked().is_none(), "no step was made");
    rig.stop().await;
}

#[tokio::test]
async fn a_step_can_be_asked_for() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto", "gate": {"enabled": false}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    append(&rig.log, &world, "c", &corrected_talk(3)).await;
    let waits = async {
        while !matches!(
            rig.learner.status().await.unwrap().phase,
            Phase::AwaitingRequest
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits)
        .await
        .unwrap();
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    let reports = rig.learner.train_now(None).await.unwrap();
    // All there is, not only a batch.
    assert_eq!((reports.len(), reports[0].n_redo), (1, 3));
    rig.stop().await;
}

/// With a gate before what serves, nobody has to ask: it is enough that the owner is away.
#[tokio::test]
async fn in_auto_a_batch_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto"});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let waits = async {
        while rig.learner.status().await.unwrap().phase != Phase::AwaitingWindow {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waits = tokio::time::timeout(Duration::from_secs(20), waits).await;
    assert!(waits.is_ok(), "{:#?}", rig.learner.status().await);
    assert_eq!(rig.n(StateKind::Trained).await, 0, "its owner chats");
    rig.stop().await;
}

#[tokio::test]
async fn what_costs_something_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = serde_json::json!({"mode": "auto", "agents": {"busy": {"mode": "rl"}}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    let (any, busy) = (AgentId::default_agent(), "busy".parse().unwrap());
    assert!(rig.learner.may_cost(&any).await.unwrap(), "nobody is here");
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    assert!(!rig.learner.may_cost(&any).await.unwrap());
    assert!(
        rig.learner.may_cost(&busy).await.unwrap(),
        "mode rl waits for nobody"
    );
    let window = rig.learner.status().await.unwrap().window;
    let why = |window| match window {
        Window::Closed { why } => Some(why),
        Window::Open { .. } => None,
    };
    assert!(matches!(why(window), Some(Obstacle::Chatting { .. })));
    rig.stop().await;
}

#[tokio::test]
async fn what_the_trainer_refuses_is_said_and_tried_later_or_left_out() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(
        dir.path(),
        &world,
        config(&serde_json::json!({"mode": "auto"})),
    )
    .await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    rig.judged(2).await;
    // Calls: checkpoints (for the head), create, checkpoints (for the step), forward_backward.
    world.fail(1, Failure::Refused);
    let error = rig.learner.train_now(None).await.unwrap_err();
    assert!(matches!(error, TrainError::Refused { .. }), "{error}");
    assert_eq!(rig.n(StateKind::Judged).await, 1, "free again");
    world.poison(10, Poison::Refused);
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    let funnel = rig.log.funnel(None).await.unwrap();
    assert_eq!(
        funnel.spent.get("refused by the training server"),
        Some(&1),
        "{funnel:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn nothing_is_trained_twice_or_lost_wherever_it_fails() {
    use Failure::*;
    let failures = [
        Unreachable,
        LostBefore,
        LostAfter,
        ErrorAfter,
        Killed,
        ClientKilledBefore,
        ClientKilledAfter,
    ];
    // The first step makes at most 8 calls, the second 6; a second failure hits what follows the first.
    let plan = |seed: usize| {
        let second = seed % 13 + 1 + seed % 5;
        vec![
            (seed % 13, failures[seed % 7]),
            (second, failures[(seed / 7 + 3) % 7]),
        ]
    };
    // Most of their time is pauses, so several run at once.
    for seeds in (0..91).collect::<Vec<_>>().chunks(13) {
        join_all(seeds.iter().map(|seed| survive(plan(*seed)))).await;
    }
}

/// Four turns in two steps while calls fail as planned; a killed client is started again.
async fn survive(plan: Vec<(usize, Failure)>) {
    println!("failing {plan:?}");
    let (dir, world) = (folder(), World::default());
    for (n, failure) in plan {
        world.fail(n, failure);
    }
    let mut rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    for number in 1..=4 {
        append(
            &rig.log,
            &world,
            &format!("s{number}"),
            &corrected_talk(number),
        )
        .await;
    }
    while !rig.trained(4).await {
        rig.stop().await;
        rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    }
    assert_each_trained_once(&rig, &world).await;
    assert_eq!(
        rig.n(StateKind::Taken).await + rig.n(StateKind::Judged).await,
        0
    );
    rig.stop().await;
}

#[tokio::test]
async fn after_two_complaints_both_prompts_are_answered_again() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
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
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    assert!(rig.trained(2).await);
    assert_eq!(rig.n(StateKind::Captured).await, 2, "the two last ones");
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}
