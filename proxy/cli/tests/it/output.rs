//! Tests that an unread output of the proxy stops no chat.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Stdio,
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::harness::{Home, Running, Upstream, started};

async fn chats(proxy: &Running, n: usize) {
    for i in 0..n {
        let reply = proxy.chat(&format!("s{i}"), &["Hello"]).await;
        assert!(reply == "answer to 1", "chat {i}: {reply}");
    }
}

/// When the serving threads wrote the lines themselves, a pipe of 64 KiB was full after 209 chats.
#[tokio::test]
async fn a_log_that_nobody_reads_stops_no_chat() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let much = [("RUST_LOG", "trace")];
    let mut proxy = home.start_with(Stdio::piped(), &much).await;
    let unread = proxy.child.stderr.take();
    chats(&proxy, 400).await;
    assert!(proxy.get("/healthz").await.contains("200"));
    assert!(proxy.get("/metrics").await.contains("200"));
    let status = home.json(&["status", "--json"]).await;
    assert!(status["dropped_lines"].as_u64() > Some(0), "{status}");
    home.stop(proxy).await;
    drop(unread);
}

/// The two ends of a terminal: what a person sees, and what a program writes to.
pub(crate) fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let side = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    (File::from(terminal), side)
}

/// Runs a command at a terminal, where a person waits for each question and types its answer. Returns the output, and
/// whether the command succeeded.
pub(crate) async fn at_terminal(
    home: &Home,
    arguments: &[&str],
    answers: &[(&str, &str)],
) -> (String, bool) {
    let (mut terminal, side) = terminal();
    let mut command = home.command(arguments);
    command
        .stdin(side.try_clone().unwrap())
        .stderr(side.try_clone().unwrap())
        .stdout(side);
    let mut child = command.spawn().unwrap();
    drop(command);
    let own = |(question, answer): &(&str, &str)| ((*question).to_owned(), format!("{answer}\n"));
    let answers: Vec<(String, String)> = answers.iter().map(own).collect();
    let talk = tokio::task::spawn_blocking(move || {
        let mut seen = String::new();
        for (question, answer) in answers {
            let from = seen.len();
            while !seen[from..].contains(&question) {
                let mut bytes = [0; 4096];
                let n = terminal.read(&mut bytes).unwrap_or(0);
                assert!(n != 0, "no {question:?} after:\n{seen}");
                seen += &String::from_utf8_lossy(&bytes[..n]);
            }
            terminal.write_all(answer.as_bytes()).unwrap();
        }
        let mut rest = Vec::new();
        // Reading fails once the process at the other end of the terminal has ended.
        terminal.read_to_end(&mut rest).ok();
        seen + &String::from_utf8_lossy(&rest)
    });
    let seen = talk.await.unwrap();
    let status = child.wait().await.unwrap();
    (home.neutral(&seen.replace("\r\n", "\n")), status.success())
}

#[tokio::test]
async fn a_terminal_that_is_stopped_with_ctrl_s_stops_no_chat() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let (mut terminal, side) = terminal();
    let proxy = home.start_with(side.into(), &[]).await;
    terminal.write_all(b"\x13").unwrap();
    chats(&proxy, 50).await;
    assert!(proxy.get("/healthz").await.contains("200"));
    proxy.signal(Signal::TERM);
    assert!(proxy.ended().await.success());
}

#[tokio::test]
async fn control_characters_of_a_conversation_do_not_reach_the_terminal() {
    let (_upstream, home, proxy) = started().await;
    let said = "\u{1b}]0;PWNED\u{7}\u{202e}";
    proxy.chat("s", &[said]).await;
    home.stop(proxy).await;
    let piped = home.ask(&["turns", "list"]).await;
    assert!(piped.contains(said), "{piped}");

    let (mut terminal, side) = terminal();
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
