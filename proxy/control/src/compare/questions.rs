//! Chooses which of the owner's own questions are asked again.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use metaclaw_chat::AgentId;
use metaclaw_skills::hear;
use metaclaw_turns::{StreamEnd, Turn, TurnFilter, TurnKind, TurnLog};

/// The number of an agent's newest turns that are searched.
const LOOKED_AT: usize = 400;
/// Longer questions are papers and programs, which cost much and show little.
const LONGEST: usize = 2_000;
/// Fewer words are usually an answer, such as "yes".
const FEWEST_WORDS: usize = 3;

/// Returns up to `n` of the owner's last questions; those that began a session come first.
///
/// # Errors
/// Returns the log's errors.
pub fn pick<'a>(
    log: &'a TurnLog,
    agent: &'a AgentId,
    n: usize,
) -> BoxFuture<'a, anyhow::Result<Vec<String>>> {
    Box::pin(async move {
        let filter = TurnFilter {
            agent: Some(agent.clone()),
            limit: LOOKED_AT,
            ..TurnFilter::default()
        };
        let (mut first, mut later) = (Vec::new(), Vec::new());
        let mut known = BTreeSet::new();
        for turn in log.list(filter).await? {
            if first.len() >= n {
                break;
            }
            if turn.kind != TurnKind::Main
                || turn.end != StreamEnd::Complete
                || turn.asked.is_none()
            {
                continue;
            }
            let Some(turn) = log.get(turn.id).await? else {
                continue;
            };
            let Some(question) = question(&turn).filter(|it| known.insert(it.clone())) else {
                continue;
            };
            let list = if turn.parent.is_none() {
                &mut first
            } else {
                &mut later
            };
            list.push(question);
        }
        first.extend(later);
        first.truncate(n);
        Ok(first)
    })
}

/// Returns what the owner asked in a turn, if it can be asked alone: no wish, no complaint, nobody else's words.
fn question(turn: &Turn) -> Option<String> {
    let text = turn.new_words()?.text;
    let is_fit = text.chars().count() <= LONGEST
        && (text.split_whitespace().count() >= FEWEST_WORDS || !text.is_ascii())
        && hear(&text, true).is_empty();
    is_fit.then(|| text.into_owned())
}
