//! Compares the prompt of a new turn with an earlier one of its session. A provider's cache serves a prompt as far as it
//! begins like an earlier one, so the first difference says what the cache could not serve.
//!
//! A prompt has this order: the model, the tools, the client's system prompt, the lessons at its end, the messages. The
//! session's index has the lines of its latest turns, so no text is read until a line differs.

use metaclaw_chat::{Message, Role, Speaker, TurnId};
use serde_json::Value;

use super::conversation::PlacedConversation;
use crate::{
    error::LogError,
    lines::LineReader,
    new_turn::NewTurn,
    prompt::comparable,
    record::{Record, Setup, damaged_turn},
    session::SessionIndex,
    text::JsonText,
    texts,
    turn::{BreakCause, PrefixBreak, StreamEnd, TurnKind},
    txn::Txn,
    values::TxnResult,
};

/// Lines with another text that are compared by content. Clients move marks of the cache from message to message, which
/// changes a few of them in each request.
const MOST_COMPARED: usize = 32;

pub(super) struct SentPrompt<'a> {
    pub(super) id: TurnId,
    pub(super) new: &'a NewTurn,
    /// The session without this turn.
    pub(super) session: &'a SessionIndex,
    pub(super) conversation: &'a PlacedConversation<'a>,
    pub(super) setup: &'a JsonText,
    pub(super) tools: Option<&'a JsonText>,
}

// === impl SentPrompt ===

impl SentPrompt<'_> {
    /// Returns why the prompt is not the continuation of an earlier one. Returns `None` if it is, if there is no earlier
    /// one, or if it is a side turn.
    pub(super) fn broken(&self, txn: &Txn<'_>) -> TxnResult<Option<PrefixBreak>> {
        // A request that continues nothing begins a conversation, and breaks with nothing.
        let is_continued = self.conversation.parent.is_some() || has_reply(self.new);
        if self.new.meta.kind != TurnKind::Main || !is_continued {
            return Ok(None);
        }
        let Some((before, record)) = self.closest() else {
            return Ok(None);
        };
        let cause = self.cause(txn, record)?;
        Ok(cause.map(|cause| PrefixBreak {
            cause,
            before: *before,
        }))
    }

    /// Returns the earlier turn that begins like this one for the longest. Among equals this is the parent, else the
    /// newest: a sub-agent's turns may be among them.
    fn closest(&self) -> Option<&(u32, Record)> {
        let was_read = |(seq, record): &&(u32, Record)| {
            *seq != self.id.seq
                && record.meta.kind == TurnKind::Main
                && !matches!(record.meta.end, StreamEnd::UpstreamError { .. })
        };
        let earlier: Vec<_> = self.session.recent().filter(was_read).collect();
        let parent = self.conversation.parent;
        let preferred = earlier
            .iter()
            .find(|turn| Some(turn.0) == parent)
            .or_else(|| earlier.first())?;
        let n_same = |(_, record): &(u32, Record)| {
            let lines = record.lines().zip(&self.conversation.places);
            lines.take_while(|(old, new)| old == *new).count()
        };
        let longest = earlier.iter().rev().max_by_key(|turn| n_same(turn))?;
        Some(if n_same(longest) > n_same(preferred) {
            longest
        } else {
            preferred
        })
    }

    fn cause(&self, txn: &Txn<'_>, before: &Record) -> TxnResult<Option<BreakCause>> {
        let is_same_setup = texts::shared(&before.setup) == Some(self.setup.hash);
        let mut lessons = None;
        if !is_same_setup {
            let (_, old): Setup = texts::value(txn, &before.setup)?;
            let (_, new): Setup = self.setup.read().map_err(LogError::from)?;
            if old.adapter != new.adapter {
                return Ok(Some(BreakCause::Adapter));
            }
            if (&old.upstream, &old.model) != (&new.upstream, &new.model) {
                return Ok(Some(BreakCause::Upstream));
            }
            let is_same = old.system_block == new.system_block
                && old.user_line == new.user_line
                && old.sender_lines == new.sender_lines;
            lessons = (!is_same).then_some(BreakCause::Lesson);
        }
        if self.has_other_tools(txn, before)? {
            return Ok(Some(BreakCause::Tools));
        }
        Ok(match self.first_difference(txn, before)? {
            Some(Role::System) => Some(BreakCause::System),
            other => lessons.or_else(|| other.map(|_| BreakCause::History)),
        })
    }

    fn has_other_tools(&self, txn: &Txn<'_>, before: &Record) -> TxnResult<bool> {
        let (old, new) = match (&before.tools, self.tools) {
            (None, None) => return Ok(false),
            (Some(old), Some(new)) => (old, new),
            (None, Some(_)) | (Some(_), None) => return Ok(true),
        };
        if texts::shared(old) == Some(new.hash) {
            return Ok(false);
        }
        let old: Value = texts::value(txn, old)?;
        let new = new.read().map_err(LogError::from)?;
        Ok(comparable(old) != comparable(new))
    }

    /// Returns the role of the first message of an earlier turn that this one does not repeat at its place. What a client
    /// put behind the last words of a person is not missed: OpenClaw ends each prompt with a message about the moment,
    /// and replaces it the next time.
    fn first_difference(&self, txn: &Txn<'_>, before: &Record) -> TxnResult<Option<Role>> {
        let old: Vec<u32> = before.lines().collect();
        let mut lines = LineReader::new(txn);
        let places = old.iter().zip(&self.conversation.places).enumerate();
        let others = places.filter(|(_, (old, new))| old != new);
        for (at, (line, new)) in others.take(MOST_COMPARED) {
            let message = self.message(&mut lines, *line)?;
            let role = Role::named(message["role"].as_str().unwrap_or_default());
            if comparable(message) != comparable(self.message(&mut lines, *new)?) {
                let is_of_the_moment =
                    role == Role::User && self.are_clients(&mut lines, &old[at..])?;
                return Ok((!is_of_the_moment).then_some(role));
            }
        }
        Ok(None)
    }

    /// Returns whether a client wrote all these messages by itself, in the place of a person.
    fn are_clients(&self, lines: &mut LineReader<'_, Txn<'_>>, old: &[u32]) -> TxnResult<bool> {
        for line in old {
            let message: Option<Message> = serde_json::from_value(self.message(lines, *line)?).ok();
            let said = message.as_ref().and_then(Message::utterance);
            if said.is_none_or(|said| said.speaker != Speaker::Client) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn message(&self, lines: &mut LineReader<'_, Txn<'_>>, line: u32) -> TxnResult<Value> {
        let own = line.checked_sub(self.session.n_lines());
        if let Some(text) = own.and_then(|own| self.conversation.own.get(own as usize)) {
            let value = serde_json::from_str(text);
            return value.map_err(|error| damaged_turn(self.id, error.to_string()));
        }
        let missing = || damaged_turn(self.id, format!("line {line} is missing"));
        let seq = self.session.turn_of(line).ok_or_else(missing)?;
        lines.value(self.id, line, seq)
    }
}

fn has_reply(new: &NewTurn) -> bool {
    new.messages.iter().any(|message| {
        let text = message.text.as_str();
        // Most messages are not parsed for this.
        text.contains("\"assistant\"")
            && serde_json::from_str(text)
                .is_ok_and(|message: Message| message.role() == Role::Assistant)
    })
}
