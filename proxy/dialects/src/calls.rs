//! The tool calls of a chat reply: finds the call that a piece belongs to, and makes ids for calls without one.

use serde_json::{Value, json};

/// The largest number of calls of one reply that are kept. No agent executes more, and a broken upstream may send any
/// number.
const MAX_CALLS: usize = 256;

/// The largest part of a reply's id that its calls' ids repeat. OpenAI accepts ids of at most 40 characters.
const MAX_OF_REPLY: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct CallPlaces(Vec<Place>);

#[derive(Debug, Default)]
struct Place {
    /// The call's index from the upstream, which some servers leave out.
    index: Option<u64>,
    id: String,
    has_many_ids: bool,
    may_be_whole: bool,
}

/// Returns an id for a call that its upstream gave none.
///
/// It differs from the ids of other replies. Agents match results by id over a whole session, and a repeated id loses
/// results (<https://github.com/openclaw/openclaw/issues/109443>).
pub(crate) fn call_id(kind: &str, reply_id: &str, n: usize) -> String {
    let fit = reply_id.chars().filter(char::is_ascii_alphanumeric);
    let mut last: Vec<char> = fit.rev().take(MAX_OF_REPLY).collect();
    last.reverse();
    let last = String::from_iter(last);
    if last.is_empty() {
        return format!("{kind}_{n}");
    }
    format!("{kind}_{last}_{n}")
}

pub(crate) fn function_call(id: &Value, name: &Value, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    json!({ "id": id, "type": "function", "function": function })
}

/// Returns a call's input as JSON text, as chat completions have it. In a stream, it is the original text. No input is
/// `{}`.
pub(crate) fn arguments_text(input: &Value) -> String {
    match input {
        Value::String(text) if !text.trim().is_empty() => text.clone(),
        Value::String(_) | Value::Null => "{}".to_owned(),
        input => input.to_string(),
    }
}

// === impl Places ===

impl CallPlaces {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the index of the call to which an element of a delta's `tool_calls` belongs. For a new call this is the
    /// previous [`Self::len`]. Returns `None` if there are too many.
    pub(crate) fn find(&mut self, piece: &Value) -> Option<usize> {
        let index = piece["index"].as_u64();
        let known = match index {
            Some(_) => self.0.iter().rposition(|call| call.index == index),
            // Servers that leave the index out send each call completely, or its pieces in a row.
            None if piece["id"].is_string() => None,
            None => self.0.len().checked_sub(1),
        };
        let known = known.filter(|at| !self.0[*at].is_followed_by(piece));
        let at = known.unwrap_or(self.0.len());
        if at == MAX_CALLS {
            return None;
        }
        if at == self.0.len() {
            self.0.push(Place {
                index,
                ..Place::default()
            });
        }
        self.0[at].add(piece);
        Some(at)
    }
}

// === impl Place ===

impl Place {
    fn add(&mut self, piece: &Value) {
        self.has_many_ids |= self.has_other_id(piece);
        if self.id.is_empty() {
            let id = piece["id"].as_str().unwrap_or_default();
            id.clone_into(&mut self.id);
        }
        match &piece["function"]["arguments"] {
            Value::Object(_) => self.may_be_whole = true,
            Value::String(text) if !text.trim().is_empty() => {
                self.may_be_whole = text.trim_end().ends_with('}');
            }
            _ => {}
        }
    }

    /// Returns whether the piece is another call although it has the same index, because Gemini and others give all
    /// parallel calls the index 0: <https://github.com/InternLM/lmdeploy/issues/3412>. (If vLLM must call a certain
    /// tool, it gives every piece of one call a different id.)
    fn is_followed_by(&self, piece: &Value) -> bool {
        let begins = match &piece["function"]["arguments"] {
            Value::String(text) if text.trim().is_empty() => !piece["function"]["name"].is_null(),
            Value::String(text) => text.trim_start().starts_with('{'),
            Value::Null => !piece["function"]["name"].is_null(),
            arguments => arguments.is_object(),
        };
        begins && self.may_be_whole && !self.has_many_ids && self.has_other_id(piece)
    }

    fn has_other_id(&self, piece: &Value) -> bool {
        let id = piece["id"].as_str().unwrap_or_default();
        !id.is_empty() && !self.id.is_empty() && id != self.id
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(pieces: &[Value]) -> Vec<Option<usize>> {
        let mut places = CallPlaces::default();
        pieces.iter().map(|piece| places.find(piece)).collect()
    }

    fn piece(index: u64, id: &str, arguments: &str) -> Value {
        json!({ "index": index, "id": id, "function": { "name": "f", "arguments": arguments } })
    }

    #[test]
    fn calls_of_one_index_are_told_apart_by_ids_and_whole_arguments() {
        let gemini = [piece(0, "a", "{\"x\":1}"), piece(0, "b", "{\"x\":2}")];
        assert_eq!(places(&gemini), [Some(0), Some(1)]);
        let sglang = [
            piece(0, "0", ""),
            piece(0, "0", "{\"x\":"),
            piece(0, "0", "1}"),
            piece(0, "1", ""),
            piece(0, "1", "{}"),
        ];
        let found = places(&sglang);
        assert_eq!(found, [Some(0), Some(0), Some(0), Some(1), Some(1)]);
        // This is vLLM with a required tool: every piece of one call has a different id.
        let vllm = [
            piece(0, "a", "{\"x\":"),
            piece(0, "b", "{}"),
            piece(0, "c", "}"),
            piece(0, "d", ""),
        ];
        assert_eq!(places(&vllm), [Some(0); 4]);
        let repeated = [piece(0, "a", "{}"), piece(0, "a", "{}")];
        assert_eq!(places(&repeated), [Some(0); 2]);
    }

    #[test]
    fn no_more_than_so_many_calls_are_kept() {
        let many: Vec<Value> = (0..300).map(|n| piece(n, "", "{}")).collect();
        let places = places(&many);
        assert_eq!(places[255..257], [Some(255), None]);
        assert_eq!(places.iter().flatten().count(), MAX_CALLS);
    }

    #[test]
    fn an_id_of_ours_names_its_reply_and_is_short() {
        assert_eq!(call_id("call_xml", "", 7), "call_xml_7");
        let found = call_id("call_xml", "é-chatcmpl-9f", 0);
        assert_eq!(found, "call_xml_chatcmpl9f_0");
        let long = call_id("call_index", &"x1".repeat(99), 255);
        assert!(long.len() <= 40 && long.ends_with("x1_255"), "{long}");
    }
}
