//! The metaclaw command: a proxy that an agent talks through and that makes the model behind it
//! better at serving this user.
//!
//! `start` builds the house and keeps it; every other subcommand asks the running process, and
//! opens the files itself only where nothing runs.

use std::process::ExitCode;

use clap::Parser;

mod commands;
mod config;
mod environment;
mod home;
mod logging;
mod out;
mod supervise;

use self::commands::{Cli, Context};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(environment::Environment::read());
    match cli.run(&context) {
        Ok(code) => code,
        Err(error) => {
            out::aside(format!("metaclaw: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
