//! `metaclaw turns`: what is in the log.

use std::{io::Write, process::ExitCode};

use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, Role, Score, SessionId, TurnId};
use metaclaw_turns::{StateKind, StreamEnd, TurnState, TurnSummary};

use super::{context::Context, source::TurnSource};
use crate::{control::TurnsQuery, out};

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
        /// Only those after this one in the list: the last of the page before.
        #[arg(long)]
        before: Option<TurnId>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// One turn, whole.
    Show {
        /// As in 12-3.
        id: TurnId,
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
            What::Show { id, json } => return show(source, id, json).await,
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
            "turn", "agent", "session", "state", "score", "asked", "answered",
        ];
        out::line(out::table(&head, &rows))?;
    }
    Ok(())
}

fn row(turn: &TurnSummary) -> Vec<String> {
    vec![
        turn.id.to_string(),
        turn.agent.to_string(),
        short(turn.session.as_str(), 20),
        outcome(turn),
        turn.score.map(score).unwrap_or_default().to_owned(),
        short(turn.asked.as_deref().unwrap_or_default(), 32),
        short(turn.answered.as_deref().unwrap_or_default(), 32),
    ]
}

/// The state; for a reply that is not whole, why it will not be learned from.
fn outcome(turn: &TurnSummary) -> String {
    match (&turn.end, &turn.state) {
        (StreamEnd::Complete, TurnState::Captured) => "captured".to_owned(),
        (StreamEnd::Cut, TurnState::Captured) => "cut".to_owned(),
        (StreamEnd::ClientGone, TurnState::Captured) => "client gone".to_owned(),
        (StreamEnd::UpstreamError { status }, TurnState::Captured) => format!("error {status}"),
        (StreamEnd::Overflowed, TurnState::Captured) => "overflowed".to_owned(),
        (_, TurnState::Judged) => "judged".to_owned(),
        (_, TurnState::Taken { n }) => format!("taken by step {n}"),
        (_, TurnState::Trained { n }) => format!("trained in step {n}"),
        (_, TurnState::Spent { why }) => format!("spent: {why}"),
        (_, TurnState::HeldOut) => "held out".to_owned(),
    }
}

fn score(score: Score) -> &'static str {
    match score {
        Score::Good => "+1",
        Score::Unclear => "0",
        Score::Bad => "-1",
    }
}

/// One line, cut at `width` characters.
fn short(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    let cut: String = line.chars().take(width - 1).collect();
    format!("{cut}…")
}

async fn show(source: TurnSource, id: TurnId, json: bool) -> anyhow::Result<ExitCode> {
    let turn = source.get(id).await?;
    source.close().await?;
    let Some(turn) = turn else {
        anyhow::bail!("there is no turn {id}: `metaclaw turns list` shows what there is");
    };
    if json {
        out::json(&turn)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = Vec::new();
    for message in &turn.request.messages {
        writeln!(text, "[{}] {}", role(message.role()), message.text())?;
    }
    match &turn.reply {
        Some(reply) => writeln!(text, "[reply] {}", reply.text())?,
        None => writeln!(text, "[no reply]")?,
    }
    if let Some(verdict) = &turn.verdict {
        let hint = verdict.hint.as_deref().unwrap_or_default();
        writeln!(text, "[verdict] {} {hint}", score(verdict.score))?;
    }
    out::line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => "other",
    }
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
