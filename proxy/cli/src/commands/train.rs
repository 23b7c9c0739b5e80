//! `metaclaw train`: an agent's weights trained from a data set, by the running process.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use metaclaw_chat::AgentId;
use metaclaw_control::caller::by_line;
use metaclaw_learner::{HeldOutRows, RateSchedule, SftEvent, SftOrigin, SftWanted};

use super::{
    calling::{agent, caller},
    context::Context,
};
use crate::out;

mod text;

use self::text::{StepLines, text};

/// Stands for the base model in `--from`.
const BASE: &str = "base";

/// What to do when the process ended before the training did.
const CUT_OFF: &str = "the training is not complete: `metaclaw start`, and run the same command again, which goes on after the last complete epoch";

/// Arguments of `train`.
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
    #[arg(long, value_enum, default_value_t = Schedule::Linear)]
    schedule: Schedule,
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

/// `--schedule`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Schedule {
    Linear,
    Constant,
}

// === impl TrainArgs ===

impl TrainArgs {
    /// Does it.
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
            } else if let Some(line) = text(&event, dry_run, &mut steps) {
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
            schedule: match self.schedule {
                Schedule::Linear => RateSchedule::Linear,
                Schedule::Constant => RateSchedule::Constant,
            },
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

/// The path as another process in another folder can open it.
fn absolute(file: &Path, argument: &str) -> anyhow::Result<PathBuf> {
    file.canonicalize()
        .with_context(|| format!("{argument}: cannot read {}", file.display()))
}
