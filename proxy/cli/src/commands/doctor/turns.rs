//! Logs of turns that were set aside: what they have that the log lacks, and put back where that is wanted.

use std::path::{Path, PathBuf};

use metaclaw_chat::TurnId;
use metaclaw_control::{
    caller::ControlCaller,
    instance::LogOpening,
    operation::with_causes,
    operations::turns::{FindLacking, RaiseCounts},
};
use metaclaw_settings::Loaded;
use metaclaw_turns::{LogError, SetAside, Turn, TurnLog, TurnsConfig};

use super::{
    super::{
        calling::{caller_opening, instance},
        restoring::RestorePieces,
    },
    check::DoctorCheck,
};
use crate::{commands::context::Context, out};

const NAME: &str = "turns";
const ASKED: usize = 1_000;

#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "they are counts")]
struct AsideTurns {
    n_turns: usize,
    n_lacking: usize,
    n_damaged: usize,
}

pub(super) async fn checks(
    context: &Context,
    loaded: &Loaded,
    is_running: bool,
    fix: bool,
) -> Vec<DoctorCheck> {
    let dir = context.home.turns();
    if let Some(damage) = damage(context, is_running).await {
        return vec![damage];
    }
    let found = match SetAside::find(&dir) {
        Ok(found) => found,
        Err(error) => {
            let said = format!("{} does not read: {error}", dir.display());
            let remedy = format!("see who owns it: `ls -ld {}`", dir.display());
            return vec![DoctorCheck::bad(NAME, said, remedy)];
        }
    };
    let mut checks: Vec<DoctorCheck> = found.parts.iter().map(|path| part(path)).collect();
    if found.databases.is_empty() {
        return checks;
    }
    match old_logs(context, loaded, found.databases, fix).await {
        Ok(of_logs) => checks.extend(of_logs),
        Err(error) => checks.push(DoctorCheck::bad(
            NAME,
            format!("logs were set aside in {}, and the log cannot be asked what it lacks of them: {error:#}", dir.display()),
            "mend that, then `metaclaw doctor` again",
        )),
    }
    checks
}

/// What a start would find wrong with the log, in the same words where it would refuse it. The running process has
/// opened it. Only a copy is opened here, because opening a damaged log mends it.
async fn damage(context: &Context, is_running: bool) -> Option<DoctorCheck> {
    let dir = context.home.turns();
    if is_running || !dir.exists() {
        return None;
    }
    let files = instance(context, "doctor", LogOpening::Copied);
    let damage = match files.log().await {
        Ok(log) if log.outcome().n_lost + log.outcome().n_gaps == 0 => None,
        Ok(_) => Some((
            format!("a part of {} is damaged, and is lost", dir.display()),
            "run `metaclaw start`: it uses the turns that can be read, and keeps a copy of the damaged log beside it",
        )),
        Err(failure) => Some((
            with_causes(&failure),
            "correct that: until then, `metaclaw start` refuses the log. A log that is damaged as a whole is moved aside, and an empty one begins",
        )),
    };
    files.close().await;
    damage.map(|(said, remedy)| DoctorCheck::bad(NAME, said, remedy))
}

fn part(path: &Path) -> DoctorCheck {
    let said = format!(
        "{} holds parts of the log's files that were damaged and are not needed: you may delete it",
        path.display()
    );
    DoctorCheck::note(NAME, said)
}

async fn old_logs(
    context: &Context,
    loaded: &Loaded,
    databases: Vec<PathBuf>,
    fix: bool,
) -> anyhow::Result<Vec<DoctorCheck>> {
    let config = loaded.config.turns.clone();
    let opening = if fix {
        LogOpening::OrBegin
    } else {
        LogOpening::Copied
    };
    let caller = caller_opening(context, "doctor", opening).await?;
    let mut checks = Vec::new();
    for database in databases {
        checks.push(old_log(&caller, &config, &database, fix).await);
    }
    caller.close().await;
    Ok(checks)
}

async fn old_log(
    caller: &ControlCaller,
    config: &TurnsConfig,
    database: &Path,
    fix: bool,
) -> DoctorCheck {
    let place = database.display();
    let opened = {
        let (database, config) = (database.to_owned(), config.clone());
        tokio::task::spawn_blocking(move || TurnLog::open_aside(&database, &config)).await
    };
    let aside = match opened.map_err(anyhow::Error::from).and_then(|one| Ok(one?)) {
        Ok(aside) => aside,
        Err(error) => {
            return DoctorCheck::note(
                NAME,
                format!("{place} was set aside, and does not read: {error:#}"),
            );
        }
    };
    let looked = async {
        let held = compare(caller, &aside).await?;
        if fix && held.n_lacking > 0 {
            put_back(caller, &aside).await?;
        }
        Ok::<_, anyhow::Error>(held)
    };
    let looked = looked.await;
    aside.close().await;
    match looked {
        Ok(held) => report(database, &held, fix),
        Err(error) => DoctorCheck::bad(
            NAME,
            format!("{place} was set aside, and its turns cannot be compared: {error:#}"),
            "keep it, and try `metaclaw doctor --fix` again",
        ),
    }
}

fn report(database: &Path, held: &AsideTurns, fix: bool) -> DoctorCheck {
    let place = database.display();
    let AsideTurns {
        n_turns,
        n_lacking,
        n_damaged,
    } = *held;
    let turns = out::count(n_turns as u64, "turn");
    let damaged = match n_damaged {
        0 => String::new(),
        n => format!(" ({n} more are damaged, and lost)"),
    };
    match (n_lacking, fix) {
        (0, _) if n_turns == 0 => DoctorCheck::note(
            NAME,
            format!("{place} was set aside, and no turn in it can be read{damaged}"),
        ),
        (0, _) => DoctorCheck::note(
            NAME,
            format!("{place} was set aside; the log has its {turns}{damaged}: you may delete it"),
        ),
        (n, true) => DoctorCheck::mended(
            NAME,
            format!(
                "{n} of {turns} in {place} are in the log again{damaged}; the folder stays until you delete it"
            ),
        ),
        (n, false) => DoctorCheck::bad(
            NAME,
            format!("{place} was set aside with {turns}, of which the log lacks {n}{damaged}"),
            "`metaclaw doctor --fix` puts them back",
        ),
    }
}

async fn compare(caller: &ControlCaller, aside: &TurnLog) -> anyhow::Result<AsideTurns> {
    let (mut held, mut asked) = (AsideTurns::default(), Vec::new());
    for id in aside.by_arrival().await? {
        match aside.get(id).await {
            Ok(turn) => asked.extend(turn.map(|turn| turn.fingerprint())),
            Err(LogError::Damaged { .. }) => held.n_damaged += 1,
            Err(error) => return Err(error.into()),
        }
        if asked.len() >= ASKED {
            let lacks = FindLacking(std::mem::take(&mut asked));
            held.count(&caller.call(lacks).await?);
        }
    }
    held.count(&caller.call(FindLacking(asked)).await?);
    Ok(held)
}

async fn put_back(caller: &ControlCaller, aside: &TurnLog) -> anyhow::Result<()> {
    let mut pieces = RestorePieces::new(caller);
    for id in aside.by_arrival().await? {
        if let Some(turn) = turn(aside, id).await? {
            let n_bytes = serde_json::to_vec(&turn)?.len();
            pieces.add(turn, n_bytes).await?;
        }
    }
    pieces.finish().await?;
    caller.call(RaiseCounts(aside.counts().await?)).await
}

/// A turn, unless it is damaged or was forgotten.
async fn turn(log: &TurnLog, id: TurnId) -> anyhow::Result<Option<Turn>> {
    match log.get(id).await {
        Err(LogError::Damaged { .. }) => Ok(None),
        turn => Ok(turn?),
    }
}

// === impl AsideTurns ===

impl AsideTurns {
    fn count(&mut self, lacks: &[bool]) {
        self.n_turns += lacks.len();
        self.n_lacking += lacks.iter().filter(|lacks| **lacks).count();
    }
}
