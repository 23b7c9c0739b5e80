//! Sandboxes: an agent's commands run in a system of their own, with a private root, no network, and limits of disk,
//! memory, processes, time and output.
//!
//! A sandbox lives for an episode. Its folder `/work` is in memory and keeps its files, and programs in the background
//! keep running, from one command to the next. When it closes, or when this program dies, all its processes are killed
//! and its files are gone.

use std::{path::Path, time::Duration};

use self::{
    bubblewrap::Bubblewrap, container::Container, folder::Folder, memory_group::MemoryGroup,
};
pub use self::{
    error::SandboxError,
    exec::{Exec, ExecEnd, ExecOutcome},
    settings::{SandboxChoice, SandboxLimits, SandboxMount, UnknownSandbox},
};

pub(crate) use self::exec::WORK_FOLDER;

mod bubblewrap;
mod container;
mod error;
mod exec;
mod folder;
mod holder;
mod memory_group;
mod settings;

#[cfg(test)]
mod tests;

const KILL: Duration = Duration::from_secs(10);
const COPY: Duration = Duration::from_secs(120);

/// A place where commands run; dropping it kills their processes.
#[derive(Debug)]
pub struct Sandbox {
    backend: SandboxBackend,
}

#[derive(Debug)]
enum SandboxBackend {
    Bubblewrap(Bubblewrap),
    Container(Container),
    Folder(Folder),
}

/// A file for a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SandboxFile<'a> {
    /// Relative to the work folder.
    pub name: &'a str,
    pub content: &'a [u8],
}

// === impl Sandbox ===

impl Sandbox {
    /// Makes a sandbox.
    ///
    /// # Errors
    /// If the chosen program is not there or cannot make a sandbox. `auto` never means `none`.
    pub async fn start(
        choice: SandboxChoice,
        limits: &SandboxLimits,
    ) -> Result<Self, SandboxError> {
        limits.validate()?;
        let backend = match choice {
            SandboxChoice::Auto => automatic(limits).await?,
            SandboxChoice::Bubblewrap => bubblewrap(limits).await?,
            SandboxChoice::Podman => container("podman", limits).await?,
            SandboxChoice::Docker => container("docker", limits).await?,
            SandboxChoice::None => SandboxBackend::Folder(Folder::new()?),
        };
        Ok(Self { backend })
    }

    pub(crate) fn shows_mounts(&self) -> bool {
        !matches!(self.backend, SandboxBackend::Folder(_))
    }

    /// Runs a command in the work folder, within its limits. One that runs past its time is killed, together with every
    /// other process of the sandbox.
    ///
    /// # Errors
    /// If the sandbox cannot be entered. How the command itself ended is no error.
    pub async fn exec(&self, exec: &Exec) -> Result<ExecOutcome, SandboxError> {
        let command = match &self.backend {
            SandboxBackend::Bubblewrap(backend) => backend.command(exec),
            SandboxBackend::Container(backend) => backend.command(exec),
            SandboxBackend::Folder(backend) => backend.command(exec),
        };
        let mut raw = exec::run(command, exec).await?;
        if let SandboxBackend::Folder(folder) = &self.backend {
            raw.group.kill();
            folder.kill_rest();
        } else {
            // A sandbox keeps its background programs running between commands.
            raw.group.release();
        }
        if raw.outcome.end == ExecEnd::TimedOut {
            self.kill_all().await?;
        } else if !raw.complaint.is_empty() {
            return Err(SandboxError::Enter {
                words: raw.complaint,
            });
        }
        Ok(raw.outcome)
    }

    /// Writes files to the work folder. Those that begin with `#!` become executable.
    ///
    /// # Errors
    /// If a name leaves the work folder, or the files do not fit.
    pub async fn write_files(&self, files: &[SandboxFile<'_>]) -> Result<(), SandboxError> {
        if files.is_empty() {
            return Ok(());
        }
        self.unpack(archive(files)?).await
    }

    /// Unpacks a tar archive in the work folder. Files of the same names are replaced.
    ///
    /// # Errors
    /// If the archive cannot be read, or its files do not fit.
    pub async fn unpack(&self, tar: Vec<u8>) -> Result<(), SandboxError> {
        let script = "tar --extract --file=- --no-same-owner";
        let unpack = Exec::script(script).with_stdin(tar).within(COPY);
        let outcome = self.exec(&unpack).await?;
        if outcome.succeeded() {
            return Ok(());
        }
        let words = outcome.text().trim().to_owned();
        Err(SandboxError::Copy { words })
    }

    /// Kills every process and returns the files of the work folder as a tar archive, without the paths `without`, and
    /// without files and folders of the names `without_named`. Returns `None` if files cannot be read, or the archive
    /// is larger than twice the disk of `disk_mb` MB.
    ///
    /// # Errors
    /// If the sandbox cannot be entered.
    pub async fn pack(
        &self,
        disk_mb: u32,
        without: &[String],
        without_named: &[&str],
    ) -> Result<Option<Vec<u8>>, SandboxError> {
        self.kill_all().await?;
        let disk = usize::try_from(disk_mb).unwrap_or(usize::MAX);
        let script = "tar --create --file=- --sparse --no-wildcards \"$@\" .";
        let pack = Exec::script(script)
            .within(COPY)
            .with_max_output(disk.saturating_mul(2 << 20))
            .with_args(["bash", "--anchored"])
            .with_args(without.iter().map(|path| format!("--exclude=./{path}")))
            .with_args(["--no-anchored"])
            .with_args(without_named.iter().map(|name| format!("--exclude={name}")));
        let outcome = self.exec(&pack).await?;
        let is_whole = outcome.omitted == 0 && outcome.succeeded();
        Ok(is_whole.then(|| [outcome.head, outcome.tail].concat()))
    }

    /// Kills every process of the sandbox. Its files stay.
    ///
    /// # Errors
    /// If the sandbox cannot be entered.
    pub async fn kill_all(&self) -> Result<(), SandboxError> {
        let command = match &self.backend {
            SandboxBackend::Bubblewrap(backend) => backend.killer(),
            SandboxBackend::Container(backend) => backend.killer(),
            SandboxBackend::Folder(folder) => {
                folder.kill_rest();
                return Ok(());
            }
        };
        exec::run(command, &Exec::script("").within(KILL)).await?;
        Ok(())
    }

    /// Ends the sandbox, and returns once every process in it has ended.
    ///
    /// # Errors
    /// If that cannot be observed.
    pub async fn close(self) -> Result<(), SandboxError> {
        match self.backend {
            SandboxBackend::Bubblewrap(backend) => backend.close().await,
            SandboxBackend::Container(backend) => backend.close().await,
            SandboxBackend::Folder(_) => Ok(()),
        }
    }
}

// === functions ===

async fn bubblewrap(limits: &SandboxLimits) -> Result<SandboxBackend, SandboxError> {
    let started = Bubblewrap::start(limits, MemoryGroup::new(limits)).await;
    started.map(SandboxBackend::Bubblewrap)
}

async fn container(
    program: &'static str,
    limits: &SandboxLimits,
) -> Result<SandboxBackend, SandboxError> {
    let started = Container::start(program, limits).await;
    started.map(SandboxBackend::Container)
}

async fn automatic(limits: &SandboxLimits) -> Result<SandboxBackend, SandboxError> {
    let mut reasons = Vec::new();
    for program in ["bubblewrap", "podman", "docker"] {
        let started = match program {
            "bubblewrap" if limits.image.is_some() => continue,
            "bubblewrap" => bubblewrap(limits).await,
            _ => container(program, limits).await,
        };
        match started {
            Ok(backend) => return Ok(backend),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(SandboxError::NoneWorks {
        reasons: reasons.join("; "),
    })
}

pub(crate) fn archive(files: &[SandboxFile<'_>]) -> Result<Vec<u8>, SandboxError> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        if !is_inside(file.name) {
            return Err(SandboxError::FileName {
                name: file.name.to_owned(),
            });
        }
        let mut header = tar::Header::new_gnu();
        let is_program = file.content.starts_with(b"#!");
        header.set_mode(if is_program { 0o755 } else { 0o644 });
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, file.name, file.content)?;
    }
    Ok(archive.into_inner()?)
}

pub(crate) fn is_inside(name: &str) -> bool {
    use std::path::Component;
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}
