//! Writes the numbers of steps where they are wanted.
//!
//! Reads the figures of steps back from `steps.jsonl`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use metaclaw_chat::{if_there, lock, make_private};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    event_file::EventFile,
    record::StepRecord,
    wandb::{LiveRun, WandbClient},
};

pub(super) const LINES: &str = "steps.jsonl";
pub(super) const OLD_LINES: &str = "steps.1.jsonl";
/// Bytes of lines after which a new file begins; the one of before goes.
const MOST_BYTES: u64 = 16 << 20;

/// A form in which numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportTo {
    /// A JSON line a step, of all agents, in `steps.jsonl`.
    Jsonl,
    /// Event files in `tensorboard`, a folder for each lineage.
    Tensorboard,
}

/// Where the numbers of each step are written. Clones are one; the default writes nothing.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Option<Arc<RecorderInner>>);

#[derive(Debug)]
struct RecorderInner {
    dir: PathBuf,
    to: Vec<ReportTo>,
    live: Option<LiveRun>,
    files: Mutex<BTreeMap<PathBuf, EventFile>>,
}

// === impl Recorder ===

impl Recorder {
    /// Into files of a folder, which is made with the first of them.
    pub fn new(dir: PathBuf, to: &[ReportTo]) -> Self {
        Self::with_live(dir, to, None)
    }

    /// The same, and each step goes to Weights & Biases as it is made, if a client is given.
    pub fn with_live(dir: PathBuf, to: &[ReportTo], client: Option<WandbClient>) -> Self {
        let is_any = !to.is_empty() || client.is_some();
        let inner = RecorderInner {
            dir,
            to: to.to_vec(),
            live: client.map(LiveRun::new),
            files: Mutex::default(),
        };
        Self(is_any.then(|| Arc::new(inner)))
    }

    /// Writes a step down. What cannot be written is said, and missing there.
    ///
    /// # Cancel safety
    /// What was begun is written all the same.
    pub(crate) async fn record(&self, record: StepRecord) {
        let Some(inner) = self.0.clone() else { return };
        let written = tokio::task::spawn_blocking(move || inner.write(&record)).await;
        if let Err(error) = written {
            tracing::error!(%error, "the numbers of a step were not written");
        }
    }
}

// === impl RecorderInner ===

impl RecorderInner {
    fn write(&self, record: &StepRecord) {
        for to in &self.to {
            let (file, written) = match to {
                ReportTo::Jsonl => (self.dir.join(LINES), self.line(record)),
                ReportTo::Tensorboard => (self.run(record), self.scalars(record)),
            };
            if let Err(error) = written {
                let (file, adapter) = (file.display(), &record.adapter);
                tracing::warn!(%file, adapter, %error, "the numbers of a step are missing there");
            }
        }
        let sent = self
            .live
            .as_ref()
            .map_or(Ok(()), |live| self.tell(live, record));
        if let Err(error) = sent {
            let adapter = &record.adapter;
            tracing::warn!(adapter, %error, "the numbers of a step are missing at Weights & Biases");
        }
    }

    fn tell(&self, live: &LiveRun, record: &StepRecord) -> io::Result<()> {
        make_private(&self.dir)?;
        live.send(format!("{}\n", record.json()))
    }

    fn line(&self, record: &StepRecord) -> io::Result<()> {
        make_private(&self.dir)?;
        let path = self.dir.join(LINES);
        let mut line = record.json().to_string();
        line.push('\n');
        append(&path, &line)?;
        if fs::metadata(&path)?.len() > MOST_BYTES {
            fs::rename(&path, self.dir.join(OLD_LINES))?;
        }
        Ok(())
    }

    fn run(&self, record: &StepRecord) -> PathBuf {
        let run = self.dir.join("tensorboard");
        run.join(record.agent.as_str()).join(&record.lineage)
    }

    fn scalars(&self, record: &StepRecord) -> io::Result<()> {
        let run = self.run(record);
        // A panic in between leaves whole records.
        let mut files = lock(&self.files);
        let mut file = match files.remove(&run) {
            Some(file) => file,
            None => EventFile::create(&run, record.time_ms)?,
        };
        file.scalars(record.step, record.time_ms, &record.scalars())?;
        // Of an agent that goes on in another lineage the old one gets nothing any more.
        let agents = run.parent().map(Path::to_owned);
        files.retain(|other, _| other.parent().map(Path::to_owned) != agents);
        // One that failed is not used again: what is behind half a record is never read.
        files.insert(run, file);
        Ok(())
    }
}

/// Adds a line. Half of one, as a kill may leave, is ended first.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let end = if last == *b"\n" { "" } else { "\n" };
    file.write_all(format!("{end}{line}").as_bytes())
}

/// The figures of one completed step.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StepFigures {
    /// The number of optimiser steps in the weights, including this one.
    pub step: u64,
    pub agent: String,
    /// The adapter that the step made.
    pub adapter: String,
    #[serde(flatten)]
    values: BTreeMap<String, Value>,
}

// === impl StepFigures ===

impl StepFigures {
    /// Reads all steps of a folder in the order in which they were made. A folder without the file has none.
    ///
    /// A line that is not complete, as a kill may leave one, is left out.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read(folder: &Path) -> io::Result<Vec<Self>> {
        let mut steps = Vec::new();
        for file in [OLD_LINES, LINES] {
            let Some(bytes) = if_there(fs::read(folder.join(file)))? else {
                continue;
            };
            let lines = bytes.split(|byte| *byte == b'\n');
            steps.extend(lines.filter_map(|line| serde_json::from_slice::<Self>(line).ok()));
        }
        Ok(steps)
    }

    /// Returns a figure, or `None` if it was not measured or was not a finite number.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::record, *};

    fn lines(dir: &Path) -> Vec<String> {
        let text = fs::read_to_string(dir.join(LINES)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn each_step_is_a_line_and_an_event() {
        let dir = tempfile::tempdir().unwrap().path().join("learning");
        let recorder = Recorder::new(dir.clone(), &[ReportTo::Jsonl, ReportTo::Tensorboard]);
        recorder.record(record()).await;
        recorder.record(record()).await;
        let lines = lines(&dir);
        assert_eq!(lines.len(), 2);
        let read: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!((&read["step"], &read["n"]), (&7.into(), &2.into()));
        let run = dir.join("tensorboard/_default/0badcafe");
        let files: Vec<_> = fs::read_dir(run).unwrap().collect();
        assert_eq!(files.len(), 1);
        let file = files.into_iter().next().unwrap().unwrap();
        let bytes = fs::read(file.path()).unwrap();
        let n_tags = bytes.windows(10).filter(|tag| tag == b"loss/total").count();
        assert_eq!(n_tags, 2);
    }

    #[tokio::test]
    async fn half_a_line_of_before_spoils_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LINES), "{\"step\": 1}\n{\"st").unwrap();
        let recorder = Recorder::new(dir.path().to_owned(), &[ReportTo::Jsonl]);
        recorder.record(record()).await;
        let lines = lines(dir.path());
        assert_eq!(lines.len(), 3);
        assert!(serde_json::from_str::<serde_json::Value>(&lines[2]).is_ok());
    }

    #[tokio::test]
    async fn what_cannot_be_written_fails_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(LINES)).unwrap();
        let to = [ReportTo::Jsonl, ReportTo::Tensorboard];
        let recorder = Recorder::new(dir.path().to_owned(), &to);
        recorder.record(record()).await;
        assert!(dir.path().join("tensorboard/_default/0badcafe").is_dir());
        Recorder::default().record(record()).await;
    }

    #[test]
    fn the_older_file_comes_first_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let read = || StepFigures::read(folder.path()).unwrap();
        assert_eq!(read(), []);
        let line = |step: u64, reward: &str| {
            format!("{{\"step\": {step}, \"agent\": \"main\", \"reward/mean\": {reward}}}\n")
        };
        fs::write(folder.path().join(OLD_LINES), line(1, "0.5")).unwrap();
        let new = line(2, "null") + &line(3, "-1.0") + "{\"step\": 4, \"ag";
        fs::write(folder.path().join(LINES), new).unwrap();
        let steps = read();
        let rewards: Vec<_> = steps
            .iter()
            .map(|step| (step.step, step.get("reward/mean")))
            .collect();
        assert_eq!(rewards, [(1, Some(0.5)), (2, None), (3, Some(-1.0))]);
        assert_eq!(steps[0].agent, "main");
    }
}
