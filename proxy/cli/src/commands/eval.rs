//! `metaclaw eval`: adapters beside the base model, measured.
//!
//! Where a proxy runs it is asked, since the log and the policy server are its own; where none does, the files are opened
//! and the policy server is started for as long as this takes.

use std::time::Duration;

use clap::{Args, builder::RangedU64ValueParser};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_learner::{
    EvalReport, EvalRow, EvalTurns, EvalWanted, KnowledgeNumbers, Replied, ReplyNumbers,
};

use super::{
    calling::{agent, caller},
    columns::{TextColumn, side_by_side},
    context::Context,
};
use crate::{out, terminal};

/// Turns that are asked again unasked: as many as take about as long as the probes.
const LAST: usize = 8;
const WIDTH: usize = 100;
const NONE: &str = "-";
const REPLIES: [&str; 5] = ["words", "relevance", "fluency", "short", "distinct"];

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Names of adapters, as `metaclaw adapters list` shows them. Without any, the one that serves the agent.
    #[arg(value_name = "ADAPTER")]
    adapters: Vec<String>,
    /// The agent whose wishes and turns are used. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// A wish, instead of the agent's wishes. May be repeated.
    #[arg(long = "wish", value_name = "TEXT")]
    wishes: Vec<String>,
    /// Turns to ask again, for example 12-3,15-0. Without it, the held-out turns, else the last ones.
    #[arg(
        long,
        value_name = "TURN",
        value_delimiter = ',',
        conflicts_with = "last"
    )]
    turns: Vec<TurnId>,
    /// How many of the last questions that began a session are asked again. 0 asks none.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(0..=100))]
    last: Option<usize>,
    /// The number of the set of everyday questions, from 0. The gate takes another set at each step.
    #[arg(long, value_name = "N", default_value_t = 0)]
    set: usize,
    /// Print this many replies to everyday questions, and as many to turns, of each compared model side by side.
    #[arg(long, value_name = "N", default_value_t = 0)]
    replies: usize,
    /// Seconds to wait for the result.
    #[arg(long, default_value_t = 1_800)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl EvalArgs ===

impl EvalArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let agent = agent(context, self.agent.as_ref()).await?;
        let wanted = EvalWanted {
            agent,
            turns: self.turns(),
            adapters: self.adapters,
            wishes: self.wishes,
            set: self.set,
            n_replies: self.replies,
        };
        let caller = caller(context, "eval").await?;
        if !caller.is_process() {
            out::aside("metaclaw does not run here: its policy server is started for this");
        }
        let deadline = Duration::from_secs(self.timeout);
        let report = caller.call_within(wanted, deadline).await;
        caller.close().await;
        let report = report?;
        Ok(out::answer(&report, self.json, report_text)?)
    }

    fn turns(&self) -> EvalTurns {
        match self.last {
            Some(n) => EvalTurns::Last(n),
            None if self.turns.is_empty() => EvalTurns::HeldOutOrLast(LAST),
            None => EvalTurns::These(self.turns.clone()),
        }
    }
}

fn report_text(report: &EvalReport) -> String {
    let wishes = match &report.wishes[..] {
        [] => "no wishes".to_owned(),
        wishes => format!("wishes: {}", wishes.join(" ")),
    };
    let EvalReport { agent, base, .. } = report;
    let n = report.rows.first().map_or(0, |row| row.on_probes.n);
    let mut parts = vec![
        format!("agent {agent}, on {base}; {wishes}"),
        format!("{n} everyday questions, as the gate asks them"),
        probes(&report.rows),
    ];
    if !report.turns.is_empty() {
        let n = out::count(report.turns.len() as u64, "turn");
        parts.push(format!("\n{n} of {agent}, asked again"));
        parts.push(turns(&report.rows));
    }
    parts.extend(report.notes.iter().cloned());
    let width = terminal::width().unwrap_or(WIDTH);
    parts.extend(report.replies.iter().map(|reply| replied(reply, width)));
    parts.join("\n")
}

fn probes(rows: &[EvalRow]) -> String {
    let surprise = |row: &EvalRow| Some(row.on_probes.surprise);
    let reference = reference(rows, surprise);
    let cells = |row: &EvalRow| {
        let mut cells = vec![row.name.clone()];
        cells.extend(replies(&row.on_probes, reference));
        cells.extend(knowledge(row.knowledge.as_ref()));
        cells
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let mut head = vec!["model"];
    head.extend(REPLIES);
    head.extend(["knows", "margin", "tools"]);
    out::table(&head, &rows)
}

fn turns(rows: &[EvalRow]) -> String {
    let surprise = |row: &EvalRow| Some(row.on_turns?.surprise);
    let reference = reference(rows, surprise);
    let cells = |row: &EvalRow| {
        let mut cells = vec![row.name.clone()];
        cells.extend(replies(row.on_turns.as_ref()?, reference));
        Some(cells)
    };
    let rows: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
    let mut head = vec!["model"];
    head.extend(REPLIES);
    out::table(&head, &rows)
}

/// The surprise that others are compared with: that of the base model with the wishes, or without if there are none.
fn reference(rows: &[EvalRow], surprise: impl Fn(&EvalRow) -> Option<f64>) -> f64 {
    let is_base = |row: &&EvalRow| row.name.starts_with("base");
    let last = rows.iter().take_while(is_base).last();
    last.and_then(surprise).unwrap_or_default()
}

fn replies(numbers: &ReplyNumbers, reference: f64) -> [String; 5] {
    let fluency = if reference > 0.0 {
        format!("{:.2}", numbers.surprise / reference)
    } else {
        NONE.to_owned()
    };
    [
        format!("{:.0}", numbers.words),
        format!("{:.2}", numbers.relevance),
        fluency,
        format!("{:.0} %", numbers.short * 100.0),
        format!("{:.2}", numbers.distinct),
    ]
}

fn knowledge(numbers: Option<&KnowledgeNumbers>) -> [String; 3] {
    let none = || NONE.to_owned();
    let Some(it) = numbers else {
        return [none(), none(), none()];
    };
    let of = |n: usize, all: usize| format!("{n} of {all}");
    [
        it.n_right.map_or_else(none, |n| of(n, it.n_probes)),
        it.margin.map_or_else(none, |margin| format!("{margin:.2}")),
        of(it.n_tools, it.n_tool_prompts),
    ]
}

fn replied(replied: &Replied, width: usize) -> String {
    let of = replied.turn.map(|id| format!(" (turn {id})"));
    let question = format!("> {}{}", replied.question, of.unwrap_or_default());
    let replies = replied.replies.iter();
    let titled = replies.map(|(who, text)| TextColumn { title: who, text });
    let columns: Vec<TextColumn<'_>> = titled.collect();
    let question = textwrap::fill(&question, width);
    format!("\n{question}\n\n{}", side_by_side(&columns, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(words: f64, surprise: f64) -> ReplyNumbers {
        ReplyNumbers {
            n: 16,
            words,
            relevance: 0.8,
            surprise,
            short: 0.0625,
            distinct: 0.97,
        }
    }

    fn row(name: &str, words: f64, surprise: f64, n_right: Option<usize>) -> EvalRow {
        EvalRow {
            name: name.to_owned(),
            on_probes: numbers(words, surprise),
            on_turns: Some(numbers(words + 1.0, surprise * 2.0)),
            knowledge: (name != "base, told the wishes").then_some(KnowledgeNumbers {
                n_right,
                n_probes: 64,
                margin: n_right.map(|_| 0.51),
                n_tools: 3,
                n_tool_prompts: 16,
            }),
        }
    }

    #[test]
    fn models_stand_below_each_other_and_replies_beside_each_other() {
        let report = EvalReport {
            agent: "main".parse().unwrap(),
            base: "SmolLM2".to_owned(),
            wishes: vec!["Answer in one short sentence.".to_owned()],
            rows: vec![
                row("base", 47.0, 1.5, Some(60)),
                row("base, told the wishes", 19.0, 1.0, None),
                row("main-0badcafe-000002", 20.0, 1.1, Some(59)),
                row("main-of-others", 20.0, 1.1, None),
            ],
            turns: vec![TURN],
            notes: vec!["main-of-others has no checkpoint of ours".to_owned()],
            replies: vec![Replied {
                question: "What is rain?".to_owned(),
                turn: Some(TURN),
                replies: vec![
                    (
                        "base".to_owned(),
                        "Rain is water that falls from clouds when drops are heavy.".to_owned(),
                    ),
                    (
                        "main-0badcafe-000002".to_owned(),
                        "Water that falls.".to_owned(),
                    ),
                ],
            }],
        };
        insta::assert_snapshot!(report_text(&report));
    }

    const TURN: metaclaw_chat::TurnId = metaclaw_chat::TurnId {
        session: 12,
        seq: 3,
    };
}
