//! A session that goes on for weeks.

use std::time::{Duration, Instant};

use metaclaw_chat::TurnId;
use rustix::time::{ClockId, clock_gettime};

use super::{
    kit::{Client, Dice, as_put, open},
    size::english,
};
use crate::{
    Tokens, keys, read, record::Record, store::Source as _, store::Store, store::Table, values,
};

#[tokio::test]
async fn a_turn_stays_small_however_long_its_session_and_reads_back() {
    const N_TURNS: u32 = 140;
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("s", "You are patient.");
    let mut put = Vec::new();
    for n in 0..N_TURNS {
        let turn = client.turn(&format!("question {n}"), &format!("answer {n}"));
        let id = log.append(turn.clone()).await.unwrap();
        // Each prompt begins with the one before and its reply.
        let tokens = Tokens {
            prompt_ids: (0..=2 * n).collect(),
            ids: vec![2 * n + 1],
            logprobs: vec![-1.0],
            sampling_logprobs: vec![-1.0],
            base: "b".to_owned(),
            ..Tokens::default()
        };
        assert!(log.add_tokens(id, tokens.clone()).await.unwrap());
        put.push((id, turn, tokens));
        if n == N_TURNS / 3 {
            // What the thread remembered is read again.
            log.close().await;
            log = open(dir.path());
        }
    }
    for (id, turn, tokens) in &put {
        let mut back = log.get(*id).await.unwrap().unwrap();
        assert_eq!(back.tokens.take().as_ref(), Some(tokens));
        assert_eq!(&as_put(back), turn);
    }
    let ids: Vec<_> = put.iter().map(|(id, ..)| *id).collect();
    let question = move |store: &Store| {
        let (mut n_spans, mut n_bytes, mut n_token_bytes) = (0, 0, 0);
        for id in ids {
            let turn = Record::get(store, id)?.unwrap();
            n_spans = n_spans.max(turn.old.len()).max(turn.new.len());
            let key = keys::turn(id);
            n_bytes = n_bytes.max(store.get(Table::Turns, &key)?.unwrap().len());
            n_token_bytes += values::get(store, Table::Tokens, &key)?.unwrap().len();
        }
        Ok((n_spans, n_bytes, n_token_bytes))
    };
    let (n_spans, n_bytes, n_token_bytes) = log.read(question).await.unwrap();
    assert_eq!(n_spans, 1);
    assert!(n_bytes < 1_000, "{n_bytes}");
    assert!(n_token_bytes < 300 * N_TURNS as usize, "{n_token_bytes}");
}

/// How long it takes to read any turn of a session of 2,000 whose client sums up at 512 KiB:
/// `cargo test --release -p metaclaw-turns any_turn -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes without --release"]
async fn any_turn_of_a_long_session_is_read_at_once() {
    const N_TURNS: u32 = 2_000;
    const CONTEXT: usize = 512 << 10;
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let mut dice = Dice::new(1);
    let mut client = Client::new("s", &english(&mut dice, 27_000));
    let mut n_bytes = 0;
    for _ in 0..N_TURNS {
        if n_bytes > CONTEXT {
            let kept = client.messages.split_off(client.messages.len() - 4);
            client.messages.truncate(1);
            client.messages.extend(kept);
            n_bytes = 0;
        }
        let turn = client.turn(&english(&mut dice, 200), &english(&mut dice, 400));
        n_bytes += 600;
        log.append(turn).await.unwrap();
    }
    log.close().await;
    let log = open(dir.path());
    let (mut times, mut busy) = (Vec::new(), Vec::new());
    for seq in 0..N_TURNS {
        let began = Instant::now();
        let read = move |store: &Store| {
            let before = thread_time();
            let turn = read::turn(store, TurnId { session: 1, seq })?;
            Ok((turn, thread_time().saturating_sub(before)))
        };
        let (turn, took) = log.read(read).await.unwrap();
        times.push((began.elapsed(), seq));
        busy.push((took, seq));
        assert!(turn.is_some());
    }
    for (what, mut times) in [("waited for", times), ("of the thread's time", busy)] {
        times.sort_unstable();
        let (median, most) = (times[1_000], times[1_980]);
        let slowest = &times[1_995..];
        println!("{what}: median {median:?}, 99 % {most:?}, slowest {slowest:?}");
    }
}

/// What this thread computed: on a machine that does other things, too, what it waited tells little.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}
