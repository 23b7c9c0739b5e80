//! The subcommands, one file each, and what they share.

use std::{
    future::Future,
    path::PathBuf,
    process::{ExitCode, Termination},
};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use futures_util::future::LocalBoxFuture;

mod adapters;
mod auth;
mod calling;
mod columns;
mod compare;
mod completions;
mod config;
mod consent;
mod context;
mod doctor;
mod eval;
mod exit;
mod forget;
mod help;
mod home_files;
mod keys;
mod lessons;
mod logs;
mod memory;
mod metrics;
mod migrate;
mod models;
mod replay;
mod report;
mod restoring;
mod rollout;
mod scheduler;
mod service;
mod setup;
mod skills;
mod start;
mod status;
mod stop;
mod switch;
mod train;
mod train_step;
mod trainer;
mod turns;
mod ui;
mod uninstall;
mod wire;
mod wishes;

use self::context::Context;
use crate::environment::Environment;

/// A proxy that your agent talks through, and that makes the model behind it better. `metaclaw start` begins.
#[derive(Debug, Parser)]
#[command(name = "metaclaw", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The home folder, in place of METACLAW_HOME, else ~/.metaclaw.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Which one")]
    home: Option<PathBuf>,
    /// The proxy of this port, where several share a home; `start` listens on it, 0 takes a free one.
    #[arg(
        short,
        long,
        global = true,
        value_name = "N",
        help_heading = "Which one"
    )]
    port: Option<String>,
    #[command(subcommand)]
    command: MetaclawCommand,
}

#[derive(Debug, Subcommand)]
enum MetaclawCommand {
    /// Ask what is needed, try it, and write config.yaml.
    Setup(setup::SetupArgs),
    /// Start the proxy, and the trainer where one is configured.
    Start(start::StartArgs),
    /// End the running proxy; replies under way may finish.
    Stop(stop::StopArgs),
    /// Relay only, at once: nothing is put into requests, kept, judged or learned, until `metaclaw on`.
    Off(switch::SwitchArgs),
    /// The end of `metaclaw off`.
    On(switch::SwitchArgs),
    /// How the running proxy is: what serves, what learns, how far turns got.
    Status(status::StatusArgs),
    /// Point an agent at the proxy while it runs. Without a name, list the agents of this machine.
    Wire(wire::WireArgs),
    /// Restore the files of an agent, and leave it alone from now on. Without a name, those of all agents.
    Unwire(wire::UnwireArgs),
    /// Look for what is wrong, and say what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Start with this machine: a systemd user unit.
    Service(service::ServiceArgs),
    /// Put everything back and remove what MetaClaw made.
    Uninstall(uninstall::UninstallArgs),
    /// Take over a home of the Python MetaClaw: settings, keys, skills, adapters.
    Migrate(migrate::MigrateArgs),
    /// Show or change settings.
    Config(config::ConfigArgs),
    /// Keys and tokens of providers, kept apart from the settings.
    Auth(auth::AuthArgs),
    /// What was said, judged and trained.
    Turns(turns::TurnsArgs),
    /// Runs of an agent on tasks: how each went.
    Rollout(rollout::RolloutArgs),
    /// The skills that an agent may be given.
    Skills(skills::SkillsArgs),
    /// All that stands for an agent: what was learned here, and what the agent has learned by itself.
    Lessons(lessons::LessonsArgs),
    /// What you asked for once and for all: what is in force, and where it comes from.
    Wishes(wishes::WishesArgs),
    /// What you told: facts that are remembered for agents without a memory.
    Memory(memory::MemoryArgs),
    /// Take a lesson back.
    Undo(wishes::UndoArgs),
    /// Forget what was said, and what was learned from it.
    Forget(forget::ForgetArgs),
    /// What happened today, or on another day: turns, lessons, verdicts, tokens, errors.
    Report(report::ReportArgs),
    /// Open the page in a browser: what was said, learned and spent, with the buttons that decide.
    Ui(ui::UiArgs),
    /// Your own questions, answered with and without what was learned.
    Compare(compare::CompareArgs),
    /// Adapters beside the base model, measured: what they say, and what they know.
    Eval(eval::EvalArgs),
    /// The numbers of training steps, handed to others.
    Metrics(metrics::MetricsArgs),
    /// Train again from the log, with other settings, into weights that serve nobody.
    Replay(replay::ReplayArgs),
    /// What the proxy in the background says of itself.
    Logs(logs::LogsArgs),
    /// When learning that costs something may run: now, and next.
    Scheduler(scheduler::SchedulerArgs),
    /// Who may come in, for which agents.
    Keys(keys::KeysArgs),
    /// The weights that were learned.
    Adapters(adapters::AdaptersArgs),
    /// Train an agent's weights from a data set: chats, or pairs of replies.
    Train(train::TrainArgs),
    /// Train one batch now.
    TrainStep(train_step::TrainStepArgs),
    /// The training server, installed from a release archive.
    Trainer(trainer::TrainerArgs),
    /// What a shell needs to finish these commands.
    Completions(completions::CompletionsArgs),
}

// === impl Cli ===

impl Cli {
    /// Reads the arguments. Ends the process if they are wrong or ask for help.
    pub(crate) fn typed() -> Self {
        let matches = help::taught(Self::command()).try_get_matches();
        let matches = matches.unwrap_or_else(|error| help::with_successor(error).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Does what was asked.
    pub(crate) fn run(self, environment: Environment) -> anyhow::Result<ExitCode> {
        let context = Context::new(environment, self.home, self.port);
        let context = &match self.command {
            // To the first two, --port says where a proxy is to listen; the others are of the whole home.
            MetaclawCommand::Start(_)
            | MetaclawCommand::Setup(_)
            | MetaclawCommand::Uninstall(_)
            | MetaclawCommand::Service(_)
            | MetaclawCommand::Migrate(_)
            | MetaclawCommand::Trainer(_) => context,
            _ => context.at_proxy()?,
        };
        match self.command {
            MetaclawCommand::Start(args) => args.run(context),
            MetaclawCommand::Config(args) => code(args.run(context)),
            MetaclawCommand::Service(args) => code(args.run(context)),
            MetaclawCommand::Trainer(args) => args.run(context),
            MetaclawCommand::Doctor(args) => wait(args.run(context)),
            MetaclawCommand::Uninstall(args) => wait(args.run(context)),
            MetaclawCommand::Migrate(args) => code(args.run(context)),
            MetaclawCommand::Auth(args) => wait(args.run(context)),
            MetaclawCommand::Setup(args) => wait(args.run(context)),
            MetaclawCommand::Wire(args) => code(args.run(context)),
            MetaclawCommand::Unwire(args) => code(args.run(context)),
            MetaclawCommand::Stop(args) => wait(args.run(context)),
            MetaclawCommand::Off(args) => wait(args.run(context, true)),
            MetaclawCommand::On(args) => wait(args.run(context, false)),
            MetaclawCommand::Status(args) => wait(args.run(context)),
            MetaclawCommand::Turns(args) => wait(args.run(context)),
            MetaclawCommand::Rollout(args) => wait(args.run(context)),
            MetaclawCommand::Skills(args) => wait(args.run(context)),
            MetaclawCommand::Lessons(args) => wait(args.run(context)),
            MetaclawCommand::Wishes(args) => wait(args.run(context)),
            MetaclawCommand::Memory(args) => wait(args.run(context)),
            MetaclawCommand::Undo(args) => wait(args.run(context)),
            MetaclawCommand::Forget(args) => wait(args.run(context)),
            MetaclawCommand::Scheduler(args) => wait(args.run(context)),
            MetaclawCommand::Keys(args) => wait(args.run(context)),
            MetaclawCommand::Adapters(args) => wait(args.run(context)),
            MetaclawCommand::Train(args) => wait(args.run(context)),
            MetaclawCommand::TrainStep(args) => wait(args.run(context)),
            MetaclawCommand::Report(args) => wait(args.run(context)),
            MetaclawCommand::Ui(args) => wait(args.run(context)),
            MetaclawCommand::Compare(args) => wait(args.run(context)),
            MetaclawCommand::Eval(args) => wait(args.run(context)),
            MetaclawCommand::Metrics(args) => wait(args.run(context)),
            MetaclawCommand::Replay(args) => wait(args.run(context)),
            MetaclawCommand::Logs(args) => wait(args.run(context)),
            MetaclawCommand::Completions(args) => code(args.run(Self::command())),
        }
    }
}

/// Runs what a subcommand asks others; one thread is enough for that.
fn wait<T: Termination>(
    asking: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<ExitCode> {
    // Boxed, because the runtime's loop would otherwise be compiled for each command.
    let asking: LocalBoxFuture<'_, _> = Box::pin(async { code(asking.await) });
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(asking)
}

/// A command that says nothing else of its end has done what was asked.
fn code<T: Termination>(ended: anyhow::Result<T>) -> anyhow::Result<ExitCode> {
    ended.map(Termination::report)
}
