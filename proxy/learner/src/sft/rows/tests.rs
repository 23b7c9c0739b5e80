use super::*;

fn only(row: &Value) -> Result<DataRow, String> {
    let read = rows(&row.to_string());
    read.map(|mut rows| rows.remove(0))
        .map_err(|error| error.to_string())
}

fn said(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

#[test]
fn what_the_assistant_says_is_trained_but_for_weight_0() {
    let left_out = json!({"role": "assistant", "content": "b", "weight": 0});
    let kept = json!({"role": "assistant", "content": "d", "weight": 1});
    let row = json!({"messages": [said("user", "a"), left_out, said("user", "c"), kept], "id": 7});
    let row = only(&row).unwrap();
    let RowContent::Chat { messages, trained } = row.content else {
        panic!("{row:?}");
    };
    assert_eq!(trained, [3]);
    assert_eq!(messages[3], said("assistant", "d"), "without its weight");
    assert_eq!((row.line, row.tools), (1, None));
}

#[test]
fn blank_lines_count_and_are_left_out() {
    let chat = json!({"messages": [said("user", "a"), said("assistant", "b")]});
    let text = format!("\u{feff}{chat}\n\n   \r\n{chat}\r\n");
    let lines: Vec<usize> = rows(&text).unwrap().iter().map(|row| row.line).collect();
    assert_eq!(lines, [1, 4]);
    assert_eq!(rows("\n").unwrap(), []);
}

#[test]
fn pairs_of_both_formats_come_to_the_same() {
    let (ask, good, bad) = (
        said("user", "a"),
        said("assistant", "b"),
        said("assistant", "c"),
    );
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for row in [
        json!({"prompt": "a", "chosen": "b", "rejected": "c", "tools": tools}),
        json!({"prompt": [ask], "chosen": [good], "rejected": [bad], "tools": tools}),
        json!({"chosen": [ask, good], "rejected": [ask, bad], "tools": tools}),
        json!({"input": {"messages": [ask], "tools": tools}, "preferred_output": [good], "non_preferred_output": [bad]}),
    ] {
        let row = only(&row).unwrap();
        assert_eq!(row.tools.as_ref(), Some(&tools));
        let pair = RowContent::Pair {
            chosen: vec![ask.clone(), good.clone()],
            rejected: vec![ask.clone(), bad.clone()],
        };
        assert_eq!(row.content, pair);
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_field() {
    let user = said("user", "a");
    let reply = said("assistant", "b");
    for (row, expected) in [
        (
            json!(3),
            "line 1: it is a number, and has to be a chat {\"messages\": [..]}",
        ),
        (
            json!({"conversations": []}),
            "line 1: it has conversations, and has to be a chat",
        ),
        (
            json!({"messages": "x"}),
            "line 1: messages is a text, and has to be a list",
        ),
        (json!({"messages": []}), "messages is empty"),
        (json!({"messages": [3]}), "messages[0] is a number"),
        (
            json!({"messages": [user, {"role": "bot", "content": "b"}]}),
            "messages[1].role is \"bot\", allowed: system, developer, user, assistant, tool, function",
        ),
        (
            json!({"messages": [user, {"role": "assistant"}]}),
            "messages[1].content is missing",
        ),
        (
            json!({"messages": [user]}),
            "no message of the assistant's that is trained",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "content": "b", "weight": 0.5}]}),
            "messages[1].weight is 0.5, allowed: 0 and 1",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "weight": 1}, reply]}),
            "messages[0].weight is 1 and its role \"user\"",
        ),
        (
            json!({"messages": [user, reply], "tools": "f"}),
            "tools is a text",
        ),
        (
            json!({"messages": [user, reply], "chat_template_kwargs": 1}),
            "chat_template_kwargs is a number",
        ),
        (json!({"prompt": "a", "chosen": "b"}), "rejected is missing"),
        (
            json!({"chosen": "b", "rejected": "c"}),
            "prompt is missing, and chosen has no message before",
        ),
        (
            json!({"prompt": "a", "chosen": [user], "rejected": "c"}),
            "chosen ends with role \"user\"",
        ),
        (
            json!({"prompt": "a", "chosen": [user, reply], "rejected": "c"}),
            "chosen has 2 messages beside the prompt",
        ),
        (json!({"preferred_output": [reply]}), "input is missing"),
    ] {
        let error = only(&row).unwrap_err();
        assert!(error.contains(expected), "{row}: {error}");
    }
    let error = rows("{\"messages\": [").unwrap_err().to_string();
    assert!(error.starts_with("line 1: it is no JSON: EOF"), "{error}");
    let error = rows("[\n{}\n]").unwrap_err().to_string();
    assert!(error.contains("no list around them"), "{error}");
    let chat = json!({"messages": [user, reply]});
    let pair = json!({"prompt": "a", "chosen": "b", "rejected": "c"});
    let error = rows(&format!("{chat}\n{pair}")).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 2: it is one of pairs, and line 1 one of chats: a file has one kind"
    );
}

fn example(ids: &[u32], trained: &[Range<usize>]) -> TokenExample {
    TokenExample {
        ids: ids.to_vec(),
        trained: trained.to_vec(),
    }
}

fn with_one(ids: &[u32], trained: Range<usize>) -> TokenExample {
    example(ids, std::slice::from_ref(&trained))
}

#[test]
fn replies_of_one_chat_share_a_sequence_unless_the_history_is_rewritten() {
    let mut examples = Vec::new();
    add(&mut examples, with_one(&[1, 2, 3], 1..3));
    add(&mut examples, with_one(&[1, 2, 3, 4, 5], 4..5));
    assert_eq!(examples, [example(&[1, 2, 3, 4, 5], &[1..3, 4..5])]);
    add(&mut examples, with_one(&[1, 9, 3, 4, 5, 6], 5..6));
    assert_eq!(examples.len(), 2);
}

#[test]
fn a_datum_has_its_weight_where_the_next_id_is_trained() {
    let example = example(&[7, 8, 9, 10, 11], &[1..2, 3..5]);
    assert_eq!(
        (example.n_trained(), example.positions()),
        (3, vec![0, 2, 3])
    );
    let datum = example.datum(0.5).unwrap();
    let parts = datum.parts();
    assert_eq!(parts.model_input_tokens, [7, 8, 9, 10]);
    assert_eq!(parts.target_tokens.values(), [8, 9, 10, 11]);
    let weights = parts.weights.as_ref().unwrap();
    assert_eq!(weights.values(), [0.5, 0.0, 0.5, 0.5]);
    assert!(example.datum(f32::NAN).is_err());
}
