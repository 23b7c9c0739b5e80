//! One adapter after the other is put in the place of the one before, while eight streams go on and vLLM's engine is killed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use metaclaw_tests::{external, questions::split_mix, trainer::Trainer, wait::until};
use metaclaw_turns::Tokens;
use serde_json::{Value, json};

use super::{
    EXACT,
    api::{Api, Failed},
    kill_engine, serves, start_in,
};

const STREAMS: u64 = 8;
/// Swaps of a test run; `METACLAW_TEST_SWAPS` says another number.
const SWAPS: usize = 6;
/// From so many on the engine is killed three times, and once before.
const MANY: usize = 20;
/// A refused stream comes again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// vLLM may be starting anew, after a kill.
const LOADED_WITHIN: Duration = Duration::from_secs(300);
const WORDS: [&str; 8] = [
    "red", "tea", "seven", "moon", "river", "why", "count", "paint",
];

/// What is asked, and what came of it.
#[derive(Debug)]
struct Streams {
    api: Api,
    /// The adapter that is asked for.
    current: Mutex<String>,
    is_over: AtomicBool,
    n_asked: AtomicUsize,
    replies: Mutex<Vec<(String, Tokens)>>,
    failures: Mutex<Vec<Failure>>,
    /// From each kill until vLLM was ready again.
    outages: Mutex<Vec<(Instant, Instant)>>,
}

#[derive(Debug)]
struct Failure {
    began: Instant,
    ended: Instant,
    why: Failed,
}

// === impl Streams ===

impl Streams {
    async fn one(&self, seed: u64) {
        let mut state = seed;
        while !self.is_over.load(Ordering::Relaxed) {
            let adapter = self.current.lock().unwrap().clone();
            let word = |at: u64| WORDS[usize::try_from(at % 8).unwrap()];
            let text: Vec<&str> = (0..12).map(|_| word(split_mix(&mut state))).collect();
            let n = u32::try_from(8 + split_mix(&mut state) % 32).unwrap();
            let began = Instant::now();
            self.n_asked.fetch_add(1, Ordering::Relaxed);
            match self.api.chat(&adapter, &text.join(" "), n).await {
                Ok(tokens) => self.replies.lock().unwrap().push((adapter, tokens)),
                Err(why) => {
                    let ended = Instant::now();
                    let failure = Failure { began, ended, why };
                    self.failures.lock().unwrap().push(failure);
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Waits until an adapter could be loaded, as whoever promotes it does.
    async fn loads(&self, name: &str) {
        let is_loaded = async || {
            let (status, said) = self.api.load(name).await;
            assert!([200, 503].contains(&status), "{name}: {status}: {said}");
            status == 200
        };
        until(LOADED_WITHIN, is_loaded).await.expect(name);
    }

    /// Makes so many adapters, one after the other, each to serve in the place of the one before.
    async fn swap(&self, n: usize, trainer: &Trainer, command: &str) {
        let run = self.api.run(16).await;
        let kills = if n < MANY { 1 } else { 3 };
        let is_kill = |at: usize| (0..kills).any(|kill| at == n * (2 * kill + 1) / (2 * kills));
        for at in 0..n {
            self.api.learn(&run, at as u64).await;
            let name = format!("s-{at}");
            self.api.save(&run, &name).await;
            if is_kill(at) {
                let killed = Instant::now();
                kill_engine(command);
                self.loads(&name).await;
                let outage = (killed, Instant::now());
                self.outages.lock().unwrap().push(outage);
            }
            self.loads(&name).await;
            let old = std::mem::replace(&mut *self.current.lock().unwrap(), name);
            if old != "base" {
                self.api.unload(&old).await;
            }
            let n_replies = self.replies.lock().unwrap().len();
            eprintln!("{} swaps, {n_replies} replies", at + 1);
        }
        let inference = Api::of(trainer).inference().await;
        assert_eq!(inference["state"], "ready", "{inference}");
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// A kill costs the streams that it cuts, and those that come before vLLM is there again.
    fn is_of_a_kill(&self, failure: &Failure) -> bool {
        let is_cut = matches!(failure.why, Failed::Cut(_) | Failed::Status(503, _));
        let outages = self.outages.lock().unwrap();
        let meets =
            |(from, to): &(Instant, Instant)| failure.began <= *to && failure.ended >= *from;
        is_cut && outages.iter().any(meets)
    }
}

#[tokio::test]
#[ignore = "needs the binaries, the model and vLLM, cargo xtask test --all runs it"]
async fn no_stream_fails_by_a_swap_and_each_reply_is_of_the_adapter_that_it_names() {
    let Some(python) = external::vllm() else {
        println!("skipped: METACLAW_TEST_VLLM is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let trainer = Trainer::start(&start_in(folder.path(), &python)).await;
    let api = Api::of(&trainer);
    serves(&trainer, folder.path()).await;
    let said = api.inference().await;
    let command = said["command"].as_str().expect("a command");
    let streams = Streams {
        api: api.clone(),
        current: Mutex::new("base".to_owned()),
        is_over: AtomicBool::new(false),
        n_asked: AtomicUsize::new(0),
        replies: Mutex::default(),
        failures: Mutex::default(),
        outages: Mutex::default(),
    };
    let n = external::swaps().unwrap_or(SWAPS);
    let all = join_all((1..=STREAMS).map(|seed| streams.one(seed)));
    tokio::join!(all, streams.swap(n, &trainer, command));

    let replies = streams.replies.lock().unwrap().drain(..).collect();
    let largest = rescored(&api, replies).await;
    let failures = streams
        .failures
        .lock()
        .unwrap()
        .drain(..)
        .collect::<Vec<_>>();
    let (of_kills, others): (Vec<_>, Vec<_>) =
        failures.iter().partition(|it| streams.is_of_a_kill(it));
    let n_cut = of_kills
        .iter()
        .filter(|it| matches!(it.why, Failed::Cut(_)));
    let outages = streams.outages.lock().unwrap().clone();
    let seconds = outages.iter().map(|(from, to)| (*to - *from).as_secs());
    let figures: Value = json!({
        "swaps": n,
        "requests": streams.n_asked.load(Ordering::Relaxed),
        "adapters asked": largest.len(),
        "cut by a kill": n_cut.count(),
        "refused or cut by a kill": of_kills.len(),
        "other failures": others.len(),
        "outages in seconds": seconds.collect::<Vec<_>>(),
        "largest difference in nats": largest.values().copied().fold(0.0, f64::max),
    });
    eprintln!("{figures}");
    let others: Vec<_> = others.iter().map(|it| it.why.said()).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(largest.values().all(|it| *it <= EXACT), "{largest:?}");
    trainer.stop().await;
}

/// The largest difference, in nats, of each adapter's replies, which name it.
async fn rescored(api: &Api, replies: Vec<(String, Tokens)>) -> BTreeMap<Option<String>, f64> {
    let mut of: BTreeMap<_, Vec<Tokens>> = BTreeMap::new();
    for (asked, tokens) in replies {
        let asked = Some(asked).filter(|name| name != "base");
        assert_eq!(tokens.adapter, asked);
        of.entry(asked).or_default().push(tokens);
    }
    api.rescored(&of).await
}
