//! Tests with the `openai` and `anthropic` Python packages: a program sees the same through the proxy as without it,
//! and so does the upstream.

mod cancel;
mod errors;
mod lessons;
mod log;
mod translated;
mod turns;

use std::path::{Path, PathBuf};

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    upstream::{Asked, Failure, Part, Play, Upstream},
};
use serde_json::Value;
use tokio::process::Command;

/// Some of the text has several bytes for a character, so that a piece may be cut anywhere.
const GREETING: &str = "Hello from the \u{6a21}\u{578b} \u{1f642}.";

/// An upstream for the program alone, and another one behind a proxy.
struct Pair {
    python: PathBuf,
    alone: Upstream,
    behind: Upstream,
    home: Home,
    proxy: Proxy,
}

/// The upstream's behaviour, by the model's name.
fn script(asked: &Asked<'_>) -> Play {
    match (asked.model, asked.n_before) {
        ("tool", _) => Play::Tool {
            command: "echo \"hi\"",
            then: "The tool said hi.",
        },
        ("thought", _) => Play::Thought("Let me greet them.", GREETING),
        ("nousage", _) => Play::Without(Part::Usage, GREETING),
        ("nodone", _) => Play::Without(Part::End, GREETING),
        ("nofinish", _) => Play::Without(Part::Finish, GREETING),
        ("err500", _) => Play::Refuse(Failure::Server),
        ("err429", _) | ("once-limited", 0) => Play::Refuse(Failure::RateLimit),
        ("err400ctx", _) => Play::Refuse(Failure::ContextOverflow),
        ("cut", _) => Play::Cut(GREETING),
        _ => Play::Text(GREETING),
    }
}

/// A program of this folder; its first argument is the address to use.
pub(crate) fn program(python: &Path, name: &str, base_url: &str, args: &[&str]) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/packages");
    let mut command = Command::new(python);
    command.arg(folder.join(name)).arg(base_url).args(args);
    command.kill_on_drop(true);
    command
}

/// Runs a program to its end and reads its output.
pub(crate) async fn run(mut program: Command) -> Value {
    let output = program.output().await.expect("python runs");
    let logs = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{logs}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

// === impl Pair ===

impl Pair {
    /// An upstream of this dialect.
    async fn start(dialect: &str, config: &Value) -> Self {
        Self::playing(script, dialect, config).await
    }

    /// Creates the same with another script.
    async fn playing(script: fn(&Asked<'_>) -> Play, dialect: &str, config: &Value) -> Self {
        let (python, bin_dir) = (external::python(), external::bin_dir());
        let alone = Upstream::scripted(script);
        let behind = Upstream::scripted(script);
        let home = Home::before(&bin_dir, &behind, dialect, config);
        let proxy = home.start().await.unwrap();
        Self {
            python,
            alone,
            behind,
            home,
            proxy,
        }
    }

    /// Ends the proxy and starts it again.
    async fn restarted(self) -> Self {
        self.proxy.stop().await.unwrap();
        let proxy = self.home.start().await.unwrap();
        Self { proxy, ..self }
    }

    /// Runs a program without the proxy and with it: both print the same, which is returned.
    async fn assert_prints_the_same(&self, name: &str, args: &[&str]) -> Value {
        let at = |base_url| run(program(&self.python, name, base_url, args));
        let (direct, proxied) = tokio::join!(at(&self.alone.base_url), at(&self.proxy.base_url));
        for (scene, direct) in direct.as_object().expect("scenes") {
            assert_eq!(*direct, proxied[scene], "{scene}");
        }
        proxied
    }

    /// Does the same; and both upstreams got the same requests, to the byte.
    async fn assert_same(&self, name: &str, args: &[&str]) -> Value {
        let printed = self.assert_prints_the_same(name, args).await;
        let [direct, relayed] = [self.alone.received(), self.behind.received()];
        assert_eq!(direct.len(), relayed.len());
        for (direct, relayed) in direct.iter().zip(&relayed) {
            assert_eq!(direct.target(), relayed.target());
            assert_eq!(
                direct.end_to_end(),
                relayed.end_to_end(),
                "{}",
                direct.target()
            );
            assert_eq!(direct.body, relayed.body, "{}", direct.target());
        }
        printed
    }
}
