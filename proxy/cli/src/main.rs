//! The metaclaw command: a proxy that an agent talks through and that makes the model behind it
//! better at serving this user.
//!
//! `start` builds the app and runs it; every other subcommand asks the running process, and
//! opens the files itself only where nothing runs.

use std::process::ExitCode;

mod adapters;
mod address;
mod agent;
mod app;
mod assemble;
mod auth_profiles;
mod banner;
mod commands;
mod compare;
mod config;
mod control;
mod daemon;
mod environment;
mod home;
mod installed;
mod lesson_line;
mod lesson_list;
mod lessons;
mod limits;
mod logging;
mod out;
mod policy_context;
mod privacy;
mod prompt;
mod replays;
mod report;
mod restarter;
mod rollouts;
mod roots;
mod signals;
mod supervise;
mod terminal;
#[cfg(test)]
mod testing;
mod traces;
mod waiting;

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
            out::aside(format!("metaclaw: {}", whole(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, but for those that it names itself.
fn whole(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}
