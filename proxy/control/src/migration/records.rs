//! Records of an old home: `conversations.jsonl` with `prm_scores.jsonl` beside it.
//!
//! Each record becomes a line of rollouts, which the reader of `metaclaw turns import` checks. So the same record gives the
//! same turn, however often it is migrated.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use jiff::{civil::DateTime, tz::TimeZone};
use metaclaw_chat::{AgentId, Score, if_there, now_ms};
use metaclaw_skills::read_text;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    item::{MigratedKind, MigrationOutcome},
    work::Migration,
};
use crate::{
    instance::Instance,
    operation::Operation as _,
    rollouts::{Imported, RolloutImport},
};

const CONVERSATIONS: &str = "conversations.jsonl";
const SCORES: &str = "prm_scores.jsonl";
/// The largest file of records.
const MAX_FILE: u64 = 1 << 30;
/// About how many bytes one import has.
const MAX_PIECE: usize = 8 << 20;
/// Reasons for left records that are listed for each file.
const MAX_REASONS: usize = 5;

/// A line of `conversations.jsonl`.
#[derive(Debug, Deserialize)]
struct OldRecord {
    session_id: String,
    turn: u64,
    #[serde(default)]
    timestamp: String,
    messages: Vec<Value>,
    #[serde(default)]
    response_text: String,
    #[serde(default)]
    tool_calls: Option<Value>,
}

/// A line of `prm_scores.jsonl`.
#[derive(Debug, Deserialize)]
struct OldScore {
    session_id: String,
    turn: u64,
    score: f64,
}

/// Scores by session and turn.
type OldScores = BTreeMap<(String, u64), Score>;

/// The lines of an import that is being collected.
#[derive(Default)]
struct Pieces {
    lines: String,
    imports: Vec<RolloutImport>,
}

/// Reads all records; what cannot be read is noted.
pub(super) fn read(migration: &mut Migration<'_>) -> anyhow::Result<Vec<RolloutImport>> {
    let mut imports = Vec::new();
    for folder in migration.old.records.clone() {
        let path = folder.join(CONVERSATIONS);
        let Some(text) = text(&path)? else {
            continue;
        };
        let scores = scores(&folder.join(SCORES))?;
        imports.extend(rollouts(migration, &text, &scores)?);
    }
    Ok(imports)
}

fn rollouts(
    migration: &mut Migration<'_>,
    text: &str,
    scores: &OldScores,
) -> anyhow::Result<Vec<RolloutImport>> {
    let (mut pieces, mut left) = (Pieces::default(), Vec::new());
    let now_ms = now_ms();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let rollout = rollout(&migration.old.agent, line, scores, now_ms);
        match rollout.and_then(|line| checked(line, now_ms)) {
            Ok(line) => pieces.add(&line, now_ms)?,
            Err(why) => {
                // The reader of JSON counts within this one line.
                let (why, _) = why.rsplit_once(" at line 1 ").unwrap_or((&why, ""));
                left.push(format!("line {number}: {why}"));
            }
        }
    }
    if !left.is_empty() {
        let n = left.len();
        let records = if n == 1 { "record" } else { "records" };
        left.truncate(MAX_REASONS);
        if n > left.len() {
            left.push(format!("and {} more", n - left.len()));
        }
        let name = format!("{n} {records} of {CONVERSATIONS}");
        let why = MigrationOutcome::Left(left.join("; "));
        migration.note(MigratedKind::Turns, name, why);
    }
    pieces.end(now_ms)?;
    Ok(pieces.imports)
}

/// Converts a record to a line of rollouts.
fn rollout(agent: &AgentId, line: &str, scores: &OldScores, now_ms: u64) -> Result<String, String> {
    let record: OldRecord = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let reply = match record.tool_calls.filter(|calls| !calls.is_null()) {
        Some(calls) => json!({
            "role": "assistant", "content": record.response_text, "tool_calls": calls,
        }),
        None => record.response_text.into(),
    };
    let mut rollout = json!({
        "agent": agent,
        "session": record.session_id,
        "prompt": record.messages,
        "response": reply,
    });
    if let Some(score) = scores.get(&(record.session_id, record.turn)) {
        rollout["score"] = i8::from(*score).into();
    }
    if let Some(ms) = milliseconds(&record.timestamp).filter(|ms| *ms <= now_ms) {
        rollout["time_ms"] = ms.into();
    }
    Ok(rollout.to_string())
}

/// Takes records into the log. How many of them the log has already is known only when it is open.
pub(super) async fn import(
    migration: &mut Migration<'_>,
    imports: Vec<RolloutImport>,
    instance: &Instance,
) -> anyhow::Result<()> {
    for import in imports {
        let (n, file) = (import.rollouts.len(), import.file.clone());
        let done = if migration.writes {
            import.perform(instance).await.map_err(|it| it.error)?
        } else {
            Imported {
                n_new: n,
                n_known: 0,
                n_with_ids: 0,
            }
        };
        for (n, outcome) in [
            (done.n_new, MigrationOutcome::Taken),
            (done.n_known, MigrationOutcome::Present),
        ] {
            let turns = if n == 1 { "turn" } else { "turns" };
            if n > 0 {
                migration.note(
                    MigratedKind::Turns,
                    format!("{n} {turns} of {file}"),
                    outcome,
                );
            }
        }
    }
    Ok(())
}

/// Returns the line, if the reader of rollouts takes it.
fn checked(line: String, now_ms: u64) -> Result<String, String> {
    match RolloutImport::read(CONVERSATIONS, &line, now_ms) {
        Ok(_) => Ok(line),
        Err(error) => Err(error.reason()),
    }
}

/// The text of a file; none if there is no such file.
fn text(path: &Path) -> anyhow::Result<Option<String>> {
    if_there(read_text(path, MAX_FILE)).with_context(|| format!("cannot read {}", path.display()))
}

/// The scores of a file. A line with another score, as of a judge that failed, gives none.
fn scores(path: &Path) -> anyhow::Result<OldScores> {
    let text = text(path)?.unwrap_or_default();
    let read = text.lines().filter_map(|line| {
        let OldScore {
            session_id,
            turn,
            score,
        } = serde_json::from_str(line).ok()?;
        let score = [Score::Bad, Score::Unclear, Score::Good]
            .into_iter()
            .find(|it| f64::from(i8::from(*it)).to_bits() == (score + 0.0).to_bits())?;
        Some(((session_id, turn), score))
    });
    Ok(read.collect())
}

/// A time of this machine's zone, as `2026-03-24 18:05:00`, in Unix milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let time: DateTime = text.trim().parse().ok()?;
    let zoned = time.to_zoned(TimeZone::system()).ok()?;
    u64::try_from(zoned.timestamp().as_millisecond()).ok()
}

// === impl Pieces ===

impl Pieces {
    fn add(&mut self, line: &str, now_ms: u64) -> anyhow::Result<()> {
        if self.lines.len() + line.len() > MAX_PIECE {
            self.end(now_ms)?;
        }
        self.lines.push_str(line);
        self.lines.push('\n');
        Ok(())
    }

    fn end(&mut self, now_ms: u64) -> anyhow::Result<()> {
        if !self.lines.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            self.imports
                .push(RolloutImport::read(CONVERSATIONS, &lines, now_ms)?);
        }
        Ok(())
    }
}
