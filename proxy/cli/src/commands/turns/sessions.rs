//! `metaclaw turns sessions`: one row for each session.

use metaclaw_chat::AgentId;
use metaclaw_control::{operations::turns::ConversationFilter, replies::ConversationSummary};

use crate::{
    commands::{calling::call, columns::short, context::Context},
    out,
};

/// Lists sessions in which the owner spoke, the latest first.
pub(super) async fn list(
    context: &Context,
    agent: Option<AgentId>,
    limit: usize,
    json: bool,
) -> anyhow::Result<()> {
    let newest = ConversationFilter {
        agent,
        limit,
        ..ConversationFilter::default()
    };
    let page = call(context, "turns", newest).await?;
    if page.older.is_some() && page.conversations.len() < limit {
        out::aside(format!("the newest {} turns were read", page.n_read));
    }
    let head = [
        "session", "ago", "agent", "main", "side", "good", "bad", "first",
    ];
    Ok(out::answer_table(&page.conversations, json, &head, cells)?)
}

fn cells(row: &ConversationSummary) -> Vec<String> {
    let last = &row.last;
    let counts = [row.n_turns, row.n_side, row.n_good, row.n_bad].map(|n| n.to_string());
    let (session, ago) = (last.session.to_string(), out::since(last.ended_ms));
    let mut cells = vec![session, ago, last.agent.to_string()];
    cells.extend(counts);
    cells.push(short(row.asked.as_deref().unwrap_or_default(), 40));
    cells
}
