//! What is kept of a run after each session, until it has a record: a bench that was stopped goes on with the next one.

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

/// A run as far as it came.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Progress {
    id: RunId,
    pub questions: Questions,
    pub sessions: Vec<Session>,
    pub measured: Vec<Measured>,
    /// Every adapter, when it had come to serve.
    #[serde(default)]
    pub adapters: Vec<Served>,
    pub watch: Watch,
    /// Adapters that were made.
    pub made: BTreeSet<String>,
    /// How the product told of the agent at the end of each day, where days are told apart.
    pub nights: Vec<Value>,
    /// Of all processes that added to it.
    pub seconds: f64,
    /// How often it was gone on with: a session that was cut short is held again, by another name.
    pub n_resumed: usize,
}

// === impl Progress ===

impl Progress {
    /// Of a run among `n_questions` questions: as it is in the folder of its product, else at its beginning.
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

    /// Puts it by, in place of what was there.
    pub fn keep(&self, folder: &Path) -> Result<()> {
        let file = file(folder, &self.id);
        let shown = file.display();
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&new, &file))
            .with_context(|| format!("cannot write {shown}"))
    }

    /// What the next session is called, with its number from 1.
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
