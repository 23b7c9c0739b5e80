//! What a run begins with: its journal, and the places where its programs run.

use std::path::Path;

use super::{
    journal::{JournalEvent, RunJournal},
    order,
    programs::local_program,
    setup::{EvalSetup, RunSetup, RunTasks},
};
use crate::{
    episode::TaskRunError,
    pool::{EnvironmentAccess, EnvironmentPool},
};

/// The journal of a run, by the run's name.
pub(super) struct NamedJournal {
    pub(super) name: String,
    pub(super) journal: RunJournal,
}

/// Opens the journal of a run, and checks that it is of the same tasks.
pub(super) fn begin(setup: &RunSetup<'_>, tasks: &RunTasks) -> Result<NamedJournal, TaskRunError> {
    let stem = setup.file.path.file_stem().unwrap_or_default();
    let name = match &setup.name {
        Some(name) => name.clone(),
        None => stem.to_string_lossy().into_owned(),
    };
    let is_legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(is_legal) {
        return Err(TaskRunError::Refused(format!(
            "the run's name {name:?} is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., not beginning with a dot; --run gives another one"
        )));
    }
    let NamedJournal { name, mut journal } = match &setup.eval {
        Some(eval) => eval_journal(setup, &name, eval)?,
        None => NamedJournal::open(setup, name)?,
    };
    let plan = order::plan(setup.file, tasks, setup.eval.as_ref());
    match &journal.history.plan {
        Some(begun) if *begun == plan => {}
        Some(begun) => {
            return Err(TaskRunError::Refused(format!(
                "run {name} began with {begun}, and the file says {plan}: give the run another name with --run, or restore the file"
            )));
        }
        None => {
            let prefix = format!("{name}-{:08x}", rand::random::<u32>());
            journal.write(JournalEvent::Began { plan, prefix })?;
        }
    }
    Ok(NamedJournal { name, journal })
}

/// The journal of a measurement: the last one if that is not complete, else a new one.
fn eval_journal(
    setup: &RunSetup<'_>,
    name: &str,
    eval: &EvalSetup,
) -> Result<NamedJournal, TaskRunError> {
    let adapter = eval.adapter.as_ref().map(|adapter| format!("-{adapter}"));
    let base = format!("{name}-eval{}", adapter.unwrap_or_default());
    let named = |n: u32| format!("{base}-{n}");
    let is_there = |n: u32| setup.folder.join(named(n)).exists();
    let mut last = 1;
    while is_there(last + 1) {
        last += 1;
    }
    let newest = NamedJournal::open(setup, named(last))?;
    if newest.journal.history.measured.is_empty() {
        return Ok(newest);
    }
    NamedJournal::open(setup, named(last + 1))
}

pub(super) fn pool(setup: &RunSetup<'_>, folder: &Path) -> Result<EnvironmentPool, TaskRunError> {
    let file = setup.file;
    if file.environments.is_empty() {
        let program = local_program(file, &setup.metaclaw, folder)?;
        return Ok(EnvironmentPool::local(program, file.at_once));
    }
    let access = EnvironmentAccess {
        http: setup.http.clone(),
        key: setup
            .environment_key
            .as_ref()
            .map(|key| key.expose().to_owned()),
        timeout: file.timeout.0,
        at_once: file.at_once,
    };
    Ok(EnvironmentPool::remote(&file.environments, &access))
}

// === impl NamedJournal ===

impl NamedJournal {
    fn open(setup: &RunSetup<'_>, name: String) -> Result<Self, TaskRunError> {
        let journal = RunJournal::open(&setup.folder.join(&name))?;
        Ok(Self { name, journal })
    }
}
