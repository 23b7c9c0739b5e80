//! The server under test: its process, its figures, and the journal of them.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::{
    client::Client,
    external,
    home::signal,
    wait::{found, until},
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// What a soak that goes on needs to know.
pub const STATE: &str = "running.json";
const JOURNAL: &str = "journal.jsonl";
/// A cold start converts the model first.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// What the server gives itself for running replies, and some.
const ENDS_WITHIN: Duration = Duration::from_secs(45);

/// A server that outlives this process.
#[derive(Debug, Clone)]
pub struct Server {
    pid: u32,
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    checkpoints: PathBuf,
}

/// What happened when, a JSON object a line.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// Seconds of the soak before this process went on with it.
    before: f64,
    began: Instant,
}

// === impl Server ===

impl Server {
    /// The one that an interrupted soak left, with the seconds it was under load; else a new one.
    pub async fn start_or_join(out: &Path, bin_dir: &Path) -> Result<(Self, f64)> {
        if let Some(found) = Self::join(out).await? {
            return Ok(found);
        }
        for left in [STATE, JOURNAL, "trainer.log", "ready.json"] {
            // Most often there is none.
            let _ = fs::remove_file(out.join(left));
        }
        let checkpoints = out.join("checkpoints");
        let _ = fs::remove_dir_all(&checkpoints);
        let ready = out.join("ready.json");
        let mut child = Command::new(bin_dir.join("metaclaw-trainer"))
            .arg("--model")
            .arg(external::model())
            .args(["--port", "0", "--checkpoint-dir"])
            .arg(&checkpoints)
            .stdin(Stdio::null())
            .stdout(File::create(&ready)?)
            .stderr(File::create(out.join("trainer.log"))?)
            .process_group(0)
            .spawn()
            .context("cannot start metaclaw-trainer")?;
        let look = async || {
            let said = fs::read_to_string(&ready)?;
            if said.ends_with('\n') {
                return Ok(Some(said));
            }
            if let Some(status) = child.try_wait()? {
                bail!("metaclaw-trainer ended with {status}: trainer.log says why");
            }
            Ok(None)
        };
        let line = found(READY_WITHIN, look).await?;
        let line: Value = serde_json::from_str(&line)?;
        let address = line["address"].as_str().context("no address")?;
        let server = Self {
            pid: child.id(),
            base_url: format!("http://{address}"),
            checkpoints,
        };
        let state = json!({"pid": server.pid, "base_url": server.base_url});
        fs::write(out.join(STATE), state.to_string())?;
        Ok((server, 0.0))
    }

    async fn join(out: &Path) -> Result<Option<(Self, f64)>> {
        let Ok(state) = fs::read(out.join(STATE)) else {
            return Ok(None);
        };
        let state: Value = serde_json::from_slice(&state)?;
        let pid = state["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        let server = Self {
            pid: pid.context("no pid")?,
            base_url: state["base_url"]
                .as_str()
                .context("no base_url")?
                .to_owned(),
            checkpoints: out.join("checkpoints"),
        };
        let health = Client::new(&server.base_url).get_json("/v1/health").await;
        if health.is_err() || server.sample().is_err() {
            println!("the soak that was interrupted has lost its server: it begins anew");
            return Ok(None);
        }
        let lines = read(&out.join(JOURNAL));
        let before = lines.last().and_then(|line| line["seconds"].as_f64());
        println!("going on after {:.0} s", before.unwrap_or(0.0));
        Ok(Some((server, before.unwrap_or(0.0))))
    }

    /// Memory, and threads by name.
    pub fn sample(&self) -> Result<Value> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))
            .context("the server is gone: trainer.log says why")?;
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let line = line.context("the server has ended: trainer.log says why")?;
        let rss_kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.pid))?.flatten() {
            // One that ends meanwhile is no thread any more.
            if let Ok(name) = fs::read_to_string(task.path().join("comm")) {
                *threads.entry(name.trim().to_owned()).or_insert(0) += 1;
            }
        }
        Ok(json!({"rss_kib": rss_kib, "threads": threads}))
    }

    /// Bytes of all adapters and checkpoints; what hangs on several links counts once.
    pub fn disk(&self) -> Result<u64> {
        let mut seen = BTreeMap::new();
        let mut folders = vec![self.checkpoints.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)?.flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() {
                    folders.push(entry.path());
                } else {
                    use std::os::unix::fs::MetadataExt as _;
                    seen.insert(meta.ino(), meta.blocks() * 512);
                }
            }
        }
        Ok(seen.values().sum())
    }

    /// Tells it to end; empty when it did so by itself and in time.
    pub async fn stop(&self) -> String {
        if let Err(error) = signal(self.pid, Signal::TERM) {
            return format!("it was gone before it was told to end: {error:#}");
        }
        // A child of ours that has ended has no memory any more; a stranger's has no folder.
        let ended = until(ENDS_WITHIN, async || self.sample().is_err()).await;
        if ended.is_err() {
            let _ = signal(self.pid, Signal::KILL);
            return format!("it had not ended {ENDS_WITHIN:?} after it was told to");
        }
        String::new()
    }
}

// === impl Journal ===

impl Journal {
    /// Opens it to go on with.
    pub fn open(out: &Path, before: f64) -> Result<Self> {
        let path = out.join(JOURNAL);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self {
            path,
            file: Mutex::new(file),
            before,
            began: Instant::now(),
        })
    }

    /// Seconds under load so far.
    pub fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Writes down what happened now.
    pub fn write(&self, what: &str, value: &Value) -> Result<()> {
        let line = json!({"seconds": self.seconds(), "what": what, "value": value});
        let mut file = self.file.lock().expect("nobody panics while writing");
        writeln!(file, "{line}").context("cannot write the journal")
    }

    pub fn read(&self) -> Vec<Value> {
        read(&self.path)
    }
}

/// What can be read of it: a line that was cut when the writer was killed is none.
fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
