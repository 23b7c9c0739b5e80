//! What the tests need from outside the checkout, and where `cargo xtask test` has put it.
//!
//! A test that needs some of it is `#[ignore = "needs .., cargo xtask test --all runs it"]`, and fails where it is asked
//! to run without.

use std::path::PathBuf;

/// The folder that holds the built `metaclaw` and `metaclaw-trainer`.
///
/// # Panics
/// When nobody says where; so do the others.
pub fn bin_dir() -> PathBuf {
    needed("METACLAW_TEST_BIN_DIR")
}

/// The demo model's GGUF file.
pub fn model() -> PathBuf {
    needed("METACLAW_TEST_MODEL")
}

/// A Python that has the `openai` and `anthropic` packages.
pub fn python() -> PathBuf {
    needed("METACLAW_TEST_PYTHON")
}

/// A Python that has the `tinker` package, and not `transformers`.
pub fn tinker() -> PathBuf {
    needed("METACLAW_TEST_TINKER")
}

/// A Python that has the `wandb` package; none where pip could not install it.
pub fn wandb() -> Option<PathBuf> {
    place("METACLAW_TEST_WANDB")
}

/// A Python that runs vLLM; none where this machine has too little memory or no network for it.
pub fn vllm() -> Option<PathBuf> {
    place("METACLAW_TEST_VLLM")
}

/// OpenClaw: the folder of its npm project, and the folder that holds the Node it needs.
pub fn openclaw() -> (PathBuf, PathBuf) {
    (
        needed("METACLAW_TEST_OPENCLAW"),
        needed("METACLAW_TEST_NODE"),
    )
}

/// Claude Code: the folder of its npm project. It runs in OpenClaw's Node.
pub fn claude_code() -> PathBuf {
    needed("METACLAW_TEST_CLAUDE_CODE")
}

/// Codex: the same.
pub fn codex() -> PathBuf {
    needed("METACLAW_TEST_CODEX")
}

/// opencode: the same.
pub fn opencode() -> PathBuf {
    needed("METACLAW_TEST_OPENCODE")
}

/// Hermes: the folder of its virtual environment.
pub fn hermes() -> PathBuf {
    needed("METACLAW_TEST_HERMES")
}

/// nanobot: the same.
pub fn nanobot() -> PathBuf {
    needed("METACLAW_TEST_NANOBOT")
}

/// nginx, for `cargo xtask bench relay`.
pub fn nginx() -> Option<PathBuf> {
    place("METACLAW_BENCH_NGINX")
}

/// LiteLLM's command, for the same.
pub fn litellm() -> Option<PathBuf> {
    place("METACLAW_BENCH_LITELLM")
}

/// The seed that a test with random choices is to use, to see again what it printed.
///
/// # Panics
/// When it is set to something else than a number.
pub fn seed() -> Option<u64> {
    let seed = std::env::var_os("METACLAW_TEST_SEED")?;
    let number = seed.to_str().and_then(|seed| seed.parse().ok());
    Some(number.unwrap_or_else(|| panic!("METACLAW_TEST_SEED is a number, not {}", seed.display())))
}

/// How many of the prepared conversations a test is to have, where there are more than it takes time for.
///
/// # Panics
/// When it is set to something else than a number.
pub fn talks() -> Option<usize> {
    let talks = std::env::var_os("METACLAW_TEST_TALKS")?;
    let number = talks.to_str().and_then(|talks| talks.parse().ok());
    Some(
        number
            .unwrap_or_else(|| panic!("METACLAW_TEST_TALKS is a number, not {}", talks.display())),
    )
}

fn place(name: &str) -> Option<PathBuf> {
    let place = std::env::var_os(name).map(PathBuf::from)?;
    assert!(
        place.exists(),
        "{name} is set to {}, where nothing is",
        place.display()
    );
    Some(place)
}

fn needed(name: &str) -> PathBuf {
    place(name).unwrap_or_else(|| panic!("{name} is not set: `cargo xtask test` sets it"))
}
