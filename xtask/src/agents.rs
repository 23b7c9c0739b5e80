//! Installs the agents that the end-to-end tests run beside OpenClaw, each in its own folder.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use metaclaw_fetch::pip::environment;

use crate::npm::install as install_npm;
use crate::report::Stage;

/// The one that `cargo xtask test` runs beside OpenClaw.
pub(crate) const FIRST: &[Agent] = &[npm(
    "claude-code",
    "METACLAW_TEST_CLAUDE_CODE",
    "@anthropic-ai/claude-code@2.1.331",
)];

/// Each takes up to half a minute to download, and two minutes if pip compiles, so they are downloaded at the same
/// time.
pub(crate) const AGENTS: &[Agent] = &[
    npm("codex", "METACLAW_TEST_CODEX", "@openai/codex@0.169.0"),
    npm("opencode", "METACLAW_TEST_OPENCODE", "opencode-ai@1.18.33"),
    pip("hermes", "METACLAW_TEST_HERMES", &["hermes-agent==0.19.0"]),
    pip("nanobot", "METACLAW_TEST_NANOBOT", &["nanobot-ai==0.3.5"]),
    // No agent, but it runs them: environments for tasks.
    pip(
        "verifiers",
        "METACLAW_TEST_VERIFIERS",
        &["verifiers==0.3.1"],
    ),
];

pub(crate) const MORE: &[Agent] = &[
    pip(
        "copaw",
        "METACLAW_TEST_COPAW",
        &["copaw==1.0.2", "mcp<2", "openai<3"],
    ),
    pip(
        "qwenpaw",
        "METACLAW_TEST_QWENPAW",
        &["qwenpaw==2.2.2.post1"],
    ),
    pip("aider", "METACLAW_TEST_AIDER", &["aider-chat==0.86.2"]),
    pip("llm", "METACLAW_TEST_LLM", &["llm==0.36"]),
];

pub(crate) struct Agent {
    folder: &'static str,
    variable: &'static str,
    source: Source,
}

enum Source {
    Npm(&'static str),
    /// The agent first, then what it needs in another version than its newest.
    Pip(&'static [&'static str]),
}

const fn npm(folder: &'static str, variable: &'static str, package: &'static str) -> Agent {
    Agent {
        folder,
        variable,
        source: Source::Npm(package),
    }
}

const fn pip(
    folder: &'static str,
    variable: &'static str,
    packages: &'static [&'static str],
) -> Agent {
    Agent {
        folder,
        variable,
        source: Source::Pip(packages),
    }
}

/// Installs missing agents below `folder`. `node` is the folder of the Node to install under. Returns each agent's
/// folder with the variable that gives it to the tests.
pub(crate) fn install(
    agents: &'static [Agent],
    folder: &Path,
    node: &Path,
    stage: &mut Stage,
) -> Result<Vec<(&'static str, PathBuf)>> {
    let names: Vec<&str> = agents.iter().map(Agent::package).collect();
    stage.note = names.join(", ");
    thread::scope(|scope| {
        let start = |agent: &'static Agent| scope.spawn(|| agent.install(folder, node));
        let started: Vec<_> = agents.iter().map(start).collect();
        let panicked = |_| anyhow!("the installation of an agent panicked");
        let joined = started
            .into_iter()
            .map(|thread| thread.join().map_err(panicked)?);
        joined.collect()
    })
}

// === impl Agent ===

impl Agent {
    fn package(&self) -> &'static str {
        match self.source {
            Source::Npm(package) => package,
            Source::Pip(packages) => packages[0],
        }
    }

    fn install(&self, folder: &Path, node: &Path) -> Result<(&'static str, PathBuf)> {
        let folder = folder.join(self.folder);
        match self.source {
            Source::Npm(package) => install_npm(&folder, package, Some(node))?,
            Source::Pip(packages) => {
                let python = environment(&folder, packages);
                python.with_context(|| format!("cannot install {}", packages[0]))?;
            }
        }
        Ok((self.variable, folder))
    }
}
