//! Tests of whole conversations with Claude Code and Codex: each is one session, also after compaction, and the owner's
//! wishes are detected at any place; the files of the project and the program's own texts are not taken for wishes.

use metaclaw_tests::{
    agents::{ClaudeCode, Codex},
    external,
    upstream::{Asked, Play},
    watched::{Watched, sessions, told},
};
use metaclaw_turns::{Turn, TurnKind};
use serde::Deserialize;

/// The messages of a conversation, in conversations.yaml.
#[derive(Deserialize)]
struct Talk {
    first: String,
    question: String,
    middle: String,
    cleared: String,
    file: String,
}

/// CI uses the first two; `METACLAW_TEST_TALKS` sets the number.
fn talks() -> Vec<Talk> {
    let all: Vec<Talk> = serde_saphyr::from_str(include_str!("conversations.yaml")).unwrap();
    let n = external::talks().unwrap_or(2);
    all.into_iter().take(n).collect()
}

fn script(_: &Asked<'_>) -> Play {
    Play::Text("It is as it should be.")
}

/// Returns the turns of the conversation itself: the owner's, and no others.
fn of_owner(turns: &[Turn]) -> Vec<&Turn> {
    let main = turns.iter().filter(|it| it.meta.kind == TurnKind::Main);
    main.collect()
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_s_owner_is_heard_in_one_session_over_compaction() {
    let claude = ClaudeCode::installed();
    for talk in talks() {
        let watched = Watched::start("anthropic", script).await;
        let mut chat = claude.start(&watched.proxy.base_url, &talk.file);
        let said = [
            &*talk.first,
            &*talk.question,
            "/compact",
            &*talk.middle,
            "/clear",
            &*talk.cleared,
        ];
        for text in said {
            chat.say(text).await;
        }
        let wishes = [&*talk.first, &*talk.middle, &*talk.cleared];
        watched.assert_heard("_default", &wishes).await;
        let is_compaction = |text: &str| text.starts_with("CRITICAL: Respond with TEXT ONLY");
        watched.assert_is_errand(is_compaction).await;
        let turns = watched.turns().await;
        let of_owner = of_owner(&turns);
        let [first, question, middle, cleared] = of_owner[..] else {
            panic!("four turns of the owner's: {of_owner:?}");
        };
        let before = sessions([first, question, middle]);
        assert_eq!(before.len(), 1, "one session: {before:?}");
        assert!(!before.contains(&cleared.session), "{before:?}");
        let typed = [&*talk.first, &*talk.question, &*talk.middle, &*talk.cleared];
        assert_eq!(watched.listed().await, typed);
        watched.proxy.stop().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the binaries and Codex, cargo xtask test --all runs it"]
async fn codex_s_owner_is_heard_in_one_session_over_compaction() {
    for talk in talks() {
        let watched = Watched::start("openai", script).await;
        let mut codex = Codex::new(&watched.proxy.base_url, &talk.file);
        codex.say(&talk.first).await;
        codex.say(&talk.question).await;
        codex.say_after_compaction(&talk.middle).await;
        watched
            .assert_heard("_default", &[&*talk.first, &*talk.middle])
            .await;
        let is_compaction =
            |text: &str| text.starts_with("You are performing a CONTEXT CHECKPOINT");
        watched.assert_is_errand(is_compaction).await;
        let turns = watched.turns().await;
        let of_owner = of_owner(&turns);
        assert_eq!(
            of_owner.len(),
            3,
            "{:?}",
            of_owner.iter().map(|it| told(it)).collect::<Vec<_>>()
        );
        let names = sessions(of_owner);
        assert_eq!(names.len(), 1, "one session: {names:?}");
        assert_eq!(
            watched.listed().await,
            [&*talk.first, &*talk.question, &*talk.middle]
        );
        watched.proxy.stop().await.unwrap();
    }
}
