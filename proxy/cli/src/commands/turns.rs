//! `metaclaw turns`: what is in the log.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, SessionId, TurnId, now_ms};
use metaclaw_turns::{StateKind, TurnSummary};

use self::outcome::outcome;
pub(super) use self::outcome::score;
use super::{context::Context, source::TurnSource};
use crate::{control::TurnsQuery, out};

mod kept;
mod outcome;
mod show;

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
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Every turn, whole, one JSON object a line.
    Export,
}

fn state(text: &str) -> Result<StateKind, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "captured, judged, taken, trained, spent or held_out".to_owned())
}

// === impl TurnsArgs ===

impl TurnsArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let source = TurnSource::open(context, "turns").await?;
        match self.what {
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
            What::Show { id, full, json } => return show(source, id, full, json).await,
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

async fn show(source: TurnSource, id: TurnId, full: bool, json: bool) -> anyhow::Result<ExitCode> {
    let turn = source.get(id).await?;
    source.close().await?;
    let Some(turn) = turn else {
        anyhow::bail!("there is no turn {id}: `metaclaw turns list` shows what there is");
    };
    if json {
        out::json(&turn)?;
    } else {
        out::line(show::text(&turn, full))?;
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
