//! The metaclaw command: a proxy that an agent talks through and that makes the model behind it
//! better at serving this user.
//!
//! `start` builds the app and runs it; every other subcommand asks the running process, and
//! opens the files itself only where nothing runs.

use std::process::ExitCode;

mod asked;
mod assemble;
mod banner;
mod commands;
mod connect;
mod daemon;
mod environment;
mod installed;
mod limits;
mod logging;
mod model_context;
mod out;
mod prompt;
mod restarter;
mod roots;
mod sign_in;
mod signals;
mod site;
mod supervise;
mod terminal;
#[cfg(test)]
mod testing;
mod traces;
mod wires;

use metaclaw_control::operation::with_causes;

use self::commands::Cli;

/// Turns are made by one thread and dropped by another, which the system's allocator does slowly.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let ended = if arguments.next().is_some_and(|it| it == restarter::ARGUMENT) {
        restarter::run(&arguments.collect::<Vec<_>>())
    } else {
        Cli::typed().run(environment::Environment::from_process())
    };
    match ended {
        Ok(code) => code,
        Err(error) if out::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out::aside(format!("metaclaw: {}", with_causes(&error)));
            ExitCode::FAILURE
        }
    }
}
