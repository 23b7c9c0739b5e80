//! Installs the agents that the end-to-end tests run beside OpenClaw, each in its own folder.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use metaclaw_fetch::pip;

use crate::npm;

/// Each takes up to half a minute to download, and two minutes if pip compiles, so they are downloaded at the same
/// time.
const AGENTS: [Agent; 6] = [
    Agent {
        folder: "claude-code",
        variable: "METACLAW_TEST_CLAUDE_CODE",
        source: Source::Npm("@anthropic-ai/claude-code@2.1.331"),
    },
    Agent {
        folder: "codex",
        variable: "METACLAW_TEST_CODEX",
        source: Source::Npm("@openai/codex@0.169.0"),
    },
    Agent {
        folder: "opencode",
        variable: "METACLAW_TEST_OPENCODE",
        source: Source::Npm("opencode-ai@1.18.33"),
    },
    Agent {
        folder: "hermes",
        variable: "METACLAW_TEST_HERMES",
        source: Source::Pip(&["hermes-agent==0.19.0"]),
    },
    Agent {
        folder: "nanobot",
        variable: "METACLAW_TEST_NANOBOT",
        source: Source::Pip(&["nanobot-ai==0.3.5"]),
    },
    // No agent, but it runs them: environments for tasks.
    Agent {
        folder: "verifiers",
        variable: "METACLAW_TEST_VERIFIERS",
        source: Source::Pip(&["verifiers==0.3.1"]),
    },
];

/// Those that `cargo xtask agents` wires as well: 4 GB, too much for every run of CI.
const MORE: [Agent; 4] = [
    Agent {
        folder: "copaw",
        variable: "METACLAW_TEST_COPAW",
        source: Source::Pip(&["copaw==1.0.2", "mcp<2", "openai<3"]),
    },
    Agent {
        folder: "qwenpaw",
        variable: "METACLAW_TEST_QWENPAW",
        source: Source::Pip(&["qwenpaw==2.2.2.post1"]),
    },
    Agent {
        folder: "aider",
        variable: "METACLAW_TEST_AIDER",
        source: Source::Pip(&["aider-chat==0.86.2"]),
    },
    Agent {
        folder: "llm",
        variable: "METACLAW_TEST_LLM",
        source: Source::Pip(&["llm==0.36"]),
    },
];

/// An agent and its exact version.
struct Agent {
    folder: &'static str,
    /// The environment variable that gives the folder to the tests.
    variable: &'static str,
    source: Source,
}

enum Source {
    Npm(&'static str),
    /// The agent first, then what it needs in another version than its newest.
    Pip(&'static [&'static str]),
}

/// The packages, for the report.
pub(crate) fn names() -> String {
    packages(&AGENTS)
}

/// The same of those that `cargo xtask agents` adds.
pub(crate) fn names_of_more() -> String {
    packages(&MORE)
}

fn packages(agents: &[Agent]) -> String {
    let names = agents.iter().map(|agent| agent.source.package());
    names.collect::<Vec<_>>().join(", ")
}

/// Installs missing agents below `folder`. `node` is the folder of the Node to install under. Returns each agent's
/// folder with the variable that gives it to the tests.
pub(crate) fn ensure(folder: &Path, node: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    install(&AGENTS, folder, node)
}

/// The same for those that `cargo xtask agents` adds.
pub(crate) fn ensure_more(folder: &Path, node: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    install(&MORE, folder, node)
}

fn install(
    agents: &'static [Agent],
    folder: &Path,
    node: &Path,
) -> Result<Vec<(&'static str, PathBuf)>> {
    thread::scope(|scope| {
        let started: Vec<_> = agents
            .iter()
            .map(|agent| scope.spawn(|| agent.install(folder, node)))
            .collect();
        let joined = started.into_iter().map(|it| {
            it.join()
                .map_err(|_| anyhow!("the installation of an agent panicked"))?
        });
        joined.collect()
    })
}

// === impl Agent ===

impl Agent {
    fn install(&self, folder: &Path, node: &Path) -> Result<(&'static str, PathBuf)> {
        let folder = folder.join(self.folder);
        match self.source {
            Source::Npm(package) => npm::install(&folder, package, Some(node))?,
            Source::Pip(packages) => {
                pip::environment(&folder, packages)
                    .with_context(|| format!("cannot install {}", packages[0]))?;
            }
        }
        Ok((self.variable, folder))
    }
}

// === impl Source ===

impl Source {
    fn package(&self) -> &'static str {
        match self {
            Self::Npm(package) => package,
            Self::Pip(packages) => packages[0],
        }
    }
}
