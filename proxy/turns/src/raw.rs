//! A turn whose conversation is still JSON text, as the gateway has it.
//!
//! The log stores texts. A request is 40 KB and more, of which a turn adds a few hundred bytes: to
//! read all of it into values only to write them out again would cost more than everything else.

use metaclaw_chat::ChainHash;

use crate::{text::JsonText, turn::NewTurn};

/// A message of a [`RawTurn`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawMessage {
    /// The message in chat shape.
    pub text: JsonText,
    /// The hash of the conversation up to and including it.
    pub chain: ChainHash,
}

/// A turn as the gateway hands it over.
#[derive(Debug, Clone, PartialEq)]
pub struct RawTurn {
    /// All but the conversation, the tools and the system block: it has none of them.
    pub turn: NewTurn,
    /// The conversation, system messages included.
    pub messages: Vec<RawMessage>,
    /// The `tools` field, if there was one.
    pub tools: Option<JsonText>,
    /// [`crate::Served::system_block`], as a JSON string.
    pub system_block: Option<JsonText>,
    /// The id of the reply that the conversation goes on from, where the request does not repeat what
    /// was said up to there (OpenAI's `previous_response_id`). If the session has that reply, the turn
    /// reads back with the whole conversation.
    pub goes_on_from: Option<String>,
}

// === impl RawTurn ===

impl RawTurn {
    /// Writes a turn's values out.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn of(mut turn: NewTurn) -> Result<Self, serde_json::Error> {
        let messages = std::mem::take(&mut turn.request.messages);
        let chains = ChainHash::chain(&turn.agent, &messages);
        let messages = messages.iter().zip(chains).map(|(message, chain)| {
            let text = JsonText::of(message.as_map())?;
            Ok(RawMessage { text, chain })
        });
        let messages = messages.collect::<Result<_, _>>()?;
        let tools = turn.request.tools.take();
        let block = turn.served.system_block.take();
        Ok(Self {
            turn,
            messages,
            tools: tools.as_ref().map(JsonText::of).transpose()?,
            system_block: block.as_ref().map(JsonText::of).transpose()?,
            goes_on_from: None,
        })
    }

    /// Reads the texts.
    ///
    /// # Errors
    /// A text that is no message.
    pub fn read(self) -> Result<NewTurn, serde_json::Error> {
        let mut turn = self.turn;
        let messages = self.messages.iter();
        let messages = messages.map(|message| serde_json::from_str(message.text.as_str()));
        turn.request.messages = messages.collect::<Result<_, _>>()?;
        let tools = self.tools.as_ref();
        let tools = tools.map(|tools| serde_json::from_str(tools.as_str()));
        turn.request.tools = tools.transpose()?;
        let block = self.system_block.as_ref();
        let block = block.map(|block| serde_json::from_str(block.as_str()));
        turn.served.system_block = block.transpose()?;
        Ok(turn)
    }
}
