use metaclaw_chat::{AgentId, JudgedBy};
use metaclaw_learner::POLICY_UPSTREAM;

use super::*;

const NOW_MS: u64 = 1_795_000_000_000;

fn read(text: &str) -> Result<RolloutImport, String> {
    RolloutImport::read("rollouts.jsonl", text, NOW_MS).map_err(|error| error.to_string())
}

fn base() -> RolloutBase {
    RolloutBase {
        name: "demo".to_owned(),
        fingerprint: Some("0badcafe".to_owned()),
    }
}

#[test]
fn texts_and_ids_become_turns() {
    let text = r#"
{"session": "a", "prompt": "What is rain?", "response": "Water.", "score": 1}

{"agent": "main", "session": "b", "prompt_ids": [1, 2], "response_ids": [3], "logprobs": [-0.5], "score": -1, "hint": "be brief", "time_ms": 1000}
{"session": "a", "prompt": [{"role": "user", "content": "x"}], "response": {"role": "assistant", "content": "y"}, "params": {"temperature": 0.7}}
"#;
    let import = read(text).unwrap();
    assert_eq!(import.n_with_ids(), 1);
    let turns = import.turns(Some(&base()), NOW_MS).unwrap();
    let [said, ids, messages] = &turns[..] else {
        panic!("{turns:?}")
    };
    assert_eq!(said.turn.agent, AgentId::default_agent());
    assert_eq!(said.turn.served.upstream, "import");
    assert_eq!(said.turn.served.imported.as_deref(), Some("rollouts.jsonl"));
    assert_eq!(said.turn.meta.ended_ms, NOW_MS);
    assert_eq!(said.verdict.as_ref().unwrap().by, JudgedBy::Import);
    assert_eq!(ids.turn.served.upstream, POLICY_UPSTREAM);
    let tokens = ids.turn.tokens.as_ref().unwrap();
    assert_eq!(
        (tokens.ids.as_slice(), tokens.logprobs.as_slice()),
        (&[3][..], &[-0.5][..])
    );
    assert_eq!(tokens.base_fingerprint.as_deref(), Some("0badcafe"));
    assert_eq!(ids.turn.meta.ended_ms, 1_000);
    assert_eq!(
        ids.verdict.as_ref().unwrap().hint.as_deref(),
        Some("be brief")
    );
    assert_eq!(messages.verdict, None);
    assert_eq!(messages.turn.params["temperature"], 0.7);
    assert_ne!(said.turn.meta.reply_id, messages.turn.meta.reply_id);
    // What is passed to the running process is what was read.
    let import = read(text).unwrap();
    let sent = serde_json::to_string(&import).unwrap();
    assert_eq!(
        serde_json::from_str::<RolloutImport>(&sent).unwrap(),
        import
    );
}

#[test]
fn every_line_that_is_wrong_is_told_and_none_is_taken() {
    let text = r#"{"session": "a", "prompt": "q", "response": "r"}
not json
{"session": "a", "prompt": "q", "response": "r", "score": 2}
{"session": "a", "prompt": "q"}
{"session": "a", "prompt": [], "response": "r"}
{"session": "a"}
{"session": "a", "prompt_ids": [1], "response_ids": [2]}
{"session": "a", "prompt_ids": [1], "response_ids": [2, 3], "logprobs": [-1]}
{"session": "a", "prompt_ids": [1], "response_ids": [2], "logprobs": [0.5]}
{"session": "a", "prompt_ids": [], "response_ids": [2], "logprobs": [-1]}
{"session": "a", "prompt": "q", "response": "r", "reward": 1}
{"session": "a", "prompt": "q", "response": "r", "time_ms": 9999999999999}
{"prompt": "q", "response": "r"}"#;
    insta::assert_snapshot!(read(text).unwrap_err());
    let many = "{}\n".repeat(TOLD + 5);
    let refused = read(&many).unwrap_err();
    assert_eq!(refused.lines().count(), TOLD + 2, "{refused}");
    assert!(refused.ends_with("and 5 lines more"), "{refused}");
    assert!(read("\n \n").unwrap_err().contains("no line"));
}

#[test]
fn a_line_that_was_not_read_from_a_file_is_checked_too() {
    let sent = r#"{"file": "wire", "rollouts": [{"session": "a", "prompt_ids": [1], "response_ids": [2, 3], "logprobs": [-1.0]}]}"#;
    let import: RolloutImport = serde_json::from_str(sent).unwrap();
    let refused = import.turns(Some(&base()), NOW_MS).unwrap_err();
    assert_eq!(
        format!("{refused:#}"),
        "wire, rollout 1: logprobs has 1 numbers and response_ids 2: one each"
    );
}

/// The base of the newest sample is the model that is trained; importing ids of another would make all earlier turns
/// unusable.
#[test]
fn ids_of_another_model_are_refused() {
    let line = r#"{"session": "a", "model": "other", "prompt_ids": [1], "response_ids": [2], "logprobs": [-1]}"#;
    let refused = read(line)
        .unwrap()
        .turns(Some(&base()), NOW_MS)
        .unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains(r#"of "other", and the trainer has "demo""#),
        "{refused}"
    );
    assert!(
        refused.starts_with("rollouts.jsonl, rollout 1"),
        "{refused}"
    );
    let refused = read(line).unwrap().turns(None, NOW_MS).unwrap_err();
    assert!(format!("{refused:#}").contains("no policy model runs"));
}
