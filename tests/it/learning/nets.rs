//! The loop on a Qwen3.5 of random numbers: steps, the gate, and swaps beside streams of which none may fail.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use metaclaw_tests::{external, home::Proxy, laptop::Script, random_model, wait::until};
use serde_json::{Value, json};

use super::{STEP_WITHIN, home_without_wishes, known};

/// Swaps of a test run; `METACLAW_TEST_SWAPS` says another number.
const SWAPS: usize = 2;
/// Streams beside few swaps, and beside so many that somebody asks for them by hand.
const STREAMS: [u64; 2] = [4, 8];

/// Between two conversations of an owner. Chats go before the gate's samples, which would wait for ever otherwise.
const PAUSE: Duration = Duration::from_secs(2);
/// Those of attention, of the MLP, and of the nets: nothing names them, and all are trained.
const PROJECTIONS: [&str; 12] = [
    "down_proj",
    "gate_proj",
    "in_proj_a",
    "in_proj_b",
    "in_proj_qkv",
    "in_proj_z",
    "k_proj",
    "o_proj",
    "out_proj",
    "q_proj",
    "up_proj",
    "v_proj",
];

/// Owners who talk side by side.
#[derive(Debug, Default)]
struct Streams {
    is_over: AtomicBool,
    /// The adapters that began a conversation.
    seen: Mutex<BTreeSet<String>>,
    n_requests: Mutex<usize>,
}

// === impl Streams ===

impl Streams {
    /// Holds one conversation after the other; panics if a request fails.
    async fn one(&self, proxy: &Proxy, mut seed: u64) {
        let (client, began) = (proxy.client(), Instant::now());
        while !self.is_over.load(Ordering::Relaxed) {
            let script = Script {
                seed,
                conversations: 1,
                max_tokens: 24,
                retry_for: Duration::ZERO,
            };
            for held in script.run(&client, began, |_, _| ()).await {
                self.seen.lock().unwrap().extend(held.adapter);
                *self.n_requests.lock().unwrap() += held.requests.len();
            }
            seed += 100;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Has so many talk while something is waited for.
    async fn beside<T>(&self, proxy: &Proxy, n: u64, waited: impl Future<Output = T>) -> T {
        self.is_over.store(false, Ordering::Relaxed);
        let waited = async {
            let found = waited.await;
            self.is_over.store(true, Ordering::Relaxed);
            found
        };
        let all = join_all((0..n).map(|seed| self.one(proxy, seed)));
        tokio::join!(waited, all).0
    }
}

/// The gate measured something, and by nothing else it decided.
fn assert_tested(step: &Value) {
    let tests = step["gate"]["tests"].as_array().expect("tests");
    for test in tests {
        assert!(
            test["value"].is_number() && test["limit"].is_number(),
            "{test}"
        );
    }
    eprintln!("{}", step["gate"]);
    let has_passed = tests.iter().all(|test| test["passed"] == true);
    assert!(!tests.is_empty() && step["serves"] == has_passed, "{step}");
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test runs it"]
async fn random_gated_delta_nets_learn_are_tested_and_are_swapped_under_streams() {
    let n_swaps = external::swaps().unwrap_or(SWAPS);
    let n_streams = STREAMS[usize::from(n_swaps > SWAPS)];
    let model = tempfile::tempdir().unwrap();
    random_model::write(model.path());
    let home = home_without_wishes()
        .with_env("METACLAW__TRAINER__MODEL", model.path().to_string_lossy())
        .with_env("METACLAW__TRAINER__DTYPE", "f32")
        // No teacher's reply of such a model is worth to be learned.
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", "2");
    let streams = Streams::default();

    let proxy = home.start().await.unwrap();
    let step = streams.beside(&proxy, STREAMS[0], known(&home, "last_step"));
    assert_tested(&step.await);
    proxy.stop().await.unwrap();

    // Whatever the gate thinks of random words, each adapter is to serve.
    let home = home.with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    let began = Instant::now();
    let are_seen = async || streams.seen.lock().unwrap().len() >= n_swaps;
    let within = STEP_WITHIN.max(STEP_WITHIN / 10 * u32::try_from(n_swaps).unwrap());
    let waited = streams.beside(&proxy, n_streams, until(within, are_seen));
    let waited = waited.await;
    waited.unwrap_or_else(|error| panic!("{error}: {:?}: {}", streams.seen, home.log()));
    let seen = streams.seen.lock().unwrap().clone();
    let figures = json!({
        "swaps": seen.len(), "streams": n_streams, "requests": *streams.n_requests.lock().unwrap(),
        "failed": 0, "seconds": began.elapsed().as_secs(),
    });
    eprintln!("{figures}");
    // Of many adapters the oldest are removed.
    let adapters = home.path().join("trainer/adapters");
    let files = seen
        .iter()
        .map(|name| adapters.join(name).join("adapter_config.json"));
    let config = files.rev().find_map(|file| fs::read(file).ok());
    let config = config.expect("an adapter that answered");
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["target_modules"], json!(PROJECTIONS));
    proxy.stop().await.unwrap();
}
