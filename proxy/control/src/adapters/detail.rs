//! The origin of an adapter: the manifest of its checkpoint, and the manifests of the checkpoints before it.

use std::{collections::BTreeMap, io, path::Path};

use metaclaw_chat::{AgentId, if_there, unix_ms};
use metaclaw_learner::{BatchStats, DataSetUse, GateReport, Numbers, Replayed};
use metaclaw_skills::Library;
use metaclaw_trainer_api::wire::CheckpointInfo;
use metaclaw_turns::{LogError, Step, StepOutcome, TurnLog};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const MANIFEST: &str = "manifest.json";
const STATE: &str = "state.json";

/// One adapter that the trainer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterView {
    pub name: String,
    /// The agents that are served with it.
    pub agents: Vec<String>,
    /// Sessions and replies that hold it, and the pointers of its agents.
    pub n_leases: usize,
    /// Optimiser steps behind it, where its checkpoint is there.
    pub step: Option<u64>,
    /// What it was trained from; none is the base model.
    pub parent: Option<String>,
    /// When it was made, in Unix milliseconds.
    pub created_ms: Option<u64>,
    /// Why it may not serve: the gate declined it, or has not passed it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
}

// === impl AdapterView ===

impl AdapterView {
    /// Creates the entry of an adapter that no agent is known to use.
    pub fn named(name: String) -> Self {
        Self {
            name,
            agents: Vec::new(),
            n_leases: 0,
            step: None,
            parent: None,
            created_ms: None,
            unfit: None,
        }
    }
}

/// One adapter with its checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdapterDetail {
    #[serde(flatten)]
    pub view: AdapterView,
    pub sha256: Option<String>,
    /// The manifest of its checkpoint, or `None` if there is no checkpoint.
    pub manifest: Option<Value>,
    /// The checkpoints before it that still exist, nearest first.
    pub ancestors: Vec<String>,
    /// The turns of its own step and of those before it that still exist, each with its score.
    pub turns: BTreeMap<String, Option<i64>>,
    /// What the log says that its step came to.
    pub outcome: Option<StepOutcome>,
}

/// A training step, and what it learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepDetail {
    #[serde(flatten)]
    pub step: Step,
    /// The wishes that its adapter does without being told, then what its turns lacked, in the owner's words where
    /// there are some.
    pub learned: Vec<String>,
    /// What the gate found, if it tested the adapter.
    pub gate: Option<GateReport>,
}

struct KnownCheckpoint<'a> {
    info: &'a CheckpointInfo,
    says: ManifestView,
}

type KnownCheckpoints<'a> = BTreeMap<&'a str, KnownCheckpoint<'a>>;

// === impl StepDetail ===

impl StepDetail {
    /// `hints` are those of the verdicts on its turns.
    pub(crate) fn new(step: Step, library: &Library, hints: Vec<String>) -> Self {
        let report = match &step.outcome {
            Some(StepOutcome::Trained { gate, .. }) => gate.as_ref(),
            Some(StepOutcome::Declined { gate, .. }) => Some(gate),
            Some(StepOutcome::Released { .. }) | None => None,
        };
        // A report of another version is left out.
        let gate = report.and_then(|report| GateReport::deserialize(report).ok());
        let done = gate.as_ref().map(|report| report.untold.as_slice());
        let done = done.unwrap_or_default();
        let mut wishes = library.wishes_to_teach(&step.begun.agent);
        wishes.retain(|wish| done.contains(&wish.id()));
        let wishes = wishes.into_iter().map(|wish| wish.text);
        Self {
            learned: wishes.chain(hints).collect(),
            step,
            gate,
        }
    }
}

// === impl KnownCheckpoint ===

impl<'a> KnownCheckpoint<'a> {
    fn new(info: &'a CheckpointInfo) -> Self {
        let says = ManifestView::read(&info.manifest);
        Self { info, says }
    }

    fn turns(&self) -> impl Iterator<Item = (String, Option<i64>)> {
        let scores = &self.says.scores;
        let turns = self.says.turns.iter();
        turns.map(|id| (id.clone(), scores.get(id).copied()))
    }
}

pub(crate) fn details(
    adapters: Vec<AdapterView>,
    checkpoints: &[CheckpointInfo],
) -> Vec<AdapterDetail> {
    let infos = checkpoints.iter();
    let known = infos.map(|info| (info.name.as_str(), KnownCheckpoint::new(info)));
    let by_name: KnownCheckpoints<'_> = known.collect();
    let detail = |view: AdapterView| {
        let own = by_name.get(view.name.as_str());
        let ancestors = ancestors(&view.name, &by_name);
        let line = [view.name.as_str()].into_iter();
        let line = line.chain(ancestors.iter().map(String::as_str));
        let turns = line.flat_map(|name| {
            by_name
                .get(name)
                .into_iter()
                .flat_map(KnownCheckpoint::turns)
        });
        AdapterDetail {
            sha256: own.and_then(|own| own.info.sha256.clone()),
            manifest: own.map(|own| own.info.manifest.clone()),
            turns: turns.collect(),
            outcome: None,
            view: AdapterView {
                step: own.map(|own| own.info.step),
                parent: own.and_then(|own| own.says.parent.clone()),
                created_ms: own.map(|own| own.info.created_ms),
                ..view
            },
            ancestors,
        }
    };
    adapters.into_iter().map(detail).collect()
}

fn ancestors(name: &str, known: &KnownCheckpoints<'_>) -> Vec<String> {
    let next = |name: &str| known.get(name)?.says.parent.clone();
    let line = std::iter::successors(next(name), |name| next(name));
    // Parents are older than their children; a record that says otherwise ends the chain here.
    line.take(known.len()).collect()
}

pub(crate) async fn add_outcomes(
    log: &TurnLog,
    details: &mut [AdapterDetail],
) -> Result<(), LogError> {
    mark(details, &log.all_steps().await?);
    Ok(())
}

fn mark(details: &mut [AdapterDetail], steps: &[Step]) {
    for detail in details {
        let Some((agent, lineage, n)) = parts(&detail.view.name) else {
            continue;
        };
        let is_its = |step: &&Step| {
            let begun = &step.begun;
            begun.agent == agent && begun.lineage == lineage && begun.n == n
        };
        if let Some(step) = steps.iter().rfind(is_its) {
            detail.outcome.clone_from(&step.outcome);
            detail.view.unfit = unfit(step);
        }
    }
}

/// Says why the adapter of a step does not serve while the gate is on, or `None` if it may.
pub(super) fn unfit(step: &Step) -> Option<String> {
    match &step.outcome {
        Some(StepOutcome::Trained { .. }) => None,
        Some(StepOutcome::Declined { why, .. }) => Some(format!("declined by the gate: {why}")),
        Some(StepOutcome::Released { why }) => Some(format!("not tested: {why}")),
        None => Some("under test, and serves by itself if it passes".to_owned()),
    }
}

/// Splits a name that the learner gave: AGENT-LINEAGE-N.
pub(super) fn parts(adapter: &str) -> Option<(AgentId, &str, u64)> {
    let mut parts = adapter.rsplitn(3, '-');
    let (n, lineage, agent) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number = n.len() >= 6 && n.bytes().all(|b| b.is_ascii_digit());
    let is_lineage = lineage.len() == 8 && lineage.bytes().all(|b| b.is_ascii_hexdigit());
    let agent = agent.parse().ok().filter(|_| is_number && is_lineage)?;
    Some((agent, lineage, n.parse().ok()?))
}

/// Returns the adapters and checkpoints below a trainer's folder; only the running process knows who is served with
/// them.
pub(crate) fn on_disk(folder: &Path) -> io::Result<Vec<AdapterDetail>> {
    let mut adapters = Vec::new();
    for name in folders(&folder.join("adapters"), "adapter_config.json")? {
        adapters.push(AdapterView::named(name));
    }
    let mut checkpoints = Vec::new();
    let folder = folder.join("checkpoints");
    for name in folders(&folder, MANIFEST)? {
        let own = folder.join(&name);
        // An unreadable manifest counts as missing here; the trainer reports what is wrong with it.
        let read = |file: &str| -> Option<Value> {
            serde_json::from_slice(&std::fs::read(own.join(file)).ok()?).ok()
        };
        let written = std::fs::metadata(own.join(MANIFEST))?.modified()?;
        if let (Ok(name), Some(manifest)) = (name.parse(), read(MANIFEST)) {
            checkpoints.push(CheckpointInfo {
                name,
                path: own.display().to_string(),
                step: read(STATE).map(steps).unwrap_or_default(),
                sha256: None,
                manifest,
                created_ms: unix_ms(written),
            });
        }
    }
    Ok(details(adapters, &checkpoints))
}

fn steps(state: Value) -> u64 {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TrainerFile {
        step: u64,
    }
    TrainerFile::deserialize(state).unwrap_or_default().step
}

/// The names of folders that have this file: half-written ones have none yet.
fn folders(folder: &Path, with: &str) -> io::Result<Vec<String>> {
    let Some(entries) = if_there(std::fs::read_dir(folder))? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.path().join(with).is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The parts of a manifest that are shown.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ManifestView {
    /// The lineage of the checkpoint.
    pub lineage: Option<String>,
    /// Its number there, from 1.
    pub n: Option<u64>,
    /// What it was trained from; none is the base model.
    pub parent: Option<String>,
    /// The turns of its step.
    pub turns: Vec<String>,
    /// The scores of those when the step took them.
    pub scores: BTreeMap<String, i64>,
    pub shape: ShapeView,
    pub numbers: Numbers,
    pub batch: BatchStats,
    pub made: Option<MadeView>,
}

/// What an adapter is of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ShapeView {
    /// The base model's name.
    pub base: Option<String>,
    pub base_fingerprint: Option<String>,
    pub rank: u32,
    pub alpha: f64,
    /// The matrices that it adds to.
    pub targets: Vec<String>,
}

/// With what a checkpoint was made.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MadeView {
    pub version: Option<String>,
    pub commit: Option<String>,
    /// The seed of the first weights of its lineage.
    pub seed: u64,
    /// The replay that made it; none of a step that was made beside the chat.
    pub replay: Option<Replayed>,
    /// The data set that it was trained from; none of a step on turns.
    pub data: Option<DataSetUse>,
    /// `rl.*` as it was in force, by key.
    pub config: Map<String, Value>,
}

// === impl ManifestView ===

impl ManifestView {
    /// What a manifest says; nothing of one of another form.
    pub fn read(manifest: &Value) -> Self {
        Self::deserialize(manifest).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checkpoint(folder: &Path, name: &str, manifest: &Value) {
        let adapter = folder.join("adapters").join(name);
        std::fs::create_dir_all(&adapter).unwrap();
        std::fs::write(adapter.join("adapter_config.json"), "{}").unwrap();
        let own = folder.join("checkpoints").join(name);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join(MANIFEST), manifest.to_string()).unwrap();
        std::fs::write(own.join(STATE), r#"{"step": 4}"#).unwrap();
    }

    #[test]
    fn an_adapter_knows_what_it_goes_back_to() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = |parent: Option<&str>, turn: &str, score: i8| json!({"parent": parent, "turns": [turn], "scores": {turn: score}});
        checkpoint(dir.path(), "m-0badcafe-000001", &manifest(None, "1-0", -1));
        let parent = Some("m-0badcafe-000001");
        checkpoint(dir.path(), "m-0badcafe-000002", &manifest(parent, "1-1", 1));
        // One adapter has no checkpoint any more, and one is half written.
        std::fs::create_dir_all(dir.path().join("adapters/kept-1")).unwrap();
        std::fs::write(dir.path().join("adapters/kept-1/adapter_config.json"), "{}").unwrap();
        std::fs::create_dir_all(dir.path().join("checkpoints/.half")).unwrap();
        let all = on_disk(dir.path()).unwrap();
        let names: Vec<&str> = all.iter().map(|all| all.view.name.as_str()).collect();
        assert_eq!(names, ["kept-1", "m-0badcafe-000001", "m-0badcafe-000002"]);
        let last = &all[2];
        assert_eq!(
            (last.view.step, last.view.parent.as_deref()),
            (Some(4), parent)
        );
        assert_eq!(last.ancestors, ["m-0badcafe-000001"]);
        let turns: Vec<_> = last.turns.clone().into_iter().collect();
        assert_eq!(
            turns,
            [("1-0".to_owned(), Some(-1)), ("1-1".to_owned(), Some(1))]
        );
        assert_eq!((&all[0].manifest, all[0].view.step), (&None, None));
        assert!(on_disk(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn an_adapter_that_did_not_pass_the_gate_is_marked() {
        let name = |n: u64| format!("main-0badcafe-{n:06}");
        let step = |n: u64, attempt: u32, outcome: Value| {
            let step = json!({"agent": "main", "lineage": "0badcafe", "n": n, "attempt": attempt, "turns": [],
                "max_uses": 1, "parent": null, "hash": "00", "taken_ms": 5, "outcome": outcome});
            serde_json::from_value::<Step>(step).unwrap()
        };
        let trained =
            |n: u64| json!({"came_to": "trained", "adapter": name(n), "checkpoint": name(n)});
        let steps = [
            step(1, 0, trained(1)),
            step(
                2,
                0,
                json!({"came_to": "declined", "adapter": name(2), "checkpoint": name(2), "gate": {},
                "why": "tools 9.00 of 16", "at_ms": 6, "n_judged": 1}),
            ),
            step(3, 0, Value::Null),
            step(4, 0, json!({"came_to": "released", "why": "no scores"})),
            step(5, 0, json!({"came_to": "released", "why": "no scores"})),
            step(5, 1, trained(5)),
        ];
        let rows = [
            (name(1), None),
            (name(2), Some("declined by the gate: tools 9.00 of 16")),
            (
                name(3),
                Some("under test, and serves by itself if it passes"),
            ),
            (name(4), Some("not tested: no scores")),
            // The last attempt counts.
            (name(5), None),
            // No step of the log made it.
            ("kept-1".to_owned(), None),
        ];
        let views = rows
            .iter()
            .map(|(name, _)| AdapterView::named(name.clone()));
        let mut all = details(views.collect(), &[]);
        mark(&mut all, &steps);
        for ((name, unfit), detail) in rows.iter().zip(&all) {
            assert_eq!(detail.view.unfit.as_deref(), *unfit, "{name}");
        }
    }

    #[test]
    fn parents_in_a_circle_end() {
        let known = |name: &str, parent: &str| CheckpointInfo {
            name: name.parse().unwrap(),
            path: String::new(),
            step: 1,
            sha256: None,
            manifest: json!({"parent": parent}),
            created_ms: 0,
        };
        let view = AdapterView::named("a-1".to_owned());
        let all = details(vec![view], &[known("a-1", "a-2"), known("a-2", "a-1")]);
        assert_eq!(all[0].ancestors.len(), 2);
    }
}
