//! Stop texts that the other API does not accept. The proxy cuts the reply at them.
//!
//! OpenAI accepts four. Anthropic accepts none of white space alone. A text that may be the beginning of a stop text
//! waits until that is known.

use serde_json::Value;

use super::wire::reasons;

/// The largest number for a chat completion.
const MAX_CHAT: usize = 4;

/// The stop texts that only the proxy watches for, and how far the reply has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stops {
    texts: Vec<String>,
    /// The end of the text so far, if it may be the beginning of one of them.
    held: String,
    pub(super) met: Option<String>,
}

/// Splits them into those that a chat completion accepts, and those that the proxy has to watch for. OpenAI's reasoning
/// models accept none.
pub(super) fn for_chat<'a>(model: &Value, stops: &'a [Value]) -> (&'a [Value], &'a [Value]) {
    let most = if reasons(model) { 0 } else { MAX_CHAT };
    stops.split_at(stops.len().min(most))
}

pub(super) fn suits_messages(stop: &Value) -> bool {
    stop.as_str().is_none_or(|stop| !stop.trim().is_empty())
}

// === impl Stops ===

impl Stops {
    pub(super) fn of_request(body: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned();
        let texts = if let Some(stops) = list(&body["stop_sequences"]) {
            for_chat(&body["model"], &stops).1.to_vec()
        } else {
            let stop = &body["stop"];
            let stops = list(stop).unwrap_or_else(|| vec![stop.clone()]);
            stops.into_iter().filter(|it| !suits_messages(it)).collect()
        };
        let texts = texts.iter().filter_map(Value::as_str);
        let texts = texts.filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            texts: texts.collect(),
            ..Self::default()
        }
    }

    /// Processes more of the reply's text, and returns the part that can be sent.
    pub(super) fn feed(&mut self, text: &str) -> String {
        if self.met.is_some() {
            return String::new();
        }
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        let first = self.texts.iter();
        let first = first.filter_map(|stop| Some((all.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = first.min_by_key(|(at, _)| *at) {
            self.met = Some(stop.clone());
            all.truncate(at);
            return all;
        }
        let may_begin = |at: &usize| {
            let end = &all[*at..];
            self.texts.iter().any(|stop| stop.starts_with(end))
        };
        let starts = all.char_indices().map(|(at, _)| at);
        let longest = self.texts.iter().map(String::len).max().unwrap_or(0);
        let starts = starts.filter(|at| all.len() - at < longest);
        let at = starts.into_iter().find(may_begin).unwrap_or(all.len());
        self.held = all.split_off(at);
        all
    }

    /// No more text follows, or something else does, so held text can be sent.
    pub(super) fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    fn said(stops: &Value, pieces: &[&str]) -> (String, Option<String>) {
        let mut stops = Stops::of_request(stops);
        let mut said: String = pieces.iter().map(|piece| stops.feed(piece)).collect();
        said.push_str(&stops.flush());
        (said, stops.met)
    }

    #[test]
    fn a_reply_ends_before_the_first_stop_text_that_only_we_know() {
        let five = json!({ "stop_sequences": ["1", "2", "3", "4", "END", "E"] });
        let cut = (String::from("a 1 "), Some("END".to_owned()));
        assert_eq!(said(&five, &["a 1 EN", "D b"]).0, "a 1 ");
        let found = said(&json!({ "stop": ["\n\n", "x"] }), &["ax\n", "b\n", "\nc"]);
        assert_eq!(found, ("ax\nb".into(), Some("\n\n".into())));
        let one = json!({ "stop_sequences": ["1", "2", "3", "4", "END"] });
        assert_eq!(said(&one, &["a 1 E", "N", "D b"]), cut);
        assert_eq!(said(&one, &["a EN"]), ("a EN".into(), None));
    }

    proptest! {
        #[test]
        fn any_splitting_gives_the_same_text(pieces in vec("[abé]{0,4}", 0..8), stop in "[abé]{1,3}") {
            let request = json!({ "stop_sequences": ["1", "2", "3", "4", stop] });
            let whole = pieces.concat();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (said, met) = said(&request, &pieces);
            let end = whole.find(&stop);
            prop_assert_eq!(said, &whole[..end.unwrap_or(whole.len())]);
            prop_assert_eq!(met.is_some(), end.is_some());
        }
    }
}
