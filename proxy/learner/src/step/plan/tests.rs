//! A step's digest covers every number that goes to the training server, so equal digests prove that a rewrite of the way
//! from turns to datums changed none.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use futures_util::future::{BoxFuture, ready};
use metaclaw_turns::Turn;
use serde_json::Value;

use super::*;
use crate::{
    advantages::AdvantageFunction,
    batch::{
        Samples, choose,
        testing::{by, config},
    },
    config::Methods,
    gate::Series,
    judge::{Post, PostFailed},
    lineage::{Ancestry, BaseModel},
    sample::{
        AnchorReply, Form, RolloutGroup, Sample, Target, TargetReply, rollout_batch,
        step_advantages,
        testing::{answered, answered_by, hinted, own, rollout_group, turn},
    },
};

/// Settings of `rl`, and the digest of the step that they make of [`samples`].
const DIGESTS: [(&str, &str); 14] = [
    (r#"{"method": "redo"}"#, "99199889a62163ec"),
    (
        r#"{"method": "redo", "w_redo": 0.5, "epochs": 1}"#,
        "51356528b2f1c04e",
    ),
    (r#"{"method": "opd"}"#, "f89b4bfc56fc5778"),
    (r#"{"method": "hybrid"}"#, "83db3bd4c12aec2f"),
    (r#"{"method": "binary_rl"}"#, "14c345ed5edff178"),
    (
        r#"{"method": "binary_rl", "loss_fn": "ppo"}"#,
        "d95e162e9c7f01c3",
    ),
    (r#"{"method": "grpo"}"#, "a8355511dc6b3c8b"),
    (r#"{"method": "metaclaw"}"#, "b984d37c505957a2"),
    (r#"{"method": "redo+opd"}"#, "1176c831b687608e"),
    (r#"{"method": "redo+hybrid"}"#, "cb84caa22b6f2298"),
    (r#"{"method": "redo+binary_rl"}"#, "27a4a6005c04b697"),
    (r#"{"method": "opd+grpo"}"#, "d14f0a9b5df60cb6"),
    (
        r#"{"method": "redo+opd+metaclaw", "w_rl": 0.7}"#,
        "8e1945503807d98b",
    ),
    (
        r#"{"method": "redo+binary_rl", "anchor": 0.25}"#,
        "52c1c089e8721d19",
    ),
];

/// Turns of every kind that the methods take: with targets of one id and of several, with hints, siblings, and every
/// verdict.
fn samples(methods: &Methods) -> Samples {
    let has = |name: &str| methods.to_string().split('+').any(|part| part == name);
    let reads_verdicts = ["binary_rl", "hybrid", "grpo", "metaclaw"]
        .into_iter()
        .any(has);
    let reads_hints = has("opd") || has("hybrid");
    let mut samples = all();
    if !has("context_distillation") {
        samples.answered.clear();
    }
    if !reads_hints {
        samples
            .answered
            .iter_mut()
            .for_each(|sample| sample.hinted = Arc::default());
        samples
            .own
            .iter_mut()
            .for_each(|sample| sample.hinted = Arc::default());
    }
    let is_unclear = |turn: &Turn| {
        turn.verdict
            .as_ref()
            .is_some_and(|verdict| verdict.score == Score::Unclear)
    };
    samples.own.retain(|it| {
        let by_verdict = reads_verdicts && (has("metaclaw") || !is_unclear(&it.turn));
        by_verdict || !it.hinted.is_empty()
    });
    samples
}

fn all() -> Samples {
    let soft = TargetReply {
        ids: vec![5, 6],
        form: Form::TopK(vec![vec![(5, 0.75), (9, 0.25)], vec![(6, 0.5), (8, 0.5)]]),
    };
    let target = Target {
        prompt: vec![11, 1],
        replies: vec![soft],
    };
    let several = Sample {
        target: Some(target.into()),
        hinted: hinted(12, Score::Bad, 3).hinted,
        ..answered(12, 2)
    };
    let mut sibling = turn(3, Score::Bad, 5);
    let tokens = Arc::get_mut(&mut sibling).and_then(|turn| turn.tokens.as_mut());
    tokens.unwrap().prompt_ids = vec![100, 1];
    Samples {
        answered: vec![answered_by(10, &[2, 4]), answered(11, 8), several],
        own: vec![
            hinted(0, Score::Bad, 3),
            own(turn(1, Score::Good, 4)),
            own(turn(2, Score::Unclear, 2)),
            own(sibling),
            hinted(4, Score::Good, 6),
        ],
        ..Samples::default()
    }
}

fn digest(rl: Value) -> String {
    let rl = config(rl);
    let has_targets = rl.method.to_string().contains("context_distillation");
    let again = has_targets.then(|| Sample {
        is_fresh: false,
        ..answered(20, 2)
    });
    let again = again.into_iter().collect();
    let batch = choose(&samples(&rl.method), again, by(&rl, 4));
    let asked: Vec<TurnId> = batch.to_be_scored().map(|turn| turn.id).collect();
    let pulls = asked.first().map(|id| (*id, Arc::from([0.5, -0.25])));
    let anchor = Arc::new(AnchorReply {
        prompt: vec![1, 2],
        ids: vec![4, 5],
        likely: vec![vec![4, 6], vec![5, 7]],
        logprobs: vec![vec![-0.5, -1.5], vec![-0.25, -2.5]],
    });
    let batch = batch.with_deltas(&pulls.into_iter().collect());
    let batch = batch.held_at((rl.anchor > 0.0).then_some(anchor).into_iter().collect());
    planned(&batch, &rl)
}

fn planned(batch: &Batch, rl: &RlConfig) -> String {
    let point = ResumePoint {
        lineage: "0123abcd".to_owned(),
        n: 2,
        steps: 4,
        checkpoint: None,
        choice_ms: None,
    };
    let shape = Shape {
        base: BaseModel::named("base"),
        rank: 8,
        alpha: 16.0,
        targets: vec!["q_proj".to_owned()],
    };
    let start = StepStart {
        point,
        shape,
        ancestry: Ancestry::default(),
        attempt: 1,
        series: Series::default(),
    };
    Plan::new(&AgentId::default_agent(), start, batch, rl)
        .unwrap()
        .hash
}

#[test]
fn a_step_of_every_method_sends_the_same_numbers_as_ever() {
    let lines = DIGESTS.map(|(rl, expected)| {
        let found = digest(serde_json::from_str(rl).unwrap());
        [
            format!("{} {rl}\n", &found[..16]),
            format!("{expected} {rl}\n"),
        ]
    });
    let [found, expected] = [0, 1].map(|at| lines.each_ref().map(|li| li[at].as_str()).concat());
    assert!(found == expected, "found:\n{found}");
}

/// The function in the examples, in a process of its own.
#[derive(Debug)]
struct PythonFunction {
    process: Child,
    address: String,
}

impl PythonFunction {
    fn start() -> Self {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/rollouts/advantages/grpo.py"
        );
        let mut process = Command::new("python3")
            .args([file, "0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let address = said.trim().trim_start_matches("http://");
        let address = address.trim_end_matches('/').to_owned();
        Self { process, address }
    }

    fn ask(&self, body: &Value) -> String {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("POST / HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
        answer.to_owned()
    }
}

impl Post for PythonFunction {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        Box::pin(ready(Ok(self.ask(body))))
    }
}

impl Drop for PythonFunction {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn rollout_groups() -> Vec<RolloutGroup> {
    vec![
        rollout_group(
            "a",
            &[(0.1, &[], &[2, 3]), (0.7, &[], &[4]), (-1.0, &[], &[1])],
        ),
        // Thirds and tenths are no binary numbers.
        rollout_group("b", &[(0.1, &[], &[1]), (0.1, &[], &[1]), (0.1, &[], &[1])]),
        rollout_group(
            "c",
            &[
                (1.0, &[], &[5]),
                (0.0, &[], &[1, 1, 1]),
                (0.333_333, &[], &[2]),
            ],
        ),
    ]
}

/// This is the acceptance test of `rl.advantages`.
#[tokio::test]
async fn the_function_in_the_examples_makes_the_same_step_as_the_built_in() {
    let (rl, groups) = (config(serde_json::json!({})), rollout_groups());
    let built_in = rollout_batch(&groups, &step_advantages(&groups, rl.rollouts.advantage));
    let function = AdvantageFunction::new(Arc::new(PythonFunction::start()));
    let given = rollout_batch(&groups, &function.compute(&groups).await.unwrap());
    assert_eq!((built_in.samples.len(), built_in.spent.len()), (9, 3));
    assert_eq!(
        planned(&built_in, &rl)[..16],
        *"bbeb6761adb9ab6c",
        "as ever"
    );
    assert_eq!(planned(&given, &rl), planned(&built_in, &rl));
    let other = config(serde_json::json!({"rollouts": {"advantage": "step"}}));
    let by_step = rollout_batch(&groups, &step_advantages(&groups, other.rollouts.advantage));
    assert_ne!(planned(&by_step, &other), planned(&built_in, &rl));
}
