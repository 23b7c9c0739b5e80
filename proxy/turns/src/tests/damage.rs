//! Tests of damaged folders: all readable data must be there, whatever happened to the rest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use metaclaw_chat::{Score, TurnId};

use super::kit::{Client, new_log, open, verdict};
use crate::{
    OpenError, TurnFilter, TurnLog, TurnsConfig, keys,
    store::{Store, Table},
    txn::Txn,
    values,
};

const TURNS: usize = 40;

/// Makes a log of sessions with several turns each, opened twice, so that sled has written its snapshot.
pub(super) async fn filled(dir: &Path) -> Vec<TurnId> {
    let log = open(dir);
    let mut ids = Vec::new();
    for session in 0..TURNS / 4 {
        let mut client = Client::new(&format!("s{session}"), &"a system text ".repeat(200));
        for n in 0..4 {
            let turn = client.turn(&format!("question {n} of {session}"), &"word ".repeat(60));
            ids.push(log.put(turn).await);
        }
    }
    log.judge(ids[0], verdict(Score::Good)).await.unwrap();
    log.close().await;
    open(dir).close().await;
    ids
}

pub(super) fn snapshots(dir: &Path) -> Vec<PathBuf> {
    let mut found = named(&dir.join("sled"), "snap.");
    found.sort();
    found
}

/// Returns the entries of a folder with this beginning.
pub(super) fn named(dir: &Path, beginning: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let is_so = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(beginning)
    };
    paths.filter(is_so).collect()
}

/// Asserts that every turn is there and readable, and nothing was moved aside.
pub(super) async fn assert_whole(dir: &Path, ids: &[TurnId], what: &str) {
    let log = open(dir);
    let outcome = log.outcome();
    assert!(outcome.moved_aside.is_none(), "{what}: {outcome:?}");
    assert_eq!((outcome.n_lost, outcome.n_gaps), (0, 0), "{what}");
    assert_eq!(outcome.copied, None, "{what}");
    for id in ids {
        assert!(log.get(*id).await.unwrap().is_some(), "{what}: {id}");
    }
    assert_eq!(log.funnel(None).await.unwrap().turns, ids.len() as u64);
    log.close().await;
    assert!(named(dir, "damaged-").is_empty(), "{what}");
    for left in ["before", "probe", "sled.new", "sled.old"] {
        assert!(!dir.join(left).exists(), "{what}: {left}");
    }
}

#[tokio::test]
async fn a_damaged_snapshot_costs_nothing() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("empty", |snap| fs::write(snap, b"").unwrap()),
        ("cut", |snap| {
            let bytes = fs::read(snap).unwrap();
            fs::write(snap, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("one byte flipped", |snap| {
            let mut bytes = fs::read(snap).unwrap();
            bytes[0] ^= 0x55;
            fs::write(snap, bytes).unwrap();
        }),
        ("its checksum flipped", |snap| {
            let mut bytes = fs::read(snap).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(snap, bytes).unwrap();
        }),
        ("half written beside a good one", |snap| {
            let half = snap.with_file_name("snap.7fffffffffffffff.generating");
            fs::write(half, [1, 2]).unwrap();
        }),
        ("a folder in its place", |snap| {
            fs::remove_file(snap).unwrap();
            fs::create_dir(snap).unwrap();
        }),
        ("removed", |snap| fs::remove_file(snap).unwrap()),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        damage(snapshots(dir.path()).last().unwrap());
        for _ in 0..2 {
            assert_whole(dir.path(), &ids, what).await;
        }
        let kept = named(dir.path(), "repaired-");
        let is_kept = !what.starts_with("half") && what != "removed";
        assert_eq!(kept.len(), usize::from(is_kept), "{what}");
    }
}

/// The snapshot has a valid checksum, and gives the places of pages of another log.
#[tokio::test]
async fn a_snapshot_of_another_log_costs_nothing() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ids = filled(dir.path()).await;
    let log = open(other.path());
    let mut client = Client::new("other", "sys");
    for n in 0..400 {
        let answer = format!("{n} ").repeat(1_000);
        log.put(client.turn(&format!("q{n}"), &answer)).await;
    }
    log.close().await;
    open(other.path()).close().await;
    for snapshot in snapshots(dir.path()) {
        fs::remove_file(snapshot).unwrap();
    }
    let foreign = snapshots(other.path()).pop().unwrap();
    let name = foreign.file_name().unwrap();
    fs::copy(&foreign, dir.path().join("sled").join(name)).unwrap();
    assert_whole(dir.path(), &ids, "of another log").await;
}

#[tokio::test]
async fn what_says_how_the_log_is_written_can_be_done_without() {
    let garbage = b"\xff\xfe\x00garbage garbage garbage";
    for (file, content) in [
        ("sled/conf", Some(&garbage[..])),
        ("sled/conf", Some(&[])),
        ("sled/conf", None),
        ("FORMAT", Some(garbage)),
        ("FORMAT", Some(&[])),
        ("FORMAT", None),
        ("flushed", Some(garbage)),
        ("flushed", None),
        ("holder", Some(garbage)),
        ("holder", None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        let path = dir.path().join(file);
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        assert_whole(dir.path(), &ids, file).await;
        assert_eq!(fs::read(dir.path().join("FORMAT")).unwrap(), b"4\n");
    }
}

#[tokio::test]
async fn something_else_in_the_place_of_a_file_is_named_and_nothing_is_moved() {
    for file in [
        "sled",
        "sled/db",
        "sled/conf",
        "sled/blobs",
        "FORMAT",
        "flushed",
        "holder",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        let (path, away) = (dir.path().join(file), dir.path().join("away"));
        let is_dir = path.is_dir();
        fs::rename(&path, &away).unwrap();
        if is_dir {
            fs::write(&path, b"").unwrap();
        } else {
            fs::create_dir(&path).unwrap();
        }
        let error = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, OpenError::NotUsable { .. }), "{said}");
        assert!(said.contains(&*path.to_string_lossy()), "{file}: {said}");
        if is_dir {
            fs::remove_file(&path).unwrap();
        } else {
            fs::remove_dir(&path).unwrap();
        }
        fs::rename(&away, &path).unwrap();
        assert_whole(dir.path(), &ids, file).await;
    }
}

#[tokio::test]
async fn a_log_of_another_format_is_left_alone_and_told_what_to_do() {
    for (mark, said) in [
        ("3\n", "has format 3, which this program does not read"),
        ("1", "metaclaw turns export > turns.jsonl"),
        ("5\n", "has format 5, of a later metaclaw"),
        ("70000", "has format 70000, of a later metaclaw"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        fs::write(dir.path().join("FORMAT"), mark).unwrap();
        let before = fs::read(dir.path().join("sled/db")).unwrap();
        for _ in 0..2 {
            let error = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
        assert!(fs::read(dir.path().join("sled/db")).unwrap() == before);
        fs::write(dir.path().join("FORMAT"), "4\n").unwrap();
        assert_whole(dir.path(), &ids, mark).await;
    }
    // Without a marker, its tables identify it.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sled");
    let db = sled::open(&path).unwrap();
    db.open_tree("blobs").unwrap().insert(b"a", b"b").unwrap();
    drop(db);
    Store::wait_until_free(&path);
    let error = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap_err();
    assert!(matches!(error, OpenError::Older { .. }), "{error}");
    assert!(error.to_string().contains("the tables blobs"), "{error}");
    assert!(named(dir.path(), "damaged-").is_empty());
}

/// The test makes each state that a kill may leave while the database is written anew.
#[tokio::test]
async fn a_compaction_that_a_kill_cut_short_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ids = filled(dir.path()).await;
    let (here, new, old) = (
        dir.path().join("sled"),
        dir.path().join("sled.new"),
        dir.path().join("sled.old"),
    );
    fs::create_dir(&new).unwrap();
    fs::write(new.join("db"), b"half a copy").unwrap();
    assert_whole(dir.path(), &ids, "half a copy").await;
    copy(&here, &new);
    fs::rename(&here, &old).unwrap();
    assert_whole(dir.path(), &ids, "between two renames").await;
    copy(&here, &old);
    assert_whole(dir.path(), &ids, "before the old one is removed").await;
    fs::rename(&here, &old).unwrap();
    assert_whole(dir.path(), &ids, "the copy is gone").await;
    // A process that was killed while it looked at a copy has left it.
    let left = dir.path().join("copy-to-look");
    copy(&here, &left);
    assert_whole(dir.path(), &ids, "a copy was left").await;
    assert!(!left.exists());
}

/// Opening a copy leaves a damaged log as it is: opening the log itself would repair it.
#[tokio::test]
async fn a_look_at_a_copy_tells_what_is_lost_and_changes_nothing() {
    type Damage = fn(&Path);
    let damages: [(&str, bool, Damage); 6] = [
        ("whole", false, |_| {}),
        ("an empty snapshot", false, |dir| {
            fs::write(snapshots(dir).last().unwrap(), b"").unwrap();
        }),
        ("garbage", true, |dir| {
            fs::write(dir.join("sled/db"), [0xA5; 200]).unwrap();
        }),
        ("cut", true, |dir| {
            let bytes = fs::read(dir.join("sled/db")).unwrap();
            fs::write(dir.join("sled/db"), &bytes[..2_000]).unwrap();
        }),
        ("a compaction that was cut short", false, |dir| {
            copy(&dir.join("sled"), &dir.join("sled.new"));
            fs::rename(dir.join("sled"), dir.join("sled.old")).unwrap();
        }),
        ("another format", true, |dir| {
            fs::write(dir.join("FORMAT"), "99").unwrap();
        }),
    ];
    for (what, loses, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path()).await;
        damage(dir.path());
        let before = files(dir.path());
        let lost = match TurnLog::open_copy(dir.path(), &TurnsConfig::default()) {
            Ok(log) => {
                let outcome = log.outcome().clone();
                log.close().await;
                outcome.n_lost + outcome.n_gaps > 0
            }
            Err(error) => {
                assert!(!error.to_string().contains("copy-to-look"), "{error}");
                true
            }
        };
        assert_eq!(lost, loses, "{what}");
        assert!(files(dir.path()) == before, "{what}");
    }
}

/// Everything below a folder, with its content.
fn files(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for path in named(dir, "") {
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push((path.clone(), fs::read(path).ok()));
    }
    found.sort();
    found
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_behind_a_link_is_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    let ids = filled(&real).await;
    std::os::unix::fs::symlink(&real, &link).unwrap();
    fs::write(snapshots(&real).last().unwrap(), b"").unwrap();
    assert_whole(&link, &ids, "a link").await;
}

/// If a text is lost, only that text is missing: the rest of its turn is listed, and all other turns are complete.
#[tokio::test]
async fn a_text_that_is_lost_hides_no_other() {
    let (dir, log) = new_log();
    let long = "a long question ".repeat(100);
    let mut client = Client::new("a", "sys");
    let broken = log.put(client.turn(&long, "one")).await;
    let mut other = Client::new("b", "sys");
    let whole = log.put(other.turn("short", "two")).await;
    let remove = |store: &Store| {
        let mut texts = Vec::new();
        for pair in store.range(Table::Texts, keys::under(&[])) {
            let (key, _) = pair?;
            if let Ok(Some(text)) = values::get(store, Table::Texts, &key)
                && String::from_utf8_lossy(&text).contains("a long question")
            {
                texts.push(key);
            }
        }
        Ok(texts)
    };
    let texts = log.read(remove).await.unwrap();
    assert_eq!(texts.len(), 1);
    let gone = move |txn: &mut Txn<'_>| Ok(values::remove(txn, Table::Texts, &texts[0])?);
    log.write(gone).await.unwrap();

    let error = log.get(broken).await.unwrap_err().to_string();
    assert!(error.contains("it is missing"), "{error}");
    let listed = log.list(TurnFilter::default()).await.unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|it| (it.id, it.answered.as_deref()))
        .collect();
    assert_eq!(listed, [(whole, Some("two")), (broken, Some("one"))]);
    let mut lines = Vec::new();
    let exported = log.export(&mut lines).await.unwrap();
    assert_eq!((exported.n_turns, exported.unreadable), (1, vec![broken]));
    log.recent_chains(10).await.unwrap();
    // The session continues.
    log.put(client.turn("more", "three")).await;
    log.close().await;
    open(dir.path()).close().await;
    // A log that is read from its beginning does not have the text, and stores it when it occurs again.
    fs::write(snapshots(dir.path()).last().unwrap(), b"").unwrap();
    let log = open(dir.path());
    let outcome = log.outcome();
    assert_eq!((outcome.n_lost, outcome.n_gaps), (1, 0));
    assert!(outcome.copied.is_some() && outcome.moved_aside.is_none());
    let mut again = Client::new("a", "sys");
    let again = log.put(again.turn(&long, "four")).await;
    for id in [again, broken, whole] {
        assert!(log.get(id).await.unwrap().is_some(), "{id}");
    }
    log.close().await;
    assert_eq!(open(dir.path()).outcome().n_lost, 0);
}

/// A page that is too long for sled's log is in a separate file. We have no such page, but a database may have one.
#[tokio::test]
async fn a_blob_that_is_damaged_or_gone_costs_what_it_held() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("flipped", |blob| {
            let mut bytes = fs::read(blob).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x55;
            fs::write(blob, bytes).unwrap();
        }),
        ("cut", |blob| fs::write(blob, b"abc").unwrap()),
        ("gone", |blob| fs::remove_file(blob).unwrap()),
        ("a name that is no text", |blob| {
            use std::os::unix::ffi::OsStrExt as _;
            let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
            fs::write(blob.with_file_name(name), b"x").unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (dir, log) = new_log();
        let mut client = Client::new("s", "sys");
        let mut ids = Vec::new();
        for n in 0..30 {
            ids.push(log.put(client.turn(&format!("q{n}"), "a")).await);
        }
        // The page is in a table that no turn needs.
        let long = |txn: &mut Txn<'_>| Ok(txn.put(Table::Serving, b"z\0", vec![7; 300_000])?);
        log.write(long).await.unwrap();
        log.close().await;
        open(dir.path()).close().await;
        let blobs = named(&dir.path().join("sled/blobs"), "");
        assert!(!blobs.is_empty(), "sled made no blob");
        damage(
            blobs
                .iter()
                .max_by_key(|it| fs::metadata(it).unwrap().len())
                .unwrap(),
        );
        for _ in 0..2 {
            let log = open(dir.path());
            assert!(
                log.outcome().moved_aside.is_none(),
                "{what}: {:?}",
                log.outcome()
            );
            for id in &ids {
                assert!(log.get(*id).await.unwrap().is_some(), "{what}: {id}");
            }
            // A query for the lost page opens the log again, without it.
            while log.serving().await.is_err() {
                tokio::task::yield_now().await;
            }
            ids.push(log.put(client.turn(what, "a")).await);
            log.close().await;
        }
        let log = open(dir.path());
        assert_eq!(
            log.list(TurnFilter::default()).await.unwrap().len(),
            ids.len(),
            "{what}"
        );
        log.close().await;
    }
}

/// The page is in the middle of the log. With the snapshot, the damage is found when the page is needed.
#[tokio::test]
async fn a_damaged_page_costs_what_it_held_and_the_log_goes_on() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        let db = dir.path().join("sled/db");
        let mut bytes = fs::read(&db).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let at = 1_000 + (end - 1_000) / 12 * seed;
        bytes[at] ^= 0x55;
        fs::write(&db, &bytes).unwrap();
        let log = open(dir.path());
        let outcome = log.outcome().clone();
        let mut client = Client::new("new", "sys");
        // The turn is written, whatever else is unreadable.
        let id = log.put(client.turn("q", "a")).await;
        let mut n_there = 0;
        for id in &ids {
            loop {
                match log.get(*id).await {
                    Ok(turn) => n_there += usize::from(turn.is_some()),
                    Err(crate::LogError::Damaged { .. }) => {}
                    // The log is opened again, without the page.
                    Err(_) => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
                break;
            }
        }
        assert!(log.get(id).await.unwrap().is_some());
        println!("at {at} of {end}: {n_there} of {}, {outcome:?}", ids.len());
        let is_said = outcome.n_lost > 0 || outcome.moved_aside.is_some() || outcome.n_gaps > 0;
        assert!(
            n_there == ids.len() || is_said || !named(dir.path(), "damaged-").is_empty(),
            "{at}"
        );
        log.close().await;
    }
}
