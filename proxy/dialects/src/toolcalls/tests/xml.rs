//! Tests of calls in Qwen3-Coder's notation.

use super::*;

/// The text of a model of the family, in the notation of its chat template.
const CALLS: &str = "I look.\n<tool_call>\n<function=exec>\n<parameter=command>\necho \"a\" > b\ncat b\n</parameter>\n<parameter=timeout>\n30\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>";

fn options() -> ToolCallOptions {
    let properties = json!({ "command": { "type": "string" }, "timeout": { "type": "number" } });
    let exec = json!({ "name": "exec", "parameters": { "properties": properties } });
    ToolCallOptions::for_request(&json!({ "tools": [{ "function": exec }] }), false)
}

fn typed(text: &str) -> String {
    read(&options(), text)
}

#[test]
fn calls_in_xml_are_taken_out_with_the_types_of_their_tool() {
    insta::assert_snapshot!(typed(CALLS), @r#"["","I look.\n",["call_xml_0 exec {\"command\": \"echo \\\"a\\\" > b\\ncat b\", \"timeout\": 30}","call_xml_1 now {}"]]"#);
    insta::assert_snapshot!(plain(CALLS), @r#"["","I look.\n",["call_xml_0 exec {\"command\": \"echo \\\"a\\\" > b\\ncat b\", \"timeout\": \"30\"}","call_xml_1 now {}"]]"#);
    insta::assert_snapshot!(plain("<tool_call><function=exec><parameter=command>ls</parameter></function></tool_call> done"), @r#"["","done",["call_xml_0 exec {\"command\": \"ls\"}"]]"#);
}

#[test]
fn a_value_may_hold_quotes_and_the_tags_themselves() {
    insta::assert_snapshot!(plain("<tool_call><function=write><parameter=text>say \"</tool_call>\" and </parameter> and </function>\n</tool_call> too</parameter></function></tool_call>"), @r#"["","",["call_xml_0 write {\"text\": \"say \\\"</tool_call>\\\" and </parameter> and </function>\\n</tool_call> too\"}"]]"#);
}

#[test]
fn what_is_no_call_in_xml_stays_text() {
    for text in [
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=a<b></function></tool_call>",
        "<tool_call><function=exec>ls</function></tool_call>",
        "<tool_call><functions=exec></function></tool_call>",
        "<tool_call><function=exec><parameter=a>1</parameter>",
        "<tool_call><func",
    ] {
        assert_eq!(typed(text), json!(["", text, []]).to_string());
    }
}

#[test]
fn a_whole_reply_may_lack_the_last_marker() {
    insta::assert_snapshot!(plain("<tool_call>\n<function=exec>\n<parameter=command>\nls\n</parameter>\n</function>\n"), @r#"["","",["call_xml_0 exec {\"command\": \"ls\"}"]]"#);
}

#[test]
fn markers_without_end_cost_their_length() {
    let name = "x".repeat(1 << 19);
    let ends = "</function></tool_call>".repeat(20_000);
    let text = format!("<tool_call><function={name}{ends}");
    let (_, said, calls) = split(&ToolCallOptions::default(), &[&text]);
    assert_eq!((said.len(), calls.len()), (text.len(), 0));
}

#[test]
fn calls_of_offered_tools_may_lack_tags_and_quoted_markup_is_text() {
    let glob =
        json!({ "pattern": { "type": "string" }, "limit": { "type": "integer" }, "path": {} });
    let write = json!({ "path": { "type": "string" }, "text": { "type": "string" } });
    let tools = [("glob", glob), ("write", write)].map(|(name, properties)| {
        json!({ "function": { "name": name, "parameters": { "properties": properties } } })
    });
    let options = ToolCallOptions::for_request(&json!({ "tools": tools }), false);
    read_as_listed("calls_in_xml", &options);
}

#[test]
fn what_only_quotes_the_markup_stays_text_without_tools_too() {
    for (text, _, calls) in testing::rows::<(String, String, Vec<String>)>("calls_in_xml") {
        if calls.is_empty() {
            assert_eq!(plain(&text), json!(["", text, []]).to_string());
        }
    }
}

proptest! {
    #[test]
    fn any_values_come_back(values in vec(("[a-c]{1,3}", "[a-z<>\"/\\n {}]{0,12}"), 0..4)) {
        let parameter = |(key, value): &(String, String)| {
            format!("<parameter={key}>\n{value}\n</parameter>\n")
        };
        let parameters: String = values.iter().map(parameter).collect();
        let text = format!("<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>");
        let pairs: Vec<String> = values
            .iter()
            .map(|(key, value)| format!("{}: {}", json!(key), json!(value)))
            .collect();
        let expected = format!("call_xml_0 f {{{}}}", pairs.join(", "));
        prop_assert_eq!(split(&ToolCallOptions::default(), &[&text]).2, [expected]);
    }
}
