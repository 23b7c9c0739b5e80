//! A reply in the form in which a client sends it back: in parts, which the chat template may write differently from
//! what was sampled.

use metaclaw_trainer_terms::gemma;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::think::{ReplyPiece, ThinkSplitter};

/// The marks around a call: Hermes' and Gemma 4's.
const MARKS: [(&str, &str); 2] = [
    ("<tool_call>", "</tool_call>"),
    (gemma::CALL, gemma::CALL_END),
];

/// A call in Hermes' format, which Qwen's and other models write.
#[derive(Debug, Deserialize)]
struct GivenCall<'a> {
    name: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Returns the messages that a client may make of a reply to `prompt`: thinking separated from the text, and calls
/// separated from both. Returns none for a reply that has neither. Thinking is in channels or tags.
pub(super) fn forms(prompt: &str, reply: &str, has_channels: bool) -> Vec<Value> {
    let mut splitter = ThinkSplitter::new(prompt, has_channels);
    let mut piece = splitter.push(reply);
    piece.push(&splitter.finish());
    let ReplyPiece { reasoning, content } = piece;
    let said = |content: &str| {
        let mut message = json!({"role": "assistant", "content": content});
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        message
    };
    let mut forms = Vec::new();
    if !reasoning.is_empty() {
        forms.push(said(&content));
    }
    if let Some((before, calls)) = calls(&content) {
        let mut called = |before: &str| {
            let mut message = said(before);
            message["tool_calls"] = json!(calls);
            forms.push(message);
        };
        called(before);
        // Some clients leave out the white space before a call.
        if before.trim_end() != before {
            called(before.trim_end());
        }
    }
    forms
}

/// Returns the text before the calls, and the calls. Returns `None` if there are no calls, or if there is text between
/// or after them.
fn calls(content: &str) -> Option<(&str, Vec<Value>)> {
    let mut marks = MARKS.iter();
    let (open, close) = marks.find(|(open, _)| content.contains(open))?;
    let (before, mut rest) = content.split_once(open)?;
    let mut calls = Vec::new();
    loop {
        let (written, after) = rest.split_once(close)?;
        let function = match serde_json::from_str::<GivenCall<'_>>(written) {
            Ok(call) => json!({"name": call.name, "arguments": call.arguments.get()}),
            Err(_) => match gemma::read_call(written) {
                Some((name, arguments)) => json!({"name": name, "arguments": arguments}),
                None => in_xml(written)?,
            },
        };
        let id = format!("call_{}", calls.len());
        calls.push(json!({"id": id, "type": "function", "function": function}));
        let after = after.trim_start();
        if after.is_empty() {
            return Some((before, calls));
        }
        rest = after.strip_prefix(open)?;
    }
}

/// A call as Qwen3.5 and Qwen's coders write it. Values stay text: a template prints a number and its text alike.
fn in_xml(written: &str) -> Option<Value> {
    let call = written.trim().strip_prefix("<function=")?;
    let (name, mut rest) = call.strip_suffix("</function>")?.split_once('>')?;
    let mut arguments = Map::new();
    while let Some(parameter) = rest.trim_start().strip_prefix("<parameter=") {
        let (key, value) = parameter.split_once('>')?;
        let (value, after) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_owned(), value.into());
        rest = after;
    }
    let arguments = Value::Object(arguments).to_string();
    let function = json!({"name": name, "arguments": arguments});
    rest.trim().is_empty().then_some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prompt: &str, reply: &str) -> Vec<Value> {
        forms(prompt, reply, false)
    }

    #[test]
    fn calls_and_thinking_of_gemma_stand_apart() {
        let said = "<|channel>thought\nhm\n<channel|><|tool_call>call:look{n:2,at:<|\"|>a\"b<|\"|>}<tool_call|><|tool_call>call:stop{}<tool_call|>";
        let forms = forms("", said, true);
        let call = |at: usize| &forms[1]["tool_calls"][at]["function"];
        let arguments = r#"{"n": 2, "at": "a\"b"}"#;
        assert_eq!(*call(0), json!({"name": "look", "arguments": arguments}));
        assert_eq!(*call(1), json!({"name": "stop", "arguments": "{}"}));
        assert_eq!(forms[1]["reasoning_content"], "hm");
        assert_eq!(forms[1]["content"], "");
    }

    #[test]
    fn calls_in_xml_are_calls() {
        let said = "I look.\n\n<tool_call>\n<function=look>\n<parameter=at>\na\n b\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</tool_call>";
        let forms = of("", said);
        let calls = &forms[1]["tool_calls"];
        assert_eq!(forms[1]["content"], "I look.");
        let call = |i: usize| &calls[i]["function"];
        let arguments = r#"{"at":"a\n b","n":"3"}"#;
        assert_eq!(*call(0), json!({"name": "look", "arguments": arguments}));
        assert_eq!(*call(1), json!({"name": "stop", "arguments": "{}"}));
        for broken in [
            "<function=look>\n<parameter=at>\na\n</function>",
            "<function=look>\nat\n</function>",
            "<function=look",
        ] {
            assert!(of("", &format!("<tool_call>\n{broken}\n</tool_call>")).is_empty());
        }
    }

    #[test]
    fn thinking_and_calls_stand_apart() {
        assert!(of("", "Paris.").is_empty());
        let thought = json!({"role": "assistant", "content": "Paris.", "reasoning_content": "hm"});
        assert_eq!(of("", "<think>hm</think>\nParis."), [thought]);
        let call = |id: &str, arguments: &str| {
            let function = json!({"name": "look", "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        };
        let said = "I look.\n\n<tool_call>{\"name\":\"look\",\"arguments\":{\"a\":1.0}}</tool_call>\n<tool_call>\n{\"arguments\": { }, \"name\": \"look\"}\n</tool_call>\n";
        let calls = [call("call_0", "{\"a\":1.0}"), call("call_1", "{ }")];
        let messages = ["I look.\n\n", "I look."]
            .map(|content| json!({"role": "assistant", "content": content, "tool_calls": calls}));
        assert_eq!(of("", said), messages);
        let both = of("<think>\n", &format!("hm\n</think>\n\n{said}"));
        assert_eq!(both.len(), 3);
        assert_eq!(both[1]["reasoning_content"], "hm");
        assert_eq!(both[1]["tool_calls"], json!(calls));
    }

    #[test]
    fn what_is_no_call_or_has_text_behind_it_stays_text() {
        for said in [
            "<tool_call>{\"name\":\"look\"}</tool_call>",
            "<tool_call>{\"name\":\"look\",\"arguments\":{}}",
            "<tool_call>{\"name\":\"look\",\"arguments\":{}}</tool_call> and more",
        ] {
            assert!(of("", said).is_empty(), "{said}");
        }
    }
}
