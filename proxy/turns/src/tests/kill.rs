//! After a kill at any moment, the log has every turn that it acknowledged, complete and once.
//!
//! The writer is this test binary itself, started again with a variable that gives its role.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use metaclaw_chat::{Score, TurnId};
use tokio::task::JoinSet;

use super::kit::{Client, Dice, as_put, open, session_turns, step, verdict};
use crate::{NewTurn, TurnFilter, TurnLog, TurnState};

/// The role of a test binary that was started again: `append ROUND` or `step`.
const ROLE: &str = "METACLAW_TURNS_TEST_ROLE";
const FOLDER: &str = "METACLAW_TURNS_TEST_FOLDER";
const SESSIONS: usize = 6;
/// Largest number of turns of a session, if the kill comes late.
const MAX_TURNS: usize = 200;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

/// Returns the content of turn `n` of session `session` in round `round`: the same for writer and reader.
fn conversation(round: usize, session: usize) -> (Client, impl Fn(&mut Client, usize) -> NewTurn) {
    let system = format!("You are assistant {session}. ").repeat(400);
    let client = Client::new(&format!("r{round}-s{session}"), &system);
    let next = move |client: &mut Client, n: usize| {
        let said = format!("round {round} session {session} turn {n}: ").repeat(1 + n % 7);
        let mut turn = client.turn(&said, &format!("answer {n} ").repeat(1 + n % 40));
        turn.meta.reply_id = Some(format!("{round}/{session}/{n}"));
        turn
    };
    (client, next)
}

async fn append_until_killed(log: TurnLog, round: usize) {
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let log = log.clone();
        sessions.spawn(async move {
            let (mut client, next) = conversation(round, session);
            for n in 0..MAX_TURNS {
                let turn = next(&mut client, n);
                let reply_id = turn.meta.reply_id.clone().unwrap();
                let id = log.put(turn).await;
                say(&format!("ack {id} {reply_id}"));
            }
        });
    }
    sessions.join_all().await;
}

async fn take_and_wait(log: TurnLog) {
    let mut client = Client::new("s", "sys");
    let mut turns = Vec::new();
    for n in 0..3 {
        let id = log.put(client.turn(&format!("q{n}"), "a")).await;
        log.judge(id, verdict(Score::Good)).await.unwrap();
        turns.push(id);
    }
    log.take(step(1, &turns)).await.unwrap();
    say("taken");
    std::future::pending::<()>().await;
}

/// This is not a test by itself, but the process that is killed.
#[test]
fn writer() {
    let (Some(role), Some(folder)) = (env::var_os(ROLE), env::var_os(FOLDER)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let log = open(Path::new(&folder));
    let role = role.into_string().unwrap();
    runtime.block_on(async {
        match role.split_once(' ') {
            Some(("append", round)) => append_until_killed(log, round.parse().unwrap()).await,
            Some(("full", round)) => fill_the_disk(log, round.parse().unwrap()).await,
            _ => take_and_wait(log).await,
        }
    });
}

fn start(dir: &Path, role: &str) -> Child {
    let mut command = Command::new("sh");
    // If the signal is ignored, a write beyond the limit is an error and does not end the process.
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap());
    command.args([
        "--exact",
        "tests::kill::writer",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(ROLE, role).env(FOLDER, dir);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Reads the writer's output until `enough`, kills it, and reads the rest.
fn hear_and_kill(mut writer: Child, mut enough: impl FnMut(&str) -> bool) -> Vec<String> {
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut heard = Vec::new();
    let mut killed = false;
    for line in lines {
        let line = line.unwrap();
        if !killed && enough(&line) {
            writer.kill().unwrap();
            killed = true;
        }
        heard.push(line);
    }
    writer.wait().unwrap();
    heard
}

fn acks(lines: &[String]) -> impl Iterator<Item = (String, TurnId)> + '_ {
    lines.iter().filter_map(|line| {
        // The kill may cut the last line, which then is not an acknowledgement that anybody saw.
        let mut words = line.strip_prefix("ack ")?.split(' ');
        let (id, reply_id) = (words.next()?, words.next()?);
        (reply_id.split('/').count() == 3).then_some(())?;
        Some((reply_id.to_owned(), id.parse().ok()?))
    })
}

/// Checks that every turn in the log is the right one for its place, and that none occurs twice.
async fn check_whole(log: &TurnLog, rounds: usize) -> BTreeMap<String, TurnId> {
    let mut found = BTreeMap::new();
    for (round, session) in (0..rounds).flat_map(|round| (0..SESSIONS).map(move |s| (round, s))) {
        let (mut client, next) = conversation(round, session);
        let turns = session_turns(log, "main", &client.session).await;
        for (n, turn) in turns.into_iter().enumerate() {
            assert_eq!(turn.state, TurnState::Captured);
            let (id, reply_id) = (turn.id, turn.meta.reply_id.clone().unwrap());
            assert_eq!(as_put(turn), next(&mut client, n), "{reply_id}");
            assert_eq!(log.by_reply(&reply_id).await.unwrap(), [id]);
            assert!(found.insert(reply_id, id).is_none());
        }
    }
    assert_eq!(log.funnel(None).await.unwrap().turns, found.len() as u64);
    found
}

#[tokio::test]
#[ignore = "needs 16 s, cargo xtask test --all runs it"]
async fn every_turn_acknowledged_before_a_kill_is_there_whole_and_once() {
    const KILLS: usize = 20;
    let seed = RandomState::new().hash_one(0);
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut acked = BTreeMap::new();
    for round in 0..KILLS {
        let mut left = dice.below(250);
        let lines = hear_and_kill(start(dir.path(), &format!("append {round}")), |line| {
            left = left.saturating_sub(u64::from(line.starts_with("ack ")));
            left == 0
        });
        acked.extend(acks(&lines));
    }
    let log = open(dir.path());
    let found = check_whole(&log, KILLS).await;
    println!("{} acknowledged, {} found", acked.len(), found.len());
    assert!(acked.len() > KILLS, "the writers wrote");
    for (reply_id, id) in &acked {
        assert_eq!(found.get(reply_id), Some(id), "{reply_id}, seed {seed}");
    }
    log.close().await;
}

#[tokio::test]
async fn a_step_that_a_kill_interrupted_is_open_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    hear_and_kill(start(dir.path(), "step"), |line| line == "taken");
    let log = open(dir.path());
    let open = log.open_steps().await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (
            open[0].begun.n,
            open[0].begun.turns.len(),
            open[0].begun.hash.len()
        ),
        (1, 3, 64)
    );
    for id in &open[0].begun.turns {
        assert_eq!(log.turn(*id).await.state, TurnState::Taken { n: 1 });
    }
    log.close().await;
}

/// Writes until the store fails at the size limit, removes the limit, and checks that everything is stored.
async fn fill_the_disk(log: TurnLog, round: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = |current| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    };
    // This is about half of what is written.
    limit(Some(600 << 10));
    let writing = log.clone();
    let lifted = async {
        let mut seen = log.watch_broken();
        let why = seen
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .clone()
            .unwrap();
        say(&format!("broken {why}"));
        let error = log.funnel(None).await.unwrap_err();
        say(&format!("refused {error}"));
        limit(None);
    };
    tokio::join!(append_until_killed(writing, round), lifted);
    say(&format!("mended {}", log.health().broken.is_none()));
    log.close().await;
}

#[tokio::test]
#[ignore = "needs 18 s, cargo xtask test --all runs it"]
async fn turns_wait_for_a_full_disk_and_are_stored_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let lines = hear_and_kill(start(dir.path(), "full 0"), |_| false);
    let said = |beginning: &str| lines.iter().any(|line| line.starts_with(beginning));
    assert!(said("broken no space left"), "{:?}", lines.last());
    assert!(said("refused the turn log cannot be used for now"));
    assert!(said("mended true"));
    let acked: BTreeMap<String, TurnId> = acks(&lines).collect();
    assert_eq!(acked.len(), SESSIONS * MAX_TURNS);
    let log = open(dir.path());
    assert_eq!(check_whole(&log, 1).await, acked);
    let filter = TurnFilter {
        limit: 1_000,
        ..TurnFilter::default()
    };
    let ids: BTreeSet<TurnId> = log
        .list(filter)
        .await
        .unwrap()
        .iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids.len(), 1_000);
    log.close().await;
}
