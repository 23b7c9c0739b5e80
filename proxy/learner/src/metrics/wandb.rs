//! Sends the numbers of each step to Weights & Biases when the step is made, through the service's own Python client.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use metaclaw_chat::lock;

const SCRIPT: &str = include_str!("wandb_live.py");
const HAS_CLIENT: &str = "import wandb";
/// Steps that may wait while the client does not take them. More are missing there.
const WAITING: usize = 256;

/// How the client is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WandbClient {
    /// A Python that has the package, if it is installed.
    pub python: PathBuf,
    pub project: String,
    /// The folder in which the client keeps what it has not sent.
    pub folder: PathBuf,
}

/// The client, which a thread writes to, so that nothing waits for it.
#[derive(Debug)]
pub(super) struct LiveRun {
    client: WandbClient,
    lines: Mutex<Option<SyncSender<String>>>,
}

// === impl LiveRun ===

impl LiveRun {
    pub(super) fn new(client: WandbClient) -> Self {
        Self {
            client,
            lines: Mutex::default(),
        }
    }

    /// Hands the line of a step to the client, which is started with the first. What it cannot take is missing there.
    pub(super) fn send(&self, line: String) -> io::Result<()> {
        let mut lines = lock(&self.lines);
        let sender = match lines.take() {
            Some(sender) => sender,
            None => self.start()?,
        };
        match sender.try_send(line) {
            // The client ended; the next step starts another.
            Err(TrySendError::Disconnected(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(TrySendError::Full(_)) => {
                tracing::warn!(
                    "the wandb client takes no more: the numbers of a step are missing there"
                );
            }
            Ok(()) => {}
        }
        *lines = Some(sender);
        Ok(())
    }

    fn start(&self) -> io::Result<SyncSender<String>> {
        let client = self.client.clone();
        let (sender, receiver) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("wandb".to_owned());
        thread.spawn(move || {
            if let Err(error) = client.run(&receiver) {
                tracing::warn!(%error, "the numbers of steps do not reach Weights & Biases");
            }
        })?;
        Ok(sender)
    }
}

// === impl WandbClient ===

impl WandbClient {
    fn run(&self, lines: &Receiver<String>) -> io::Result<()> {
        let python = self.python.display();
        let has_client = self.command(HAS_CLIENT).stderr(Stdio::null()).status()?;
        if !has_client.success() {
            // Whoever has the key for another purpose is not told again and again.
            tracing::info!(%python, "WANDB_API_KEY is set, and there is no wandb package: no numbers are sent");
            while lines.recv().is_ok() {}
            return Ok(());
        }
        tracing::info!(%python, "the numbers of steps are sent to Weights & Biases, because WANDB_API_KEY is set");
        let mut process = self.command(SCRIPT).stdin(Stdio::piped()).spawn()?;
        let written = Self::write(&mut process, lines);
        // Its end of the pipe is closed, so that it ends the run and itself.
        let status = process.wait()?;
        written?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "the wandb client ended with {status}"
            )))
        }
    }

    fn write(process: &mut Child, lines: &Receiver<String>) -> io::Result<()> {
        let Some(mut stdin) = process.stdin.take() else {
            return Ok(());
        };
        for line in lines {
            stdin.write_all(line.as_bytes())?;
            stdin.flush()?;
        }
        Ok(())
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.python);
        command
            .args(["-c", script, &self.project])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    fn client(folder: &Path, script: &str) -> WandbClient {
        let python = folder.join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        WandbClient {
            python,
            project: "p".to_owned(),
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn each_line_reaches_the_client_and_a_missing_package_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let own = client(folder.path(), "[ \"$2\" = 'import wandb' ] || cat > lines");
        let (sender, receiver) = sync_channel(2);
        for line in ["{\"step\": 1}\n", "{\"step\": 2}\n"] {
            sender.send(line.to_owned()).unwrap();
        }
        drop(sender);
        own.run(&receiver).unwrap();
        let lines = fs::read_to_string(folder.path().join("lines")).unwrap();
        assert_eq!(lines, "{\"step\": 1}\n{\"step\": 2}\n");
        let without = client(folder.path(), "exit 1");
        let (sender, receiver) = sync_channel(1);
        sender.send("{}\n".to_owned()).unwrap();
        drop(sender);
        without.run(&receiver).unwrap();
    }

    #[test]
    fn a_client_that_fails_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let failing = client(folder.path(), "[ \"$2\" = 'import wandb' ] || exit 3");
        let (sender, receiver) = sync_channel::<String>(1);
        drop(sender);
        let error = failing.run(&receiver).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
