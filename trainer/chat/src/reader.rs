//! Converts token ids to text, for samplers that return only ids.

use metaclaw_trainer_text::{
    stop::StopMatcher,
    tokenizer::{ChatTokenizer, StreamDecoder},
};

/// Reads one reply: it returns complete characters and no part of a stop text.
#[derive(Debug)]
pub(crate) struct IdReader {
    decoder: StreamDecoder,
    stops: StopMatcher,
    end_ids: Vec<u32>,
    /// Whether a stop text has ended the reply. Then the held text is not part of it.
    is_stopped: bool,
}

/// Whether a reply ends with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    No,
    /// It ends. The sampler may not know this, and continue.
    ByStopText,
    /// It ends. The sampler knows this, and reports it.
    ByToken,
}

// === impl IdReader ===

impl IdReader {
    /// `stops` are texts that end the reply. `end_ids` are tokens that end it and have no text.
    pub(crate) fn new(tokenizer: &ChatTokenizer, stops: Vec<String>, end_ids: Vec<u32>) -> Self {
        Self {
            decoder: tokenizer.stream_decoder(),
            stops: StopMatcher::new(stops),
            end_ids,
            is_stopped: false,
        }
    }

    /// Returns the text that is certain with a token, and whether the reply ends with it.
    pub(crate) fn push(&mut self, id: u32) -> (String, Ends) {
        if self.end_ids.contains(&id) {
            return (String::new(), Ends::ByToken);
        }
        let text = self.decoder.push(id);
        let (text, stopped) = self.stops.push(&text);
        self.is_stopped = stopped;
        let ends = if stopped { Ends::ByStopText } else { Ends::No };
        (text, ends)
    }

    pub(crate) fn finish(&mut self) -> String {
        if self.is_stopped {
            return String::new();
        }
        let (mut text, stopped) = self.stops.push(&self.decoder.finish());
        if !stopped {
            text.push_str(&self.stops.finish());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_trainer_text::testing::write_tiny_text;

    use super::*;

    fn read(stop: &str, ids: &[u32]) -> String {
        let dir = tempfile::tempdir().unwrap();
        write_tiny_text(dir.path()).unwrap();
        let tokenizer = ChatTokenizer::load(dir.path()).unwrap();
        let mut reader = IdReader::new(&tokenizer, vec![stop.to_owned()], vec![258]);
        let mut all = String::new();
        for &id in ids {
            let (text, ends) = reader.push(id);
            all.push_str(&text);
            if ends != Ends::No {
                all.push('!');
                break;
            }
        }
        all + &reader.finish()
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn a_stop_text_is_cut_off_and_one_that_was_only_begun_is_text() {
        assert_eq!(read("; ", &ids("one; two")), "one!");
        assert_eq!(read("; ", &ids("one;")), "one;");
        assert_eq!(read("; ", &[ids("one;"), vec![258, 97]].concat()), "one!;");
    }

    #[test]
    fn half_a_character_is_replaced_at_the_end() {
        assert_eq!(read("x", &[97, 0xE5]), "a\u{FFFD}");
        assert_eq!(read("é", &[97, 0xC3]), "a\u{FFFD}");
    }
}
