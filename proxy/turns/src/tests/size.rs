//! How much disk space many turns take: `cargo test -p metaclaw-turns size -- --nocapture` prints the figures.

use std::{fs, path::Path, time::Instant};

use tokio::task::JoinSet;

use super::kit::{Client, Dice, new_log, open, session_turns};

/// This is a twentieth of the 10,000 turns of the documented figure. Fixed costs count more here, not less.
const SESSIONS: usize = 10;
const TURNS: usize = 50;
/// sled's file grows in units of this size. The test needs 2 of them, and the timing of writes decides whether a third
/// is begun.
const SEGMENT: u64 = 512 * 1024;

/// Makes words with the frequencies of English: few are frequent, most rare (Zipf's law, 4,000 of them).
pub(super) fn english(dice: &mut Dice, n_bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < n_bytes {
        let rank = 4_000u64.pow(2) / (1 + dice.below(4_000u64.pow(2)));
        let rank = rank.min(4_000) * 7 + dice.below(8);
        let mut letters = Dice::new(rank);
        let length = 2 + letters.below(7);
        let letter = |_| char::from(b'a' + u8::try_from(letters.below(18)).unwrap());
        text.extend((0..length).map(letter));
        text.push(' ');
    }
    text
}

fn on_disk(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        it if it.is_dir() => on_disk(&entry.path()),
        it => it.len(),
    };
    entries.map(size).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_turns_of_one_system_text_are_small() {
    let (dir, log) = new_log();
    let system = english(&mut Dice::new(1), 27_000);
    let tools = serde_json::json!([{"type": "function", "description": english(&mut Dice::new(2), 10_000)}]);
    let tools = crate::JsonText::of(&tools).unwrap();
    let began = Instant::now();
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let (log, system, tools) = (log.clone(), system.clone(), tools.clone());
        sessions.spawn(async move {
            let mut dice = Dice::new(100 + session as u64);
            let mut client = Client::new(&format!("agent:main:explicit:{session}"), &system);
            let mut n_raw = 0;
            for n in 0..TURNS {
                let mut turn = client.turn(&english(&mut dice, 200), &english(&mut dice, 400));
                turn.tools = Some(tools.clone());
                turn.meta.reply_id = Some(format!("chatcmpl-{:016x}{n:08}", dice.below(u64::MAX)));
                n_raw += serde_json::to_vec(&turn.request().unwrap()).unwrap().len();
                log.put(turn).await;
            }
            n_raw
        });
    }
    let n_raw: usize = sessions.join_all().await.into_iter().sum();
    println!(
        "appended in {:?} (hashing and serialising included)",
        began.elapsed()
    );
    log.close().await;
    let began = Instant::now();
    let log = open(dir.path());
    println!("opened in {:?}", began.elapsed());
    let (agent, session) = (
        "main".parse().unwrap(),
        "agent:main:explicit:7".parse().unwrap(),
    );
    let began = Instant::now();
    let whole = session_turns(&log, "main", "agent:main:explicit:7").await;
    assert_eq!(whole.len(), TURNS);
    println!("one session whole in {:?}", began.elapsed());
    let began = Instant::now();
    let filter = crate::TurnFilter {
        agent: Some(agent),
        session: Some(session),
        ..crate::TurnFilter::default()
    };
    assert_eq!(log.list(filter).await.unwrap().len(), TURNS);
    println!("one session listed in {:?}", began.elapsed());
    log.close().await;
    let n_disk = on_disk(dir.path());
    let percent = n_disk as f64 * 100.0 / n_raw as f64;
    println!("{n_disk} bytes on disk for {n_raw} of requests: {percent:.2} %");
    assert!(n_disk < n_raw as u64 / 25 + SEGMENT);
}
