//! The subcommands, one file each, and what they share.

use std::{
    future::Future,
    path::PathBuf,
    process::{ExitCode, Termination},
};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use futures_util::future::LocalBoxFuture;
use tokio::runtime::{Builder, Runtime};

mod adapters;
mod auth;
mod calling;
mod columns;
mod compare;
mod completions;
mod config;
mod consent;
pub(crate) mod context;
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
pub(crate) mod setup;
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

/// A proxy between an agent and its model, which learns from your conversations. Begin with `metaclaw start`.
#[derive(Debug, Parser)]
#[command(name = "metaclaw", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The home folder. Without it, METACLAW_HOME, else ~/.metaclaw.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Where")]
    home: Option<PathBuf>,
    /// The proxy's port, if several proxies share a home. `start` listens on it; 0 takes a free port.
    #[arg(short, long, global = true, value_name = "N", help_heading = "Where")]
    port: Option<String>,
    #[command(subcommand)]
    command: MetaclawCommand,
}

#[derive(Debug, Subcommand)]
enum MetaclawCommand {
    /// Ask for a provider, a key and a model, try them, and write config.yaml.
    Setup(setup::SetupArgs),
    /// Start the proxy, and the training server if one is configured.
    Start(start::StartArgs),
    /// Stop the running proxy. Running replies may finish.
    Stop(stop::StopArgs),
    /// Pause learning at once: pass requests on unchanged, and keep nothing of them, until `metaclaw on`.
    Off(switch::SwitchArgs),
    /// Learn again after `metaclaw off`: add lessons to requests, and record and judge replies.
    On(switch::SwitchArgs),
    /// Show the state of the running proxy: what answers, what learns, and what became of the turns.
    Status(status::StatusArgs),
    /// Point an agent at the proxy while the proxy runs. Without a name, list the agents of this machine.
    Wire(wire::WireArgs),
    /// Restore an agent's files, and leave them alone from now on. Without a name, restore those of all agents.
    Unwire(wire::UnwireArgs),
    /// Look for problems, and say how to solve them.
    Doctor(doctor::DoctorArgs),
    /// Start the proxy whenever this machine starts, by a systemd user unit.
    Service(service::ServiceArgs),
    /// Restore the files of agents, and remove what MetaClaw made.
    Uninstall(uninstall::UninstallArgs),
    /// Import a home of the Python MetaClaw: settings, keys, skills, adapters.
    Migrate(migrate::MigrateArgs),
    /// Show or change settings.
    Config(config::ConfigArgs),
    /// Store keys and tokens of providers apart from the settings.
    Auth(auth::AuthArgs),
    /// Show, export and import turns.
    Turns(turns::TurnsArgs),
    /// Run an agent on tasks, and show how each run went.
    Rollout(rollout::RolloutArgs),
    /// Show the skills of agents, and review those that a model wrote.
    Skills(skills::SkillsArgs),
    /// Show all lessons of an agent: those of MetaClaw, and those that the agent has learned by itself.
    Lessons(lessons::LessonsArgs),
    /// Show and change wishes: your standing instructions to an agent.
    Wishes(wishes::WishesArgs),
    /// Show and change memories: facts that you told an agent, for agents without a memory of their own.
    Memory(memory::MemoryArgs),
    /// Take back a lesson: a wish or a learned skill.
    Undo(wishes::UndoArgs),
    /// Delete sessions, and the lessons that were learned from them.
    Forget(forget::ForgetArgs),
    /// Show what happened on a day: turns, lessons, verdicts, tokens, errors.
    Report(report::ReportArgs),
    /// Open the page in a browser: what was said, learned and spent, and buttons to change it.
    Ui(ui::UiArgs),
    /// Answer your own questions with and without what was learned.
    Compare(compare::CompareArgs),
    /// Measure adapters and the base model on your wishes, your turns and built-in questions.
    Eval(eval::EvalArgs),
    /// Send the figures of training steps to other programs.
    Metrics(metrics::MetricsArgs),
    /// Train again on logged turns with other settings, into weights that serve nobody.
    Replay(replay::ReplayArgs),
    /// Print the log of the proxy in the background.
    Logs(logs::LogsArgs),
    /// Show whether costly learning may run now, and when next.
    Scheduler(scheduler::SchedulerArgs),
    /// Make, list and remove the keys that callers show to the proxy.
    Keys(keys::KeysArgs),
    /// Show adapters (learned weights), and choose which one serves.
    Adapters(adapters::AdaptersArgs),
    /// Train an agent's weights on a data set of chats or of pairs of replies.
    Train(train::TrainArgs),
    /// Make one training step now.
    TrainStep(train_step::TrainStepArgs),
    /// Install, check and remove the training server.
    Trainer(trainer::TrainerArgs),
    /// Print the script with which a shell completes these commands.
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

    pub(crate) fn run(self, environment: Environment) -> anyhow::Result<ExitCode> {
        let context = Context::new(environment, self.home, self.port);
        context.home.check().with_context(|| {
            let dir = context.home.dir().display();
            format!("{dir} cannot be the home folder (--home or METACLAW_HOME names another one)")
        })?;
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
            MetaclawCommand::Wire(args) => args.run(context),
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

fn wait<T: Termination>(
    asking: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<ExitCode> {
    // Boxed, because the runtime's loop would otherwise be compiled for each command.
    let asking: LocalBoxFuture<'_, _> = Box::pin(async { code(asking.await) });
    runtime()?.block_on(asking)
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A command that says nothing else of its end has done what was asked.
fn code<T: Termination>(ended: anyhow::Result<T>) -> anyhow::Result<ExitCode> {
    ended.map(Termination::report)
}
