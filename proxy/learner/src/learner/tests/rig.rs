//! A learner over a log in a folder, and what tests ask of it.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
};

use metaclaw_chat::AgentId;
use metaclaw_reward::Rules;
use metaclaw_schedule::{Keyboard, Schedule};
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{StateKind, TurnLog, TurnsConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::LearnerConfig,
    external_teacher::ExternalTeacher,
    judge::Judge,
    learner::Learner,
    metrics::{Recorder, ReportTo},
    shared::Parts,
    status::Phase,
    testing::{World, append_for, corrected_talk, parts, progress},
};

/// A learner over a log in a folder and a trainer that outlives it.
pub(super) struct Rig {
    pub(super) log: TurnLog,
    pub(super) learner: Learner,
    pub(super) tracker: TaskTracker,
    pub(super) cancel: CancellationToken,
    pub(super) swaps: Arc<Mutex<Vec<String>>>,
    pub(super) swaps_in_memory: Arc<Mutex<Vec<bool>>>,
}

pub(super) fn config(json: &Value) -> LearnerConfig {
    let mut all = json!({
        "mode": "rl",
        "judge": {"rules": [
            {"on": "next", "pattern": "too long", "score": -1},
            {"on": "reply", "max_words": 40, "score": 1},
        ]},
        "rl": {"method": "redo", "batch_size": 2, "reuse": 1, "epochs": 1},
    });
    for (section, keys) in json.as_object().unwrap() {
        match keys {
            Value::Object(keys) => {
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
    let config = json!({"sleep_start": "0:00", "sleep_end": "0:00"});
    let schedule = Schedule::local(serde_json::from_value(config).unwrap(), None);
    schedule.set_keyboard(Keyboard::Headless);
    schedule
}

impl Rig {
    pub(super) async fn start(dir: &Path, world: &World, config: LearnerConfig) -> Self {
        Self::start_with(dir, world, config, None).await
    }

    pub(super) async fn start_with(
        dir: &Path,
        world: &World,
        config: LearnerConfig,
        library: Option<Library>,
    ) -> Self {
        let judge = Judge::Rules(Rules::compile(&config.judge.rules).unwrap());
        Self::start_judged(dir, world, config, library, judge).await
    }

    pub(super) async fn start_judged(
        dir: &Path,
        world: &World,
        config: LearnerConfig,
        library: Option<Library>,
        judge: Judge,
    ) -> Self {
        Self::start_scored(dir, world, config, library, judge, None).await
    }

    pub(super) async fn start_scored(
        dir: &Path,
        world: &World,
        config: LearnerConfig,
        library: Option<Library>,
        judge: Judge,
        external_teacher: Option<ExternalTeacher>,
    ) -> Self {
        let change = |parts| Parts {
            judge,
            external_teacher,
            library,
            ..parts
        };
        Self::start_changed(dir, world, config, change).await
    }

    pub(super) async fn start_changed(
        dir: &Path,
        world: &World,
        config: LearnerConfig,
        change: impl FnOnce(Parts) -> Parts,
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
        let rules = Rules::compile(&config.judge.rules).unwrap();
        let parts = Parts {
            judge: Judge::Rules(rules),
            recorder: Recorder::new(
                dir.join("learning"),
                &[ReportTo::Tensorboard, ReportTo::Jsonl],
            ),
            folder: Some(dir.join("learning")),
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
            ..parts(config, &log)
        };
        let learner = Learner::start(change(parts), &tracker, cancel.clone())
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

    pub(super) async fn stop(self) {
        self.cancel.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        drop(self.learner);
        self.log.close().await;
    }

    pub(super) async fn n(&self, kind: StateKind) -> usize {
        self.n_of(&AgentId::default_agent(), kind).await
    }

    pub(super) async fn n_of(&self, agent: &AgentId, kind: StateKind) -> usize {
        let ids = self.log.in_state(agent, kind).await;
        ids.map_or(0, |ids| ids.len())
    }

    pub(super) async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let came = progress::found_in_time(async || is_so().await.then_some(())).await;
        let status = self.learner.status().await;
        assert!(came.is_some(), "never came: {what}: {status:#?}");
    }

    pub(super) async fn judged(&self, n: u64) {
        let is_judged = async || self.log.funnel(None).await.unwrap().judged >= n;
        self.until("verdicts", is_judged).await;
    }

    /// Waits until so many turns are trained, or the client was killed.
    pub(super) async fn trained(&self, n: usize) -> bool {
        self.trained_by(&AgentId::default_agent(), n).await
    }

    pub(super) async fn trained_by(&self, agent: &AgentId, n: usize) -> bool {
        let done = async || self.n_of(agent, StateKind::Trained).await >= n;
        tokio::select! {
            () = self.until("a step", done) => true,
            () = self.cancel.cancelled() => false,
        }
    }

    /// Turns that were left out, by reason, once there are so many; what was accepted is not counted.
    pub(super) async fn spent(&self, n: u64) -> Vec<(String, u64)> {
        let spent = async || {
            let spent = self.log.funnel(None).await.unwrap().spent;
            let ordinary = "the reply was good, and no wish is in force to learn from it";
            let spent = spent.into_iter().filter(|(why, _)| why != ordinary);
            spent.collect::<Vec<_>>()
        };
        let done = async || spent().await.iter().map(|(_, n)| n).sum::<u64>() >= n;
        self.until("turns are spent", done).await;
        spent().await
    }

    pub(super) async fn talk(&self, world: &World, numbers: &[u32]) {
        self.talk_of(&AgentId::default_agent(), world, numbers)
            .await;
    }

    pub(super) async fn talk_of(&self, agent: &AgentId, world: &World, numbers: &[u32]) {
        for number in numbers {
            let session = format!("s{number}");
            append_for(agent, &self.log, world, &session, &corrected_talk(*number)).await;
        }
    }

    pub(super) async fn phase(&self, what: &str, is_it: impl Fn(Phase) -> bool) {
        let is_so = async || is_it(self.learner.status().await.unwrap().phase);
        self.until(what, is_so).await;
    }

    pub(super) fn swaps(&self) -> Vec<String> {
        self.swaps.lock().unwrap().clone()
    }

    pub(super) async fn served(&self) -> Vec<String> {
        let serving = self.log.serving().await.unwrap();
        serving.into_iter().map(|(_, adapter)| adapter).collect()
    }
}

pub(super) async fn begin(config: LearnerConfig) -> (TempDir, World, Rig) {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config).await;
    (dir, world, rig)
}

pub(super) fn usual() -> LearnerConfig {
    config(&json!({}))
}

pub(super) fn library(dir: &Path) -> Library {
    let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
    Library::open(dir.join("skills"), skills, wishes).0
}

pub(super) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// No use of a turn in two manifests of a lineage; the last checkpoint holds exactly what the log calls trained.
pub(super) async fn assert_each_trained_once(rig: &Rig, world: &World) {
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
    let found = unique.len();
    assert_eq!(found, weights.len(), "a sample was used twice: {weights:?}");
    assert_eq!(weights.len(), trained, "{weights:?}");
    let is_served = async || rig.swaps.lock().unwrap().last() == Some(&serving[0].1);
    rig.until("the new adapter is served", is_served).await;
}

pub(super) fn again(reuse: usize) -> LearnerConfig {
    config(&json!({"rl": {"reuse": reuse}}))
}
