//! Tests that an unread output of the proxy stops no chat.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Stdio,
};

use anyhow::{Result, ensure};
use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::harness::{Running, TestHome, Upstream};

async fn chats(proxy: &Running, n: usize) -> Result<()> {
    for i in 0..n {
        let reply = proxy.chat(&format!("s{i}"), &["Hello"]).await?;
        ensure!(reply == "answer to 1", "chat {i}: {reply}");
    }
    Ok(())
}

/// When the serving threads wrote the lines themselves, a pipe of 64 KiB was full after 209 chats.
#[tokio::test]
async fn a_log_that_nobody_reads_stops_no_chat() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let much = [("RUST_LOG", "trace")];
    let mut proxy = home.start_with(Stdio::piped(), &much).await.unwrap();
    let unread = proxy.child.stderr.take();
    chats(&proxy, 400).await.unwrap();
    assert!(proxy.get("/healthz").await.unwrap().contains("200"));
    assert!(proxy.get("/metrics").await.unwrap().contains("200"));
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert!(status["dropped_lines"].as_u64() > Some(0), "{status}");
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    drop(unread);
}

/// The two ends of a terminal: what a person sees, and what a program writes to.
pub(crate) fn terminal() -> Result<(File, File)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let name = ptsname(&terminal, Vec::new())?;
    let side = File::options()
        .read(true)
        .write(true)
        .open(name.to_str()?)?;
    Ok((File::from(terminal), side))
}

#[tokio::test]
async fn a_terminal_that_is_stopped_with_ctrl_s_stops_no_chat() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let (mut terminal, side) = terminal().unwrap();
    let proxy = home.start_with(side.into(), &[]).await.unwrap();
    terminal.write_all(b"\x13").unwrap();
    chats(&proxy, 50).await.unwrap();
    assert!(proxy.get("/healthz").await.unwrap().contains("200"));
    proxy.signal(Signal::TERM).unwrap();
    assert!(proxy.ended().await.unwrap().success());
}

#[tokio::test]
async fn control_characters_of_a_conversation_do_not_reach_the_terminal() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let said = "\u{1b}]0;PWNED\u{7}\u{202e}";
    proxy.chat("s", &[said]).await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let piped = home.ask(&["turns", "list"]).await.unwrap();
    assert!(piped.contains(said), "{piped}");

    let (mut terminal, side) = terminal().unwrap();
    let mut list = home.command(&["turns", "list"]);
    let status = list.stdout(side).status().await.unwrap();
    assert!(status.success());
    drop(list);
    let mut shown = Vec::new();
    // Reading ends with an error when the other end is closed.
    terminal.read_to_end(&mut shown).ok();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains(r"\u001b]0;PWNED\u0007\u202e"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'));
}
