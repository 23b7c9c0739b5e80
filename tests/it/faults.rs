//! Tests of faults that need the real process: its disk, its signals, its limits.
//!
//! The others are in the gateway's own tests. Only `metaclaw` is needed; a scripted upstream answers.

mod disk;
mod process;

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    upstream::{Play, Upstream},
};
use serde_json::{Value, json};

/// A home whose proxy uses `upstream`; `more` are further lines of its settings.
fn home_before(upstream: &str, more: &str) -> Home {
    let config =
        format!("mode: skills_only\nllm: {{api_base: '{upstream}/v1', model_id: m}}\n{more}\n");
    Home::new(&external::bin_dir(), &config)
}

async fn upstream() -> Upstream {
    Upstream::start(Play::Text("Noted."))
}

fn user(text: &str) -> [Value; 1] {
    [json!({"role": "user", "content": text})]
}

/// Returns text that does not compress, another for each `n`.
fn unlike(n: u64, n_bytes: usize) -> String {
    let mut state = n << 32;
    let mut letter = |_| {
        let letter = metaclaw_tests::questions::split_mix(&mut state) % 26;
        char::from(b'a' + u8::try_from(letter).unwrap())
    };
    (0..n_bytes).map(&mut letter).collect()
}

/// Returns one number of `/metrics`.
async fn metric(proxy: &Proxy, series: &str) -> f64 {
    let text = proxy.client().get_text("/metrics").await.unwrap();
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(series)?;
        rest.strip_prefix(' ')?.parse().ok()
    });
    value.unwrap_or_else(|| panic!("no {series} in {text}"))
}

/// Returns the largest memory use of a process, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("VmHWM in kB") << 10
}
