//! Tests of the turns of a home: exported and imported, set aside and put back.

use std::{fs, path::PathBuf};

use crate::harness::{Home, Upstream, has};

/// A home with a few conversations, and a verdict of the owner's on one of their turns, without a running proxy.
async fn talked(upstream: &Upstream) -> Home {
    let home = Home::before(&upstream.url);
    let proxy = home.start().await;
    for session in ["a", "b", "c"] {
        proxy.chat(session, &["One question"]).await;
        proxy
            .chat(session, &["One question", "answer to 1", "And another"])
            .await;
    }
    home.stop(proxy).await;
    home
}

async fn told(home: &Home) -> Vec<String> {
    let list = home.json(&["turns", "list", "-n", "100", "--json"]).await;
    let mut told = vec![list.to_string()];
    for turn in list.as_array().expect("a list") {
        let id = turn["id"].as_str().expect("an id");
        told.push(home.ask(&["turns", "show", id, "--json"]).await);
    }
    told.push(home.ask(&["turns", "export"]).await);
    told
}

fn n_shown(told: &[String]) -> usize {
    told.len() - 2
}

#[tokio::test]
async fn what_was_exported_comes_back_into_a_home_that_was_wiped() {
    let upstream = Upstream::new();
    let home = talked(&upstream).await;
    let before = told(&home).await;
    assert_eq!(n_shown(&before), 6);
    let file = home.path().join("turns.jsonl");
    fs::write(&file, before.last().unwrap()).unwrap();
    let file = file.to_str().unwrap();
    for _ in 0..2 {
        fs::remove_dir_all(home.path().join("turns")).unwrap();
        let said = home.ask(&["turns", "import", file]).await;
        assert_eq!(said.trim(), "6 turns of turns.jsonl imported");
        let said = home.ask(&["turns", "import", file]).await;
        assert_eq!(
            said.trim(),
            "0 turns of turns.jsonl imported; the log had 6 already"
        );
        assert_eq!(told(&home).await, before);
    }
    // The running process does the same.
    fs::remove_dir_all(home.path().join("turns")).unwrap();
    let proxy = home.start().await;
    home.ask(&["turns", "import", file]).await;
    assert_eq!(told(&home).await, before);
    home.stop(proxy).await;

    let half = before
        .last()
        .unwrap()
        .replacen("\"request\"", "\"requested\"", 3);
    let half = half.lines().skip(2).collect::<Vec<_>>();
    let whole: Vec<&str> = before.last().unwrap().lines().take(2).collect();
    fs::write(file, [&whole[..], &half[..]].concat().join("\n")).unwrap();
    fs::remove_dir_all(home.path().join("turns")).unwrap();
    let said = home.refusal(&["turns", "import", file]).await;
    has(&said, ["turns.jsonl, line 3 is no turn of an export"]);
}

#[tokio::test]
async fn sessions_are_listed_one_a_row() {
    let upstream = Upstream::new();
    let home = talked(&upstream).await;
    let bad = serde_json::json!({"agent": "work", "session": "w", "prompt": "What is ice?",
        "response": "Hot.", "score": -1});
    let file = home.path().join("rollouts.jsonl");
    fs::write(&file, bad.to_string()).unwrap();
    home.ask(&["turns", "import", file.to_str().unwrap()]).await;
    let all = home.json(&["turns", "sessions", "--json"]).await;
    let row = |session: &str| {
        let rows = all.as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["last"]["session"] == session)
            .unwrap();
        let counts = ["n_turns", "n_side", "n_good", "n_bad"].map(|name| row[name].clone());
        (
            counts.map(|count| count.as_u64().unwrap()),
            row["asked"].clone(),
        )
    };
    assert_eq!(row("b"), ([2, 0, 0, 0], "One question".into()));
    assert_eq!(row("w").0, [1, 0, 0, 1]);
    let newest = home
        .ask(&["turns", "sessions", "-n", "2", "--agent", "_default"])
        .await;
    let sessions: Vec<_> = newest.lines().map(|line| line.split(' ').next()).collect();
    assert_eq!(
        sessions,
        [Some("session"), Some("c"), Some("b")],
        "{newest}"
    );
}

#[tokio::test]
async fn good_turns_are_exported_as_chats() {
    let upstream = Upstream::new();
    let home = talked(&upstream).await;
    let rollout = |session: &str, agent: &str, score: i32| {
        serde_json::json!({"agent": agent, "session": session, "prompt": "What is ice?",
            "response": format!("Cold water, {session}."), "score": score})
        .to_string()
    };
    let lines = [
        rollout("good", "main", 1),
        rollout("bad", "main", -1),
        rollout("other", "work", 1),
    ];
    let file = home.path().join("rollouts.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    home.ask(&["turns", "import", file.to_str().unwrap()]).await;
    let chats = home
        .ask(&["turns", "export", "--chats", "--agent", "main"])
        .await;
    let expected = serde_json::json!({"messages": [
        {"role": "user", "content": "What is ice?"},
        {"role": "assistant", "content": "Cold water, good."},
    ]});
    assert_eq!(chats, expected.to_string());
    let all = home.ask(&["turns", "export", "--chats"]).await;
    assert_eq!(all.lines().count(), 2);
}

/// An earlier version did this for a damaged snapshot.
fn set_aside(home: &Home) -> PathBuf {
    let turns = home.path().join("turns");
    let aside = turns.join("damaged-1760000000000");
    fs::rename(turns.join("sled"), &aside).unwrap();
    fs::remove_file(turns.join("flushed")).unwrap();
    fs::remove_file(turns.join("FORMAT")).unwrap();
    for file in fs::read_dir(&aside).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("snap.") {
            fs::write(file.path(), b"").unwrap();
        }
    }
    aside
}

#[tokio::test]
async fn doctor_finds_a_log_that_was_set_aside_and_puts_it_back() {
    let upstream = Upstream::new();
    for runs in [false, true] {
        let home = talked(&upstream).await;
        let before = told(&home).await;
        let aside = set_aside(&home);
        let proxy = home.start().await;
        proxy.chat("new", &["Something new"]).await;
        if !runs {
            home.ask(&["stop"]).await;
        }
        let place = aside.to_str().unwrap();
        let output = home.run(&["doctor"]).await;
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!output.status.success(), "{said}");
        let found = format!("{place} was set aside with 6 turns, of which the log lacks 6");
        assert!(said.contains(&found), "{said}");
        has(&said, ["`metaclaw doctor --fix` puts them back"]);

        let output = home.run(&["doctor", "--fix"]).await;
        let said = String::from_utf8(output.stdout).unwrap();
        let back = format!(
            "6 of 6 turns in {place} are in the log again; the folder stays until you delete it"
        );
        assert!(said.contains(&back), "{said}");
        let after = told(&home).await;
        assert_eq!(n_shown(&after), 7);
        // They are sorted by time: the new one is the newest.
        let list: Vec<serde_json::Value> = serde_json::from_str(&after[0]).unwrap();
        assert_eq!(list[0]["session"], "new");
        let sessions = |told: &[String]| {
            let list: Vec<serde_json::Value> = serde_json::from_str(&told[0]).unwrap();
            let mut sessions: Vec<String> =
                list.iter().map(|it| it["session"].to_string()).collect();
            sessions.retain(|it| it != "\"new\"");
            sessions
        };
        assert_eq!(sessions(&after), sessions(&before));

        let output = home.run(&["doctor", "--fix"]).await;
        let said = String::from_utf8(output.stdout).unwrap();
        has(&said, ["the log has its 6 turns: you may delete it"]);
        assert_eq!(told(&home).await, after);
        assert!(aside.join("db").is_file());
        if runs {
            home.ask(&["stop"]).await;
        }
        proxy.ended().await;
    }
}

/// `doctor` leaves a damaged log as it is, and does not call its only copy deletable.
#[tokio::test]
async fn doctor_tells_of_a_damaged_log_and_changes_nothing() {
    let upstream = Upstream::new();
    let home = talked(&upstream).await;
    let turns = home.path().join("turns");
    fs::write(turns.join("sled/db"), [0xA5; 200]).unwrap();
    let inside = || {
        let entries = fs::read_dir(&turns).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = inside();
    let output = home.run(&["doctor"]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{said}");
    has(
        &said,
        ["is damaged, and is lost", "keeps a copy of the damaged log"],
    );
    assert_eq!(inside(), before);
    assert_eq!(fs::read(turns.join("sled/db")).unwrap(), [0xA5; 200]);

    let proxy = home.start().await;
    home.stop(proxy).await;
    let output = home.run(&["doctor"]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    has(&said, ["was set aside, and no turn in it can be read"]);
    assert!(!said.contains("you may delete it"), "{said}");
}
