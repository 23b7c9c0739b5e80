//! The place where checks run: a second sandbox, with a copy of the model's files.
//!
//! No process of the model is there. The files of the check are shown read-only over the copy. Python starts with none
//! of the model's files: they come last among its modules, and the home folder is another one.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, path::PathBuf, time::Duration};

use tempfile::TempDir;

use super::error::AgentError;
use crate::sandbox::{
    Exec, ExecOutcome, Sandbox, SandboxChoice, SandboxError, SandboxFile, SandboxLimits,
    SandboxMount, WORK_FOLDER, archive,
};

const TOOLS: &str = "/run/metaclaw";
const SITE: SandboxFile<'_> = SandboxFile {
    name: "python/sitecustomize.py",
    content: include_bytes!("checks/sitecustomize.py"),
};
const UNITTEST: SandboxFile<'_> = SandboxFile {
    name: "unittest_apart.py",
    content: include_bytes!("checks/unittest_apart.py"),
};
const FIND: Duration = Duration::from_secs(60);
/// It fails if a link in the work folder leads to one of the files that are its arguments, to a folder that has one, or to
/// something that depends on the process which reads the link. The input and the output of `readlink` are pipes, so that
/// a link to them leads into `/proc`.
const FIND_LINKS: &str = include_str!("checks/find_links.sh");

#[derive(Debug)]
pub(super) struct CheckPlace<'a> {
    sandbox: Sandbox,
    files: &'a [SandboxFile<'a>],
    /// What the sandbox shows of this machine: the tools, and below `tree` the files. It goes after the sandbox.
    _folder: TempDir,
    /// The same folder as commands of the sandbox name it.
    tools: PathBuf,
}

// === impl CheckPlace ===

impl<'a> CheckPlace<'a> {
    /// Starts a sandbox that shows `files` in the work folder. A folder that `names` contains is shown with nothing else
    /// in it.
    ///
    /// # Errors
    /// If the sandbox cannot be made, or a name leaves the work folder.
    pub(super) async fn start(
        choice: SandboxChoice,
        limits: &SandboxLimits,
        names: &[String],
        files: &'a [SandboxFile<'a>],
    ) -> Result<Self, AgentError> {
        let folder = TempDir::new().map_err(SandboxError::Io)?;
        unpack_for_all(&[SITE, UNITTEST], folder.path())?;
        unpack_for_all(files, &folder.path().join("tree"))?;
        let mut limits = limits.clone();
        limits.mounts.push(SandboxMount {
            source: folder.path().to_owned(),
            target: TOOLS.into(),
        });
        let names = names.iter().map(String::as_str);
        for name in names.chain(files.iter().map(|it| it.name)) {
            let source = folder.path().join("tree").join(name);
            let is_shown = |it: &SandboxMount| source.starts_with(&it.source);
            if source.exists() && !limits.mounts[1..].iter().any(is_shown) {
                let target = Path::new(WORK_FOLDER).join(name);
                limits.mounts.push(SandboxMount { source, target });
            }
        }
        let sandbox = Sandbox::start(choice, &limits).await?;
        let tools = if sandbox.shows_mounts() {
            Path::new(TOOLS)
        } else {
            folder.path()
        };
        Ok(Self {
            tools: tools.to_owned(),
            sandbox,
            files,
            _folder: folder,
        })
    }

    /// Unpacks the model's files. Returns `false` if they do not fit, or are in the way of the files of the check.
    ///
    /// # Errors
    /// If the sandbox cannot be used.
    pub(super) async fn unpack(&self, tree: Vec<u8>) -> Result<bool, AgentError> {
        let mut unpacked = self.sandbox.unpack(tree).await;
        if unpacked.is_ok() && !self.sandbox.shows_mounts() {
            unpacked = self.sandbox.write_files(self.files).await;
        }
        match unpacked {
            Ok(()) => Ok(true),
            Err(SandboxError::Copy { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a symbolic link of the model leads to a file of the check, or into `/proc`: a script that reads
    /// the link may read the right answer, or compare what it expects with itself.
    ///
    /// # Errors
    /// If the sandbox cannot be used.
    pub(super) async fn has_link_to_check(&self) -> Result<bool, AgentError> {
        let names: Vec<String> = self.files.iter().map(|it| it.name.to_owned()).collect();
        let found = self.run(FIND_LINKS, &names, FIND).await?;
        Ok(!found.succeeded())
    }

    /// Runs a script with arguments. No process of an earlier one runs beside it.
    ///
    /// # Errors
    /// If the sandbox cannot be used.
    pub(super) async fn run(
        &self,
        script: &str,
        args: &[String],
        time: Duration,
    ) -> Result<ExecOutcome, AgentError> {
        self.sandbox.kill_all().await?;
        let exec = Exec::script(script).within(time).with_args(["bash"]);
        let mut exec = exec.with_args(args.iter());
        let tool = |name| self.tools.join(name).into();
        exec.env = vec![
            ("HOME", "/tmp".into()),
            ("METACLAW_UNITTEST", tool(UNITTEST.name)),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("PYTHONNOUSERSITE", "1".into()),
            ("PYTHONPATH", tool("python")),
            ("PYTHONSAFEPATH", "1".into()),
        ];
        Ok(self.sandbox.exec(&exec).await?)
    }

    /// Ends the sandbox.
    ///
    /// # Errors
    /// If that cannot be observed.
    pub(super) async fn close(self) -> Result<(), AgentError> {
        Ok(self.sandbox.close().await?)
    }
}

// === functions ===

/// Writes files that every user can read: the user of the sandbox may be another one.
fn unpack_for_all(files: &[SandboxFile<'_>], place: &Path) -> Result<(), SandboxError> {
    tar::Archive::new(&*archive(files)?).unpack(place)?;
    let mut folders = vec![place.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        let entries = fs::read_dir(folder)?.filter_map(|it| Some(it.ok()?.path()));
        folders.extend(entries.filter(|it| it.is_dir()));
    }
    Ok(())
}
