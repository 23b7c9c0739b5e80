//! Tests of folders that cannot be opened, and of the messages.

use std::{fs, path::Path};

use metaclaw_chat::Size;

use super::kit::{Client, as_put, new_log, one_turn, open};
use crate::{OpenError, Turn, TurnLog, TurnsConfig};

fn try_open(dir: &Path) -> Result<TurnLog, OpenError> {
    TurnLog::open(dir, &TurnsConfig::default())
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let (dir, log) = new_log();
    let error = try_open(dir.path()).unwrap_err().to_string();
    let holder = format!("is in use by process {}", std::process::id());
    assert!(error.contains(&holder), "{error}");
    log.close().await;
    open(dir.path()).close().await;
}

#[tokio::test]
async fn a_file_in_the_folders_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns");
    fs::write(&path, "").unwrap();
    let error = try_open(&path).unwrap_err();
    assert!(matches!(error, OpenError::NotUsable { .. }), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()));
}

#[tokio::test]
async fn a_log_whose_database_is_gone_does_not_begin_anew_unasked() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await;
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    for _ in 0..2 {
        let error = try_open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Vanished { .. }), "{error}");
    }
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    open(dir.path()).close().await;
}

/// Row 6 of the security tests: sled panics for so small a cache, and this was treated as damage.
#[tokio::test]
async fn a_cache_too_small_is_refused_with_its_bound_and_the_log_is_left_alone() {
    let (dir, log) = new_log();
    log.put(one_turn()).await;
    log.close().await;
    for cache in [0, 1, 255, 256, (256 << 10) - 1] {
        let config = TurnsConfig {
            cache: Size(cache),
            ..TurnsConfig::default()
        };
        let error = TurnLog::open(dir.path(), &config).unwrap_err().to_string();
        assert!(error.starts_with("turns.cache: "), "{error}");
        assert!(error.contains("at least 256 KiB"), "{error}");
    }
    let least = TurnsConfig {
        cache: Size(256 << 10),
        ..TurnsConfig::default()
    };
    let log = TurnLog::open(dir.path(), &least).unwrap();
    assert_eq!(log.outcome().moved_aside, None);
    assert_eq!(log.funnel(None).await.unwrap().turns, 1);
}

/// Row 16 of the security tests: turns were written to a file that nobody could find again.
#[tokio::test]
async fn a_folder_removed_while_it_is_open_is_noticed_and_what_comes_is_kept() {
    for what in ["", "sled"] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("turns");
        let log = open(&dir);
        let mut client = Client::new("s", "sys");
        log.put(client.turn("before", "a")).await;
        let mut broken = log.watch_broken();
        fs::remove_dir_all(dir.join(what)).unwrap();
        let turn = client.turn("after", "b");
        let id = log.put(turn.clone()).await;
        assert!(broken.has_changed().unwrap(), "it was said");
        broken.wait_for(Option::is_none).await.unwrap();
        let other = client.turn("more", "c");
        let other_id = log.put(other.clone()).await;
        log.close().await;
        let log = open(&dir);
        for (id, turn) in [(id, turn), (other_id, other)] {
            assert_eq!(as_put(log.turn(id).await), turn);
        }
        assert_eq!(log.outcome().n_lost, 0);
    }
}

/// The same path is not the same file, for example after a backup was restored.
#[tokio::test]
async fn a_database_put_in_the_place_of_the_open_one_is_noticed_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("turns");
    let log = open(&dir);
    let mut client = Client::new("s", "sys");
    let before = log.put(client.turn("before", "a")).await;
    let mut broken = log.watch_broken();
    let (here, away) = (dir.join("sled"), home.path().join("away"));
    fs::rename(&here, &away).unwrap();
    fs::create_dir(&here).unwrap();
    for file in fs::read_dir(&away).unwrap().map(Result::unwrap) {
        if file.path().is_file() {
            fs::copy(file.path(), here.join(file.file_name())).unwrap();
        }
    }
    let after = log.put(client.turn("after", "b")).await;
    assert!(broken.has_changed().unwrap(), "it was said");
    broken.wait_for(Option::is_none).await.unwrap();
    log.close().await;
    let log = open(&dir);
    for id in [before, after] {
        assert!(log.get(id).await.unwrap().is_some(), "{id}");
    }
}

#[tokio::test]
async fn an_export_is_one_whole_turn_a_line() {
    let (_dir, log) = new_log();
    for session in ["a", "b"] {
        let mut client = Client::new(session, "sys");
        for n in 0..20 {
            log.put(client.turn(&format!("q{n}"), "a\nb")).await;
        }
    }
    let mut lines = Vec::new();
    assert_eq!(log.export(&mut lines).await.unwrap().n_turns, 40);
    let text = String::from_utf8(lines).unwrap();
    let turns: Vec<Turn> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(turns.len(), 40);
    for turn in &turns {
        assert_eq!(log.get(turn.id).await.unwrap().as_ref(), Some(turn));
    }
}
