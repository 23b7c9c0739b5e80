//! Tests of `skills.refresh`: when the skills of a session are chosen, seen in the upstream's requests.

use metaclaw_skills::{Refresh, SkillsConfig};
use metaclaw_test_kit::has;

use super::harness::{BRIEF, Harness, SetUp, conversation};

const INVOICES: &str =
    "---\nname: invoices\ndescription: Finding invoices\n---\nLook at October.\n";
const SONNETS: &str = "---\nname: sonnets\ndescription: Writing sonnets\n---\nFourteen lines.\n";

/// Returns the system prompt of each request.
async fn systems<const N: usize>(refresh: Refresh, requests: [&str; N]) -> [String; N] {
    let mut harness = Harness::with(SetUp {
        lessons: vec![
            ("invoices/SKILL.md", INVOICES),
            ("sonnets/SKILL.md", SONNETS),
            BRIEF,
        ],
        skills: SkillsConfig {
            refresh,
            ..SkillsConfig::default()
        },
        ..SetUp::default()
    })
    .await;
    let mut systems = [const { String::new() }; N];
    for (system, request) in systems.iter_mut().zip(requests) {
        let exchange = harness.chat("x-session-id: s\r\n", request, "x").await;
        let body = exchange.json();
        let first = &body["messages"][0];
        if first["role"] == "system" {
            first["content"].as_str().unwrap().clone_into(system);
        }
    }
    systems
}

#[tokio::test]
async fn skills_are_chosen_by_what_was_typed_and_not_by_what_stands_around_it() {
    let request = serde_json::json!({"model": "m", "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nWriting sonnets is what this project is for.\n</system-reminder>"},
            {"type": "text", "text": "Which invoices are open?"},
        ]},
        {"role": "user", "content": "<environment_context>\n<cwd>/sonnets</cwd>\n</environment_context>"},
    ]});
    let [system] = systems(Refresh::Session, [&*request.to_string()]).await;
    has(&system, ["Look at October."]);
    assert!(!system.contains("Fourteen lines."), "{system}");
}

const TOOL: &str = r#"{"model":"m","messages":[{"role":"user","content":"Which invoices are open?"},{"role":"assistant","content":"x"},{"role":"user","content":"Now a sonnet."},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"an invoice"}]}"#;

#[tokio::test]
async fn the_skills_of_a_session_stay_byte_for_byte_or_follow_each_instruction() {
    let texts = [
        "Which invoices are open?",
        "x",
        "Now write sonnets.",
        "x",
        "Thanks.",
    ];
    let [first, second, nothing] = [1, 3, 5].map(|n| conversation(&texts[..n]));
    let requests = [&*first, &second, TOOL, &nothing];
    let [one, two, three, four] = systems(Refresh::Session, requests).await;
    has(&one, ["Look at October.", "- Be brief."]);
    assert_eq!((&two, &three, &four), (&one, &one, &one));
    let [one, two, three, four] = systems(Refresh::Turn, requests).await;
    has(&one, ["Look at October."]);
    has(&two, ["Fourteen lines.", "- Be brief."]);
    assert!(!two.contains("October"), "{two}");
    assert_eq!(three, two, "what a tool says is no instruction");
    has(&four, ["- Be brief."]);
    assert!(!four.contains("lines"), "{four}");
}
