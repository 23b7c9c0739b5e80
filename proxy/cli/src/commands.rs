//! The subcommands, one file each, and what they share.

use std::{future::Future, process::ExitCode};

use clap::{Parser, Subcommand};

mod adapters;
mod config;
mod context;
mod doctor;
mod forget;
mod keys;
mod service;
mod skills;
mod source;
mod start;
mod status;
mod stop;
mod train_step;
mod turns;
mod uninstall;
mod wishes;

pub(crate) use self::context::Context;

/// A proxy that an agent talks through and that makes the model behind it better.
#[derive(Debug, Parser)]
#[command(name = "metaclaw", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the proxy, and the trainer where one is configured.
    Start(start::StartArgs),
    /// End the running proxy; replies under way may finish.
    Stop(stop::StopArgs),
    /// How the running proxy is: what serves, what learns, how far turns got.
    Status(status::StatusArgs),
    /// Look for what is wrong, and say what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Start with this machine: a systemd user unit.
    Service(service::ServiceArgs),
    /// Put everything back and remove what MetaClaw made.
    Uninstall(uninstall::UninstallArgs),
    /// Show or change settings.
    Config(config::ConfigArgs),
    /// What was said, judged and trained.
    Turns(turns::TurnsArgs),
    /// The skills that an agent may be given.
    Skills(skills::SkillsArgs),
    /// What you asked for once and for all: what is in force, and where it comes from.
    Wishes(wishes::WishesArgs),
    /// Take a lesson back.
    Undo(wishes::UndoArgs),
    /// Forget what was said, and what was learned from it.
    Forget(forget::ForgetArgs),
    /// Who may come in, for which agents.
    Keys(keys::KeysArgs),
    /// The weights that were learned.
    Adapters(adapters::AdaptersArgs),
    /// Train one batch now.
    TrainStep(train_step::TrainStepArgs),
}

// === impl Cli ===

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Start(args) => args.run(context),
            Command::Config(args) => args.run(context),
            Command::Service(args) => args.run(context),
            Command::Doctor(args) => wait(args.run(context)),
            Command::Uninstall(args) => wait(args.run(context)),
            Command::Stop(args) => wait(args.run(context)),
            Command::Status(args) => wait(args.run(context)),
            Command::Turns(args) => wait(args.run(context)),
            Command::Skills(args) => wait(args.run(context)),
            Command::Wishes(args) => wait(args.run(context)),
            Command::Undo(args) => wait(args.run(context)),
            Command::Forget(args) => wait(args.run(context)),
            Command::Keys(args) => wait(args.run(context)),
            Command::Adapters(args) => wait(args.run(context)),
            Command::TrainStep(args) => wait(args.run(context)),
        }
    }
}

/// Runs what a subcommand asks others; one thread is enough for that.
fn wait(asking: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(asking)
}
