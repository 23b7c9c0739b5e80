//! What of a turn can be made ready before it is its turn.

use metaclaw_chat::ChainHash;

use crate::{
    diff::Short,
    error::LogError,
    keys,
    raw::{RawMessage, RawSetup, RawTurn},
    text::JsonText,
    turn::{NewTurn, Tokens},
};

/// The route of the API whose requests go on from a reply by its id (OpenAI's Responses).
const NAMES_REPLIES: &str = "/v1/responses";
/// The most bytes of one turn as JSON text: thrice what the gateway accepts as a body.
const MAX_TURN: usize = 96 << 20;

/// A turn made ready to be written: texts and hashes are made by the caller, so that the one thread
/// that owns the log has less to do. May be appended more than once; it is stored once.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Without its conversation and its setup.
    pub(super) turn: NewTurn,
    pub(super) key: u64,
    pub(super) messages: Vec<RawMessage>,
    pub(super) reply: Option<JsonText>,
    pub(super) setup: RawSetup,
    /// The chain hash after the reply, if it is one.
    pub(super) after: Option<ChainHash>,
    pub(super) reply_id: Option<Short>,
    /// Whether later requests may name its reply instead of repeating it.
    pub(super) is_named: bool,
    /// The reply that it goes on from, where the request does not repeat what was said before.
    pub(super) goes_on_from: Option<String>,
    /// The length of its texts, names of replies among them, and of its ids.
    pub(crate) n_bytes: usize,
}

// === impl Prepared ===

impl Prepared {
    /// Hashes. `key` is drawn for this turn alone.
    pub(crate) fn new(raw: RawTurn, key: u64) -> Result<Self, LogError> {
        let RawTurn {
            mut turn,
            messages,
            setup,
            goes_on_from,
        } = raw;
        let reply = turn.reply.take();
        let after = reply
            .as_ref()
            .filter(|reply| reply.role() == metaclaw_chat::Role::Assistant)
            .map(|reply| turn.chain.then(reply));
        let is_named = setup.served().api.as_deref() == Some(NAMES_REPLIES);
        let reply = reply.map(|reply| JsonText::of(reply.as_map()));
        let mut prepared = Self {
            key,
            messages,
            reply: reply.transpose().map_err(|it| unwritable(&it))?,
            setup,
            after,
            reply_id: turn.reply_id.as_deref().map(keys::reply_hash),
            is_named,
            goes_on_from,
            turn,
            n_bytes: 0,
        };
        prepared.n_bytes = prepared.length();
        match prepared.n_bytes {
            n_bytes if n_bytes > MAX_TURN => Err(LogError::TooLarge {
                what: "a turn",
                n_bytes,
                max: MAX_TURN,
            }),
            _ => Ok(prepared),
        }
    }

    fn length(&self) -> usize {
        let n_ids = self.turn.tokens.as_ref().map_or(0, Tokens::n_bytes);
        let messages = self.messages.iter().map(|message| &message.text);
        let texts = messages.chain(&self.reply).chain(self.setup.blobs());
        let texts = texts.map(|text| text.as_str().len());
        let turn = &self.turn;
        let names = [&turn.reply_id, &turn.finish_reason, &self.goes_on_from];
        let names = names.into_iter().flatten().map(String::len);
        n_ids + self.setup.text().len() + texts.chain(names).sum::<usize>()
    }
}

/// That a turn cannot be written as JSON.
pub(crate) fn unwritable(error: &serde_json::Error) -> LogError {
    LogError::Damaged {
        what: "a new turn".to_owned(),
        why: error.to_string(),
    }
}
