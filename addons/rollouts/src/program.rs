//! Runs one program for one episode, in a process group of its own, and ends all of it.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use metaclaw_chat::{RolloutId, excerpt};
use rustix::process::{Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    process::{Child, Command},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::processes::{ProcessGroup, processes};

const GRACE: Duration = Duration::from_secs(2);
/// How long output is waited for after the process group has ended. Only a process that left the group can write then.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
const OUTPUT_HEAD: usize = 256 << 10;
const OUTPUT_TAIL: usize = 256 << 10;
const MAX_REWARD: u64 = 1 << 20;

/// What a program is run on: the same for a program of this machine and for `POST /run` of another one's.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize)]
#[debug("ProgramJob({rollout:?})")]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramJob {
    pub rollout: RolloutId,
    /// The whole task.
    pub task: Map<String, Value>,
    pub base_url: String,
    pub anthropic_base_url: String,
    pub api_key: String,
    pub max_turns: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgramEnd {
    /// `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// What it wrote to its reward file, or why that cannot be read; `None` if it wrote nothing.
    pub reward: Option<RewardWritten>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RewardWritten {
    Json(Value),
    /// Why it is no JSON.
    Unreadable(String),
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("the program's files cannot be written: {0}")]
    Files(#[from] io::Error),
    #[error("it was interrupted")]
    Interrupted,
}

#[derive(Debug, Clone)]
pub(crate) struct LocalProgram {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Variables of the file.
    pub env: BTreeMap<String, String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// The folder in which its output is kept.
    pub output: PathBuf,
    pub timeout: Duration,
}

/// The processes of an episode, which are killed when this is dropped: the program's group, and those that left it.
struct EpisodeProcesses<'a> {
    group: ProcessGroup,
    rollout: &'a RolloutId,
}

/// The output of a program: its beginning in a file, its end in memory.
struct ProgramOutput {
    file: fs::File,
    n_written: usize,
    tail: VecDeque<u8>,
    n_left_out: usize,
}

// === impl LocalProgram ===

impl LocalProgram {
    /// Runs the program once, until its end, its timeout or `cancel`.
    ///
    /// # Cancel safety
    /// If the future is dropped, all processes of the episode are killed.
    pub(crate) async fn run(
        &self,
        job: &ProgramJob,
        cancel: &CancellationToken,
    ) -> Result<ProgramEnd, ProgramError> {
        let scratch = tempfile::Builder::new().prefix("metaclaw-").tempdir()?;
        fs::write(
            scratch.path().join("task.json"),
            Value::Object(job.task.clone()).to_string(),
        )?;
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        let mut output = ProgramOutput::create(&self.output, &job.rollout)?;
        let child = self.start(job, &scratch, writer)?;
        let ended = {
            let mut waiting = pin!(self.wait(child, &job.rollout, cancel));
            let mut reading = pin!(output.read(reader));
            tokio::select! {
                ended = &mut waiting => {
                    if let Ok(read) = timeout(LAST_OUTPUT, reading).await {
                        read?;
                    }
                    ended
                }
                read = &mut reading => {
                    read?;
                    waiting.await
                }
            }
        };
        output.finish()?;
        let ended = ended?;
        Ok(ProgramEnd {
            exit_code: ended.and_then(|status| status.code()),
            timed_out: ended.is_none(),
            reward: reward_written(&scratch.path().join("reward.json"))?,
        })
    }

    fn start(
        &self,
        job: &ProgramJob,
        scratch: &TempDir,
        output: io::PipeWriter,
    ) -> Result<Child, ProgramError> {
        let (program, arguments) = self
            .words
            .split_first()
            .ok_or_else(|| io::Error::other("a command needs at least one word"))?;
        let started = Command::new(program)
            .args(arguments)
            .current_dir(&self.folder)
            .envs(self.variables(job, scratch.path()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        started.map_err(|source| ProgramError::Start {
            program: program.clone(),
            source,
        })
    }

    /// The variables of one episode. docs/training/rollouts.md lists them.
    pub(crate) fn variables(&self, job: &ProgramJob, scratch: &Path) -> BTreeMap<String, String> {
        let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
        let mut variables = self.env.clone();
        let own = [
            ("OPENAI_BASE_URL", job.base_url.clone()),
            ("OPENAI_API_KEY", job.api_key.clone()),
            ("ANTHROPIC_BASE_URL", job.anthropic_base_url.clone()),
            ("ANTHROPIC_API_KEY", job.api_key.clone()),
            ("METACLAW_ROLLOUT", job.rollout.to_string()),
            ("METACLAW_TASK", path("task.json")),
            ("METACLAW_REWARD", path("reward.json")),
        ];
        let turns = job.max_turns.map(|n| ("METACLAW_MAX_TURNS", n.to_string()));
        variables.extend(
            own.into_iter()
                .chain(turns)
                .map(|(name, value)| (name.to_owned(), value)),
        );
        variables
    }

    /// Waits for the program, and kills what it leaves running. Returns `None` if its time is over.
    async fn wait(
        &self,
        mut child: Child,
        rollout: &RolloutId,
        cancel: &CancellationToken,
    ) -> Result<Option<ExitStatus>, ProgramError> {
        let mut processes = EpisodeProcesses {
            group: ProcessGroup::new(&child),
            rollout,
        };
        let ended = tokio::select! {
            status = child.wait() => Ok(Some(status?)),
            () = sleep(self.timeout) => Ok(None),
            () = cancel.cancelled() => Err(ProgramError::Interrupted),
        };
        if !matches!(ended, Ok(Some(_))) {
            processes.end(&mut child).await;
        }
        ended
    }
}

fn reward_written(path: &Path) -> io::Result<Option<RewardWritten>> {
    let size = match fs::metadata(path) {
        Ok(file) if file.is_file() => file.len(),
        Ok(_) => {
            let why = "METACLAW_REWARD is no regular file".to_owned();
            return Ok(Some(RewardWritten::Unreadable(why)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if size > MAX_REWARD {
        let why = format!("it has {size} bytes: at most {MAX_REWARD} are allowed");
        return Ok(Some(RewardWritten::Unreadable(why)));
    }
    let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    Ok(Some(match serde_json::from_str(&text) {
        Ok(value) => RewardWritten::Json(value),
        Err(error) => {
            RewardWritten::Unreadable(format!("{:?} is no JSON: {error}", excerpt(&text)))
        }
    }))
}

/// Kills every process whose environment names the rollout. Such a process may have left the process group, or its
/// runner was killed.
pub(crate) fn end_processes(rollout: impl fmt::Display) {
    for process in processes(&format!("METACLAW_ROLLOUT={rollout}"), |_| false) {
        // It may have ended meanwhile.
        kill_process(process, Signal::KILL).ok();
    }
}

// === impl EpisodeProcesses ===

impl EpisodeProcesses<'_> {
    async fn end(&mut self, child: &mut Child) {
        self.group.signal(Signal::TERM);
        let by_itself = timeout(GRACE, child.wait()).await;
        self.group.kill();
        if by_itself.is_err() {
            // A killed process ends.
            child.wait().await.ok();
        }
    }
}

impl Drop for EpisodeProcesses<'_> {
    fn drop(&mut self) {
        self.group.kill();
        end_processes(self.rollout);
    }
}

// === impl ProgramOutput ===

impl ProgramOutput {
    fn create(folder: &Path, rollout: &RolloutId) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            file: fs::File::create(folder.join(format!("{rollout}.log")))?,
            n_written: 0,
            tail: VecDeque::new(),
            n_left_out: 0,
        })
    }

    async fn read(&mut self, mut pipe: pipe::Receiver) -> io::Result<()> {
        let mut bytes = vec![0; 16 << 10];
        loop {
            let n = pipe.read(&mut bytes).await?;
            if n == 0 {
                return Ok(());
            }
            self.keep(&bytes[..n])?;
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = OUTPUT_HEAD - self.n_written;
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.file.write_all(head)?;
        self.n_written += head.len();
        self.tail.extend(rest);
        let n_over = self.tail.len().saturating_sub(OUTPUT_TAIL);
        self.tail.drain(..n_over);
        self.n_left_out += n_over;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.n_left_out > 0 {
            let n = self.n_left_out;
            write!(self.file, "\n[{n} bytes are left out here]\n")?;
        }
        self.file.write_all(self.tail.make_contiguous())
    }
}

#[cfg(test)]
mod tests;
