use metaclaw_turns::Served;

use super::*;

const SKILLS: &str = "## Active Skills\n\n### a\n_When a._\n\nDo.";
const WISHES: &str = "## Standing wishes of the user\n\n- Be brief.";

fn turn(messages: Value, served: Served) -> Turn {
    let messages = serde_json::from_value(messages).unwrap();
    Turn {
        served,
        ..crate::testing::judged_turn(messages)
    }
}

fn served(block: Option<&str>, line: Option<&str>, wishes: bool) -> Served {
    Served {
        system_block: block.map(str::to_owned),
        user_line: line.map(str::to_owned),
        wishes: wishes.then(|| "w".to_owned()),
        ..Served::default()
    }
}

fn of(messages: Value, served: Served) -> TeacherConversation {
    TeacherConversation::from_turn(&turn(messages, served)).unwrap()
}

#[test]
fn the_student_reads_what_the_client_sent() {
    let asked = json!([{"role": "user", "content": "q", "x": "me"}]);
    for served in [
        served(None, Some("Be brief."), true),
        served(Some(WISHES), None, true),
        served(None, None, false),
    ] {
        let conversation = of(asked.clone(), served);
        assert_eq!(json!(conversation.plain()), asked);
    }
}

#[test]
fn skills_stay_and_wishes_go() {
    let both = format!("{SKILLS}\n\n{WISHES}");
    let asked = json!([{"role": "system", "content": "S."}, {"role": "user", "content": "q"}]);
    let conversation = of(asked, served(Some(&both), None, true));
    let plain = conversation.plain();
    assert_eq!(plain[0]["content"], format!("S.\n\n{SKILLS}"));
    assert_eq!(plain[1]["content"], "q");
    // A client without a system text gets one.
    let conversation = of(
        json!([{"role": "user", "content": "q"}]),
        served(Some(SKILLS), Some("Be brief."), true),
    );
    let told = conversation.told("Be brief.");
    assert_eq!(told[0], json!({"role": "system", "content": SKILLS}));
    assert_eq!(told[1]["content"], "q\n\nBe brief.");
}

#[test]
fn the_owner_is_last_heard_before_tools_and_after_replies() {
    let asked = json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "second"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]);
    let conversation = of(asked.clone(), Served::default());
    let told = conversation.told("Be brief.");
    assert_eq!(told[0], asked[0]);
    assert_eq!(told[3], asked[3]);
    let parts = json!([{"type": "text", "text": "second"}, {"type": "text", "text": "Be brief."}]);
    assert_eq!(told[2]["content"], parts);
    let asking = conversation.asking("Why?");
    let part = json!([{"type": "text", "text": "Why?"}]);
    assert_eq!(asking[2], json!({"role": "user", "content": part}));
    assert_eq!(json!(conversation.plain()), asked, "and neither stays");
}

#[test]
fn without_a_word_of_the_owner_there_is_nothing_to_answer() {
    let turn = turn(
        json!([{"role": "system", "content": "S."}]),
        Served::default(),
    );
    assert!(TeacherConversation::from_turn(&turn).is_none());
}

#[test]
fn another_question_takes_the_place_of_what_was_typed_alone() {
    let reminder = json!({"type": "text", "text": "<system-reminder>\nx\n</system-reminder>"});
    let asked = json!([{"role": "user", "content": [reminder, {"type": "text", "text": "q"}]}]);
    let conversation = of(asked, served(None, None, false));
    let asking = conversation.asking("another");
    assert_eq!(
        asking[0]["content"],
        json!([reminder, {"type": "text", "text": "another"}])
    );
    let quoted = of(
        json!([{"role": "user", "content": "\"say \\\"hi\\\"\""}]),
        served(None, None, false),
    );
    assert_eq!(quoted.asking("another")[0]["content"], "another");
}
