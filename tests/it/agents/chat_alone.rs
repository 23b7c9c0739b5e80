//! Codex, which speaks Responses, and Claude Code, which speaks messages, before servers that speak chat completions
//! alone: a provider's, and the trainer of the policy model.

use std::{path::Path, time::Duration};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    agents::{ClaudeCode, Codex},
    external,
    home::{Home, Proxy},
    upstream::{Asked, Play, Upstream},
};
use metaclaw_turns::{StreamEnd, Turn, TurnKind};
use serde_json::{Value, json};

use crate::chat::laptop_home;

/// What stands in `notes.txt`.
const NOTE: &str = "The kettle is blue.";
const DONE: &str = "It is as it should be.";
const SAID: [&str; 5] = [
    "What is in notes.txt?",
    "Is it still there?",
    "Please write hello.txt.",
    "Look once more.",
    "Is that all?",
];
/// What makes Codex write `hello.txt`: its tool takes free text.
const PATCH: &str =
    r#"{"input": "*** Begin Patch\n*** Add File: hello.txt\n+hello\n*** End Patch\n"}"#;
/// A model of which Codex knows that it can do that, and leave to do it.
const CODEX: &str = "model = \"gpt-5.5\"\nsandbox_mode = \"danger-full-access\"";

/// How long until a turn is in the log, with the tokens of the policy model.
const NOTED_WITHIN: Duration = Duration::from_secs(60);

/// For the demo model: it was made for short talks.
const SHORT: &str = "You are a coding agent. Answer in one short sentence.";
/// Where its file says which tokens begin and end a text. The first is needed for nothing.
const BEGIN: &[u8] = b"tokenizer.ggml.bos_token_id";
const END: &[u8] = b"tokenizer.ggml.eos_token_id";
/// A second token that ends a text, as other files have it.
const TURN_END: &[u8] = b"tokenizer.ggml.eot_token_id";
const FULL_STOP: u32 = 30;
const NEWLINE: u32 = 198;

/// The model calls a tool each time that it is told something.
fn script(asked: &Asked<'_>) -> Play {
    if asked.path != "/v1/chat/completions" {
        return Play::Unknown;
    }
    if asked.newest()["role"] == "tool" {
        return Play::Thought("That was all.", DONE);
    }
    if asked.is_told("hello.txt") && asked.offers("apply_patch") {
        return Play::Call {
            name: "apply_patch",
            arguments: PATCH,
        };
    }
    let looks = [
        ("exec_command", r#"{"cmd": "cat notes.txt"}"#),
        ("Bash", r#"{"command": "cat notes.txt"}"#),
    ];
    let look = looks.into_iter().find(|(tool, _)| asked.offers(tool));
    look.map_or(Play::Text(DONE), |(name, arguments)| Play::Call {
        name,
        arguments,
    })
}

/// A proxy before that model, whose server nobody described.
async fn scripted() -> (Upstream, Home, Proxy) {
    let upstream = Upstream::scripted(script);
    let home = Home::before(&external::bin_dir(), &upstream, "openai", &json!({}));
    let proxy = home.start().await.expect("the proxy starts");
    (upstream, home, proxy)
}

fn note(work: &Path) {
    std::fs::write(work.join("notes.txt"), NOTE).expect("a writable folder");
}

/// The owner's turns, once there are so many that `is_whole`.
async fn turns(home: &Home, n_turns: usize, is_whole: impl Fn(&Turn) -> bool) -> Vec<Turn> {
    let whole = async || {
        let mut turns = home.turns().await;
        turns.retain(|turn| turn.meta.kind == TurnKind::Main && is_whole(turn));
        turns
    };
    let what = format!("{n_turns} turns");
    let mut turns = until_within(NOTED_WITHIN, &what, whole, |it| it.len() >= n_turns).await;
    turns.sort_by_key(|turn| turn.meta.started_ms);
    turns
}

/// Five turns with a call each were recorded, as of any other upstream, and `route` was asked for once, in vain.
async fn assert_went_through(upstream: &Upstream, home: &Home, route: &str) {
    let received = upstream.received();
    let n_in_vain = received.iter().filter(|it| it.path() == route).count();
    assert_eq!(n_in_vain, 1, "{route} is asked for once");
    let chats = received
        .iter()
        .filter(|it| it.path() == "/v1/chat/completions");
    let bodies = chats.map(|it| serde_json::from_slice::<Value>(&it.body).expect("JSON"));
    let results = |body: &Value| {
        let messages = body["messages"].as_array().expect("messages").iter();
        let results = messages.filter(|it| it["role"] == "tool");
        results
            .filter(|it| it["content"].to_string().contains(NOTE))
            .count()
    };
    assert!(bodies.map(|body| results(&body)).max() >= Some(4));
    let turns = turns(home, 2 * SAID.len(), |_| true).await;
    assert_eq!(turns.len(), 2 * SAID.len());
    for pair in turns.chunks(2) {
        let replies = pair
            .iter()
            .map(|turn| turn.reply.as_ref().expect("a reply"));
        let replies: Vec<_> = replies.collect();
        assert_eq!(replies[0].tool_calls().len(), 1, "{:?}", replies[0]);
        assert_eq!(replies[1].text(), DONE);
        assert_eq!(
            pair[1].parent,
            Some(pair[0].id),
            "the result follows the call"
        );
        assert_eq!(pair[0].served.api.as_deref(), Some(route));
    }
    assert!(turns.iter().all(|it| it.session == turns[0].session));
    let words = turns.iter().filter_map(Turn::new_words);
    let words: Vec<_> = words.map(|it| it.text.trim().to_owned()).collect();
    assert_eq!(words, SAID, "the owner's words, and only they");
}

#[tokio::test]
#[ignore = "needs the binaries and Codex, cargo xtask test runs it"]
async fn codex_talks_and_calls_tools_before_a_server_of_chat_completions_alone() {
    let (upstream, home, proxy) = scripted().await;
    let mut codex = Codex::configured(&proxy.base_url, "House rules: none.", CODEX);
    note(&codex.work());
    for text in SAID {
        let said = codex.say(text).await;
        assert!(said.contains(DONE), "{text}: {said}");
    }
    let written = std::fs::read_to_string(codex.work().join("hello.txt"));
    assert_eq!(written.expect("Codex wrote it"), "hello\n");
    assert_went_through(&upstream, &home, "/v1/responses").await;
    proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test runs it"]
async fn claude_code_talks_and_calls_tools_before_a_server_of_chat_completions_alone() {
    let (upstream, home, proxy) = scripted().await;
    let mut chat = ClaudeCode::installed().start(&proxy.base_url, "House rules: none.");
    note(&chat.room.work());
    for text in SAID {
        let said = chat.say(text).await;
        assert!(said.contains(DONE), "{text}: {said}");
    }
    assert_went_through(&upstream, &home, "/v1/messages").await;
    proxy.stop().await.unwrap();
}

/// A home as `cargo xtask start` makes it, whose model ends at a full stop and at a line's end too: the demo model may
/// go on for ever, and Codex sets no limit and takes a reply that one cut for an error.
fn terse_home() -> Home {
    let home = laptop_home();
    let mut model = std::fs::read(external::model()).expect("the demo model");
    for (name, becomes, token) in [(END, END, FULL_STOP), (BEGIN, TURN_END, NEWLINE)] {
        let at = model.windows(name.len()).position(|it| it == name);
        let at = at.expect("a GGUF file of a chat model");
        let end = at + name.len();
        model[at..end].copy_from_slice(becomes);
        // Between the name and the number stands its type, of four bytes.
        model[end + 4..end + 8].copy_from_slice(&token.to_le_bytes());
    }
    let file = home.path().join("terse.gguf");
    std::fs::write(&file, model).expect("a writable home");
    home.with_env("METACLAW__TRAINER__MODEL", file.to_string_lossy())
}

/// Five turns with tools declared were answered by the policy model, and its tokens are there to train on.
async fn assert_learnable(home: &Home) {
    let has_tokens = |turn: &Turn| turn.tokens.is_some();
    for turn in turns(home, SAID.len(), has_tokens).await {
        assert_eq!(turn.served.upstream, "policy");
        assert_eq!(turn.meta.end, StreamEnd::Complete, "{turn:?}");
        let tokens = turn.tokens.as_ref().expect("tokens");
        assert!(!tokens.prompt_ids.is_empty() && !tokens.ids.is_empty());
        let tools = turn.request.tools.as_deref().and_then(Value::as_array);
        assert!(tools.is_some_and(|tools| !tools.is_empty()));
    }
}

#[tokio::test]
#[ignore = "needs the binaries, the model and Codex, cargo xtask test runs it"]
async fn codex_talks_to_the_policy_model() {
    let home = terse_home();
    let proxy = home.start().await.unwrap();
    let instructions = home.path().join("instructions.md");
    std::fs::write(&instructions, SHORT).unwrap();
    let settings = format!(
        "model = \"demo\"\nmodel_instructions_file = {:?}",
        instructions.display().to_string()
    );
    let mut codex = Codex::configured(&proxy.base_url, "House rules: none.", &settings);
    for text in SAID {
        codex.say(text).await;
    }
    assert_learnable(&home).await;
    proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries, the model and Claude Code, cargo xtask test runs it"]
async fn claude_code_talks_to_the_policy_model() {
    let home = terse_home();
    let proxy = home.start().await.unwrap();
    let arguments = ["--system-prompt", SHORT, "--tools", "Bash,Read"];
    let claude = ClaudeCode::installed();
    let mut chat = claude.start_with(&proxy.base_url, "House rules: none.", &arguments);
    for text in SAID {
        chat.say(text).await;
    }
    assert_learnable(&home).await;
    proxy.stop().await.unwrap();
}
