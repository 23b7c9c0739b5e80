//! Processes that open a log: with too few resources, as another user, and killed while opening.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    damage::{assert_whole, filled, named, snapshots},
    kit::{Client, Dice, new_log},
};
use crate::{TurnLog, TurnsConfig};

/// The role of a test binary that was started again, before it opens the log of [`FOLDER`].
const ROLE: &str = "METACLAW_TURNS_TEST_OPENER";
const FOLDER: &str = "METACLAW_TURNS_TEST_OPENED";
/// A user who owns nothing.
const NOBODY: u32 = 65_534;

/// sled panics if a thread cannot be started, and returns an ordinary error for an open file too many. Neither says
/// anything about the log.
#[tokio::test]
async fn limits_of_the_process_are_told_and_move_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ids = filled(dir.path()).await;
    let roles = (3..24).step_by(2).map(|n| format!("files {n}"));
    let roles = roles.chain((0..8).map(|n| format!("threads {n}")));
    let roles = roles.chain([0, 100, 5_000, 70_000].map(|n| format!("bytes {n}")));
    let mut n_refused = 0;
    for role in roles {
        let said = opener(dir.path(), &role);
        n_refused += usize::from(said != "opened");
        assert!(!said.is_empty(), "{role} ended without a word");
        assert!(named(dir.path(), "damaged-").is_empty(), "{role}: {said}");
    }
    assert!(n_refused > 5, "{n_refused}");
    assert_whole(dir.path(), &ids, "after all limits").await;
}

/// This happens after a start with `sudo`: a file belongs to another user.
#[tokio::test]
async fn a_file_that_is_anothers_is_named_with_its_owner_and_nothing_is_moved() {
    let is_root = rustix::process::geteuid().is_root();
    for file in [
        "sled/db",
        "sled/conf",
        "sled",
        "sled/blobs",
        "FORMAT",
        "flushed",
        "holder",
        "snap",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ids = filled(dir.path()).await;
        let path = match file {
            "snap" => snapshots(dir.path()).pop().unwrap(),
            file => dir.path().join(file),
        };
        let mode = fs::metadata(&path).unwrap().permissions();
        if is_root {
            let chown = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
            each(dir.path(), &|path| chown(path).unwrap());
            std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
        }
        fs::set_permissions(
            &path,
            fs::Permissions::from_mode(if is_root { 0o700 } else { 0o000 }),
        )
        .unwrap();
        let said = opener(dir.path(), "somebody");
        assert!(
            said.contains("cannot use") && said.contains("ermission denied"),
            "{file}: {said}"
        );
        let remedy = if is_root {
            "belongs to user 0"
        } else {
            "chmod u+rwX"
        };
        assert!(said.contains(remedy), "{file}: {said}");
        assert!(said.contains(&*path.to_string_lossy()), "{file}: {said}");
        fs::set_permissions(&path, mode).unwrap();
        assert_whole(dir.path(), &ids, file).await;
    }
}

fn each(path: &Path, of: &impl Fn(&Path)) {
    of(path);
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            each(&entry.unwrap().path(), of);
        }
    }
}

/// Makes the command of a process that opens the log.
fn command(dir: &Path, role: &str) -> Command {
    let mut command = Command::new("sh");
    // If the signal is ignored, a write beyond the limit is an error and does not end the process.
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::opener::opens",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .env(FOLDER, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Opens the log in a separate process, and returns its output.
fn opener(dir: &Path, role: &str) -> String {
    let mut command = command(dir, role);
    let is_root = rustix::process::geteuid().is_root();
    // The limits do not apply to the superuser.
    if is_root && (role.starts_with("threads") || role == "somebody") {
        if role.starts_with("threads") {
            let chown = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
            each(dir, &|path| chown(path).unwrap());
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    child.wait().unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("said "));
    line.unwrap_or_default().to_owned()
}

/// This is not a test by itself, but the process that opens the log.
#[test]
fn opens() {
    let (Some(role), Some(folder)) = (env::var_os(ROLE), env::var_os(FOLDER)) else {
        return;
    };
    let role = role.into_string().unwrap();
    let limit = |resource, n: u64| {
        let maximum = getrlimit(resource).maximum;
        let current = Some(n);
        setrlimit(resource, Rlimit { current, maximum }).unwrap();
    };
    match role
        .split_once(' ')
        .map(|(what, n)| (what, n.parse().unwrap()))
    {
        Some(("files", n)) => limit(Resource::Nofile, n),
        Some(("threads", n)) => limit(Resource::Nproc, n),
        Some(("bytes", n)) => limit(Resource::Fsize, n),
        _ => {}
    }
    let opened = TurnLog::open(Path::new(&folder), &TurnsConfig::default());
    let said = opened.map_or_else(|error| error.to_string(), |_| "opened".to_owned());
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nsaid {said}").unwrap();
}

/// Number of kills in the last test, unless the environment gives another one.
const KILLS: u64 = 12;
const KILLS_WANTED: &str = "METACLAW_TURNS_TEST_KILLS";

/// The test imitates a service that is restarted in a loop, or a machine that runs out of memory at boot.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test reads how long it is to look"
)]
async fn a_log_that_is_killed_again_and_again_while_it_opens_loses_nothing() {
    let wanted = env::var(KILLS_WANTED).ok().and_then(|n| n.parse().ok());
    let kills: u64 = wanted.unwrap_or(KILLS);
    let (dir, log) = new_log();
    let mut ids = Vec::new();
    for session in 0..40 {
        let mut client = Client::new(&format!("s{session}"), "sys");
        for n in 0..10 {
            let turn = client.turn(&format!("question {n} of {session}"), &"word ".repeat(200));
            ids.push(log.put(turn).await);
        }
    }
    log.close().await;
    let mut dice = Dice::new(7);
    let mut n_unfinished = 0;
    for _ in 0..kills {
        let mut child = command(dir.path(), "somebody").spawn().unwrap();
        let began = Instant::now();
        // The kill comes while the process starts, checks its files, copies and opens them. It comes earlier if a
        // snapshot is being written.
        let until = Duration::from_micros(dice.below(60_000));
        let is_writing = || {
            let named = named(&dir.path().join("sled"), "snap.");
            named
                .iter()
                .any(|it| it.extension().is_some_and(|it| it == "generating"))
        };
        while began.elapsed() < until && !is_writing() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        n_unfinished += usize::from(is_writing());
    }
    println!("{kills} kills; {n_unfinished} left an unfinished snapshot");
    assert_whole(dir.path(), &ids, "after the kills").await;
}
