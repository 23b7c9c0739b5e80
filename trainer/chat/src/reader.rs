//! Text out of token ids, for samplers that give ids alone.

use metaclaw_trainer_text::{
    stop::StopMatcher,
    tokenizer::{ChatTokenizer, StreamDecoder},
};

/// Reads one reply: whole characters, no part of a stop text.
#[derive(Debug)]
pub(crate) struct IdReader {
    decoder: StreamDecoder,
    stops: StopMatcher,
    end_ids: Vec<u32>,
}

// === impl IdReader ===

impl IdReader {
    /// `stops` are texts that end the reply, `end_ids` tokens that do, and have no text.
    pub(crate) fn new(tokenizer: &ChatTokenizer, stops: Vec<String>, end_ids: Vec<u32>) -> Self {
        Self {
            decoder: tokenizer.stream_decoder(),
            stops: StopMatcher::new(stops),
            end_ids,
        }
    }

    /// The text that is certain with a token, and whether a stop text ended the reply.
    pub(crate) fn push(&mut self, id: u32) -> (String, bool) {
        if self.end_ids.contains(&id) {
            return (String::new(), false);
        }
        let text = self.decoder.push(id);
        self.stops.push(&text)
    }

    /// What was held back, when nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        let (mut text, stopped) = self.stops.push(&self.decoder.finish());
        if !stopped {
            text.push_str(&self.stops.finish());
        }
        text
    }
}
