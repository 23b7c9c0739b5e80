//! Tests that a wish said once is detected, is in force from the next session on, and is removed by one command.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Home, has, n_of, started, until};

#[tokio::test]
async fn a_wish_that_is_said_stands_from_the_next_session_until_it_is_undone() {
    let (upstream, home, proxy) = started().await;
    let wish = "Please always answer in one sentence.";
    proxy.chat("day-1", &["Hello", "answer to 1", wish]).await;
    // The journal of lessons has the wish a moment before the file has it.
    let heard = |it: &Value| it["wishes"] == json!([wish]);
    let heard = home.json_until(&["wishes", "list", "--json"], heard).await;
    assert_eq!(heard["wishes"], json!([wish]), "{heard}");
    assert_eq!(heard["lessons"][0]["session"], "day-1");
    let listed = home.ask(&["wishes", "list"]).await;
    has(&listed, ["one sentence", " ago"]);

    proxy.chat("day-2", &["What is rain?"]).await;
    let shown = async |session: &str| {
        let turns = home
            .json(&["turns", "list", "--session", session, "--json"])
            .await;
        let Some(id) = turns[0]["id"].as_str() else {
            return String::new();
        };
        home.ask(&["turns", "show", id]).await
    };
    let served = until("day-2", async || shown("day-2").await, |it| !it.is_empty()).await;
    has(&served, ["## Standing wishes of the user"]);
    assert!(served.contains(wish), "{served}");
    assert_eq!(
        upstream.n_asked(),
        2,
        "no model is paid for a verdict that nobody uses"
    );

    let undone = home.ask(&["undo"]).await;
    assert_eq!(undone, format!("undone: {wish}"));
    proxy.chat("day-3", &["What is snow?"]).await;
    let served = until("day-3", async || shown("day-3").await, |it| !it.is_empty()).await;
    assert!(!served.contains("Standing wishes"), "{served}");
    home.stop(proxy).await;
}

/// Before this test, `wishes list` said of OpenClaw's owner that `_default` has none, and `wishes add` wrote where no
/// agent reads.
#[tokio::test]
async fn the_agent_that_spoke_last_is_meant() {
    let (_upstream, home, proxy) = started().await;
    proxy.chat("s", &["Hello"]).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
    proxy
        .send("/v1/chat/completions", "w\r\nx-agent-id: work", &body)
        .await;
    let of_work = ["turns", "list", "--agent", "work", "--json"];
    home.json_until(&of_work, |it| n_of(it) > 0).await;
    let added = home.ask(&["wishes", "add", "Be brief."]).await;
    assert!(added.starts_with("work: in force"), "{added}");
    let listed = home.json(&["wishes", "list", "--json"]).await;
    assert_eq!(listed["wishes"], json!(["Be brief."]));
    let added = ["wishes", "add", "Call me Max.", "--agent", "codex"];
    home.ask(&added).await;
    let told = "codex has wishes too: metaclaw wishes list --agent codex";
    let listed = home.ask(&["wishes", "list"]).await;
    assert_eq!(listed.lines().last(), Some(told));
    let listed = home.ask(&["wishes", "list", "--agent", "work"]).await;
    assert!(!listed.contains(told), "{listed}");
    home.stop(proxy).await;
}

#[tokio::test]
async fn wishes_are_edited_where_nothing_runs() {
    let home = Home::new("mode: skills_only\n");
    let none = home.ask(&["wishes", "list"]).await;
    assert!(none.starts_with("_default has no wishes yet"), "{none}");
    let added = home.ask(&["wishes", "add", "Be brief."]).await;
    assert_eq!(
        added,
        "_default: in force from the next session on: Be brief.  (metaclaw undo 1)"
    );
    home.ask(&["wishes", "edit", "Be brief.", "Answer in German."])
        .await;
    let listed = home.json(&["wishes", "list", "--json"]).await;
    assert_eq!(listed["wishes"], json!(["Answer in German."]));
    let refused = home.refusal(&["wishes", "remove", "No such"]).await;
    assert_eq!(
        refused,
        "metaclaw: _default has no such wish: `metaclaw wishes list --agent _default` shows those there are"
    );
    let refused = home.refusal(&["undo", "7"]).await;
    assert_eq!(
        refused,
        "metaclaw: there is no lesson 7: `metaclaw wishes list` shows those there are"
    );
    home.ask(&["undo", "2"]).await;
    let listed = home.json(&["wishes", "list", "--json"]).await;
    assert_eq!(listed["wishes"], json!([]));
}

#[tokio::test]
async fn everyones_wishes_are_kept_by_the_same_commands() {
    let home = Home::new("mode: skills_only\n");
    home.ask(&["wishes", "add", "Be brief.", "--agent", "_shared"])
        .await;
    home.ask(&["wishes", "add", "Call me Max."]).await;
    let listed = home.json(&["wishes", "list", "--json"]).await;
    assert_eq!(listed["wishes"], json!(["Be brief.", "Call me Max."]));
    assert_eq!(listed["shared"], json!(["Be brief."]));
    let listed = home.ask(&["wishes", "list"]).await;
    assert!(listed.contains("everyone's (--agent _shared)"), "{listed}");
    let refused = home.refusal(&["wishes", "remove", "Be brief."]).await;
    insta::assert_snapshot!(refused, @"metaclaw: that is everyone's wish, not _default's: `metaclaw wishes --agent _shared` edits those");
    // Its lesson is removed with it: the last one in force is the other.
    home.ask(&["wishes", "remove", "Call me Max."]).await;
    assert_eq!(home.ask(&["undo"]).await, "undone: Be brief.");
}

#[tokio::test]
async fn what_is_forgotten_lies_in_no_file_any_more() {
    let (_upstream, home, proxy) = started().await;
    let secret = "Please always call me Xqzjvkwp.";
    proxy.chat("s-1", &["Hello", "answer to 1", secret]).await;
    proxy.chat("s-2", &["What is rain?"]).await;
    home.json_until(&["wishes", "list", "--json"], |it| {
        it["wishes"][0] == secret
    })
    .await;
    // Earlier versions wrote this file at the end of a day.
    let digest = home.ask(&["report"]).await;
    assert!(digest.contains(secret), "{digest}");
    let digests = home.path().join("reports");
    std::fs::create_dir(&digests).unwrap();
    std::fs::write(digests.join("2026-11-22.md"), digest).unwrap();
    let said = home.ask(&["forget", "s-1"]).await;
    assert!(
        said.starts_with("forgotten: 1 turn of 1 session, and 1 lesson"),
        "{said}"
    );
    let left = files_with(home.path(), b"Xqzjvkwp");
    assert_eq!(left, Vec::<PathBuf>::new());
    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(turns.as_array().unwrap().len(), 1, "{turns}");
    let refused = home.refusal(&["forget", "s-1"]).await;
    assert_eq!(
        refused,
        "metaclaw: there is no session s-1: `metaclaw turns list` shows those there are"
    );
    home.stop(proxy).await;
    let said = home.ask(&["forget", "--since", "1 h"]).await;
    assert!(said.starts_with("forgotten: 1 turn of 1 session"), "{said}");
}

/// Returns the files below a folder that contain these bytes. The proxy may be running, and move its files.
pub(crate) fn files_with(dir: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path).is_ok_and(|it| it.windows(bytes.len()).any(|it| it == bytes))
        {
            found.push(path);
        }
    }
    found
}
