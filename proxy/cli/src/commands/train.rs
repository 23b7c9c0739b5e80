//! `metaclaw train`: an agent's weights trained from a data set, by the running process.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::caller::by_line;
use metaclaw_learner::{
    GateReport, HeldOutRows, SftEpoch, SftEvent, SftOrigin, SftPlanned, SftReport, SftStep,
    SftWanted,
};

use super::{
    calling::{agent, caller},
    context::Context,
};
use crate::out;

const BASE: &str = "base";

const CUT_OFF: &str = "the training is not complete: `metaclaw start`, and run the same command again, which goes on after the last complete epoch";
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// The data set, one JSON object a line: chats {"messages": [..]}, or pairs {"prompt", "chosen", "rejected"}.
    file: PathBuf,
    /// The agent whose weights are trained. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// How often each row is trained on.
    #[arg(long, value_name = "N", default_value_t = 3)]
    epochs: u64,
    /// Rows of an optimiser step. Without it, rl.batch_size.
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// The highest learning rate. Without it, rl.learning_rate or that of the model's size, and a tenth of it for pairs.
    #[arg(long, value_name = "RATE")]
    learning_rate: Option<f64>,
    /// The learning rate after rl.warmup_steps: linear falls to 0, constant stays.
    #[arg(long, default_value = "linear", value_parser = ["linear", "constant"])]
    schedule: String,
    /// Rows that are not trained on, to measure the loss: a share of all rows (0 for none), or a file.
    #[arg(long, value_name = "SHARE|FILE", default_value = "0.1")]
    held_out: String,
    /// The seed of the first weights, of the order of the rows, and of the choice of held-out rows.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The weights to start from: current (the agent's), base (the base model), or an adapter's name.
    #[arg(long, value_name = "ADAPTER", default_value = "current")]
    from: String,
    /// DPO's beta for pairs: how strongly the weights are held near their start.
    #[arg(long, value_name = "BETA", default_value_t = 0.1)]
    beta: f64,
    /// Only make the adapter. `metaclaw adapters use` tests it, and then serves it.
    #[arg(long)]
    no_serve: bool,
    /// Train nothing. Print rows, tokens, steps and the cost in tokens.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, one event a line.
    #[arg(long)]
    json: bool,
}

// === impl TrainArgs ===

impl TrainArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let (json, dry_run) = (self.json, self.dry_run);
        let wanted = self.wanted(context).await?;
        let caller = caller(context, "train").await?;
        ensure!(
            caller.is_process(),
            "metaclaw does not run in {}: `metaclaw start` starts it",
            context.home.dir().display()
        );
        let mut last = None;
        let mut steps = StepLines::new(Instant::now());
        let each = by_line(|line| {
            let event: SftEvent = serde_json::from_slice(line)?;
            if json {
                out::line(serde_json::to_string(&event)?)?;
            } else if let Some(line) = event_text(&event, dry_run, &mut steps) {
                out::line(line)?;
            }
            last = Some(event);
            Ok(())
        });
        let trained = caller.stream(wanted, |note| out::aside(note), each).await;
        caller.close().await;
        match last {
            Some(SftEvent::Ended(report)) if report.passed() || dry_run => Ok(ExitCode::SUCCESS),
            Some(SftEvent::Ended(_)) => Ok(ExitCode::FAILURE),
            Some(SftEvent::Failed { why }) => bail!("{why}"),
            None => trained.and_then(|()| bail!("{CUT_OFF}")),
            Some(_) => match trained {
                Ok(()) => bail!("{CUT_OFF}"),
                Err(error) => bail!("{error}; {CUT_OFF}"),
            },
        }
    }

    async fn wanted(self, context: &Context) -> anyhow::Result<SftWanted> {
        let held_out = match self.held_out.parse::<f64>() {
            Ok(share) => HeldOutRows::Share(share),
            Err(_) => HeldOutRows::File(absolute(Path::new(&self.held_out), "--held-out")?),
        };
        Ok(SftWanted {
            agent: agent(context, self.agent.as_ref()).await?,
            file: absolute(&self.file, "FILE")?,
            held_out,
            epochs: self.epochs,
            batch_size: self.batch_size,
            learning_rate: self.learning_rate,
            schedule: serde_json::from_value(self.schedule.into())?,
            seed: self.seed,
            beta: self.beta,
            from: match self.from.as_str() {
                "current" => SftOrigin::Current,
                BASE => SftOrigin::Base,
                _ => SftOrigin::Adapter(self.from),
            },
            serves: !self.no_serve,
            dry_run: self.dry_run,
        })
    }
}

fn absolute(file: &Path, argument: &str) -> anyhow::Result<PathBuf> {
    file.canonicalize()
        .with_context(|| format!("{argument}: cannot read {}", file.display()))
}

/// Which steps have a line: the first, the last, and one each [`PAUSE`].
#[derive(Debug)]
struct StepLines {
    last: Instant,
}

// === impl StepLines ===

impl StepLines {
    fn new(now: Instant) -> Self {
        Self { last: now }
    }

    fn takes(&mut self, step: &SftStep) -> bool {
        let takes = step.step == 1 || step.step == step.of || self.last.elapsed() >= PAUSE;
        if takes {
            self.last = Instant::now();
        }
        takes
    }
}

fn event_text(event: &SftEvent, dry_run: bool, steps: &mut StepLines) -> Option<String> {
    match event {
        SftEvent::Planned(it) => Some(planned(it)),
        SftEvent::Waits { why } => Some(format!("waits: {why}")),
        SftEvent::Continues { epochs_done } => Some(format!(
            "an earlier run of the same made {}: it goes on after that",
            out::count(*epochs_done, "epoch")
        )),
        SftEvent::Before { held_out_loss } => {
            Some(format!("held-out loss before training {held_out_loss:.4}"))
        }
        SftEvent::Step(it) => steps.takes(it).then(|| step(it)),
        SftEvent::Epoch(it) => Some(epoch(it)),
        SftEvent::Testing { adapter } => Some(format!("{adapter} is tested by the gate")),
        SftEvent::Ended(_) if dry_run => Some("nothing was trained".to_owned()),
        SftEvent::Ended(report) => Some(ended(report)),
        SftEvent::Failed { .. } => None,
    }
}

fn planned(plan: &SftPlanned) -> String {
    let count = |n: usize, what: &str| out::count(n as u64, what);
    let mut lines = vec![format!(
        "{} by {}: {} of {}, {} of them trained; the longest sequence has {}",
        plan.agent,
        plan.method,
        count(plan.n_rows, "row"),
        count(plan.n_tokens, "token"),
        count(plan.n_trained, "token"),
        count(plan.longest, "token"),
    )];
    if plan.n_held_out > 0 {
        lines.push(format!(
            "{} of {} held out",
            count(plan.n_held_out, "row"),
            count(plan.n_held_out_tokens, "token"),
        ));
    }
    let rate = plan.learning_rate.map_or_else(
        || "by the model's size".to_owned(),
        |it| format!("{it:.1e}"),
    );
    lines.push(format!(
        "{} of {} each in batches of {}, learning rate {rate}",
        out::count(plan.epochs, "epoch"),
        out::count(plan.n_steps / plan.epochs.max(1), "step"),
        plan.batch_size,
    ));
    lines.push(format!(
        "cost: {} trained, {} scored, and the gate's tests",
        count(plan.n_trained_in_all, "token"),
        count(plan.n_scored_in_all, "token"),
    ));
    if let Some(why) = &plan.begins_anew {
        lines.push(format!(
            "what the agent has learned is not continued: {why}"
        ));
    }
    let from = plan.from.as_deref().unwrap_or("the base model");
    lines.push(format!("from {from} to {}", plan.adapter));
    lines.join("\n")
}

fn step(step: &SftStep) -> String {
    let skipped = if step.skipped {
        "; skipped, as its gradient was out of line"
    } else {
        ""
    };
    format!(
        "step {} of {}: loss {:.4}, gradient norm {:.2}, rate {:.1e}, {:.0} tokens/s{skipped}",
        step.step,
        step.of,
        step.loss,
        step.grad_norm,
        step.learning_rate,
        step.n_tokens as f64 / step.seconds.max(1e-9),
    )
}

fn epoch(epoch: &SftEpoch) -> String {
    let held_out = epoch.held_out_loss;
    let held_out = held_out.map_or_else(String::new, |it| format!(", held-out loss {it:.4}"));
    format!(
        "epoch {} of {}: loss {:.4}{held_out}, {:.1} s; saved as {}",
        epoch.epoch, epoch.of, epoch.loss, epoch.seconds, epoch.adapter,
    )
}

fn ended(report: &SftReport) -> String {
    let adapter = report.adapter.as_deref().unwrap_or("no adapter");
    let held_out = match (report.held_out_before, report.held_out_after) {
        (Some(before), Some(after)) => format!(", held-out loss {before:.4} -> {after:.4}"),
        _ => String::new(),
    };
    let what = format!(
        "{adapter}: epoch {} of {}{held_out}, {:.1} s",
        report.epoch, report.epochs, report.seconds
    );
    let gate = report.gate.as_ref().map(GateReport::why);
    match gate.filter(|why| !why.is_empty()) {
        Some(why) => format!(
            "{what}\ndeclined by the gate: {why}; what served before serves on. The gate compares with the base model, so chats of the everyday kind among the rows help"
        ),
        None if report.serves => format!(
            "{what}\n{} is served with {adapter} from its next request on, and its next steps start from there. `metaclaw adapters use base --agent {}` is the way back",
            report.agent, report.agent
        ),
        None => format!(
            "{what}\nit serves nobody: `metaclaw adapters use {adapter}` has the gate test it and then serves it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lines(events: &[Value]) -> String {
        let mut steps = StepLines::new(Instant::now());
        let events = events.iter().map(|event| {
            let event: SftEvent = serde_json::from_value(event.clone()).unwrap();
            event_text(&event, false, &mut steps)
        });
        events.flatten().collect::<Vec<_>>().join("\n")
    }

    fn step(step: u64) -> Value {
        json!({"is": "step", "step": step, "of": 3, "epoch": 1, "loss": 2.5, "learning_rate": 5e-4, "grad_norm": 1.25, "skipped": false, "n_tokens": 500, "seconds": 0.5})
    }

    fn ended(serves: bool, tests: &Value) -> Value {
        json!({"is": "ended", "agent": "main", "adapter": "main-0badcafe-000001", "epoch": 1, "epochs": 1, "held_out_before": 2.0, "held_out_after": 1.5, "gate": {"tests": tests, "seconds": 1.0}, "serves": serves, "seconds": 9.0})
    }

    #[test]
    fn a_training_is_told_from_its_plan_to_what_serves() {
        let told = lines(&[
            json!({"is": "planned", "agent": "main", "method": "cross_entropy", "n_rows": 9, "n_held_out": 1, "n_tokens": 900, "n_trained": 300, "n_held_out_tokens": 100, "longest": 120, "epochs": 1, "batch_size": 3, "n_steps": 3, "learning_rate": null, "n_trained_in_all": 900, "n_scored_in_all": 200, "from": null, "begins_anew": null, "adapter": "main-0badcafe-000001"}),
            json!({"is": "before", "held_out_loss": 2.0}),
            step(1),
            step(2),
            step(3),
            json!({"is": "epoch", "epoch": 1, "of": 1, "adapter": "main-0badcafe-000001", "loss": 2.25, "held_out_loss": 1.5, "seconds": 3.0}),
            json!({"is": "testing", "adapter": "main-0badcafe-000001"}),
            ended(true, &json!([])),
        ]);
        insta::assert_snapshot!(told, @r"
        main by cross_entropy: 9 rows of 900 tokens, 300 tokens of them trained; the longest sequence has 120 tokens
        1 row of 100 tokens held out
        1 epoch of 3 steps each in batches of 3, learning rate by the model's size
        cost: 900 tokens trained, 200 tokens scored, and the gate's tests
        from the base model to main-0badcafe-000001
        held-out loss before training 2.0000
        step 1 of 3: loss 2.5000, gradient norm 1.25, rate 5.0e-4, 1000 tokens/s
        step 3 of 3: loss 2.5000, gradient norm 1.25, rate 5.0e-4, 1000 tokens/s
        epoch 1 of 1: loss 2.2500, held-out loss 1.5000, 3.0 s; saved as main-0badcafe-000001
        main-0badcafe-000001 is tested by the gate
        main-0badcafe-000001: epoch 1 of 1, held-out loss 2.0000 -> 1.5000, 9.0 s
        main is served with main-0badcafe-000001 from its next request on, and its next steps start from there. `metaclaw adapters use base --agent main` is the way back
        ");
    }

    #[test]
    fn an_adapter_that_does_not_serve_says_why() {
        let failed = json!([{"name": "fluency", "value": 2.0, "limit": 1.6, "passed": false, "why": "fluency 2.00, at most 1.60"}]);
        let told = lines(&[ended(false, &failed)]);
        assert!(
            told.contains("declined by the gate: fluency 2.00, at most 1.60; what served"),
            "{told}"
        );
        let told = lines(&[ended(false, &json!([]))]);
        assert!(
            told.contains("`metaclaw adapters use main-0badcafe-000001`"),
            "{told}"
        );
    }
}
