//! Finds the place of each message of a new turn in its session, and which messages are new.

use metaclaw_chat::{ChainHash, Message, Role, TurnId};
use serde_json::Value;

use crate::{
    error::LogError,
    keys,
    lines::LineReader,
    mask::Mask,
    new_turn::{NewMessage, NewTurn},
    record::Record,
    session::SessionIndex,
    text::{Hash, hash},
    txn::Txn,
    values::{TxnError, TxnResult},
};

#[derive(Debug)]
pub(super) struct PlacedConversation<'s> {
    session: &'s SessionIndex,
    mask: &'s Mask,
    pub(super) places: Vec<u32>,
    /// Texts that the session does not have yet. They become its next lines.
    pub(super) own: Vec<String>,
    /// The hashes of spellings in which the client writes texts, with those of the texts.
    pub(super) spellings: Vec<(Hash, Hash)>,
    pub(super) is_masked: bool,
    pub(super) parent: Option<u32>,
    /// Index of the first message after the reply of `parent`.
    pub(super) new_from: usize,
}

// === impl PlacedConversation ===

impl<'s> PlacedConversation<'s> {
    pub(super) fn place(
        txn: &Txn<'s>,
        session: &'s SessionIndex,
        id: TurnId,
        new: &NewTurn,
    ) -> TxnResult<Self> {
        let mut conversation = Self::empty(txn, session);
        if let Some((parent, before)) = continued(txn, session, id.session, new)? {
            conversation.go_on(txn, keys::id(id.session, parent), &before, &new.messages)?;
        } else {
            let mut before = session.recent().next();
            if let Some((turn, new_from)) = parent(session, id.seq, &new.messages) {
                conversation.parent = Some(turn.0);
                conversation.new_from = new_from;
                before = Some(turn);
            }
            let before = before.map(|(_, record)| record.lines().chain(record.reply));
            conversation.say(&new.messages, before.into_iter().flatten())?;
        }
        Ok(conversation)
    }

    pub(super) fn as_it_was(
        txn: &Txn<'s>,
        session: &'s SessionIndex,
        parent: Option<u32>,
        new_from: usize,
        new: &NewTurn,
    ) -> TxnResult<Self> {
        let mut conversation = Self {
            parent,
            new_from,
            ..Self::empty(txn, session)
        };
        conversation.say(&new.messages, [])?;
        Ok(conversation)
    }

    fn empty(txn: &Txn<'s>, session: &'s SessionIndex) -> Self {
        Self {
            session,
            mask: txn.mask,
            is_masked: false,
            places: Vec::new(),
            own: Vec::new(),
            spellings: Vec::new(),
            parent: None,
            new_from: 0,
        }
    }

    /// Completes a request that leaves out the conversation up to the reply that it names.
    ///
    /// A system prompt is valid for one request, so the previous request's system prompt is not repeated.
    fn go_on(
        &mut self,
        txn: &Txn<'_>,
        parent: TurnId,
        mut repeated: &[u32],
        mut messages: &[NewMessage],
    ) -> TxnResult<()> {
        if let Some((first, others)) = messages.split_first()
            && is_system(first.text.as_str())
        {
            messages = others;
            self.say(std::slice::from_ref(first), [])?;
            let mut lines = LineReader::new(txn);
            if let Some((first, others)) = repeated.split_first()
                && let runs = self.session.runs(&[*first], 0)
                && let [system] = &lines.messages(parent, &runs)?[..]
                && system.role() == Role::System
            {
                repeated = others;
            }
        }
        self.places.extend(repeated);
        self.parent = Some(parent.seq);
        self.new_from = self.places.len();
        self.say(messages, [])
    }

    pub(super) fn push(&mut self, text: String) -> u32 {
        let n_own = u32::try_from(self.own.len()).unwrap_or(u32::MAX);
        self.own.push(text);
        self.session.n_lines().saturating_add(n_own)
    }

    /// Adds messages. Each one refers to an existing line of the session, or becomes a line of the turn. `before` are
    /// the lines of an earlier request that begins like this one.
    ///
    /// A text may have many lines. The lines of the earlier request and the line after the last one are preferred, so
    /// that a request is few runs of lines, however often its texts are repeated.
    fn say(
        &mut self,
        messages: &[NewMessage],
        before: impl IntoIterator<Item = u32>,
    ) -> TxnResult<()> {
        let session = self.session;
        let mut before = before.into_iter();
        self.places.reserve(messages.len());
        for NewMessage { text, .. } in messages {
            let next = self.places.last().map(|last| last + 1);
            let expected = before.next().into_iter().chain(next);
            // A new text gets a line of its own where it would begin another run, because later requests repeat the runs.
            let is_new = self.parent.is_some() && self.places.len() >= self.new_from;
            let fits = |line: &u32| !is_new || Some(*line) == next;
            if let Some(line) = session.find(&text.hash, expected.clone()).filter(fits) {
                self.places.push(line);
                continue;
            }
            // The value is serialised by this program, so that all spellings of a client give the same text.
            let mut value: Value = text.read().map_err(LogError::from)?;
            self.is_masked |= self.mask.value(&mut value);
            let canonical = value.to_string();
            let hash = hash(canonical.as_bytes());
            let known = session.find(&hash, expected).filter(fits);
            let line = known.unwrap_or_else(|| self.push(canonical));
            if hash != text.hash {
                self.spellings.push((text.hash, hash));
            }
            self.places.push(line);
        }
        Ok(())
    }
}

/// Returns the turn whose conversation, including its reply, is the longest beginning of this one, by chain hash.
fn parent<'s>(
    session: &'s SessionIndex,
    not: u32,
    messages: &[NewMessage],
) -> Option<(&'s (u32, Record), usize)> {
    let mut longest = None;
    for turn in session.recent().filter(|(seq, _)| *seq != not) {
        let Some(after) = turn.1.after() else {
            continue;
        };
        let from = longest.map_or(0, |(_, new_from)| new_from);
        let place = first_with(messages, after, from);
        longest = place.map_or(longest, |place| Some((turn, place + 1)));
    }
    longest
}

fn first_with(messages: &[NewMessage], chain: ChainHash, from: usize) -> Option<usize> {
    let has_chain = |message: &&NewMessage| message.chain == chain;
    let last = from
        + messages
            .get(from..)?
            .iter()
            .rposition(|message| has_chain(&message))?;
    // Messages that do not count leave the chain unchanged.
    let first = last - messages[..last].iter().rev().take_while(has_chain).count();
    (first >= from).then_some(first)
}

/// Returns the turn whose reply a request names to continue it, and the lines of that turn's conversation with the reply.
/// Returns `None` if it names none, or one that the session does not have.
fn continued(
    txn: &Txn<'_>,
    session: &SessionIndex,
    number: u64,
    new: &NewTurn,
) -> TxnResult<Option<(u32, Vec<u32>)>> {
    let reply_id = new.continues.as_deref();
    let Some(parent) = reply_id.and_then(|reply_id| session.with_reply(reply_id)) else {
        return Ok(None);
    };
    let turn = match Record::get(txn, keys::id(number, parent)) {
        // An unreadable turn must not keep later ones from the log.
        Err(TxnError::Refused(_)) => None,
        turn => turn?,
    };
    // The mark is half a hash, and another try may have replaced the turn, so the record decides.
    let named = turn.filter(|turn| turn.meta.reply_id.as_deref() == reply_id);
    Ok(named.map(|turn| (parent, turn.lines().chain(turn.reply).collect())))
}

fn is_system(text: &str) -> bool {
    let message = serde_json::from_str::<Message>(text);
    message.is_ok_and(|message| message.role() == Role::System)
}
