//! Tests with texts of real models, complete and in every splitting.

mod requests;
mod streams;
mod xml;

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    split::{SplitPiece, Splitter},
    *,
};
use crate::testing;

/// Returns the content of a text: thinking, text, and calls as `id name arguments`.
fn split(options: &ToolCallOptions, pieces: &[&str]) -> (String, String, Vec<String>) {
    let mut splitter = Splitter::new(options.clone(), "");
    let mut out = Vec::new();
    for piece in pieces {
        splitter.push(piece, &mut out);
    }
    splitter.finish(true, &mut out);
    let (mut thinking, mut text, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in out {
        match piece {
            SplitPiece::Thinking(more) => thinking.push_str(&more),
            SplitPiece::Text(more) => text.push_str(&more),
            SplitPiece::Call(call) => {
                calls.push(format!("{} {} {}", call.id, call.name, call.arguments));
            }
        }
    }
    (thinking, text, calls)
}

/// Reads it completely, and cut at every place, which must not change the result.
fn read(options: &ToolCallOptions, text: &str) -> String {
    let whole = split(options, &[text]);
    for (at, _) in text.char_indices() {
        assert_eq!(
            split(options, &[&text[..at], &text[at..]]),
            whole,
            "cut at {at}"
        );
    }
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(split(options, &letters), whole, "letter by letter");
    let (thinking, text, calls) = whole;
    json!([thinking, text, calls]).to_string()
}

/// Checks the rows of a table: a text of the model, the text that is left, and the calls in it.
fn read_as_listed(table: &str, options: &ToolCallOptions) {
    for (text, said, calls) in testing::rows::<(String, String, Vec<String>)>(table) {
        let (_, left, found): (String, String, Vec<String>) =
            serde_json::from_str(&read(options, &text)).unwrap();
        let found = found.iter().map(|call| call.split_once(' ').unwrap().1);
        assert_eq!(
            (left, found.collect::<Vec<_>>()),
            (said, calls.iter().map(String::as_str).collect()),
            "{text}"
        );
    }
}

fn plain(text: &str) -> String {
    read(&ToolCallOptions::default(), text)
}

/// Each row has a text of Qwen's, Kimi's or Gemma's form, and the thinking, the text and the calls in it. What is no call, or is
/// hidden by a string that never ends, stays text.
#[test]
fn calls_and_thinking_of_any_tool_are_taken_out() {
    for (text, expected) in testing::rows::<(String, Value)>("calls_of_any_tool") {
        assert_eq!(plain(&text), expected.to_string());
    }
}

#[test]
fn calls_of_offered_tools_are_read_with_the_slips_of_their_json() {
    let tools = json!({ "tools": [{ "function": { "name": "glob" } }, { "function": { "name": "write" } }] });
    read_as_listed(
        "calls_in_json",
        &ToolCallOptions::for_request(&tools, false),
    );
}

#[test]
fn thinking_may_be_open_from_the_start_and_need_not_end() {
    let open = ToolCallOptions {
        think_is_open: true,
        ..ToolCallOptions::default()
    };
    insta::assert_snapshot!(read(&open, "I think.\n</think>\n\nYes."), @r#"["I think.","Yes.",[]]"#);
    insta::assert_snapshot!(read(&open, "\n<think>\nI think.</think>Yes."), @r#"["I think.","Yes.",[]]"#);
    insta::assert_snapshot!(plain("<think>cut off "), @r#"["cut off","",[]]"#);
    insta::assert_snapshot!(plain(" <think></think> Yes <think>no</think>"), @r#"["","Yes <think>no</think>",[]]"#);
}

#[test]
fn names_are_the_tools_that_were_meant() {
    let tools = ["get_v2".to_owned(), "sha256".to_owned(), "a.b".to_owned()];
    for (written, arguments, name) in testing::rows::<(String, String, String)>("names_of_tools") {
        let normalised = names::normalised(&written, &arguments, &tools);
        assert_eq!(normalised, name, "{written}");
    }
}

#[test]
fn a_tool_that_the_request_names_keeps_its_name() {
    let body = json!({ "tools": [{ "type": "function", "function": { "name": "sha256" } }, { "type": "custom" }] });
    let options = ToolCallOptions::for_request(&body, false);
    let call = "<tool_call>{\"name\":\"sha256\"}</tool_call>";
    assert!(read(&options, call).contains("sha256"));
    assert!(!plain(call).contains("sha256"));
}

#[test]
fn a_whole_reply_is_put_right_and_others_are_left_alone() {
    let put_right = |text: &str, more: Value| {
        let mut message = json!({ "role": "assistant", "content": text });
        let fields = more.as_object().unwrap().clone();
        message.as_object_mut().unwrap().extend(fields);
        let body = json!({ "id": "r", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
        let out = reply(&ToolCallOptions::default(), body.to_string().as_bytes());
        out.map(|out| String::from_utf8(out).unwrap())
    };
    let call = "<tool_call>{\"name\":\"x\"}</tool_call>";
    insta::assert_snapshot!(put_right(call, json!({})).unwrap(), @r#"{"id":"r","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_xml_r_0","type":"function","function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#);
    insta::assert_snapshot!(put_right("I think.\n</think>\n\nYes.", json!({})).unwrap(), @r#"{"id":"r","choices":[{"index":0,"message":{"role":"assistant","content":"Yes.","reasoning_content":"I think."},"finish_reason":"stop"}]}"#);
    let calls = json!({ "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] });
    for (text, more) in [
        ("Write </think> after it.", json!({})),
        ("Yes.", json!({})),
        ("<think>x</think>y", json!({ "reasoning_content": "z" })),
        (call, calls),
    ] {
        assert_eq!(put_right(text, more), None, "{text}");
    }
    assert_eq!(reply(&ToolCallOptions::default(), b"<html>"), None);
    assert_eq!(reply(&ToolCallOptions::default(), b"{\"choices\":7}"), None);
}

#[test]
fn a_call_without_end_is_let_go_when_it_is_too_long() {
    let mut splitter = Splitter::new(ToolCallOptions::default(), "");
    let mut out = Vec::new();
    splitter.push("<tool_call>", &mut out);
    for _ in 0..20 {
        splitter.push(&"x".repeat(100_000), &mut out);
    }
    let is_text =
        |piece: &SplitPiece| matches!(piece, SplitPiece::Text(text) if text.len() > 1_000_000);
    assert!(out.iter().any(is_text), "{}", out.len());
}

/// If every marker led to a search of all following text, this would take minutes.
#[test]
fn a_model_that_repeats_itself_costs_no_more_than_its_text() {
    let units = [
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>{\"\\\"",
        "<function=f>",
        "<function=f><parameter=a>",
        "<function=f></parameter></function>x",
        "</function>",
        "<tool_call>[",
        "<|tool_call_begin|>\"\\\"",
        "<|tool_calls_section_begin|>",
        "<|tool_call>",
        "<|tool_call>call:f{a:<|\"|>",
        "<|tool_call>call:f{a:[<tool_call|>",
        "<think>",
        "<|channel>thought",
        "\n",
    ];
    for unit in units {
        for begin in ["", "<think>x"] {
            let n = (1 << 17) / unit.len();
            let pieces: Vec<&str> = std::iter::once(begin)
                .chain(std::iter::repeat_n(unit, n))
                .collect();
            let tools = vec!["f".to_owned()];
            let options = ToolCallOptions {
                tools,
                ..ToolCallOptions::default()
            };
            let split = |pieces: &[&str]| {
                let (thinking, text, calls) = split(&options, pieces);
                assert!(calls.is_empty(), "{unit}");
                thinking.len() + text.len()
            };
            let n_said = [split(&pieces), split(&[&pieces.concat()])];
            let is_left_out = matches!(
                unit,
                "<think>" | "<|channel>thought" | "\n" | "<|tool_calls_section_begin|>"
            );
            let is_all = n_said.iter().all(|said| *said >= n * unit.len());
            assert!(is_all || is_left_out, "{unit}: {n_said:?}");
        }
    }
}

#[test]
fn a_marker_that_begins_no_call_holds_nothing_back() {
    let mut splitter = Splitter::new(ToolCallOptions::default(), "");
    let mut out = Vec::new();
    splitter.push("A <tool_call> is: <tool_call>\n<functional>", &mut out);
    let text = "A <tool_call> is: <tool_call>\n<functional>".to_owned();
    assert_eq!(out, [SplitPiece::Text(text)]);
    insta::assert_snapshot!(plain("<tool_call>\n<tool_call>{\"name\":\"x\"}</tool_call>"), @r#"["","<tool_call>\n",["call_xml_0 x {}"]]"#);
}

fn texts() -> impl Strategy<Value = String> {
    let words = select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\":\"x\",\"arguments\":{}}",
        "{\"a\":\"",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "f:0",
        "<|tool_call_argument_begin|>",
        "{}",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        " ",
        "\n",
        "a",
        "<",
        "\"",
        "\\",
        "é",
        "<function=f>",
        "<parameter=a>",
        "<parameter=b>",
        "</parameter>",
        "</function>",
        "</",
        ">",
        "```",
        "{\"name\":\"f\",",
        "}",
        "[",
        "<|channel>thought",
        "<channel|>",
        "<|tool_call>",
        "call:f{a:",
        "<|\"|>",
        "<tool_call|>",
    ]);
    vec(words, 0..12).prop_map(|words| words.concat())
}

/// Returns a value as Gemma's chat template writes it.
fn in_gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_gemma).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key}:{}", in_gemma(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn values() -> impl Strategy<Value = Value> {
    let parts = vec![
        "<|tool_call>",
        "<tool_call|>",
        "call:f{",
        "}",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\n",
        "<|",
        "<",
        "|>",
        "é",
        "a",
        " ",
    ];
    let text = vec(select(parts), 0..6).prop_map(|parts| parts.concat());
    let one = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        text.prop_filter("it ends the text", |text| !text.contains("<|\"|>"))
            .prop_map(Value::from),
    ];
    one.prop_recursive(4, 24, 4, |inner| {
        let key = "[a-zA-Zéß_$.-][a-z0-9 |>\"]{0,6}[a-z]";
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn what_gemmas_template_writes_is_read_back(value in values(), cut: usize) {
        let written = format!("<|tool_call>call:f{}<tool_call|>", in_gemma(&json!({"a": value, "b": 1})));
        let cuts: Vec<usize> = written.char_indices().map(|(at, _)| at).collect();
        let (head, tail) = written.split_at(cuts[cut % cuts.len()]);
        let (_, text, calls) = split(&ToolCallOptions::default(), &[head, tail]);
        prop_assert_eq!(text, "", "{}", written);
        let (_, arguments) = calls[0].split_once(" f ").unwrap();
        let read: Value = serde_json::from_str(arguments).unwrap();
        prop_assert_eq!(read, json!({"a": value, "b": 1}));
    }

    #[test]
    fn no_splitting_changes_what_a_text_says(text in texts(), think_is_open: bool, offers: bool, cuts in vec(any::<usize>(), 0..9)) {
        let tools = if offers { vec!["f".to_owned()] } else { Vec::new() };
        let options = ToolCallOptions { think_is_open, tools, ..ToolCallOptions::default() };
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let mut pieces = vec![String::new()];
        for (n, letter) in letters.iter().enumerate() {
            if cuts.iter().any(|cut| cut % letters.len() == n) {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push_str(letter);
        }
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(split(&options, &pieces), split(&options, &[&text]));
    }

    #[test]
    fn a_text_without_markers_is_itself(text in "[ \n]{0,2}[a-z<>/|_\"{} ]{0,30}") {
        prop_assume!(!["<think>", "<tool_call>", "<|tool_call"].iter().any(|m| text.contains(m)));
        prop_assert_eq!(split(&ToolCallOptions::default(), &[&text]), (String::new(), text, vec![]));
    }
}
