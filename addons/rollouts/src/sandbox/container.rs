//! Sandboxes of podman and docker.

use std::time::Duration;

use tokio::process::Command;

use super::{
    error::SandboxError,
    exec::{Exec, WORK_FOLDER},
    holder::{SCRIPT, SandboxHolder},
    settings::{SandboxLimits, SandboxMount},
};

/// It has bash, tar and Python.
const IMAGE: &str = "docker.io/library/python:3-slim";
/// The first use of an image downloads it.
const READY: Duration = Duration::from_secs(600);
/// The user of the model's commands. The first process is the container's root, without capabilities.
const USER: &str = "1000:1000";
const ENTER: &str = "exec \"$@\" 2>&1";

#[derive(Debug)]
pub(super) struct Container {
    holder: SandboxHolder,
    program: &'static str,
    name: String,
}

// === impl Container ===

impl Container {
    /// `program` is `podman` or `docker`.
    pub(super) async fn start(
        program: &'static str,
        limits: &SandboxLimits,
    ) -> Result<Self, SandboxError> {
        let name = format!("metaclaw-{:016x}", rand::random::<u64>());
        let mut command = Command::new(program);
        command.args(["run", "--rm", "--interactive", "--name", &name]);
        command.args(["--network", "none", "--read-only", "--cap-drop", "ALL"]);
        command.args(["--security-opt", "no-new-privileges", "--user", "0:0"]);
        command.args(["--hostname", "sandbox", "--workdir", WORK_FOLDER]);
        command.arg(format!("--memory={}m", limits.memory_mb));
        command.arg(format!("--memory-swap={}m", limits.memory_mb));
        command.arg(format!("--pids-limit={}", limits.processes));
        for folder in [WORK_FOLDER, "/tmp"] {
            let size = limits.disk_mb;
            command.args([
                "--tmpfs",
                &format!("{folder}:rw,exec,size={size}m,mode=1777"),
            ]);
        }
        for folder in &limits.folders {
            let folder = folder.display();
            command.arg(format!("--volume={folder}:{folder}:ro"));
        }
        for SandboxMount { source, target } in &limits.mounts {
            let (source, target) = (source.display(), target.display());
            command.arg(format!("--volume={source}:{target}:ro"));
        }
        command.arg(limits.image.as_deref().unwrap_or(IMAGE));
        command.args(["bash", "-c", &format!("chmod 1777 /work /tmp; {SCRIPT}")]);
        let (holder, _) = SandboxHolder::start(command, program, READY).await?;
        Ok(Self {
            holder,
            program,
            name,
        })
    }

    pub(super) fn command(&self, exec: &Exec) -> Command {
        let mut command = Command::new(self.program);
        command.args(["exec", "--interactive", "--workdir", WORK_FOLDER]);
        command.args(["--user", USER]);
        let home = format!("HOME={WORK_FOLDER}");
        command.args(["--env", &home, "--env", "LANG=C.UTF-8"]);
        for (name, value) in &exec.env {
            command
                .arg("--env")
                .arg(format!("{name}={}", value.display()));
        }
        command.args([&self.name, "bash", "-c", ENTER, "bash"]);
        command.args(&exec.argv);
        command
    }

    pub(super) fn killer(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(["exec", "--user", USER, &self.name]);
        command.args(["bash", "-c", "kill -9 -1"]);
        command
    }

    pub(super) async fn close(self) -> Result<(), SandboxError> {
        // The container ends with its input. One that does not is removed by name.
        let mut remove = Command::new(self.program);
        remove.args(["rm", "--force", &self.name]);
        self.holder.close().await?;
        let _ = remove.output().await?;
        Ok(())
    }
}
