//! The place where checks run: a second sandbox, with a copy of the model's files.
//!
//! No process of the model is there. The files of the check are shown read-only over the copy. Python starts with none
//! of the model's files: they come last among its modules, and the home folder is another one.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::error::AgentError;
use crate::sandbox::{
    Exec, ExecOutcome, Sandbox, SandboxChoice, SandboxError, SandboxFile, SandboxLimits,
    SandboxMount, is_inside,
};

const TOOLS: &str = "/run/metaclaw";
const SITE: &str = include_str!("checks/sitecustomize.py");
const UNITTEST: &str = include_str!("checks/unittest_apart.py");
const FIND: Duration = Duration::from_secs(60);
/// It fails if a link in the work folder leads to one of the files that are its arguments, to a folder that has one, or to
/// something that depends on the process which reads the link. The input and the output of `readlink` are pipes, so that
/// a link to them leads into `/proc`.
const FIND_LINKS: &str = "find . -type l -print0 | while IFS= read -r -d '' link; do
        target=$(: | readlink -f -- \"$link\") || continue
        case \"$target\" in /proc/*) exit 1 ;; esac
        for name; do
            case \"$name/\" in \"${target%/}\"/*) exit 1 ;; esac
        done
    done";

#[derive(Debug)]
pub(super) struct CheckPlace {
    sandbox: Sandbox,
    /// The files of the check, by name.
    files: BTreeMap<String, Vec<u8>>,
    /// What the sandbox shows of this machine: the tools, and below `tree` the files.
    folder: TempDir,
    /// The same folder as commands of the sandbox name it.
    tools: PathBuf,
}

// === impl CheckPlace ===

impl CheckPlace {
    /// Starts a sandbox that shows `files` in the work folder. A folder that `names` contains is shown with nothing else
    /// in it.
    ///
    /// # Errors
    /// If the sandbox cannot be made, or a name leaves the work folder.
    pub(super) async fn start(
        choice: SandboxChoice,
        limits: &SandboxLimits,
        names: &[String],
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, AgentError> {
        let folder = tools(files)?;
        let tree = folder.path().join("tree");
        let mut shown: Vec<&String> = names.iter().chain(files.keys()).collect();
        shown.sort_unstable();
        shown.dedup_by(|it, above| Path::new(it).starts_with(above));
        let mut mounts = vec![SandboxMount {
            source: folder.path().to_owned(),
            target: TOOLS.into(),
        }];
        mounts.extend(shown.into_iter().filter_map(|name| {
            let source = tree.join(name);
            let target = Path::new("/work").join(name);
            source.exists().then_some(SandboxMount { source, target })
        }));
        let sandbox = Sandbox::start_with(choice, limits, &mounts).await?;
        let tools = if sandbox.shows_mounts() {
            TOOLS.into()
        } else {
            folder.path().to_owned()
        };
        Ok(Self {
            sandbox,
            files: files.clone(),
            folder,
            tools,
        })
    }

    /// Unpacks the model's files. Returns `false` if they do not fit, or are in the way of the files of the check.
    ///
    /// # Errors
    /// If the sandbox cannot be used.
    pub(super) async fn unpack(&self, tree: Vec<u8>) -> Result<bool, AgentError> {
        let unpacked = async {
            self.sandbox.unpack(tree).await?;
            if self.sandbox.shows_mounts() {
                return Ok(());
            }
            let files = self.files.iter();
            let files = files.map(|(name, content)| SandboxFile { name, content });
            self.sandbox.write_files(&files.collect::<Vec<_>>()).await
        };
        match unpacked.await {
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
        let places = [
            self.sandbox.work_folder().to_owned(),
            self.tools.join("tree"),
        ];
        let files = self.files.keys();
        let files = files.flat_map(|name| places.each_ref().map(|it| it.join(name)));
        let files: Vec<String> = files.map(|it| it.display().to_string()).collect();
        let found = self.run(FIND_LINKS, &files, FIND).await?;
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
        let mut exec = Exec::script(script).within(time);
        exec.argv.push("bash".to_owned());
        exec.argv.extend_from_slice(args);
        exec.env = vec![
            ("HOME", "/tmp".into()),
            (
                "METACLAW_UNITTEST",
                self.tools.join("unittest_apart.py").into(),
            ),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("PYTHONNOUSERSITE", "1".into()),
            ("PYTHONPATH", self.tools.join("python").into()),
            ("PYTHONSAFEPATH", "1".into()),
        ];
        Ok(self.sandbox.exec(&exec).await?)
    }

    /// Ends the sandbox.
    ///
    /// # Errors
    /// If that cannot be observed.
    pub(super) async fn close(self) -> Result<(), AgentError> {
        self.sandbox.close().await?;
        drop(self.folder);
        Ok(())
    }
}

// === functions ===

/// Writes the tools, and the files of the check below `tree`.
fn tools(files: &BTreeMap<String, Vec<u8>>) -> Result<TempDir, SandboxError> {
    let folder = TempDir::new()?;
    // The user of the sandbox may be another one.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let write = |name: &Path, content: &[u8]| -> io::Result<()> {
        let path = folder.path().join(name);
        let parents = path.ancestors().skip(1);
        let parents: Vec<_> = parents.take_while(|it| *it != folder.path()).collect();
        for parent in parents.into_iter().rev().filter(|it| !it.exists()) {
            fs::create_dir(parent)?;
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(&path, content)?;
        let is_program = content.starts_with(b"#!");
        let mode = if is_program { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write(Path::new("python/sitecustomize.py"), SITE.as_bytes())?;
    write(Path::new("unittest_apart.py"), UNITTEST.as_bytes())?;
    for (name, content) in files {
        if !is_inside(name) {
            return Err(SandboxError::FileName { name: name.clone() });
        }
        write(&Path::new("tree").join(name), content)?;
    }
    Ok(folder)
}
