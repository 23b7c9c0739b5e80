use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
use metaclaw_turns::NewStep;

use super::*;
use crate::lineage::{BaseModel, BatchStats, CheckpointManifest, Numbers, names};

fn shape() -> Shape {
    Shape {
        base: BaseModel::named("b"),
        rank: 16,
        alpha: 32.0,
        targets: Vec::new(),
    }
}

fn step(lineage: &str, n: u64, taken_ms: u64, trained: bool) -> Step {
    let agent = AgentId::default_agent();
    let checkpoint = name(&agent, lineage, n);
    let outcome = if trained {
        StepOutcome::Trained {
            adapter: checkpoint.clone(),
            checkpoint,
            gate: None,
        }
    } else {
        StepOutcome::Released {
            why: "x".to_owned(),
        }
    };
    let parent = (n > 1).then(|| name(&agent, lineage, n - 1));
    Step {
        begun: NewStep {
            agent,
            lineage: lineage.to_owned(),
            n,
            attempt: 0,
            turns: Vec::new(),
            max_uses: 1,
            ancestors: Vec::new(),
            parent,
            hash: "h".to_owned(),
            choice_ms: None,
        },
        taken_ms,
        outcome: Some(outcome),
        taken_back: None,
    }
}

fn checkpoint(lineage: &str, n: u64) -> KnownCheckpoint {
    let agent = AgentId::default_agent();
    let (_, name) = names(&agent, lineage, n).unwrap();
    let manifest = CheckpointManifest {
        agent,
        lineage: lineage.to_owned(),
        n,
        turns: Vec::new(),
        uses: Vec::new(),
        hash: "h".to_owned(),
        parent: None,
        shape: shape(),
        numbers: Numbers::default(),
        batch: BatchStats::default(),
        scores: BTreeMap::new(),
        made: None,
    };
    KnownCheckpoint {
        name,
        steps: n,
        sha256: None,
        manifest,
    }
}

/// Resumes while no checkpoint is known to be unusable.
fn resumed(steps: &[Step], checkpoints: &[KnownCheckpoint], shape: &Shape) -> Resumed {
    let unfit = BTreeSet::new();
    let unfit = &unfit;
    Resumed::from_checkpoints(steps, checkpoints, WantedStart { shape, unfit })
}

fn start(resumed: &Resumed) -> Option<&str> {
    resumed
        .point
        .checkpoint
        .as_ref()
        .map(CheckpointName::as_str)
}

#[test]
fn a_lineage_goes_on_where_log_and_checkpoints_agree() {
    let steps = [step("0000000a", 1, 1, true), step("0000000b", 1, 2, true)];
    let checkpoints = [checkpoint("0000000a", 9), checkpoint("0000000b", 1)];
    let resumed = resumed(&steps, &checkpoints, &shape());
    let point = &resumed.point;
    assert_eq!(
        (point.lineage.as_str(), point.n, point.steps),
        ("0000000b", 1, 1)
    );
    assert_eq!(start(&resumed), Some("_default-0000000b-000001"));
    assert_eq!(resumed.lost, None);
}

#[test]
fn after_a_step_that_was_released_another_starts_where_it_did() {
    let steps = [step("0000000b", 1, 2, true), step("0000000b", 2, 3, false)];
    let there = [checkpoint("0000000b", 1)];
    let resumed = resumed(&steps, &there, &shape());
    assert_ne!(resumed.point.lineage, "0000000b");
    assert_eq!((resumed.point.n, resumed.point.steps), (0, 1));
    assert_eq!(start(&resumed), Some("_default-0000000b-000001"));
    assert_eq!(resumed.lost, None, "nothing that was learned");
    // The same holds at the place of a lineage's first checkpoint.
    let mut first = step("0000000c", 1, 4, false);
    first.begun.parent = Some(there[0].name.to_string());
    let resumed = super::tests::resumed(&[steps[0].clone(), first], &there, &shape());
    assert_eq!(start(&resumed), Some("_default-0000000b-000001"));
    let resumed = super::tests::resumed(&[step("0000000c", 1, 1, false)], &[], &shape());
    assert_eq!((start(&resumed), &resumed.lost), (None, &None));
}

#[test]
fn where_a_checkpoint_is_gone_the_one_before_it_is_the_start() {
    let steps = [1, 2, 3].map(|n| step("0000000a", n, n, true));
    let behind = resumed(&steps, &[checkpoint("0000000a", 1)], &shape());
    assert_eq!(behind.point.n, 0);
    assert_ne!(behind.point.lineage, "0000000a");
    assert_eq!(start(&behind), Some("_default-0000000a-000001"));
    let lost = "the training server has no checkpoint _default-0000000a-000003";
    assert_eq!(behind.lost.as_deref(), Some(lost));
    assert_eq!(start(&resumed(&steps, &[], &shape())), None);
    // The same holds for a checkpoint that turned out to be unusable, and for one of the same name that another attempt
    // made.
    let there = [1, 2, 3].map(|n| checkpoint("0000000a", n));
    let unfit = BTreeSet::from([there[2].name.clone()]);
    let mut others = there.clone();
    others[2].manifest.hash = "other".to_owned();
    let shape = &shape();
    for (there, unfit) in [(&there, &unfit), (&others, &BTreeSet::new())] {
        let resumed = Resumed::from_checkpoints(&steps, there, WantedStart { shape, unfit });
        assert_eq!(start(&resumed), Some("_default-0000000a-000002"));
        assert!(resumed.lost.unwrap().contains("cannot use"));
    }
}

#[test]
fn turns_that_the_log_calls_free_are_not_in_the_weights_that_will_learn_them() {
    // A checkpoint was saved late, when nobody waited for it any more; or the log lost its end.
    let late = [1, 2, 3].map(|n| checkpoint("0000000a", n));
    let steps = [step("0000000a", 1, 1, true), step("0000000a", 2, 2, true)];
    let resumed = resumed(&steps, &late, &shape());
    assert_ne!(
        resumed.point.lineage, "0000000a",
        "its third checkpoint is taken"
    );
    assert_eq!(start(&resumed), Some("_default-0000000a-000002"));
}

#[test]
fn what_the_owner_chose_is_where_a_fresh_lineage_starts() {
    let known = [1, 2].map(|n| checkpoint("0000000a", n));
    let chosen = |adapter: Option<&str>, known: Option<&[KnownCheckpoint]>, shape: &Shape| {
        let adapter = adapter.map(str::to_owned);
        let choice = Choice { at_ms: 7, adapter };
        let unfit = &BTreeSet::new();
        let resumed = Resumed::chosen(&choice, known, WantedStart { shape, unfit });
        let point = &resumed.point;
        assert_eq!((point.n, point.choice_ms), (0, Some(7)));
        assert_ne!(point.lineage, "0000000a");
        let is_lost = resumed.lost.is_some();
        (start(&resumed).map(str::to_owned), is_lost)
    };
    let first = Some("_default-0000000a-000001");
    let is_first = (first.map(str::to_owned), false);
    assert_eq!(chosen(first, Some(&known), &shape()), is_first);
    assert_eq!(chosen(first, None, &shape()), is_first);
    assert_eq!(chosen(None, Some(&known), &shape()), (None, false));
    // A checkpoint that is missing, or has another shape, cannot be a start.
    assert_eq!(chosen(first, Some(&known[1..]), &shape()), (None, true));
    let other = Shape { rank: 8, ..shape() };
    assert_eq!(chosen(first, Some(&known), &other), (None, true));
}

#[test]
fn another_shape_starts_from_nothing_and_says_so() {
    let steps = [step("0000000a", 1, 1, true)];
    let other = Shape { rank: 8, ..shape() };
    let resumed = resumed(&steps, &[checkpoint("0000000a", 1)], &other);
    assert_eq!((resumed.point.n, start(&resumed)), (0, None));
    assert_ne!(resumed.point.lineage, "0000000a");
    assert!(resumed.lost.unwrap().contains("rank 16 to 8"));
}

#[test]
fn every_agent_has_names_for_its_adapters() {
    for agent in ["_default", "a.b-c_D", &"x".repeat(64)] {
        let agent: AgentId = agent.parse().unwrap();
        let point = ResumePoint::from_nothing();
        let (adapter, checkpoint) = names(&agent, &point.lineage, 12).unwrap();
        assert_eq!(adapter.as_str(), checkpoint.as_str());
        assert!(adapter.as_str().ends_with("-000012"));
    }
}
