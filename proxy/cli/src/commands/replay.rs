//! `metaclaw replay`: weights trained again from the log, with other settings, into a lineage of their own.
//!
//! Where a proxy runs it does that beside its own training, since the log and the policy server are its own; where none does, the
//! files are opened and the policy server is started for as long as this takes.

use anyhow::bail;
use clap::Args;
use jiff::Zoned;
use metaclaw_chat::{AgentId, Span, now_ms, whole_ms};
use metaclaw_control::{caller::by_line, replays::ReplayAsked};
use metaclaw_learner::{GateReport, ReplayEvent, ReplayReport, StepReport};
use metaclaw_settings::key_and_value;
use metaclaw_trainer_api::AdapterName;

use super::{
    calling::{agent, caller},
    context::Context,
};
use crate::out;

/// Sessions after which it is told how many were read: the teacher may take its time.
const READ: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A setting of rl.* or gate.* for this replay, for example `rl.learning_rate=1e-4`. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// The agent whose turns are trained on. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Only sessions with a message in the last hours or days, for example "2 h" or "3 d".
    #[arg(long)]
    since: Option<Span>,
    /// The most steps that are made.
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// The seed of the first weights. Without it, a different one each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The replay's name, for its checkpoints and the folder of its figures. Without it, the time.
    #[arg(long)]
    name: Option<AdapterName>,
    /// Print JSON, one event a line.
    #[arg(long)]
    json: bool,
}

// === impl ReplayArgs ===

impl ReplayArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let json = self.json;
        let asked = self.asked(context).await?;
        let mut last = None;
        let each = by_line(|line| {
            let event: ReplayEvent = serde_json::from_slice(line)?;
            tell(&event, json)?;
            last = Some(event);
            Ok(())
        });
        let caller = caller(context, "replay").await?;
        if !caller.is_process() {
            out::aside("metaclaw does not run here: its policy server is started for this");
        }
        let replayed = caller.stream(asked, |note| out::aside(note), each).await;
        caller.close().await;
        replayed?;
        match last {
            Some(ReplayEvent::Ended(_)) => Ok(()),
            Some(ReplayEvent::Failed { why }) => bail!("{why}"),
            Some(ReplayEvent::Began { .. } | ReplayEvent::Read { .. } | ReplayEvent::Step(_))
            | None => bail!("metaclaw ended before the replay did: what was made is there"),
        }
    }

    async fn asked(self, context: &Context) -> anyhow::Result<ReplayAsked> {
        let name = match self.name {
            Some(name) => name,
            None => Zoned::now()
                .strftime("replay-%Y%m%d-%H%M%S")
                .to_string()
                .parse()?,
        };
        Ok(ReplayAsked {
            name,
            agent: agent(context, self.agent.as_ref()).await?,
            since_ms: self.since.map(|it| now_ms().saturating_sub(whole_ms(it.0))),
            steps: self.steps,
            seed: self.seed,
            set: self.set,
        })
    }
}

fn tell(event: &ReplayEvent, json: bool) -> std::io::Result<()> {
    if json {
        return out::line(serde_json::to_string(event)?);
    }
    event_text(event).map_or(Ok(()), out::line)
}

fn event_text(event: &ReplayEvent) -> Option<String> {
    match event {
        ReplayEvent::Began { n_sessions } => Some(format!(
            "{} to read; a step is made whenever a batch is full",
            out::count(*n_sessions as u64, "session")
        )),
        ReplayEvent::Read { n_sessions } if n_sessions.is_multiple_of(READ) => {
            let sessions = out::count(*n_sessions as u64, "session");
            Some(format!("{sessions} read"))
        }
        ReplayEvent::Step(report) => Some(step_line(report)),
        ReplayEvent::Ended(report) => Some(ended(report)),
        ReplayEvent::Read { .. } | ReplayEvent::Failed { .. } => None,
    }
}

fn step_line(step: &StepReport) -> String {
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

    fn step_line(tests: Vec<GateTest>) -> ReplayEvent {
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
            not_taught: [("no reply of the teacher does what you wish".to_owned(), 2)].into(),
        })
    }

    #[test]
    fn it_tells_its_steps_and_what_to_do_with_them() {
        let declined = "relevance 0.31 of the reference's, at least 0.80";
        let events = [
            ReplayEvent::Began { n_sessions: 40 },
            ReplayEvent::Read { n_sessions: 9 },
            ReplayEvent::Read { n_sessions: 10 },
            step_line(vec![relevance(true, "relevance 0.9")]),
            step_line(vec![relevance(false, declined)]),
            step_line(Vec::new()),
            ended(Some("main-3fa9c0d1-000003"), Some(3)),
            ended(None, None),
        ];
        let told: Vec<String> = events.iter().filter_map(event_text).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
