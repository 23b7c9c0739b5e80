//! `--long-replies` measures how much the end of long replies, and the search among many skills, delay other streams.
//!
//! 50 streams with 20 ms between events run first alone, then while others request replies of 32 MiB in gzip, each in a
//! session of its own with a long message, for which the lessons are searched among 1,000 skills.

use std::{
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    cell::quantile_ms,
    load::{Load, Outcome},
    peers::Ours,
    upstream::{LARGE, Upstream},
    workload::{Kind, Size, Workload},
};

/// The number of measured streams.
const STREAMS: usize = 50;
/// The number of skills that are searched.
const SKILLS: usize = 1_000;
/// The number of words in a message.
const WORDS: usize = 3_000;
/// The number of agents that request long replies.
const AT_ONCE: usize = 2;
/// The pause of such an agent between two requests.
const PAUSE: Duration = Duration::from_millis(500);
/// The size of a long reply, in bytes: slightly less than the log decompresses.
const LONG: usize = (32 << 20) - (1 << 10);

/// Runs the streams for `window` alone and as long beside the others; returns the result in words.
pub async fn run(bin_dir: &Path, n_threads: usize, window: Duration) -> Result<String> {
    let upstream = Upstream::start(n_threads)?;
    upstream.answers_large(long_reply()?);
    upstream.answers(Kind::Paced.reply());
    let ours = Ours::with_skills(bin_dir, &upstream.clear, true, SKILLS).await?;
    let alone = streams(&ours, window).await?;
    let mut asking = JoinSet::new();
    for _ in 0..AT_ONCE {
        asking.spawn(ask_for_ever(format!("http://{}", ours.address())));
    }
    let n_before = N_ENDED.load(Ordering::Relaxed);
    let beside = streams(&ours, window).await;
    let n_ended = N_ENDED.load(Ordering::Relaxed) - n_before;
    if let Some(Ok(broke)) = asking.try_join_next() {
        broke.context("the long replies")?;
    }
    asking.shutdown().await;
    let beside = beside?;
    let line = |what: &str, gaps: &[Duration]| {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| quantile_ms(gaps, share));
        format!(
            "{what:<8} gaps: p50 {p50:6.2} ms   p99 {p99:6.2} ms   longest {most:6.2} ms   ({} gaps)\n",
            gaps.len()
        )
    };
    let grew = quantile_ms(&beside, 0.99) - quantile_ms(&alone, 0.99);
    Ok(format!(
        "{STREAMS} streams of an event every 20 ms; beside them {n_ended} replies of {LONG} bytes in gzip ended, \
         each with a message of {WORDS} words for {SKILLS} skills\n{}{}p99 grew by {grew:.2} ms (at most 5)\n{:?}",
        line("alone", &alone),
        line("beside", &beside),
        ours.counts().await?
    ))
}

/// Returns the gaps between events of all streams, sorted.
async fn streams(ours: &Ours, window: Duration) -> Result<Vec<Duration>> {
    let from = Instant::now();
    let load = Load {
        target: ours.address(),
        workload: Workload {
            kind: Kind::Paced,
            size: Size::Large,
            connections: STREAMS,
        },
        reply: Kind::Paced.reply(),
        exactly: true,
        from,
        to: from + window,
    };
    let Outcome {
        mut gaps,
        n_failed,
        failures,
        ..
    } = load.run().await;
    ensure!(n_failed == 0, "{n_failed} streams failed: {failures:?}");
    gaps.sort_unstable();
    Ok(gaps)
}

/// The numbers of messages, which are all different.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The number of long replies that have ended.
static N_ENDED: AtomicU64 = AtomicU64::new(0);

async fn ask_for_ever(server: String) -> Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let words = "Which papers of the customer belong to the month and the topic of travel ";
    let words = words.split_inclusive(' ').cycle().take(WORDS);
    let words: String = words.collect();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let said = format!("Number {number}. {words}");
        let body = json!({"model": "m", "messages": [{"role": "user", "content": said}]});
        let asked = client.post(format!("{server}/v1/chat/completions"));
        let asked = asked
            .header(LARGE, "1")
            .header("content-type", "application/json");
        let reply = asked
            .body(body.to_string())
            .send()
            .await?
            .error_for_status()?;
        reply.bytes().await?;
        N_ENDED.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns a completion of [`LONG`] bytes in gzip.
fn long_reply() -> Result<Bytes> {
    const WORDS: [&str; 8] = [
        "The ", "invoice ", "of ", "October ", "was ", "paid ", "in ", "time. ",
    ];
    let mut text = String::with_capacity(LONG);
    // Any sequence works that does not repeat itself soon.
    let mut state = 1_u64;
    while text.len() < LONG - 200 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let word = usize::try_from(state >> 61)?;
        text.push_str(WORDS[word]);
    }
    let body = json!({"id": "chatcmpl-long", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": text}}]});
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(body.to_string().as_bytes())?;
    Ok(packed.finish()?.into())
}
