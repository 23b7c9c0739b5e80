//! Whoever hangs up here is hung up on upstream, so that no provider goes on for nobody.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, UNIX_EPOCH},
};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    external,
    home::Home,
    upstream::{Play, Upstream},
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::{GREETING, program};

/// Nothing on one machine takes this long unless it hangs.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn who_hangs_up_is_hung_up_on_upstream() {
    let (python, bin_dir) = (external::python(), external::bin_dir());
    for (dialect, way) in [
        ("openai", "chat"),
        ("openai", "responses"),
        ("anthropic", "messages"),
        ("openai", "before_the_first_byte"),
        // In the upstream's own words, other than the package's.
        ("anthropic", "chat"),
    ] {
        let upstream = Upstream::start(Play::Stall(GREETING));
        let home = Home::before(&bin_dir, &upstream, dialect, &Value::Null);
        let proxy = home.start().await.unwrap();
        let after = hang_up(&python, &proxy.base_url, way, &upstream).await;
        eprintln!(
            "{way}, {dialect}: the upstream saw it after {} us",
            after.as_micros()
        );
        proxy.stop().await.unwrap();
    }
}

/// Lets a package hang up in this way; how long it took until the upstream saw it.
async fn hang_up(python: &Path, base_url: &str, way: &str, upstream: &Upstream) -> Duration {
    let mut child = program(python, "cancel.py", base_url, &[way])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut stdin = child.stdin.take().expect("piped");
    until_within(SOON, way, async || upstream.received(), |it| !it.is_empty()).await;
    stdin.write_all(b"it is there\n").await.expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = lines.next_line().await.expect("a pipe").expect("a line");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let hung_up = said["hung_up_ns"].as_u64().expect("nanoseconds");
    let hang_ups = until_within(SOON, way, async || upstream.hang_ups(), |it| !it.is_empty()).await;
    // The program lives until now: it was not its end that was seen.
    drop(stdin);
    assert!(child.wait().await.expect("python ends").success());
    let hung_up = UNIX_EPOCH + Duration::from_nanos(hung_up);
    let seen = hang_ups[0].duration_since(hung_up);
    seen.expect("seen after it happened")
}
