use serde_json::Value;

use super::*;

mod any;

fn parse(api: Api, raw: &str) -> ChatRequest {
    ChatRequest::parse(api, Bytes::copy_from_slice(raw.as_bytes())).unwrap()
}

fn edit(api: Api, raw: &str, changes: Changes<'_>) -> String {
    String::from_utf8(splice(&parse(api, raw), changes).concat()).unwrap()
}

/// Each row is three lines: the API and the changes, the request, and the request with these changes.
#[test]
fn each_change_is_made_and_no_other_byte_changes() {
    let rows = include_str!("../../../testdata/tables/edits.txt");
    let mut lines = rows
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut n_rows = 0;
    while let (Some(head), Some(raw), Some(expected)) = (lines.next(), lines.next(), lines.next()) {
        let (api, asked) = head.split_once(' ').unwrap();
        let api: Api = serde_json::from_value(api.into()).unwrap();
        let asked: Value = serde_json::from_str(asked).unwrap();
        let text = |name: &str| asked.get(name).map(|value| value.as_str().unwrap());
        let changes = Changes {
            system: text("system"),
            model: text("model"),
            user_line: text("user_line"),
            cuts_shared: asked.get("cuts_shared").is_some(),
            absent: match text("absent") {
                None => Absent::Insert,
                Some(_) => Absent::Field,
            },
            ..Changes::default()
        };
        assert_eq!(edit(api, raw, changes), expected, "{head}");
        n_rows += 1;
    }
    assert_eq!(n_rows, 36);
}

#[test]
fn each_person_of_a_group_gets_her_own_line_behind_everyones() {
    let message = |sender: &str, said: &str| {
        let text = format!(
            "Conversation info: ⟦openclaw:ctx⟧\n```json\n{{\"is_group_chat\": true, \"sender\": {{\"id\": \"{sender}\"}}}}\n```\n\n{said}"
        );
        serde_json::json!({"role": "user", "content": text})
    };
    let raw = serde_json::json!({"messages": [message("100", "Hi"), message("200", "And?"), {"role": "user", "content": "Hm"}]});
    let lines = BTreeMap::from([("100".parse().unwrap(), "(short)".to_owned())]);
    let ends = |user_line| {
        let changes = Changes {
            user_line,
            sender_lines: Some(&lines),
            ..Changes::default()
        };
        let edited: Value =
            serde_json::from_str(&edit(Api::Chat, &raw.to_string(), changes)).unwrap();
        let messages = edited["messages"].as_array().unwrap().clone();
        let end = |message: &Value| {
            let text = message["content"].as_str().unwrap();
            text.rsplit("```\n\n").next().unwrap().to_owned()
        };
        messages.iter().map(end).collect::<Vec<_>>()
    };
    assert_eq!(ends(None), ["Hi\n\n(short)", "And?", "Hm"]);
    let both = ["Hi\n\n(all)\n\n(short)", "And?\n\n(all)", "Hm\n\n(all)"];
    assert_eq!(ends(Some("(all)")), both);
}

#[test]
fn nothing_to_change_copies_nothing() {
    let request = parse(Api::Chat, r#"{"messages":[{"role":"user"}]}"#);
    let pieces = splice(&request, Changes::default());
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0].as_ptr(), request.raw().as_ptr());
}
