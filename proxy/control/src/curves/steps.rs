//! Curves over training steps: their loss, from the figures of steps, and the gate's tests, from the log.

use std::{collections::BTreeMap, path::PathBuf};

use metaclaw_learner::{GateReport, StepFigures};
use metaclaw_turns::{Step, StepOutcome, TurnLog};
use serde::Deserialize as _;
use serde_json::Value;

use super::{Curve, CurveAxis, CurveLine, CurvePoint, CurveUnit, CurvesWanted};

/// A step that made an adapter.
struct MadeStep<'a> {
    agent: &'a str,
    adapter: &'a str,
    /// Its number among all steps of its agent, from 1. The adapters of every curve are placed by it.
    n: u64,
    gate: Option<&'a Value>,
    is_declined: bool,
}

/// Returns the curves over steps. Without a log they have no points.
///
/// # Errors
/// Returns the log's, or that the figures cannot be read.
pub(crate) async fn by_step(
    log: Option<&TurnLog>,
    figures: PathBuf,
    wanted: &CurvesWanted,
) -> anyhow::Result<Vec<Curve>> {
    let read = tokio::task::spawn_blocking(move || StepFigures::read(&figures));
    let figures = read.await??;
    let mut steps = match log {
        Some(log) => log.all_steps().await?,
        None => Vec::new(),
    };
    steps.retain(|step| wanted.has(&step.begun.agent));
    Ok(curves(&steps, &figures))
}

fn curves(steps: &[Step], figures: &[StepFigures]) -> Vec<Curve> {
    let made = made(steps);
    let losses: BTreeMap<&str, f64> = figures
        .iter()
        .filter_map(|step| Some((step.adapter.as_str(), step.get("loss/total")?)))
        .collect();
    let loss = of_steps("loss", &made, |step| {
        let value = *losses.get(step.adapter)?;
        Some(CurvePoint {
            value,
            ..CurvePoint::default()
        })
    });
    let tests = ["fluency", "relevance"].map(|id| {
        of_steps(id, &made, |step| {
            // A report of an older form has no point.
            let report = GateReport::deserialize(step.gate?).ok()?;
            let test = report.tests.into_iter().find(|test| test.name == id)?;
            Some(CurvePoint {
                value: test.value.filter(|value| value.is_finite())?,
                limit: test.limit.filter(|limit| limit.is_finite()),
                ..CurvePoint::default()
            })
        })
    });
    [loss].into_iter().chain(tests).collect()
}

fn made(steps: &[Step]) -> Vec<MadeStep<'_>> {
    let mut steps: Vec<&Step> = steps.iter().collect();
    steps.sort_by_key(|step| step.taken_ms);
    let mut n_made: BTreeMap<&str, u64> = BTreeMap::new();
    let mut made = Vec::new();
    for step in steps {
        let (adapter, gate, is_declined) = match &step.outcome {
            Some(StepOutcome::Trained { adapter, gate, .. }) => (adapter, gate.as_ref(), false),
            Some(StepOutcome::Declined { adapter, gate, .. }) => (adapter, Some(gate), true),
            Some(StepOutcome::Released { .. }) | None => continue,
        };
        let agent = step.begun.agent.as_str();
        let n = n_made.entry(agent).or_default();
        *n += 1;
        made.push(MadeStep {
            agent,
            adapter,
            n: *n,
            gate,
            is_declined,
        });
    }
    made
}

/// Returns a curve with a line for each agent.
fn of_steps(
    id: &str,
    steps: &[MadeStep<'_>],
    measured: impl Fn(&MadeStep<'_>) -> Option<CurvePoint>,
) -> Curve {
    let mut lines: BTreeMap<&str, Vec<CurvePoint>> = BTreeMap::new();
    for step in steps {
        if let Some(point) = measured(step) {
            lines.entry(step.agent).or_default().push(CurvePoint {
                at: step.n,
                adapter: Some(step.adapter.to_owned()),
                is_declined: step.is_declined,
                ..point
            });
        }
    }
    let lines = lines.into_iter();
    let lines = lines.map(|(agent, points)| CurveLine::new(agent.to_owned(), points));
    Curve::new(id, CurveUnit::Plain, CurveAxis::Steps, lines.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(curve: &Curve) -> Vec<String> {
        let line = |line: &CurveLine| {
            let points = line.points.iter();
            let points: Vec<_> = points
                .map(|point| {
                    let declined = if point.is_declined { " declined" } else { "" };
                    let adapter = point.adapter.as_deref().unwrap_or("?");
                    format!("{} {adapter}: {}{declined}", point.at, point.value)
                })
                .collect();
            format!("{} [{}]", line.name, points.join(", "))
        };
        curve.lines.iter().map(line).collect()
    }

    /// The loss was once placed by the optimiser's steps, and the gate's tests by the steps of a lineage; a declined
    /// adapter stood above its successor.
    #[test]
    fn every_curve_has_an_adapter_at_the_same_step_and_a_declined_one_for_itself() {
        let step = |agent: &str, n: u64, taken_ms: u64, outcome: Value| {
            let step = json!({"agent": agent, "lineage": "0badcafe", "n": n, "attempt": 0,
                "turns": [], "max_uses": 1, "ancestors": [], "parent": null, "hash": "00",
                "taken_ms": taken_ms, "outcome": outcome});
            serde_json::from_value::<Step>(step).unwrap()
        };
        let report = |value: f64| {
            json!({"tests": [{"name": "fluency", "value": value, "limit": 1.6,
            "passed": true, "why": "fluency"}], "seconds": 1.0})
        };
        let trained = |adapter: &str, gate: Value| json!({"came_to": "trained", "adapter": adapter, "checkpoint": adapter, "gate": gate});
        let declined = json!({"came_to": "declined", "adapter": "b", "checkpoint": "b",
            "why": "fluency", "gate": report(1.75), "at_ms": 6, "n_judged": 1});
        let steps = [
            step("main", 2, 4, trained("c", report(1.25))),
            step("main", 1, 1, trained("a", report(1.5))),
            step("main", 2, 2, declined),
            step("main", 2, 3, Value::Null),
            step("main", 3, 5, trained("d", json!("of an older form"))),
            step("work", 1, 6, trained("e", Value::Null)),
        ];
        let figures = json!([
            {"step": 2, "agent": "main", "adapter": "a", "loss/total": 2.0},
            {"step": 4, "agent": "main", "adapter": "b", "loss/total": null},
            {"step": 4, "agent": "main", "adapter": "c", "loss/total": 1.0},
            {"step": 1, "agent": "work", "adapter": "e", "loss/total": 0.5},
            {"step": 9, "agent": "main", "adapter": "gone", "loss/total": 9.0},
        ]);
        let figures: Vec<StepFigures> = serde_json::from_value(figures).unwrap();
        let curves = curves(&steps, &figures);
        let ids: Vec<_> = curves.iter().map(|curve| curve.id.as_str()).collect();
        assert_eq!(ids, ["loss", "fluency", "relevance"]);
        assert!(curves.iter().all(|curve| !curve.empty.is_empty()));
        assert_eq!(
            told(&curves[0]),
            ["main [1 a: 2, 3 c: 1]", "work [1 e: 0.5]"]
        );
        let fluency = "main [1 a: 1.5, 2 b: 1.75 declined, 3 c: 1.25]";
        assert_eq!(told(&curves[1]), [fluency]);
        assert_eq!(curves[1].lines[0].points[0].limit, Some(1.6));
        assert!(curves[2].is_empty());
    }

    #[tokio::test]
    async fn without_a_log_the_curves_are_empty() {
        let folder = tempfile::tempdir().unwrap().path().join("none");
        let wanted = CurvesWanted {
            agent: None,
            days: 1,
        };
        let curves = by_step(None, folder, &wanted).await.unwrap();
        assert!(curves.iter().all(Curve::is_empty));
    }
}
