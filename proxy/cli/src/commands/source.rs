//! Where a subcommand gets its answer: from the running process, or from the files where nothing
//! runs.

use std::{collections::BTreeMap, io::Write, path::Path, time::Duration};

use anyhow::bail;
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{
    Fingerprint, LessonCounts, LogCounts, OpenError, RestoreOutcome, RestoredTurn, Turn, TurnLog,
    TurnSummary, TurnsConfig,
};
use tokio::time::Instant;

use super::context::Context;
use crate::{
    control::{ControlClient, TurnsQuery, missing, write_lines},
    home::{Home, HomeLock},
    lessons::{self, Done},
    out,
};

/// A process that has the home and is not listening yet says where it is soon.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Until a piece of another log is in this one.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(120);
/// OpenClaw's own name for its first agent.
const OPENCLAWS: &str = "main";

/// The running process; `None` where nothing runs.
pub(crate) async fn running(home: &Home) -> anyhow::Result<Option<ControlClient>> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    loop {
        let Some(holder) = home.holder()? else {
            return Ok(None);
        };
        match home.run_file()? {
            Some(run) if run.pid == holder.pid => return Ok(Some(ControlClient::new(run)?)),
            // Left by a killed one, or not written yet.
            _ if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            _ => bail!(
                "`metaclaw {}` (process {}) has {} and does not say where it is: try again",
                holder.doing,
                holder.pid,
                home.dir().display()
            ),
        }
    }
}

/// The counts of lessons in the log's files; none where there is no log.
pub(super) async fn lesson_counts(
    context: &Context,
    agent: Option<&AgentId>,
) -> anyhow::Result<BTreeMap<String, LessonCounts>> {
    if !context.home.turns().exists() {
        return Ok(BTreeMap::new());
    }
    match TurnSource::open(context, "lessons").await? {
        TurnSource::Files { log, _lock } => {
            let counts = log.lesson_counts(agent).await;
            log.close().await;
            Ok(counts?)
        }
        TurnSource::Running(_) => bail!("metaclaw was started meanwhile: try again"),
    }
}

/// Counts in the log's files the lesson that came into force, if one did; where there is no log, nothing is counted.
pub(super) async fn count_learned(context: &Context, done: &Done) {
    let Some(agent) = &done.learned else { return };
    if !context.home.turns().exists() {
        return;
    }
    let counted = async {
        match TurnSource::open(context, "lessons").await? {
            TurnSource::Files { log, _lock } => {
                let counted = lessons::count(&log, agent).await;
                log.close().await;
                Ok(counted?)
            }
            TurnSource::Running(_) => bail!("metaclaw was started meanwhile"),
        }
    };
    if let Err(error) = counted.await {
        out::aside(format!(
            "warning: the lesson is missing in the counts of its day: {error:#}"
        ));
    }
}

/// The agent that a command is about: the one that is named, else the one that spoke last, so that nobody who has one
/// agent has to name it. Before anybody spoke: OpenClaw's, where that is pointed at us.
pub(super) async fn agent(context: &Context, named: Option<&AgentId>) -> anyhow::Result<AgentId> {
    if let Some(agent) = named {
        return Ok(agent.clone());
    }
    let wiring = context.home.wiring();
    let first = match wiring.record() {
        Ok(Some(_)) => OPENCLAWS.parse()?,
        _ => AgentId::default_agent(),
    };
    let has_log = context.home.turns().exists();
    if !has_log && running(&context.home).await?.is_none() {
        return Ok(first);
    }
    let source = TurnSource::open(context, "lessons").await?;
    let newest = TurnsQuery {
        limit: 1,
        ..TurnsQuery::default()
    };
    let turns = source.list(newest).await?;
    source.close().await?;
    let last = turns.first().map(|turn| turn.agent.clone());
    Ok(last.unwrap_or(first))
}

type Open = fn(&Path, &TurnsConfig) -> Result<TurnLog, OpenError>;

/// Where turns come from.
pub(super) enum TurnSource {
    Running(ControlClient),
    /// The files; nobody else may have them meanwhile.
    Files {
        log: TurnLog,
        _lock: HomeLock,
    },
}

// === impl TurnSource ===

impl TurnSource {
    /// Asks the running process, else opens the files.
    pub(super) async fn open(context: &Context, doing: &str) -> anyhow::Result<Self> {
        if let Some(client) = running(&context.home).await? {
            return Ok(Self::Running(client));
        }
        if !context.home.turns().exists() {
            bail!("there is no log in {} yet", context.home.dir().display());
        }
        Self::files(context, doing, TurnLog::open).await
    }

    /// The same, for turns that are to come into the log: where there is none, it begins one.
    pub(super) async fn open_or_begin(context: &Context, doing: &str) -> anyhow::Result<Self> {
        if let Some(client) = running(&context.home).await? {
            return Ok(Self::Running(client));
        }
        context.home.create()?;
        Self::files(context, doing, TurnLog::open).await
    }

    /// The same, to look at the log: one that is damaged stays where it is.
    pub(super) async fn open_unmoved(context: &Context, doing: &str) -> anyhow::Result<Self> {
        if let Some(client) = running(&context.home).await? {
            return Ok(Self::Running(client));
        }
        Self::files(context, doing, TurnLog::open_unmoved).await
    }

    async fn files(context: &Context, doing: &str, open: Open) -> anyhow::Result<Self> {
        let folder = context.home.turns();
        let lock = context.home.lock(doing)?;
        let config = context.settings(None, Vec::new())?.config.turns;
        let log = tokio::task::spawn_blocking(move || open(&folder, &config)).await??;
        Ok(Self::Files { log, _lock: lock })
    }

    /// One line about each.
    pub(super) async fn list(&self, query: TurnsQuery) -> anyhow::Result<Vec<TurnSummary>> {
        match self {
            Self::Running(client) => Ok(client.ask("turns", &query).await?),
            Self::Files { log, .. } => Ok(log.list(query.into()).await?),
        }
    }

    pub(super) async fn get(&self, id: TurnId) -> anyhow::Result<Option<Turn>> {
        match self {
            Self::Running(client) => Ok(client.ask("turn", &id).await?),
            Self::Files { log, .. } => Ok(log.get(id).await?),
        }
    }

    /// What a training step would use of a turn: only the running process knows.
    pub(super) async fn preview(&self, id: TurnId) -> anyhow::Result<Option<serde_json::Value>> {
        match self {
            Self::Running(client) => Ok(client.ask("turn_preview", &id).await?),
            Self::Files { .. } => Ok(None),
        }
    }

    /// All of them, as JSON lines.
    pub(super) async fn export(&self, to: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Running(client) => client.copy("export", to).await?,
            Self::Files { log, .. } => {
                let exported = write_lines(log, to).await?;
                if let Some(warning) = missing(&exported) {
                    out::aside(format!("warning: {warning}"));
                }
            }
        }
        Ok(to.flush()?)
    }

    /// Which of these turns the log does not have.
    pub(super) async fn lacks(&self, turns: Vec<Fingerprint>) -> anyhow::Result<Vec<bool>> {
        match self {
            Self::Running(client) => Ok(client.ask("lacks", &turns).await?),
            Self::Files { log, .. } => Ok(log.lacks(turns).await?),
        }
    }

    /// Takes turns of another log.
    pub(super) async fn restore(&self, turns: Vec<RestoredTurn>) -> anyhow::Result<RestoreOutcome> {
        match self {
            Self::Running(client) => Ok(client.order("restore", &turns, RESTORE_TIMEOUT).await?),
            Self::Files { log, .. } => Ok(log.restore(turns).await?),
        }
    }

    /// Takes over what else another log had counted.
    pub(super) async fn raise_counts(&self, counts: LogCounts) -> anyhow::Result<()> {
        match self {
            Self::Running(client) => Ok(client.ask("raise_counts", &counts).await?),
            Self::Files { log, .. } => Ok(log.raise_counts(counts).await?),
        }
    }

    /// Lets go of the files.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Running(_) => Ok(()),
            Self::Files { log, .. } => {
                log.close().await;
                Ok(())
            }
        }
    }
}
