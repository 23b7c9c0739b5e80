//! `metaclaw turns`: what is in the log.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, SessionId, TurnId, now_ms};
use metaclaw_turns::{StateKind, TurnSummary};

use self::outcome::outcome;
pub(super) use self::outcome::score;
use super::{context::Context, source::TurnSource};
use crate::{control::TurnsQuery, out};

mod exported;
mod import;
mod kept;
mod outcome;
mod show;
mod train;

/// Arguments of `turns`.
#[derive(Debug, Args)]
pub(crate) struct TurnsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The newest turns, one a line.
    List {
        /// Only this agent's.
        #[arg(long)]
        agent: Option<AgentId>,
        /// Only this session's.
        #[arg(long)]
        session: Option<SessionId>,
        /// Only those in this state: captured, judged, taken, trained, spent or held_out.
        #[arg(long, value_parser = state)]
        state: Option<StateKind>,
        /// At most so many.
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
        /// Only turns older than this one, as in 12-3: the last of the list before, to go on from there.
        #[arg(long, value_name = "TURN")]
        before: Option<TurnId>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// One turn: under what it was served, what was said, what became of it; --full: all that is kept of it.
    Show {
        /// As in 12-3.
        id: TurnId,
        /// All that is kept: every message whole, and every field.
        #[arg(long)]
        full: bool,
        /// What a training step would use of it: token, log-probability, mask and advantage.
        #[arg(long, conflicts_with = "full")]
        train: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Every turn, whole, one JSON object a line.
    Export,
    /// Turns from JSON lines: what `turns export` wrote, as it was; or turns that were had elsewhere, with scores (docs/training/experiments.md).
    Import {
        /// The file; - for standard input.
        file: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

fn state(text: &str) -> Result<StateKind, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "captured, judged, taken, trained, spent or held_out".to_owned())
}

// === impl TurnsArgs ===

impl TurnsArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        if let What::Import { file, json } = &self.what {
            import::import(context, file, *json).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let source = TurnSource::open(context, "turns").await?;
        match self.what {
            What::Import { .. } => {}
            What::List {
                agent,
                session,
                state,
                limit,
                before,
                json,
            } => {
                let query = TurnsQuery {
                    agent,
                    session,
                    state,
                    limit,
                    before,
                };
                list(&source, query, json).await?;
            }
            What::Show {
                id,
                full,
                train,
                json,
            } => {
                let how = How { full, train, json };
                return show(source, id, how).await;
            }
            What::Export => source.export(&mut out::lines()).await?,
        }
        source.close().await?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(source: &TurnSource, query: TurnsQuery, json: bool) -> anyhow::Result<()> {
    let turns = source.list(query).await?;
    if json {
        out::json(&turns)?;
    } else {
        let rows: Vec<Vec<String>> = turns.iter().map(row).collect();
        let head = [
            "turn", "ago", "agent", "session", "state", "score", "asked", "answered",
        ];
        out::line(out::table(&head, &rows))?;
    }
    Ok(())
}

fn row(turn: &TurnSummary) -> Vec<String> {
    vec![
        turn.id.to_string(),
        out::span(now_ms().saturating_sub(turn.ended_ms)),
        turn.agent.to_string(),
        // Whole: `metaclaw forget SESSION` takes it as it stands here.
        turn.session.to_string(),
        outcome(turn.end, &turn.state),
        turn.score.map(score).unwrap_or_default().to_owned(),
        short(turn.asked.as_deref().unwrap_or_default(), 32),
        short(turn.answered.as_deref().unwrap_or_default(), 32),
    ]
}

/// One line, cut at `width` characters.
pub(super) fn short(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    let cut: String = line.chars().take(width - 1).collect();
    format!("{cut}…")
}

/// How a turn is shown.
#[derive(Debug, Clone, Copy)]
struct How {
    full: bool,
    train: bool,
    json: bool,
}

async fn show(source: TurnSource, id: TurnId, how: How) -> anyhow::Result<ExitCode> {
    let turn = source.get(id).await?;
    let preview = match &turn {
        Some(_) if how.train => source.preview(id).await?,
        Some(_) | None => None,
    };
    source.close().await?;
    let Some(turn) = turn else {
        anyhow::bail!("there is no turn {id}: `metaclaw turns list` shows what there is");
    };
    match (how.train, how.json) {
        (true, true) => out::json(&train::json(&turn, preview.as_ref()))?,
        (true, false) => out::line(train::text(&turn, preview.as_ref()))?,
        (false, true) => out::json(&turn)?,
        (false, false) => out::line(show::text(&turn, how.full))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("one  two\nthree", 20), "one two three");
        assert_eq!(short("日本語のテキスト", 4), "日本語…");
    }
}
