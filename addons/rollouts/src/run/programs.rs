//! The program of a file as words and variables, and `metaclaw rollout serve`.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use futures_util::future::BoxFuture;
use metaclaw_chat::Secret;
use serde_json::Value;

use crate::{
    episode::TaskRunError,
    file::{EpisodeProgram, RolloutFile},
    pool::serve::{EnvironmentServer, ServeError},
    program::LocalProgram,
};

pub(super) const VERIFIERS_PROGRAM: &str = include_str!("verifiers_episode.py");

pub(super) fn local_program(
    file: &RolloutFile,
    metaclaw: &Path,
    folder: &Path,
) -> Result<LocalProgram, TaskRunError> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut env = file.env.clone();
    let words = match &file.program {
        Some(EpisodeProgram::Command(words)) => words.clone(),
        Some(EpisodeProgram::Shell(line)) => ["sh", "-c", line].map(str::to_owned).to_vec(),
        Some(EpisodeProgram::Track(track)) => {
            env.insert("METACLAW_SANDBOX".to_owned(), file.sandbox.clone());
            let words = ["rollout", "agent", track.name()].map(str::to_owned);
            [text(metaclaw)].into_iter().chain(words).collect()
        }
        Some(EpisodeProgram::Verifiers(of)) => {
            let arguments = Value::Object(of.arguments.clone()).to_string();
            env.insert("METACLAW_VERIFIERS".to_owned(), of.environment.clone());
            env.insert("METACLAW_VERIFIERS_ARGS".to_owned(), arguments);
            let program = write_verifiers_program(folder)?;
            vec![text(&of.python), text(&program)]
        }
        None => {
            return Err(TaskRunError::Refused(format!(
                "{} names no program: set one of command, track, verifiers",
                file.path.display()
            )));
        }
    };
    Ok(LocalProgram {
        words,
        env,
        folder: file.folder().to_owned(),
        output: folder.join("output"),
        timeout: file.timeout.0,
    })
}

pub(super) fn write_verifiers_program(folder: &Path) -> Result<PathBuf, TaskRunError> {
    // A program starts in the folder of its file, so its own path has to be absolute.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let path = folder.join("verifiers_episode.py");
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, VERIFIERS_PROGRAM));
    written.map_err(|source: io::Error| {
        TaskRunError::Refused(format!("cannot write {}: {source}", path.display()))
    })?;
    Ok(path)
}

/// Where and for whom a file's program is run.
#[derive(Debug)]
pub struct ServeSetup<'a> {
    pub file: &'a RolloutFile,
    pub address: SocketAddr,
    pub key: Option<Secret>,
    /// This program, which runs tracks.
    pub metaclaw: PathBuf,
    /// Where output of programs is kept.
    pub folder: PathBuf,
}

/// Begins to listen for runners.
///
/// # Errors
/// [`TaskRunError::Refused`] if the file names no program, or the address cannot be used.
pub fn serve<'a>(
    setup: &'a ServeSetup<'a>,
) -> BoxFuture<'a, Result<EnvironmentServer, TaskRunError>> {
    Box::pin(async move {
        let program = local_program(setup.file, &setup.metaclaw, &setup.folder)?;
        let (address, at_once) = (setup.address, setup.file.at_once);
        let server = EnvironmentServer::bind(address, program, at_once, setup.key.clone()).await;
        server.map_err(|error: ServeError| TaskRunError::Refused(error.to_string()))
    })
}
