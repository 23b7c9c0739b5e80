//! What the installed OpenClaw writes in the user's place, against the patterns that must know it.

use std::{fs, path::PathBuf};

use metaclaw_chat::{Message, Speaker, Utterance};

use super::SidePatterns;
use crate::identity::testing::request;

/// Names of its constants whose whole text is an errand.
const ERRANDS: [&str; 13] = [
    "HEARTBEAT_CONTEXT_PROMPT",
    "ROOM_EVENT_PROMPT",
    "HEARTBEAT_TASK_PROMPT_PREFIX",
    "OPENCLAW_RUNTIME_EVENT_USER_PROMPT",
    "CANONICAL_RESULT_PROMPT",
    "COMPACTION_CONTINUATION_RETRY_INSTRUCTION",
    "EMPTY_RESPONSE_RETRY_INSTRUCTION",
    "REASONING_ONLY_RETRY_INSTRUCTION",
    "SETTLED_TOOL_TERMINAL_CONTINUATION_INSTRUCTION",
    "BEFORE_AGENT_FINALIZE_RETRY_PROMPT_PREFIX",
    "RECOVERY_CONTINUATION_TEXT",
    "DREAMING_NARRATIVE_PROMPT_PREFIX",
    "SETUP_INFERENCE_TEST_PROMPT",
];
/// Beginnings of texts that it puts together.
const BEGINNINGS: [&str; 16] = [
    "[OpenClaw heartbeat poll]",
    "[OpenClaw exec completion]",
    "[OpenClaw cron wake]",
    "[OpenClaw session event]",
    "A scheduled cron event was triggered, but no event content was found.",
    "A scheduled reminder has been triggered. The reminder content is:",
    "An async command completion event was triggered, but",
    "An async command you ran earlier completed without captured stdout/stderr.",
    "An async command you ran earlier has completed.",
    "Generate a concise session title (3-6 words",
    "The messages above are a conversation to summarize.",
    "The messages above are NEW conversation messages to incorporate",
    "Skill review. Distill new durable learning from the full retained conversation.",
    "Review this agent's Skill Workshop as a collection",
    "[Subagent Context] You are running as a subagent (depth ",
    "[cron:",
];
/// Beginnings of texts that are no side turns, because somebody waits for the reply, but are nobody's words either.
const NOBODYS: [&str; 3] = [
    "A new session was started via /new or /reset.",
    "[Inter-session message]",
    "SECURITY NOTICE: The following content is from an EXTERNAL, UNTRUSTED source",
];
/// The alternatives of an expression of its own for the heartbeat's wordings, old and new.
const HEARTBEATS: &str = "const DEFAULT_HEARTBEAT_PROMPT_CONTEXT_BLOCK = /";

fn scripts() -> Vec<String> {
    let home = std::env::var_os("METACLAW_TEST_OPENCLAW").expect("METACLAW_TEST_OPENCLAW is set");
    let dist = PathBuf::from(home).join("node_modules/openclaw/dist");
    let files = fs::read_dir(&dist)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let scripts = files.filter(|path| path.extension().is_some_and(|extension| extension == "mjs"));
    scripts
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

fn behind<'s>(scripts: &'s [String], mark: &str) -> Vec<&'s str> {
    let found = scripts.iter().filter_map(|script| script.split_once(mark));
    found.map(|(_, rest)| rest).collect()
}

fn texts<'s>(scripts: &'s [String], name: &str) -> Vec<&'s str> {
    let rest = behind(scripts, &format!("const {name} = ")).into_iter();
    let text = |rest: &'s str| {
        let (quote, rest) = rest.split_at(1);
        rest.split(quote)
            .next()
            .unwrap()
            .split("${")
            .next()
            .unwrap()
    };
    rest.map(text).collect()
}

#[test]
#[ignore = "needs OpenClaw, cargo xtask test --all runs it"]
fn what_openclaw_writes_in_the_users_place_is_known() {
    let scripts = scripts();
    let patterns = SidePatterns::new(&[]).unwrap();
    let is_side = |text: &str| {
        let stamped = format!("[Fri 2026-11-20 05:31 UTC] {text}");
        [text, &stamped]
            .into_iter()
            .all(|text| patterns.is_side_alone(&request(&[Message::user(text)])))
    };
    let block = behind(&scripts, HEARTBEATS);
    let wordings: Vec<String> = block
        .first()
        .expect("its heartbeats")
        .split_once("(?:")
        .unwrap()
        .1
        .split(')')
        .next()
        .unwrap()
        .split('|')
        .map(|wording| wording.replace('\\', ""))
        .collect();
    assert_eq!(wordings.len(), 2, "{wordings:?}");
    for wording in &wordings {
        assert!(is_side(wording), "{wording}");
    }
    for name in ERRANDS {
        let texts = texts(&scripts, name);
        assert!(
            !texts.is_empty(),
            "it has no {name} any more: what does it say instead?"
        );
        for text in texts {
            assert!(is_side(text), "{name}: {text}");
        }
    }
    for text in BEGINNINGS.into_iter().chain(NOBODYS) {
        let is_there = scripts.iter().any(|script| script.contains(text));
        assert!(
            is_there,
            "it says no more {text:?}: what does it say instead?"
        );
    }
    for text in BEGINNINGS {
        assert!(is_side(text), "{text}");
    }
    for text in NOBODYS {
        assert_eq!(Utterance::parse(text).speaker, Speaker::Forwarded, "{text}");
        assert!(!is_side(text), "{text}");
    }
}
