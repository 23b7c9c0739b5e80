//! Runs the commands of the table in its order, in one scratch home.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::entry::{Coverage, DocEntry};
use super::table::RUN;
use super::upstream;

/// What a command printed, and its exit code.
struct CommandOutcome {
    /// The code, or -1 after a signal.
    code: i32,
    said: String,
}

/// A command as it is run, its exit code, and the words that it should print.
struct RunnableCommand {
    text: String,
    exit: i32,
    says: &'static [&'static str],
}

/// The scratch home, and the variables of the commands.
struct Scratch {
    folder: PathBuf,
    path: String,
    proxy: String,
    upstream: String,
}

/// Runs every entry that is to be run, and says which went wrong.
///
/// # Errors
/// The commands whose exit code or output differs from the table.
pub(super) fn run(root: &Path, bin_dir: &Path) -> Result<()> {
    let scratch = Scratch::new(root, bin_dir)?;
    let began = Instant::now();
    let mut failed = Vec::new();
    let mut n_run = 0;
    for entry in RUN {
        let Some(RunnableCommand { text, exit, says }) = to_run(entry)? else {
            continue;
        };
        let outcome = scratch.run(&text)?;
        let is_well = outcome.code == exit && says.iter().all(|it| outcome.said.contains(it));
        if !is_well {
            println!(
                "FAILED  {text}\n{}exit code {}; expected {exit}, and the words {says:?}\n",
                outcome.said, outcome.code
            );
            failed.push(entry.command);
        } else if !matches!(entry.how, Coverage::Preparation) {
            n_run += 1;
            println!("ok      {text}");
        }
    }
    // The proxy may still run if a command failed.
    let _ = scratch.run("metaclaw stop");
    if !failed.is_empty() {
        bail!(
            "these commands of the pages do not do what the table says ({} in all): {}; the home is kept: {}",
            failed.len(),
            failed.join(" | "),
            scratch.folder.display()
        );
    }
    fs::remove_dir_all(&scratch.folder).ok();
    println!("{n_run} commands run in {} s", began.elapsed().as_secs());
    Ok(())
}

/// Returns what is run for an entry, if anything is.
fn to_run(entry: &DocEntry) -> Result<Option<RunnableCommand>> {
    let mut text = entry.command.to_owned();
    let (replace, exit, says) = match entry.how {
        Coverage::Test(_) | Coverage::Excused(_) => return Ok(None),
        Coverage::Preparation => (&[][..], 0, &[][..]),
        Coverage::Run {
            replace,
            exit,
            says,
        } => (replace, exit, says),
    };
    for (old, new) in replace {
        if !text.contains(old) {
            bail!(
                "the entry `{}` replaces `{old}`, which it does not contain",
                entry.command
            );
        }
        text = text.replace(old, new);
    }
    Ok(Some(RunnableCommand { text, exit, says }))
}

// === impl Scratch ===

impl Scratch {
    /// Makes a home whose settings ask the scripted upstream.
    fn new(root: &Path, bin_dir: &Path) -> Result<Self> {
        let name = format!("metaclaw-docs-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let home = folder.join(".metaclaw");
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        std::os::unix::fs::symlink(root.join("examples"), folder.join("examples"))?;
        let upstream = format!("http://127.0.0.1:{}/v1", upstream::start()?);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = home.join("config.yaml");
        let settings = format!(
            "mode: skills_only\nproxy: {{port: {port}}}\nllm: {{api_base: '{upstream}', model_id: demo, api_key: k}}\n"
        );
        fs::write(&config, settings)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        let path = std::env::var("PATH").unwrap_or_default();
        Ok(Self {
            path: format!("{}:{path}", bin_dir.display()),
            proxy: format!("127.0.0.1:{port}"),
            upstream,
            folder,
        })
    }

    /// Runs a command by bash, with its output and its errors together.
    fn run(&self, text: &str) -> Result<CommandOutcome> {
        let log = self.folder.join("output");
        let output = fs::File::create(&log)?;
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-c", text])
            .env_clear()
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("PATH", &self.path)
            .env("PROXY", &self.proxy)
            .env("UPSTREAM", &self.upstream)
            .env("OPENAI_API_KEY", "sk-of-the-docs")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        // A file and no pipe, because a program in the background keeps its output open.
        let code = bash.status().context("cannot run bash")?.code();
        let said = fs::read(&log)?;
        Ok(CommandOutcome {
            code: code.unwrap_or(-1),
            said: String::from_utf8_lossy(&said).into_owned(),
        })
    }
}
