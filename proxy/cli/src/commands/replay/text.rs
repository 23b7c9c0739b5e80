//! What a replay says, in lines.

use metaclaw_learner::{GateReport, ReplayEvent, ReplayReport, StepReport};

use crate::out;

/// Sessions after which it is told how many were read: the teacher may take its time.
const READ: usize = 10;

/// One event; nothing of those that only programs want.
pub(super) fn text(event: &ReplayEvent) -> Option<String> {
    match event {
        ReplayEvent::Began { n_sessions } => Some(format!(
            "{} to read; a step is made whenever a batch is full",
            out::count(*n_sessions as u64, "session")
        )),
        ReplayEvent::Read { n_sessions } if n_sessions.is_multiple_of(READ) => {
            let sessions = out::count(*n_sessions as u64, "session");
            Some(format!("{sessions} read"))
        }
        ReplayEvent::Step(report) => Some(step(report)),
        ReplayEvent::Ended(report) => Some(ended(report)),
        ReplayEvent::Read { .. } | ReplayEvent::Failed { .. } => None,
    }
}

fn step(step: &StepReport) -> String {
    let gate = step.gate.as_ref();
    let is_tested = gate.is_some_and(|gate| !gate.tests.is_empty());
    let why = gate.map(GateReport::why).unwrap_or_default();
    let came_to = match (why.as_str(), is_tested) {
        ("", true) => "passes the gate".to_owned(),
        ("", false) => "not tested".to_owned(),
        (why, _) => format!("declined: {why}"),
    };
    format!(
        "step {}: {} of {} ({} again), loss {:.4}, rate {:.1e}, {:.1} s; {came_to}",
        step.step,
        step.adapter,
        out::count(step.n_turns as u64, "turn"),
        step.n_again,
        step.numbers.loss,
        step.numbers.learning_rate,
        step.seconds,
    )
}

fn ended(report: &ReplayReport) -> String {
    let steps = out::count(report.n_steps as u64, "step");
    let mut lines = vec![format!("replay {} ended: {steps}", report.name)];
    if let Some(left) = report.n_left.filter(|n| *n > 0) {
        let left = out::count(left as u64, "sample");
        lines.push(format!("{left} left, which make no full batch"));
    }
    for (why, n) in &report.not_taught {
        lines.push(format!("{}: {why}", out::count(*n as u64, "turn")));
    }
    lines.push(match &report.adapter {
        Some(adapter) => format!(
            "{adapter} is its last that may serve, and serves nobody: `metaclaw eval {adapter}` measures it, `metaclaw adapters promote {adapter}` has the gate test it and then serves it"
        ),
        None => "no adapter of it is fit to serve".to_owned(),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use metaclaw_learner::{BatchStats, GateTest, Numbers};

    use super::*;

    fn step(tests: Vec<GateTest>) -> ReplayEvent {
        let gate = GateReport {
            tests,
            ..GateReport::default()
        };
        let numbers = Numbers {
            loss: 2.53,
            learning_rate: 3e-4,
            ..Numbers::default()
        };
        ReplayEvent::Step(Box::new(StepReport {
            agent: "main".parse().unwrap(),
            lineage: "3fa9c0d1".to_owned(),
            n: 3,
            step: 3,
            adapter: "main-3fa9c0d1-000003".to_owned(),
            n_redo: 8,
            n_binary_rl: 0,
            n_again: 4,
            n_turns: 8,
            mean_reward: 0.0,
            success_rate: 0.0,
            numbers,
            batch: BatchStats::default(),
            serves: false,
            gate: Some(gate),
            seconds: 12.34,
            ended_ms: 0,
        }))
    }

    fn relevance(passed: bool, why: &str) -> GateTest {
        GateTest {
            name: "relevance".to_owned(),
            value: None,
            limit: None,
            passed: Some(passed),
            why: why.to_owned(),
        }
    }

    fn ended(adapter: Option<&str>, n_left: Option<usize>) -> ReplayEvent {
        ReplayEvent::Ended(ReplayReport {
            name: "slow".to_owned(),
            agent: "main".parse().unwrap(),
            n_sessions: 40,
            n_steps: 1,
            adapter: adapter.map(str::to_owned),
            n_left,
            not_taught: [("no draw of the teacher does what is wished".to_owned(), 2)].into(),
        })
    }

    #[test]
    fn it_tells_its_steps_and_what_to_do_with_them() {
        let declined = "relevance 0.31 of the reference's, at least 0.80";
        let events = [
            ReplayEvent::Began { n_sessions: 40 },
            ReplayEvent::Read { n_sessions: 9 },
            ReplayEvent::Read { n_sessions: 10 },
            step(vec![relevance(true, "relevance 0.9")]),
            step(vec![relevance(false, declined)]),
            step(Vec::new()),
            ended(Some("main-3fa9c0d1-000003"), Some(3)),
            ended(None, None),
        ];
        let told: Vec<String> = events.iter().filter_map(text).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
