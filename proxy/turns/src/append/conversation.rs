//! Where each message of a new turn lies in its session, and which are new there.

use metaclaw_chat::{ChainHash, Message, Role, TurnId};

use crate::{
    keys,
    new_turn::{NewMessage, NewTurn},
    record::{Header, Line, Place, Record, damaged_turn, shared},
    session::SessionIndex,
    setup::unreadable,
    text::{Hash, hash},
    texts,
    txn::Txn,
    values::TxnError,
};

/// Turns that are looked through for the reply that a request continues.
const LOOKED_THROUGH: u32 = 2_000;

/// A new turn's conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// Of each message.
    pub(super) places: Vec<Place>,
    /// What the session does not have yet.
    pub(super) own: Vec<Line>,
    /// Messages that the session has, or has now, in other words.
    pub(super) aliases: Vec<(Hash, Place)>,
    /// The turn whose reply this one continues, and where what is new behind it begins.
    pub(super) follows: Option<(u32, usize)>,
}

// === impl Conversation ===

impl Conversation {
    pub(super) fn of(
        txn: &Txn<'_>,
        session: &SessionIndex,
        id: TurnId,
        new: &NewTurn,
    ) -> Result<Self, TxnError> {
        if let Some(parent) = continued(txn, session, id.session, new)? {
            return Self::continuing(txn, session, id, (new, parent));
        }
        let mut conversation = Self {
            follows: parent(session, id.seq, &new.messages),
            ..Self::default()
        };
        conversation.say(session, id.seq, &new.messages)?;
        Ok(conversation)
    }

    /// A request that leaves out what was said up to the reply that it names.
    ///
    /// A system text holds for one request: what the request before had in its place is not repeated.
    fn continuing(
        txn: &Txn<'_>,
        session: &SessionIndex,
        id: TurnId,
        (new, (parent, before)): (&NewTurn, (u32, Vec<Place>)),
    ) -> Result<Self, TxnError> {
        let mut conversation = Self::default();
        let mut messages = &new.messages[..];
        let mut repeated = &before[..];
        if let Some((first, others)) = messages.split_first()
            && is_system(first.text.as_str())
        {
            messages = others;
            conversation.say(session, id.seq, std::slice::from_ref(first))?;
            if let Some((first, others)) = repeated.split_first()
                && is_system(&text(txn, id.session, *first)?)
            {
                repeated = others;
            }
        }
        conversation.places.extend(repeated);
        conversation.follows = Some((parent, conversation.places.len()));
        conversation.say(session, id.seq, messages)?;
        Ok(conversation)
    }

    /// Adds a line of the turn's own.
    fn push(&mut self, seq: u32, line: Line) -> Place {
        let at = u32::try_from(self.own.len()).unwrap_or(u32::MAX);
        self.own.push(line);
        Place { seq, at }
    }

    /// Adds messages: each stands where the session has it, or becomes a line of the turn's own.
    fn say(
        &mut self,
        session: &SessionIndex,
        seq: u32,
        messages: &[NewMessage],
    ) -> Result<(), TxnError> {
        self.places.reserve(messages.len() + 1);
        for NewMessage { text, .. } in messages {
            let last = self.places.last();
            let expected = last.and_then(|last| session.after(*last));
            if let Some(place) = session.find(&text.hash, expected) {
                self.places.push(place);
                continue;
            }
            let canonical = text.canonical().map_err(|error| unreadable(&error))?;
            let hash = hash(canonical.as_bytes());
            let place = session.find(&hash, expected);
            let place = place.unwrap_or_else(|| self.push(seq, Line::new(canonical)));
            if hash != text.hash {
                self.aliases.push((text.hash, place));
            }
            self.places.push(place);
        }
        Ok(())
    }
}

/// The turn whose conversation, with its reply, is the longest beginning of this one, by chain hash.
fn parent(session: &SessionIndex, not: u32, messages: &[NewMessage]) -> Option<(u32, usize)> {
    let mut longest: Option<(u32, usize)> = None;
    for turn in session.recent().filter(|turn| turn.seq != not) {
        let Some(after) = turn.header.after() else {
            continue;
        };
        let from = longest.map_or(0, |(_, new_from)| new_from);
        let place = first_with(messages, after, from);
        longest = place.map_or(longest, |place| Some((turn.seq, place + 1)));
    }
    longest
}

/// The message after which the chain is first that one, if it is at `from` or behind.
fn first_with(messages: &[NewMessage], chain: ChainHash, from: usize) -> Option<usize> {
    let last = from
        + messages
            .get(from..)?
            .iter()
            .rposition(|it| it.chain == chain)?;
    // Messages that do not count leave the chain as it is.
    let n_same = messages[..last]
        .iter()
        .rev()
        .take_while(|it| it.chain == chain);
    let first = last - n_same.count();
    (first >= from).then_some(first)
}

/// The turn with the reply that a request names, and where its conversation lies, the reply included.
/// `None` where the request names none, or one that the session does not have.
fn continued(
    txn: &Txn<'_>,
    session: &SessionIndex,
    number: u64,
    new: &NewTurn,
) -> Result<Option<(u32, Vec<Place>)>, TxnError> {
    let Some(reply_id) = &new.continues else {
        return Ok(None);
    };
    let next = session.next_seq();
    for seq in (next.saturating_sub(LOOKED_THROUGH)..next).rev() {
        let id = keys::id(number, seq);
        if let Some((record, header)) = read(txn, id)?
            && header.reply_id.as_ref() == Some(reply_id)
        {
            let mut places = session.places(&header.said);
            places.extend(record.reply(&header).map(|at| Place { seq, at }));
            return Ok(Some((seq, places)));
        }
    }
    Ok(None)
}

/// A turn's record; none of one that does not read back: it must not keep later ones from the log.
fn read(txn: &Txn<'_>, id: TurnId) -> Result<Option<(Record, Header)>, TxnError> {
    let read = || {
        let record = Record::get(txn, id)?;
        let with_header = |record: Record| record.header(id).map(|header| (record, header));
        record.map(with_header).transpose()
    };
    match read() {
        Err(TxnError::Refused(_)) => Ok(None),
        read => read,
    }
}

fn is_system(text: &str) -> bool {
    let message = serde_json::from_str::<Message>(text);
    message.is_ok_and(|message| message.role() == Role::System)
}

/// The text at a place.
fn text(txn: &Txn<'_>, number: u64, Place { seq, at }: Place) -> Result<String, TxnError> {
    let id = keys::id(number, seq);
    let record = Record::get(txn, id)?;
    let line = record
        .as_ref()
        .and_then(|record| record.own.get(at as usize));
    match line.map(|line| (line, shared(line))) {
        Some((_, Some(hash))) => texts::get(txn, &hash),
        Some((line, None)) => Ok(line.clone()),
        None => Err(damaged_turn(id, "a line is missing")),
    }
}
