//! The marks of Gemma 4, and its calls of tools: `call:name{key:<|"|>text<|"|>,n:3,on:true,list:[1,2],object:{k:null}}`.
//!
//! Keys are bare words, and a text stands unescaped between two quotation marks of its own kind. The proxy reads such
//! calls for clients, and the trainer recognises them when they come back.

use serde_json::{Deserializer, Value, value::RawValue};

/// The mark before thinking.
pub const CHANNEL: &str = "<|channel>";
/// The mark after thinking.
pub const CHANNEL_END: &str = "<channel|>";
/// The mark before a call.
pub const CALL: &str = "<|tool_call>";
/// The mark after a call.
pub const CALL_END: &str = "<tool_call|>";
/// The mark before and after a text in a call.
pub const QUOTE: &str = "<|\"|>";

/// The most levels of lists and objects, so that a reply cannot use up the stack.
const MOST_LEVELS: usize = 64;

/// Returns the name of the call `written` between its marks, and its arguments as JSON text. Returns `None` if it is
/// anything else. Numbers stay as they are written.
pub fn read_call(written: &str) -> Option<(&str, String)> {
    let call = written.trim().strip_prefix("call:")?;
    let (name, arguments) = call.split_at(call.find('{')?);
    let mut json = String::new();
    let rest = read_value(arguments, &mut json, 0)?;
    let name = name.trim();
    let is_name = !name.is_empty() && !name.contains(['<', '\n']);
    (is_name && rest.is_empty()).then_some((name, json))
}

/// Appends the value at the beginning of `text` to `json`. Returns the text after it.
fn read_value<'a>(text: &'a str, json: &mut String, level: usize) -> Option<&'a str> {
    if let Some((said, rest)) = quoted(text) {
        json.push_str(&Value::from(said).to_string());
        return Some(rest);
    }
    if text.starts_with(['{', '[']) {
        return (level <= MOST_LEVELS).then(|| read_members(text, json, level))?;
    }
    // Some chat templates print Python's null.
    if let Some(rest) = text.strip_prefix("None") {
        json.push_str("null");
        return Some(rest);
    }
    let mut values = Deserializer::from_str(text).into_iter::<&RawValue>();
    json.push_str(values.next()?.ok()?.get());
    Some(&text[values.byte_offset()..])
}

fn read_members<'a>(text: &'a str, json: &mut String, level: usize) -> Option<&'a str> {
    let (open, inside) = text.split_at(1);
    let is_object = open == "{";
    let close = if is_object { "}" } else { "]" };
    json.push_str(open);
    let mut rest = inside.trim_start();
    loop {
        if let Some(rest) = rest.strip_prefix(close) {
            json.push_str(close);
            return Some(rest);
        }
        if !json.ends_with(open) {
            json.push_str(", ");
        }
        if is_object {
            let (key, after) = read_key(rest)?;
            json.push_str(&Value::from(key).to_string());
            json.push_str(": ");
            rest = after;
        }
        rest = read_value(rest, json, level + 1)?.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with(close) => {}
            None => return None,
        }
    }
}

/// Returns the key at the beginning of `text`, and the text of its value.
fn read_key(text: &str) -> Option<(&str, &str)> {
    if let Some((key, rest)) = quoted(text) {
        return Some((key, rest.trim_start().strip_prefix(':')?.trim_start()));
    }
    let (key, rest) = text.split_once(':')?;
    let key = key.trim().trim_matches('"');
    let is_word = !key.is_empty() && !key.contains(['{', '}', '[', ']', ',', '<']);
    is_word.then_some((key, rest.trim_start()))
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(QUOTE)?.split_once(QUOTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_what_it_is_written_as() {
        for (written, name, arguments) in [
            ("call:now{}", "now", json!({})),
            (
                "call:a.b-c{at:<|\"|>x<|\"|>,n:3,f:-1.5e3,on:true,off:false,no:null,not:None}",
                "a.b-c",
                json!({"at": "x", "n": 3, "f": -1.5e3, "on": true, "off": false, "no": null, "not": null}),
            ),
            (
                "call:f{s:<|\"|>3<|\"|>,t:<|\"|>true<|\"|>,e:<|\"|><|\"|>}",
                "f",
                json!({"s": "3", "t": "true", "e": ""}),
            ),
            (
                "call:f{s:<|\"|>a \"b\"\n{c}, [d]: \\e <tool_call|> é<|\"|>}",
                "f",
                json!({"s": "a \"b\"\n{c}, [d]: \\e <tool_call|> é"}),
            ),
            (
                "call:f{o:{k:{},l:[]},xs:[1,[2,<|\"|>,<|\"|>],{a:[null]}]}",
                "f",
                json!({"o": {"k": {}, "l": []}, "xs": [1, [2, ","], {"a": [null]}]}),
            ),
            // Written otherwise than the model learned it, but not to be mistaken.
            (
                " call: f { a : 1 , <|\"|>b:c<|\"|> : \"x\\ty}\" , \"d\": [ 2 , ], } ",
                "f",
                json!({"a": 1, "b:c": "x\ty}", "d": [2]}),
            ),
        ] {
            let (found, json) = read_call(written).unwrap();
            assert_eq!(found, name, "{written}");
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json, arguments, "{written}");
        }
        let large = "call:f{n:12345678901234567890123,m:1.10}";
        let expected = "{\"n\": 12345678901234567890123, \"m\": 1.10}";
        assert_eq!(read_call(large).unwrap().1, expected);
    }

    #[test]
    fn anything_else_is_no_call() {
        for written in [
            "",
            "call:f",
            "f{}",
            "call:{}",
            "call:f{}}",
            "call:f{} {}",
            "call:f{",
            "call:f{a}",
            "call:f{a:}",
            "call:f{:1}",
            "call:f{a:b}",
            "call:f{a:1 b:2}",
            "call:f{,a:1}",
            "call:f{a:1,,b:2}",
            "call:f{a:[1}",
            "call:f{a:<|\"|>x}",
            "call:f{a:<|\"|>x<|\"|>y}",
            "call:f{a:007}",
            "call:f{a:Nones}",
            "call:f{a:é}",
            "call:f[1]",
            "call:f<|tool_call>{}",
        ] {
            assert_eq!(read_call(written), None, "{written}");
        }
        let nested = |n| format!("call:f{{a:{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(read_call(&nested(MOST_LEVELS)).is_some());
        assert_eq!(read_call(&nested(MOST_LEVELS + 1)), None);
        assert_eq!(read_call(&nested(1 << 20)), None);
    }
}
