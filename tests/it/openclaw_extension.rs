//! Our extension in the real OpenClaw, installed from the archive that npm packs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use metaclaw_tests::{
    background::Processes,
    external,
    home::signal,
    openclaw::{OpenClaw, OpenClawGateway, Run},
    upstream::{Asked, Play, Upstream},
    wait::until,
};
use rustix::process::Signal;
use serde_json::{Value, json};

const GREETING: &str = "Hello from the mock upstream.";
/// MetaClaw starts within two seconds, and OpenClaw takes a changed file up within seconds.
const WITHIN: Duration = Duration::from_secs(90);

/// The MetaClaw that the extension starts below the gateway's home. A test that failed leaves nothing in the background.
struct StartedMetaClaw(PathBuf);

impl StartedMetaClaw {
    fn of(gateway: &OpenClawGateway<'_>) -> Self {
        Self(gateway.home().join(".metaclaw"))
    }

    fn runs(&self) -> bool {
        Processes::of(&self.0).is_ok()
    }

    fn turns(&self) -> Value {
        let mut command = Command::new(external::bin_dir().join("metaclaw"));
        command.args(["turns", "list", "--json"]);
        let output = command.env("METACLAW_HOME", &self.0).output();
        let output = output.expect("metaclaw runs");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

impl Drop for StartedMetaClaw {
    fn drop(&mut self) {
        if let Ok(Processes { parent, proxy }) = Processes::of(&self.0) {
            for pid in [parent, proxy] {
                signal(pid, Signal::KILL).ok();
            }
        }
    }
}

/// Packs the extension of this checkout, as `cargo xtask dist` does.
fn packed(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../addons/packages/openclaw");
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]);
    let output = npm.arg(folder).current_dir(source).output();
    let output = output.expect("npm runs");
    assert!(output.status.success(), "{output:?}");
    folder.join(String::from_utf8_lossy(&output.stdout).trim())
}

fn answered(run: &Run) -> bool {
    run.said["result"]["payloads"][0]["text"] == GREETING
}

/// What OpenClaw's file says about models and agents.
fn models(gateway: &OpenClawGateway<'_>) -> Value {
    let text = std::fs::read_to_string(gateway.config()).expect("a file");
    let config: Value = serde_json::from_str(&text).expect("JSON");
    json!({"models": config["models"], "agents": config["agents"]})
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn the_extension_starts_metaclaw_names_sessions_and_restores_the_file() {
    let upstream = Upstream::scripted(|_: &Asked<'_>| Play::Text(GREETING));
    let folder = tempfile::tempdir().expect("a folder");
    let package = packed(folder.path());
    let openclaw = OpenClaw::installed();
    let settings = json!({"command": external::bin_dir().join("metaclaw")});
    let gateway = openclaw
        .gateway_with_extension(&upstream.base_url, "text", &package, &settings)
        .await;
    let metaclaw = StartedMetaClaw::of(&gateway);
    let is_wired = until(WITHIN, async || {
        models(&gateway).to_string().contains("metaclaw/text") && metaclaw.runs()
    });
    is_wired
        .await
        .unwrap_or_else(|_| panic!("{}", gateway.log()));

    let mut said = Value::Null;
    let relayed = until(WITHIN, async || {
        let run = gateway.say("Say hello.").await;
        assert!(answered(&run), "{run:?}");
        said = run.said;
        metaclaw.turns().to_string().contains(GREETING)
    });
    relayed.await.expect("no turn came through MetaClaw");
    let session = &said["result"]["meta"]["agentMeta"]["sessionId"];
    let turns = metaclaw.turns();
    assert_eq!(turns[0]["session"], *session, "{turns}");
    assert_eq!(turns[0]["agent"], "main", "{turns}");
    let named = upstream.received().into_iter().any(|it| {
        let name = it.header("x-session-id");
        name.is_some() && name == session.as_str()
    });
    assert!(named, "no request has X-Session-Id: {session}");

    gateway
        .plugins(&["uninstall", "metaclaw-openclaw", "--force"])
        .await;
    let ended = until(WITHIN, async || !metaclaw.runs()).await;
    ended.unwrap_or_else(|_| panic!("{}", gateway.log()));
    let left = models(&gateway);
    assert!(!left.to_string().contains("metaclaw"), "{left}");
    let primary = &left["agents"]["defaults"]["model"];
    assert_eq!(*primary, json!({"primary": "proxied/text"}));
    assert!(answered(&gateway.say("And now?").await));
}

#[tokio::test]
#[ignore = "needs OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_goes_on_where_metaclaw_cannot_be_started() {
    let upstream = Upstream::scripted(|_: &Asked<'_>| Play::Text(GREETING));
    let folder = tempfile::tempdir().expect("a folder");
    let package = packed(folder.path());
    let openclaw = OpenClaw::installed();
    let settings = json!({"command": folder.path().join("absent")});
    let gateway = openclaw
        .gateway_with_extension(&upstream.base_url, "text", &package, &settings)
        .await;
    let warned = until(WITHIN, async || {
        gateway.log().contains("OpenClaw goes on without MetaClaw")
    });
    warned.await.unwrap_or_else(|_| panic!("{}", gateway.log()));
    assert!(answered(&gateway.say("Say hello.").await));
    assert!(!models(&gateway).to_string().contains("metaclaw"));
}
