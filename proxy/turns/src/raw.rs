//! A turn whose conversation is still JSON text, as the gateway has it.
//!
//! The log stores texts. A request is 40 KB and more, of which a turn adds a few hundred bytes: to
//! read all of it into values only to write them out again would cost more than everything else.

use std::sync::Arc;

use metaclaw_chat::ChainHash;
use serde_json::{Map, Value};

use crate::{
    blobs::Hash,
    record::{Line, Setup},
    text::JsonText,
    turn::{NewTurn, Request, Served},
};

/// A message of a [`RawTurn`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawMessage {
    /// The message in chat shape.
    pub text: JsonText,
    /// The hash of the conversation up to and including it.
    pub chain: ChainHash,
}

/// What of a turn seldom changes within a session, and is the same for many: what steers the answer and
/// under what it was served. Written out once for all of them.
///
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct RawSetup(Arc<Written>);

#[derive(Debug, PartialEq)]
struct Written {
    params: Map<String, Value>,
    served: Served,
    tools: Option<JsonText>,
    system_block: Option<JsonText>,
    /// Its lines in a record, and their hash.
    text: Vec<u8>,
    hash: Hash,
}

/// A turn as the gateway hands it over.
#[derive(Debug, Clone, PartialEq)]
pub struct RawTurn {
    /// All but the conversation and the setup: its `request` and `served` are empty.
    pub turn: NewTurn,
    /// The conversation, system messages included.
    pub messages: Vec<RawMessage>,
    /// The request's params and tools, and under what it was served.
    pub setup: RawSetup,
    /// The id of the reply that the conversation goes on from, where the request does not repeat what
    /// was said up to there (OpenAI's `previous_response_id`). If the session has that reply, the turn
    /// reads back with the whole conversation.
    pub goes_on_from: Option<String>,
}

// === impl RawSetup ===

impl RawSetup {
    /// Writes a setup out: [`Request::params`], what it was served under without its `system_block`,
    /// [`Request::tools`], and that block as a JSON string.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn new(
        params: Map<String, Value>,
        served: Served,
        tools: Option<JsonText>,
        system_block: Option<JsonText>,
    ) -> Result<Self, serde_json::Error> {
        let setup = Setup {
            params,
            served,
            tools: tools.as_ref().map(Line::of),
            block: system_block.as_ref().map(Line::of),
        };
        let text = setup.text()?;
        Ok(Self(Arc::new(Written {
            params: setup.params,
            served: setup.served,
            tools,
            system_block,
            hash: *blake3::hash(&text).as_bytes(),
            text,
        })))
    }

    /// Under what it was served, without the `system_block`.
    pub fn served(&self) -> &Served {
        &self.0.served
    }

    /// Its lines in a record. Equal setups have equal ones.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0.text
    }

    pub(crate) fn hash(&self) -> Hash {
        self.0.hash
    }

    /// The texts that its lines name.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &JsonText> {
        let texts = self.0.tools.iter().chain(&self.0.system_block);
        texts.filter(|text| text.is_blob())
    }

    /// Puts it back into a turn.
    fn read_into(&self, turn: &mut NewTurn) -> Result<(), serde_json::Error> {
        fn read<T: serde::de::DeserializeOwned>(
            text: Option<&JsonText>,
        ) -> Result<Option<T>, serde_json::Error> {
            text.map(|text| serde_json::from_str(text.as_str()))
                .transpose()
        }
        turn.request.params.clone_from(&self.0.params);
        turn.request.tools = read(self.0.tools.as_ref())?;
        turn.served.clone_from(&self.0.served);
        turn.served.system_block = read(self.0.system_block.as_ref())?;
        Ok(())
    }
}

// === impl RawTurn ===

impl RawTurn {
    /// Writes a turn's values out.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn of(mut turn: NewTurn) -> Result<Self, serde_json::Error> {
        let Request {
            messages,
            tools,
            params,
        } = std::mem::take(&mut turn.request);
        let chains = ChainHash::chain(&turn.agent, &messages);
        let messages = messages.iter().zip(chains).map(|(message, chain)| {
            let text = JsonText::of(message.as_map())?;
            Ok(RawMessage { text, chain })
        });
        let messages = messages.collect::<Result<_, _>>()?;
        let mut served = std::mem::take(&mut turn.served);
        let block = served.system_block.take();
        let block = block.as_ref().map(JsonText::of).transpose()?;
        let tools = tools.as_ref().map(JsonText::of).transpose()?;
        Ok(Self {
            setup: RawSetup::new(params, served, tools, block)?,
            turn,
            messages,
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
        self.setup.read_into(&mut turn)?;
        Ok(turn)
    }
}
