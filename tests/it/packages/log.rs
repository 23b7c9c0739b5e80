//! Tests that the log has a package's turns in the form of chat completions, whatever the API.

use metaclaw_tests::{
    home::Home,
    upstream::{CACHED_TOKENS, COMPLETION_TOKENS, PROMPT_TOKENS},
};
use serde_json::{Value, json};

use super::{Pair, program, run};

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn a_call_and_the_answer_to_its_result_are_two_turns_of_one_session() {
    for (dialect, name, n) in [
        ("openai", "openai_turns.py", 2),
        ("anthropic", "anthropic_turns.py", 1),
    ] {
        let pair = Pair::start(dialect, &Value::Null).await;
        run(program(&pair.python, name, &pair.proxy.base_url, &[])).await;
        let turns = turns(&pair.home).await;
        let is_answer = |turn: &&Value| turn["reply"]["content"] == "The tool said hi.";
        let answers: Vec<&Value> = turns.iter().filter(is_answer).collect();
        assert_eq!(answers.len(), n, "{turns:#?}");
        for answer in answers {
            let is_call = |turn: &&Value| turn["id"] == answer["parent"];
            assert_pair(turns.iter().find(is_call).expect("a call"), answer);
        }
        pair.proxy.stop().await.unwrap();
    }
}

/// One turn asks for a call, and the next one has the result.
fn assert_pair(call: &Value, answer: &Value) {
    assert_eq!(call["session"], answer["session"]);
    for turn in [call, answer] {
        assert_eq!(turn["request"]["tools"][0]["function"]["name"], "exec");
        assert_eq!(turn["end"]["how"], "complete");
        let usage = json!({"prompt_tokens": PROMPT_TOKENS, "cached_tokens": CACHED_TOKENS,
            "completion_tokens": COMPLETION_TOKENS});
        assert_eq!(turn["usage"], usage);
    }
    let function = json!({"name": "exec", "arguments": r#"{"command":"echo \"hi\""}"#});
    let called = &call["reply"]["tool_calls"][0];
    assert_eq!(called["function"], function, "{call:#}");
    assert_eq!(call["finish_reason"], "tool_calls");
    assert_eq!(answer["finish_reason"], "stop");
    let messages = answer["request"]["messages"].as_array().expect("a list");
    let result = messages.iter().find(|message| message["role"] == "tool");
    let result = result.expect("a tool's result");
    assert_eq!(result["tool_call_id"], called["id"], "{answer:#}");
    let text = result["content"].as_str().expect("a text");
    assert!(text.starts_with("ran "), "{answer:#}");
}

/// Returns every turn of the log with all its fields.
async fn turns(home: &Home) -> Vec<Value> {
    let output = home.command(&["turns", "export"]).output().await;
    let output = output.expect("metaclaw runs");
    let lines = String::from_utf8(output.stdout).expect("text");
    let turns = lines.lines().map(serde_json::from_str);
    turns.collect::<Result<_, _>>().expect("JSON lines")
}
