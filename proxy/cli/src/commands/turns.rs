//! `metaclaw turns`: what is in the log.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, SessionId, TurnId};
use metaclaw_control::{
    caller::by_line,
    operations::{
        turns::{Export, GetTurn, TurnsQuery},
        weights::PreviewTurn,
    },
};
use metaclaw_turns::{ExportedTurn, StateKind, Turn, TurnSummary};

use self::{
    chats::ChatCounts,
    outcome::{outcome, score},
};
use super::{
    calling::{call, caller},
    columns::short,
    context::Context,
};
use crate::out;

mod chats;
mod import;
mod outcome;
mod sessions;
mod show;
mod train;

#[derive(Debug, Args)]
pub(crate) struct TurnsArgs {
    #[command(subcommand)]
    what: TurnsCommand,
}

#[derive(Debug, Subcommand)]
enum TurnsCommand {
    /// List the newest turns.
    List {
        /// Only turns of this agent.
        #[arg(long)]
        agent: Option<AgentId>,
        /// Only turns of this session.
        #[arg(long)]
        session: Option<SessionId>,
        /// Only turns in this state: captured, judged, taken, trained, spent (excluded) or held_out.
        #[arg(long, value_parser = state)]
        state: Option<StateKind>,
        /// The most turns that are listed.
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
        /// Only turns before this one, for example 12-3. The last turn of a list gives the next list.
        #[arg(long, value_name = "TURN")]
        before: Option<TurnId>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the newest sessions in which you spoke: your turns, requests that the agent sent by itself, and good and bad verdicts.
    Sessions {
        /// Only sessions of this agent.
        #[arg(long)]
        agent: Option<AgentId>,
        /// The most sessions that are listed.
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a turn: what was said, what served it, and what became of it.
    Show {
        /// The turn's id, for example 12-3.
        id: TurnId,
        /// Show every message whole, and every field.
        #[arg(long)]
        full: bool,
        /// Show what a training step would use of it: token, log-probability, mask and advantage.
        #[arg(long, conflicts_with = "full")]
        train: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print every turn as JSON, one object a line; with --chats, the good turns for fine-tuning.
    Export {
        /// Print only whole turns of the owner with verdict +1, in OpenAI's fine-tuning format
        /// (docs/training/fireworks.md).
        #[arg(long)]
        chats: bool,
        /// Only chats of this agent.
        #[arg(long, requires = "chats")]
        agent: Option<AgentId>,
    },
    /// Import turns from JSON lines: those of `turns export`, or turns from elsewhere with scores
    /// (docs/training/experiments.md).
    Import {
        /// The file, or - for standard input.
        file: PathBuf,
        /// Print JSON.
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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.what {
            TurnsCommand::Import { file, json } => import::import(context, &file, json).await?,
            TurnsCommand::List {
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
                list(context, query, json).await?;
            }
            TurnsCommand::Sessions { agent, limit, json } => {
                sessions::list(context, agent, limit, json).await?;
            }
            TurnsCommand::Show {
                id,
                full,
                train,
                json,
            } => {
                let how = ShownTurn { full, train, json };
                show(context, id, how).await?;
            }
            TurnsCommand::Export { chats: true, agent } => export_chats(context, agent).await?,
            TurnsCommand::Export { chats: false, .. } => export(context).await?,
        }
        Ok(())
    }
}

async fn list(context: &Context, query: TurnsQuery, json: bool) -> anyhow::Result<()> {
    let turns = call(context, "turns", query).await?;
    let head = [
        "turn", "ago", "agent", "session", "state", "score", "asked", "answered",
    ];
    Ok(out::answer_table(&turns, json, &head, row)?)
}

fn row(turn: &TurnSummary) -> Vec<String> {
    vec![
        turn.id.to_string(),
        out::since(turn.ended_ms),
        turn.agent.to_string(),
        // Whole: `metaclaw forget SESSION` takes it as it stands here.
        turn.session.to_string(),
        outcome(turn.end, &turn.state),
        turn.score.map(score).unwrap_or_default().to_owned(),
        short(turn.asked.as_deref().unwrap_or_default(), 32),
        short(turn.answered.as_deref().unwrap_or_default(), 32),
    ]
}

pub(super) fn shown(turn: &Turn, full: bool) -> String {
    show::text(turn, full)
}

#[derive(Debug, Clone, Copy)]
struct ShownTurn {
    full: bool,
    train: bool,
    json: bool,
}

async fn show(context: &Context, id: TurnId, how: ShownTurn) -> anyhow::Result<()> {
    let caller = caller(context, "turns").await?;
    let asked = async {
        let turn = caller.call(GetTurn(id)).await?;
        let preview = match &turn {
            Some(_) if how.train => caller.call(PreviewTurn(id)).await?,
            Some(_) | None => None,
        };
        anyhow::Ok((turn, preview))
    };
    let asked = asked.await;
    caller.close().await;
    let (turn, preview) = asked?;
    let Some(turn) = turn else {
        anyhow::bail!("there is no turn {id}: `metaclaw turns list` shows what there is");
    };
    match (how.train, how.json) {
        (true, true) => out::json(&train::json(&turn, preview.as_ref()))?,
        (true, false) => out::line(train::text(&turn, preview.as_ref()))?,
        (false, true) => out::json(&turn)?,
        (false, false) => out::line(show::text(&turn, how.full))?,
    }
    Ok(())
}

async fn export(context: &Context) -> anyhow::Result<()> {
    let mut lines = out::lines();
    stream_export(context, |piece| lines.write_all(piece)).await?;
    Ok(lines.flush()?)
}

async fn export_chats(context: &Context, agent: Option<AgentId>) -> anyhow::Result<()> {
    let mut lines = out::lines();
    let mut counts = ChatCounts::default();
    let each = by_line(|line: &[u8]| {
        let exported: ExportedTurn = serde_json::from_slice(line).map_err(io::Error::other)?;
        match counts.chat(&exported.turn, agent.as_ref()) {
            Some(chat) => writeln!(lines, "{chat}"),
            None => Ok(()),
        }
    });
    stream_export(context, each).await?;
    lines.flush()?;
    out::aside(counts.text());
    Ok(())
}

async fn stream_export(
    context: &Context,
    each: impl FnMut(&[u8]) -> io::Result<()>,
) -> anyhow::Result<()> {
    let caller = caller(context, "turns").await?;
    let note = |note: &str| out::aside(format!("warning: {note}"));
    let exported = caller.stream(Export, note, each).await;
    caller.close().await;
    exported
}
