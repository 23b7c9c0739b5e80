//! What a run has done, in an append-only file. Each line is one event, and is written when it has happened.
//!
//! A run that is started again reads it, and does only what is missing.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    episode::{EpisodeEnd, TaskRunError},
    report::{EpisodeFunnel, Measurement},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum JournalEvent {
    /// The run began with this file. Its order of tasks follows from it.
    Began {
        plan: String,
        /// The beginning of the names of its groups, which no other run has.
        prefix: String,
    },
    Opened {
        rollout: String,
        #[serde(flatten)]
        place: EpisodePlace,
    },
    Closed {
        rollout: String,
        end: EpisodeEnd,
    },
    /// A training step was made, or there was nothing to make it of.
    Step(StepLine),
    /// All episodes of a measurement were run.
    Measured(Measurement),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct EpisodePlace {
    /// The name of the group or of the measurement.
    pub group: String,
    pub task: String,
    pub attempt: u32,
    /// Whether it only measures.
    #[serde(default)]
    pub held_out: bool,
}

#[derive(Debug, Default)]
pub(crate) struct RunHistory {
    pub plan: Option<String>,
    pub prefix: String,
    /// The rollouts that were opened, in order, with the episodes that they are of.
    pub opened: Vec<(String, EpisodePlace)>,
    pub closed: HashMap<String, EpisodeEnd>,
    n_earlier: usize,
    pub steps: Vec<StepLine>,
    pub measured: Vec<Measurement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepLine {
    pub n: u64,
    /// The number of groups of the run until then.
    pub n_groups: u64,
    pub n_turns: usize,
    pub line: String,
}

/// The journal of a run, and the lock that only one process has.
#[derive(Debug)]
pub(crate) struct RunJournal {
    pub name: String,
    path: PathBuf,
    file: File,
    pub history: RunHistory,
}

pub(crate) fn differs<'a>(ends: impl Iterator<Item = &'a EpisodeEnd>) -> bool {
    let mut rewards = ends.filter_map(|end| match end {
        EpisodeEnd::Scored(reward) => Some(reward),
        EpisodeEnd::OverLimit(_) | EpisodeEnd::Failed(_) | EpisodeEnd::Unfinished => None,
    });
    let first = rewards.next();
    rewards.any(|it| Some(it) != first)
}

// === impl RunJournal ===

impl RunJournal {
    pub(crate) fn open(runs: &Path, name: String) -> Result<Self, TaskRunError> {
        let folder = runs.join(&name);
        let path = folder.join("journal.jsonl");
        let failed = |source: io::Error| TaskRunError::Journal {
            path: path.display().to_string(),
            source,
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).read(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(TaskRunError::Refused(format!(
                "another process runs in {}: end it first, or name another run with --run",
                folder.display()
            )));
        }
        // A kill may have cut the last line within a character.
        let bytes = fs::read(&path).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        if !text.is_empty() && !text.ends_with('\n') {
            // A kill cut the last line; it says nothing then.
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self {
            history: RunHistory::read(&text),
            name,
            path,
            file,
        })
    }

    pub(crate) fn write(&mut self, event: JournalEvent) -> Result<(), TaskRunError> {
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|source| TaskRunError::Journal {
                path: self.path.display().to_string(),
                source,
            })?;
        self.history.add(event);
        Ok(())
    }
}

// === impl RunHistory ===

impl RunHistory {
    /// Reads the lines of a journal. A line that was cut says nothing.
    fn read(text: &str) -> Self {
        let mut history = Self::default();
        let events = text.lines().map(serde_json::from_str);
        events.flatten().for_each(|event| history.add(event));
        history.n_earlier = history.opened.len();
        history
    }

    fn add(&mut self, event: JournalEvent) {
        match event {
            JournalEvent::Began { plan, prefix } => {
                self.plan = Some(plan);
                self.prefix = prefix;
            }
            JournalEvent::Opened { rollout, place } => self.opened.push((rollout, place)),
            JournalEvent::Closed { rollout, end } => drop(self.closed.insert(rollout, end)),
            JournalEvent::Step(step) => self.steps.push(step),
            JournalEvent::Measured(measurement) => self.measured.push(measurement),
        }
    }

    pub(crate) fn open(&self) -> Vec<String> {
        let open = self.opened.iter().map(|(rollout, _)| rollout);
        open.filter(|rollout| !self.closed.contains_key(*rollout))
            .cloned()
            .collect()
    }

    pub(crate) fn funnel(&self) -> EpisodeFunnel {
        let mut groups: BTreeMap<&str, Vec<&EpisodeEnd>> = BTreeMap::new();
        for (rollout, place) in self.opened.iter().filter(|(_, place)| !place.held_out) {
            let end = self.closed.get(rollout).unwrap_or(&EpisodeEnd::Unfinished);
            groups.entry(&place.group).or_default().push(end);
        }
        let mut funnel = EpisodeFunnel::default();
        for (group, ends) in groups {
            let count = |is: fn(&EpisodeEnd) -> bool| ends.iter().filter(|it| is(it)).count();
            let scored = count(|it| matches!(it, EpisodeEnd::Scored(_)));
            funnel.opened += ends.len();
            funnel.scored += scored;
            funnel.failed +=
                count(|it| matches!(it, EpisodeEnd::Failed(_) | EpisodeEnd::OverLimit(_)));
            funnel.unfinished += count(|it| *it == EpisodeEnd::Unfinished);
            let place = match self.step_of(group) {
                Some(_) if !differs(ends.iter().copied()) => &mut funnel.without_difference,
                Some(step) if step.n_turns > 0 => &mut funnel.trained,
                Some(_) | None => &mut funnel.not_trained,
            };
            *place += scored;
        }
        funnel
    }

    fn step_of(&self, group: &str) -> Option<&StepLine> {
        let number: u64 = group.rsplit('/').next()?.parse().ok()?;
        self.steps.iter().find(|step| number < step.n_groups)
    }

    /// How an episode ended, if it need not be run again.
    pub(crate) fn end(&self, place: &EpisodePlace) -> Option<&EpisodeEnd> {
        let last = self.opened.iter().rposition(|(_, it)| it == place)?;
        let end = self.closed.get(&self.opened[last].0)?;
        let is_run_again = match end {
            EpisodeEnd::Unfinished => true,
            // What failed may have been mended since.
            EpisodeEnd::Failed(_) => last < self.n_earlier,
            EpisodeEnd::Scored(_) | EpisodeEnd::OverLimit(_) => false,
        };
        (!is_run_again).then_some(end)
    }
}
