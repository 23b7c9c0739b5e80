//! The first minute with the real OpenClaw, the day that the proxy is killed, and the last command.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use metaclaw_tests::{
    background::Processes,
    external,
    home::signal,
    openclaw::{Api, OpenClaw, Run},
    upstream::{Asked, Play, Upstream},
    wait::until,
};
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;

const GREETING: &str = "Hello from the mock upstream.";
/// From the command to a relayed answer: what was promised.
const FIRST_ANSWER: Duration = Duration::from_secs(120);
/// OpenClaw tries the same model eight times more, for at most 90 s, before it asks the next one.
const RETRIES: &str = "240";
/// OpenClaw takes a changed file up within seconds.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

/// MetaClaw as a person has it who never configured it.
struct MetaClaw {
    folder: tempfile::TempDir,
    openclaw: PathBuf,
}

impl MetaClaw {
    fn home(&self) -> PathBuf {
        self.folder.path().join(".metaclaw")
    }

    /// Runs a command that must work, and shows it as a transcript.
    async fn ask(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(external::bin_dir().join("metaclaw"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("METACLAW_HOME", self.home())
            .env("OPENCLAW_CONFIG_PATH", &self.openclaw)
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        let output = command.output().await.expect("metaclaw runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("$ metaclaw {}\n{said}{errors}", arguments.join(" "));
        assert!(output.status.success(), "{arguments:?}: {said}{errors}");
        said
    }

    /// Kills the proxy: its parent starts it again.
    fn kill(&self) {
        let Processes { proxy, .. } = Processes::of(&self.home()).expect("it runs");
        signal(proxy, Signal::KILL).expect("killed");
        println!("$ kill -9 {proxy}");
    }

    /// Kills both, so that nothing starts again.
    fn kill_all(&self) {
        let Processes { parent, proxy } = Processes::of(&self.home()).expect("it runs");
        for pid in [parent, proxy] {
            signal(pid, Signal::KILL).expect("killed");
        }
    }
}

/// A test that failed leaves nothing in the background.
impl Drop for MetaClaw {
    fn drop(&mut self) {
        if self.home().join("run.json").exists() {
            self.kill_all();
        }
    }
}

fn answered(run: &Run) -> bool {
    println!("  openclaw: {}", run.said["result"]["payloads"][0]["text"]);
    run.said["result"]["payloads"][0]["text"] == GREETING
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}

async fn one_yes_relays_and_a_kill_costs_no_answer(api: Api) {
    let upstream = Upstream::scripted(|_: &Asked<'_>| Play::Text(GREETING));
    let openclaw = OpenClaw::installed();
    let gateway = openclaw.gateway(api, &upstream.base_url, "text").await;
    assert!(answered(&gateway.say("Say hello.").await));
    let before = read(&gateway.config());
    let metaclaw = MetaClaw {
        folder: tempfile::tempdir().expect("a folder"),
        openclaw: gateway.config(),
    };

    let begun = Instant::now();
    metaclaw.ask(&["start", "--yes", "-d", "--port", "0"]).await;
    let wired = read(&gateway.config());
    assert!(
        wired.contains("\"metaclaw/text\"") && wired.contains("\"proxied/text\""),
        "{wired}"
    );
    // A gateway that runs takes the change up by itself.
    let relayed = until(RELOADED_WITHIN, async || {
        assert!(answered(&gateway.say("Say hello again.").await));
        metaclaw
            .ask(&["turns", "list", "--json"])
            .await
            .contains(GREETING)
    });
    relayed.await.expect("no turn came through us");
    println!("  relayed after {:?}", begun.elapsed());
    assert!(begun.elapsed() < FIRST_ANSWER);
    let turns: Value =
        serde_json::from_str(&metaclaw.ask(&["turns", "list", "--json"]).await).expect("JSON");
    assert_eq!(turns[0]["agent"], "main", "{turns}");
    metaclaw.ask(&["status"]).await;
    metaclaw.ask(&["doctor"]).await;

    metaclaw.kill();
    let begun = Instant::now();
    assert!(answered(&gateway.say("Are you there again?").await));
    println!("  by the proxy, started again, after {:?}", begun.elapsed());
    let turns: Value =
        serde_json::from_str(&metaclaw.ask(&["turns", "list", "--json"]).await).expect("JSON");
    let mut asked = turns.as_array().into_iter().flatten();
    assert!(
        asked.any(|turn| turn.to_string().contains("there again")),
        "{turns}"
    );

    metaclaw.kill_all();
    let begun = Instant::now();
    assert!(
        answered(&gateway.say_within("Are you still there?", RETRIES).await),
        "{api:?}: no fallback"
    );
    println!("  by its fallback after {:?}", begun.elapsed());
    assert_eq!(read(&gateway.config()), wired);
    metaclaw.ask(&["uninstall", "--yes"]).await;
    assert_eq!(read(&gateway.config()), before);
    assert!(!metaclaw.home().exists());
    assert!(answered(&gateway.say("And now?").await));
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn one_yes_relays_completions_and_a_killed_proxy_costs_no_answer() {
    one_yes_relays_and_a_kill_costs_no_answer(Api::Completions).await;
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn one_yes_relays_messages_and_a_killed_proxy_costs_no_answer() {
    one_yes_relays_and_a_kill_costs_no_answer(Api::Messages).await;
}
