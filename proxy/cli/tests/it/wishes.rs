//! Tests that a wish said once is detected, is in force from the next session on, and is removed by one command.

use std::path::{Path, PathBuf};

use crate::harness::{TestHome, Upstream, exchange, until};

#[tokio::test]
async fn a_wish_that_is_said_stands_from_the_next_session_until_it_is_undone() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let wishes = async || home.json(&["wishes", "list", "--json"]).await;
    let wish = "Please always answer in one sentence.";
    proxy
        .chat("day-1", &["Hello", "answer to 1", wish])
        .await
        .unwrap();
    // The file has the wish a moment before the journal of lessons has it.
    let is_heard = async || Ok(wishes().await?["lessons"][0]["heard"] == serde_json::json!(wish));
    until(is_heard).await.unwrap();
    let heard = wishes().await.unwrap();
    assert_eq!(heard["wishes"], serde_json::json!([wish]), "{heard}");
    assert_eq!(heard["lessons"][0]["session"], "day-1");
    let listed = home.ask(&["wishes", "list"]).await.unwrap();
    assert!(
        listed.contains("one sentence") && listed.contains(" ago"),
        "{listed}"
    );

    proxy.chat("day-2", &["What is rain?"]).await.unwrap();
    let shown = async |session: &str| {
        let turns = home
            .json(&["turns", "list", "--session", session, "--json"])
            .await?;
        let Some(id) = turns[0]["id"].as_str() else {
            return Ok(String::new());
        };
        home.ask(&["turns", "show", id]).await
    };
    until(async || Ok(!shown("day-2").await?.is_empty()))
        .await
        .unwrap();
    let served = shown("day-2").await.unwrap();
    assert!(
        served.contains("## Standing wishes of the user"),
        "{served}"
    );
    assert!(served.contains(wish), "{served}");
    assert_eq!(
        upstream.n_asked(),
        2,
        "no model is paid for a verdict that nobody uses"
    );

    let undone = home.ask(&["undo"]).await.unwrap();
    assert_eq!(undone, format!("undone: {wish}"));
    proxy.chat("day-3", &["What is snow?"]).await.unwrap();
    until(async || Ok(!shown("day-3").await?.is_empty()))
        .await
        .unwrap();
    assert!(!shown("day-3").await.unwrap().contains("Standing wishes"));
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
}

/// Before this test, `wishes list` said of OpenClaw's owner that `_default` has none, and `wishes add` wrote where no
/// agent reads.
#[tokio::test]
async fn the_agent_that_spoke_last_is_meant() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    proxy.chat("s", &["Hello"]).await.unwrap();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Hello"}]}"#;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\nx-agent-id: work\r\nx-session-id: w\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange(&proxy.url, &(head + body)).await.unwrap();
    let of_work = async || {
        let turns = home.json(&["turns", "list", "--agent", "work", "--json"]);
        Ok(turns.await?.as_array().is_some_and(|it| !it.is_empty()))
    };
    until(of_work).await.unwrap();
    let added = home.ask(&["wishes", "add", "Be brief."]).await.unwrap();
    assert!(added.starts_with("work: in force"), "{added}");
    let listed = home.json(&["wishes", "list", "--json"]).await.unwrap();
    assert_eq!(listed["wishes"], serde_json::json!(["Be brief."]));
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
}

#[tokio::test]
async fn wishes_are_edited_where_nothing_runs() {
    let home = TestHome::new("mode: skills_only\n").unwrap();
    let none = home.ask(&["wishes", "list"]).await.unwrap();
    assert!(none.starts_with("_default has no wishes yet"), "{none}");
    let added = home.ask(&["wishes", "add", "Be brief."]).await.unwrap();
    assert_eq!(
        added,
        "_default: in force from the next session on: Be brief.  (metaclaw undo 1)"
    );
    home.ask(&["wishes", "edit", "Be brief.", "Answer in German."])
        .await
        .unwrap();
    let listed = home.json(&["wishes", "list", "--json"]).await.unwrap();
    assert_eq!(listed["wishes"], serde_json::json!(["Answer in German."]));
    let refused = home
        .refusal(&["wishes", "remove", "No such"])
        .await
        .unwrap();
    assert_eq!(
        refused,
        "metaclaw: _default has no such wish: `metaclaw wishes list --agent _default` shows those there are"
    );
    let refused = home.refusal(&["undo", "7"]).await.unwrap();
    assert_eq!(
        refused,
        "metaclaw: there is no lesson 7: `metaclaw wishes list` shows those there are"
    );
    home.ask(&["undo", "2"]).await.unwrap();
    let listed = home.json(&["wishes", "list", "--json"]).await.unwrap();
    assert_eq!(listed["wishes"], serde_json::json!([]));
}

#[tokio::test]
async fn everyones_wishes_are_kept_by_the_same_commands() {
    let home = TestHome::new("mode: skills_only\n").unwrap();
    home.ask(&["wishes", "add", "Be brief.", "--agent", "_shared"])
        .await
        .unwrap();
    home.ask(&["wishes", "add", "Call me Max."]).await.unwrap();
    let listed = home.json(&["wishes", "list", "--json"]).await.unwrap();
    assert_eq!(
        listed["wishes"],
        serde_json::json!(["Be brief.", "Call me Max."])
    );
    assert_eq!(listed["shared"], serde_json::json!(["Be brief."]));
    let listed = home.ask(&["wishes", "list"]).await.unwrap();
    assert!(listed.contains("everyone's (--agent _shared)"), "{listed}");
    let refused = home
        .refusal(&["wishes", "remove", "Be brief."])
        .await
        .unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: that is everyone's wish, not _default's: `metaclaw wishes --agent _shared` edits those");
    // Its lesson is removed with it: the last one in force is the other.
    home.ask(&["wishes", "remove", "Call me Max."])
        .await
        .unwrap();
    assert_eq!(home.ask(&["undo"]).await.unwrap(), "undone: Be brief.");
}

#[tokio::test]
async fn what_is_forgotten_lies_in_no_file_any_more() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let secret = "Please always call me Xqzjvkwp.";
    proxy
        .chat("s-1", &["Hello", "answer to 1", secret])
        .await
        .unwrap();
    proxy.chat("s-2", &["What is rain?"]).await.unwrap();
    let is_heard = async || {
        let wishes = home.json(&["wishes", "list", "--json"]).await?;
        Ok(wishes["wishes"][0] == secret)
    };
    until(is_heard).await.unwrap();
    // The proxy writes it like this at the end of a day.
    let digest = home.ask(&["report"]).await.unwrap();
    assert!(digest.contains(secret), "{digest}");
    let digests = home.path().join("reports");
    std::fs::create_dir(&digests).unwrap();
    std::fs::write(digests.join("2026-11-22.md"), digest).unwrap();
    let said = home.ask(&["forget", "s-1"]).await.unwrap();
    assert!(
        said.starts_with("forgotten: 1 turn of 1 session, and 1 lesson"),
        "{said}"
    );
    let left = files_with(home.path(), b"Xqzjvkwp").unwrap();
    assert_eq!(left, Vec::<PathBuf>::new());
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns.as_array().unwrap().len(), 1, "{turns}");
    let refused = home.refusal(&["forget", "s-1"]).await.unwrap();
    assert_eq!(
        refused,
        "metaclaw: there is no session s-1: `metaclaw turns list` shows those there are"
    );
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let said = home.ask(&["forget", "--since", "1 h"]).await.unwrap();
    assert!(said.starts_with("forgotten: 1 turn of 1 session"), "{said}");
}

/// Returns the files below a folder that contain these bytes.
pub(crate) fn files_with(dir: &Path, bytes: &[u8]) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let has_bytes = if path.is_dir() {
            files_with(&path, bytes).map(|inside| {
                found.extend(inside);
                false
            })
        } else {
            let has = |file: Vec<u8>| file.windows(bytes.len()).any(|window| window == bytes);
            std::fs::read(&path).map(has)
        };
        match has_bytes {
            Ok(true) => found.push(path),
            Ok(false) => {}
            // The proxy is running, and moves its files.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
