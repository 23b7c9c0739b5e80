//! Lists of conversations, and the search through what was said in them.

use std::collections::HashSet;

use metaclaw_chat::{AgentId, Score, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    lines::LineReader,
    list::{self, ListedTurn, TurnSummary},
    log::{LogFuture, TurnLog},
    prompt::cut,
    query::last_turn,
    read::turn_ids,
    session::SessionRecord,
    store::Store,
    turn::TurnKind,
    values::{self, TxnResult},
};

/// Turns after which a search ends. The caller continues it at [`ConversationPage::older`].
const MAX_READ: usize = 2_000;
/// Turns that are read at once, because the log's thread has other work.
const PIECE: usize = 200;
/// Bytes that an excerpt shows before the word.
const LEAD: usize = 30;

/// Selects conversations with at least one turn that meets all conditions, the latest first. Turns in which the client
/// asked for itself do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationFilter {
    pub agent: Option<AgentId>,
    /// Words that the owner's text or the reply contains, in any order, in upper or lower case.
    pub words: String,
    /// A part of the name of the model or of the adapter.
    pub model: String,
    pub score: Option<Score>,
    /// Only turns that ended at this time or later, in Unix milliseconds.
    pub since_ms: u64,
    /// At most this many conversations.
    pub limit: usize,
    /// Only conversations after the one with this last turn.
    pub before: Option<TurnId>,
}

/// What one search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConversationPage {
    pub conversations: Vec<ConversationSummary>,
    /// The turns that were read.
    pub n_read: usize,
    /// Where the search can continue, if it did not reach the end of the log.
    pub older: Option<TurnId>,
}

/// One conversation. Its tokens are those of all its turns. All other fields but `n_side` leave out the client's own
/// requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationSummary {
    pub last: TurnSummary,
    /// The beginning of what the owner said first.
    pub asked: Option<String>,
    pub n_turns: usize,
    /// The number of requests that the client sent by itself.
    pub n_side: usize,
    pub n_good: usize,
    pub n_bad: usize,
    /// The tokens of the prompts of all its turns.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The newest turn that meets the conditions.
    pub matched: TurnId,
    /// The text around the first of the words in that turn, or none if no word was searched.
    pub excerpt: Option<String>,
}

// === impl TurnLog ===

impl TurnLog {
    /// Lists conversations. A search reads about 2,000 turns, in pieces, so that new turns do not wait for it.
    ///
    /// # Errors
    /// Returns the store's error, or [`LogError::Damaged`](crate::LogError::Damaged) if a value cannot be read.
    pub fn conversations(&self, mut filter: ConversationFilter) -> LogFuture<'_, ConversationPage> {
        filter.words = filter.words.to_lowercase();
        filter.model = filter.model.to_lowercase();
        let mut page = ConversationPage {
            older: filter.before,
            ..ConversationPage::default()
        };
        Box::pin(async move {
            loop {
                let (filter, read) = (filter.clone(), page);
                let limit = filter.limit;
                page = self
                    .read(move |store| read_on(store, &filter, read))
                    .await?;
                let is_full = page.conversations.len() >= limit || page.n_read >= MAX_READ;
                if page.older.is_none() || is_full {
                    return Ok(page);
                }
            }
        })
    }
}

// === impl ConversationFilter ===

impl ConversationFilter {
    fn has(&self, turn: &ListedTurn) -> bool {
        let line = &turn.line;
        let text = format!("{}\n{}", turn.asked, turn.answered).to_lowercase();
        let models = [Some(&line.model), line.adapter.as_ref()];
        let is_model = |name: &String| name.to_lowercase().contains(&self.model);
        let mut words = self.words.split_whitespace();
        line.kind != TurnKind::Side
            && line.ended_ms >= self.since_ms
            && self.score.is_none_or(|score| line.score == Some(score))
            && models.into_iter().flatten().any(is_model)
            && words.all(|word| text.contains(word))
    }

    /// Returns the text of a turn around the first of the words.
    fn excerpt(&self, turn: &ListedTurn) -> Option<String> {
        let word = self.words.split_whitespace().next()?;
        // The place is only about right where lower case has another length.
        let place = |text: &String| text.to_lowercase().find(word);
        let mut texts = [&turn.asked, &turn.answered].into_iter();
        let (text, at) = texts.find_map(|text| Some((text, place(text)?)))?;
        let from = text.floor_char_boundary(at.saturating_sub(LEAD));
        let lead = if from > 0 { "…" } else { "" };
        Some(format!("{lead}{}", cut(&text[from..], list::SNIPPET)))
    }
}

/// Reads one piece of the log more. A conversation has the place of its last turn.
fn read_on(
    store: &Store,
    filter: &ConversationFilter,
    mut page: ConversationPage,
) -> TxnResult<ConversationPage> {
    let most = page.n_read + PIECE;
    let mut lines = LineReader::new(store);
    let mut seen = HashSet::new();
    let mut last = page.older.take();
    for id in list::by_arrival(store, last) {
        let id = id?;
        if seen.contains(&id.session) || last_turn(store, id.session)? != Some(id) {
            continue;
        }
        if page.conversations.len() >= filter.limit || page.n_read >= most {
            page.older = last;
            break;
        }
        seen.insert(id.session);
        last = Some(id);
        page.n_read += 1;
        let session = values::readable(SessionRecord::get(store, id.session))?.flatten();
        let is_theirs = |session: &SessionRecord| match &filter.agent {
            Some(agent) => *agent == session.agent,
            None => true,
        };
        let Some(session) = session.filter(is_theirs) else {
            continue;
        };
        let ids = turn_ids(store, id.session)?.into_iter().rev();
        let mut turns = Vec::new();
        for id in ids.take(MAX_READ) {
            lines.trim();
            let turn = list::listed(store, &mut lines, &session, id);
            turns.extend(values::readable(turn)?.flatten());
        }
        page.n_read += turns.len().saturating_sub(1);
        page.conversations.extend(summary(filter, &turns));
    }
    Ok(page)
}

/// Sums up a conversation, if one of its turns, which are the latest first, meets the conditions.
fn summary(filter: &ConversationFilter, turns: &[ListedTurn]) -> Option<ConversationSummary> {
    let matched = turns.iter().find(|turn| filter.has(turn))?;
    let lines = || turns.iter().map(|turn| &turn.line);
    let own = || lines().filter(|line| line.kind != TurnKind::Side);
    let n_judged = |score| own().filter(|line| line.score == Some(score)).count();
    let usages = || lines().filter_map(|line| line.usage);
    Some(ConversationSummary {
        last: own().next()?.clone(),
        asked: own().rev().find_map(|line| line.asked.clone()),
        n_turns: own().count(),
        n_side: lines().filter(|line| line.kind == TurnKind::Side).count(),
        n_good: n_judged(Score::Good),
        n_bad: n_judged(Score::Bad),
        prompt_tokens: usages().map(|usage| usage.prompt_tokens).sum(),
        completion_tokens: usages().map(|usage| usage.completion_tokens).sum(),
        matched: matched.line.id,
        excerpt: filter.excerpt(matched),
    })
}
