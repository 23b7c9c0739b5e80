//! Curves over training steps: from the figures of steps, and from the gate's tests in the log.

use std::{collections::BTreeMap, path::PathBuf};

use metaclaw_learner::{GateReport, StepFigures};
use metaclaw_turns::{Step, StepOutcome, TurnLog};
use serde::Deserialize as _;

use super::{Curve, CurveAxis, CurveLine, CurvePoint, CurveUnit, CurvesWanted, ValueInterval};

struct FigureCurve {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    unit: CurveUnit,
    // pair: the name of a figure, and its words
    figures: &'static [(&'static str, &'static str)],
}

const FIGURES: [FigureCurve; 3] = [
    FigureCurve {
        id: "reward",
        title: "Reward of training steps",
        about: "The mean score of the turns that a step was trained on, from -1 to +1, with its 95 % interval.",
        unit: CurveUnit::Score,
        figures: &[(REWARD, "reward")],
    },
    FigureCurve {
        id: "loss",
        title: "Loss of training steps",
        about: "The sum of the losses of a step's samples. Steps with other methods or samples are not comparable.",
        unit: CurveUnit::Plain,
        figures: &[("loss/total", "loss")],
    },
    FigureCurve {
        id: "kl",
        title: "KL divergence of training steps",
        about: "How far the weights have moved, in nats a token: from the weights that sampled the replies, and from the base model where rl.anchor is set (the anchor's part of the loss).",
        unit: CurveUnit::Nat,
        figures: &[
            ("train/ppo_kl", "from the weights that sampled"),
            ("loss/anchor", "from the base model"),
        ],
    },
];
const REWARD: &str = "reward/mean";

struct GateCurve {
    test: &'static str,
    title: &'static str,
    about: &'static str,
}

const TESTS: [GateCurve; 2] = [
    GateCurve {
        test: "fluency",
        title: "Fluency of new adapters",
        about: "How much the base model is surprised by a new adapter's replies, in nats a token, and the most that the gate allows. Lower is more fluent.",
    },
    GateCurve {
        test: "relevance",
        title: "Relevance of new adapters",
        about: "How much more likely a new adapter's reply is after its own question than after others, in nats a token, and the least that the gate demands.",
    },
];
const NO_STEP: &str = "No training step has measured this yet.";
const NO_TEST: &str = "The gate has measured this of no adapter yet.";

struct PointOf {
    agent: String,
    words: &'static str,
    point: CurvePoint,
}

/// Returns the curves over steps. Without a log, or without files in the folder of the figures, they have no points.
///
/// # Errors
/// Returns the log's, or that the figures cannot be read.
pub(crate) async fn by_step(
    log: Option<&TurnLog>,
    figures: PathBuf,
    wanted: &CurvesWanted,
) -> anyhow::Result<Vec<Curve>> {
    let read = tokio::task::spawn_blocking(move || StepFigures::read(&figures));
    let mut steps = read.await??;
    let wanted_agent = wanted.agent.as_ref();
    steps.retain(|step| wanted_agent.is_none_or(|agent| agent.as_str() == step.agent));
    let mut tested = match log {
        Some(log) => log.all_steps().await?,
        None => Vec::new(),
    };
    tested.retain(|step| wanted.has(&step.begun.agent));
    let measured = FIGURES.iter().map(|curve| of_figures(curve, &steps));
    let gated = TESTS.iter().map(|curve| of_tests(curve, &tested));
    Ok(measured.chain(gated).collect())
}

fn of_figures(curve: &FigureCurve, steps: &[StepFigures]) -> Curve {
    let mut points = Vec::new();
    for step in steps {
        for (name, words) in curve.figures {
            let Some(value) = step.get(name) else {
                continue;
            };
            let interval = (*name == REWARD).then(|| {
                let (std, n) = (step.get("reward/std")?, step.get("rollout/turns")?);
                ValueInterval::of_mean(value, std, n)
            });
            points.push(PointOf {
                agent: step.agent.clone(),
                words,
                point: CurvePoint {
                    at: step.step,
                    value,
                    interval: interval.flatten(),
                    ..CurvePoint::default()
                },
            });
        }
    }
    Curve {
        id: curve.id.to_owned(),
        title: curve.title.to_owned(),
        about: curve.about.to_owned(),
        empty: NO_STEP.to_owned(),
        unit: curve.unit,
        axis: CurveAxis::Steps,
        lines: lines(points, curve.figures.len() > 1),
    }
}

fn of_tests(curve: &GateCurve, steps: &[Step]) -> Curve {
    let point = |step: &Step| {
        let gate = match step.outcome.as_ref()? {
            StepOutcome::Trained { gate, .. } => gate.as_ref()?,
            StepOutcome::Declined { gate, .. } => gate,
            StepOutcome::Released { .. } => return None,
        };
        // A report of an older form has no point.
        let report = GateReport::deserialize(gate).ok()?;
        let test = report.tests.into_iter().find(|it| it.name == curve.test)?;
        let before: u64 = step.begun.ancestors.iter().map(|ancestor| ancestor.n).sum();
        Some(PointOf {
            agent: step.begun.agent.to_string(),
            words: curve.test,
            point: CurvePoint {
                at: before + step.begun.n,
                value: test.value.filter(|value| value.is_finite())?,
                limit: test.limit.filter(|limit| limit.is_finite()),
                ..CurvePoint::default()
            },
        })
    };
    Curve {
        id: curve.test.to_owned(),
        title: curve.title.to_owned(),
        about: curve.about.to_owned(),
        empty: NO_TEST.to_owned(),
        unit: CurveUnit::Nat,
        axis: CurveAxis::Steps,
        lines: lines(steps.iter().filter_map(point).collect(), false),
    }
}

/// Groups points, which are in the order of time, into lines. If an agent's number of steps falls, its weights began
/// anew, and so does its line.
fn lines(points: Vec<PointOf>, has_words: bool) -> Vec<CurveLine> {
    let mut found: BTreeMap<(String, &'static str), Vec<Vec<CurvePoint>>> = BTreeMap::new();
    for PointOf {
        agent,
        words,
        point,
    } in points
    {
        let runs = found.entry((agent, words)).or_default();
        match runs.last_mut() {
            Some(run) if run.last().is_none_or(|last| last.at <= point.at) => run.push(point),
            _ => runs.push(vec![point]),
        }
    }
    let mut lines = Vec::new();
    for ((agent, words), runs) in found {
        for (n, run) in (1..).zip(runs) {
            let mut name = agent.clone();
            if n > 1 {
                name = format!("{name}, beginning {n}");
            }
            if has_words {
                name = format!("{name}, {words}");
            }
            lines.push(CurveLine::new(name, run));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    async fn curves(folder: &Path, agent: Option<&str>) -> Vec<Curve> {
        let agent = agent.map(|agent| agent.parse().unwrap());
        let wanted = CurvesWanted { agent, days: 1 };
        by_step(None, folder.to_owned(), &wanted).await.unwrap()
    }

    fn told(curve: &Curve) -> Vec<String> {
        let line = |line: &CurveLine| {
            let points = line.points.iter();
            let points: Vec<_> = points
                .map(|point| format!("{}: {}", point.at, point.value))
                .collect();
            format!("{} [{}]", line.name, points.join(", "))
        };
        curve.lines.iter().map(line).collect()
    }

    #[tokio::test]
    async fn each_agent_has_a_line_and_a_new_one_where_its_weights_began_anew() {
        let folder = tempfile::tempdir().unwrap();
        let steps = [
            r#"{"step":1,"agent":"main","reward/mean":0.5,"reward/std":0.5,"rollout/turns":10.0,"train/ppo_kl":0.1}"#,
            r#"{"step":1,"agent":"work","reward/mean":null,"loss/anchor":0.2}"#,
            r#"{"step":2,"agent":"main","reward/mean":0.75,"rollout/turns":1.0,"reward/std":0.0}"#,
            r#"{"step":1,"agent":"main","reward/mean":-0.5}"#,
        ];
        fs::write(folder.path().join("steps.jsonl"), steps.join("\n")).unwrap();
        let all = curves(folder.path(), None).await;
        assert_eq!(
            all.iter().map(|all| all.id.as_str()).collect::<Vec<_>>(),
            ["reward", "loss", "kl", "fluency", "relevance"]
        );
        assert_eq!(
            told(&all[0]),
            ["main [1: 0.5, 2: 0.75]", "main, beginning 2 [1: -0.5]"]
        );
        let points = &all[0].lines[0].points;
        assert!(
            points[0]
                .interval
                .is_some_and(|interval| interval.low < 0.5 && interval.high > 0.5)
        );
        assert_eq!(points[1].interval, None, "of one turn");
        assert_eq!(
            told(&all[2]),
            [
                "main, from the weights that sampled [1: 0.1]",
                "work, from the base model [1: 0.2]"
            ]
        );
        assert!(all[3].is_empty());
        let work = curves(folder.path(), Some("work")).await;
        assert!(work[0].is_empty());
        assert_eq!(work[2].lines.len(), 1);
        let none = curves(&folder.path().join("none"), None).await;
        assert!(none.iter().all(Curve::is_empty));
    }

    #[test]
    fn a_test_of_the_gate_is_a_point_with_what_was_demanded() {
        let step = |n: u64, ancestors: serde_json::Value, outcome: serde_json::Value| {
            let step = serde_json::json!({"agent": "main", "lineage": "0badcafe", "n": n, "attempt": 0,
                "turns": [], "max_uses": 1, "ancestors": ancestors, "parent": null, "hash": "00",
                "taken_ms": 5, "outcome": outcome});
            serde_json::from_value::<Step>(step).unwrap()
        };
        let report = |value: f64| {
            serde_json::json!({"tests": [{"name": "fluency", "value": value, "limit": 1.6,
            "passed": true, "why": "fluency"}], "seconds": 1.0})
        };
        let trained = |gate: serde_json::Value| {
            serde_json::json!({"came_to": "trained", "adapter": "a",
            "checkpoint": "a", "gate": gate})
        };
        let declined = serde_json::json!({"came_to": "declined", "adapter": "a", "checkpoint": "a",
            "why": "fluency", "gate": report(1.75), "at_ms": 6, "n_judged": 1});
        let none = serde_json::json!([]);
        let steps = [
            step(1, none.clone(), trained(report(1.5))),
            step(2, none.clone(), declined),
            step(2, none.clone(), serde_json::Value::Null),
            step(2, none, trained(serde_json::json!("of an older form"))),
            step(
                1,
                serde_json::json!([{"lineage": "3fa9c0d1", "n": 2}]),
                trained(report(1.25)),
            ),
        ];
        let curve = of_tests(&TESTS[0], &steps);
        assert_eq!(told(&curve), ["main [1: 1.5, 2: 1.75, 3: 1.25]"]);
        assert_eq!(curve.lines[0].points[0].limit, Some(1.6));
        assert!(of_tests(&TESTS[1], &steps).is_empty());
    }
}
