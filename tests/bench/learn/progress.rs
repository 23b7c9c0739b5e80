//! The state of a run after each session, which is stored until the run has a record, so that a stopped bench can
//! continue.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    owner::Questions,
    quiet::Watch,
    record::{Measured, Served},
    rows::{Run, RunId},
    session::Session,
};

/// The state of an unfinished run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Progress {
    id: RunId,
    pub questions: Questions,
    pub sessions: Vec<Session>,
    pub measured: Vec<Measured>,
    /// The results of every adapter when it began to serve.
    #[serde(default)]
    pub adapters: Vec<Served>,
    pub watch: Watch,
    /// The number of adapters that were made.
    pub made: BTreeSet<String>,
    /// The product's status of the agent at the end of each day, if days are used.
    pub nights: Vec<Value>,
    /// The time of all processes that added to it.
    pub seconds: f64,
    /// How often the run was continued: a session that was cut is repeated under another name.
    pub n_resumed: usize,
}

// === impl Progress ===

impl Progress {
    /// Returns the state of a run with `n_questions` questions: from the folder of its product, else the beginning.
    pub fn of(folder: &Path, run: &Run, n_questions: usize) -> Result<Self> {
        let file = file(folder, &run.id);
        if !file.exists() {
            return Ok(Self {
                id: run.id.clone(),
                questions: Questions::new(n_questions, run.id.seed),
                sessions: Vec::new(),
                measured: Vec::new(),
                adapters: Vec::new(),
                watch: Watch::new(run.day > 1),
                made: BTreeSet::new(),
                nights: Vec::new(),
                seconds: 0.0,
                n_resumed: 0,
            });
        }
        let shown = file.display();
        let mut kept: Self =
            serde_json::from_slice(&fs::read(&file)?).with_context(|| shown.to_string())?;
        ensure!(
            kept.id == run.id,
            "{shown} is of {}, which is not at its end and whose agent {} would have as well: --again removes it, --out names another folder",
            kept.id,
            run.id
        );
        kept.n_resumed += 1;
        Ok(kept)
    }

    /// Stores the state in place of the earlier one.
    pub fn keep(&self, folder: &Path) -> Result<()> {
        let file = file(folder, &self.id);
        let shown = file.display();
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&new, &file))
            .with_context(|| format!("cannot write {shown}"))
    }

    /// Returns the name of the next session, with its number from 1.
    pub fn next_session(&self, agent: &str) -> String {
        let n = self.sessions.len() + 1;
        match self.n_resumed {
            0 => format!("{agent}-{n}"),
            again => format!("{agent}-{n}-again{again}"),
        }
    }
}

fn file(folder: &Path, id: &RunId) -> PathBuf {
    folder.join(format!("{}.json", id.agent()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::Content,
        rows::{Selection, select},
    };

    #[test]
    fn what_was_kept_goes_on_and_is_of_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let content = Content::read(60).unwrap();
        let selection = |sessions: Option<usize>| Selection {
            only: vec!["default".to_owned()],
            sessions,
            ..Selection::default()
        };
        let row = select(&selection(None), &content).unwrap().remove(0);
        let run = &row.runs[0];
        let mut begun = Progress::of(folder.path(), run, 60).unwrap();
        assert_eq!(begun.next_session("a"), "a-1");
        let first = begun.questions.next();
        begun.keep(folder.path()).unwrap();
        let mut resumed = Progress::of(folder.path(), run, 60).unwrap();
        assert_eq!(resumed.next_session("a"), "a-1-again1");
        let mut all = Questions::new(60, run.id.seed);
        assert_eq!(
            [first, resumed.questions.next()],
            [all.next(), all.next()],
            "the questions go on where they were"
        );
        let shorter = select(&selection(Some(7)), &content).unwrap().remove(0);
        let refused = Progress::of(folder.path(), &shorter.runs[0], 60).unwrap_err();
        assert!(refused.to_string().contains("not at its end"), "{refused}");
    }
}
