//! What the tests need from outside the checkout, and where `cargo xtask test` has put it.
//!
//! A test that needs some of it is `#[ignore = "needs .., cargo xtask test --all runs it"]`, and fails where it is asked
//! to run without.

use std::{fmt::Write as _, path::PathBuf, str::FromStr};

use sha2::{Digest as _, Sha256};

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

/// The folder into which the training server has converted that file; it has the model's tokenizer.
///
/// # Panics
/// Where no training server was ready with the model before.
pub fn converted() -> PathBuf {
    let cache = std::env::var_os("METACLAW_CACHE").map(PathBuf::from);
    let default = || std::env::home_dir().map(|home| home.join(".cache/metaclaw"));
    let cache = cache.or_else(default).expect("METACLAW_CACHE or HOME");
    let file = std::fs::read(model()).expect("a model that can be read");
    let mut sha = String::new();
    for byte in Sha256::digest(file) {
        // Writing to a String cannot fail.
        let _ = write!(sha, "{byte:02x}");
    }
    let converted = std::fs::read_dir(cache.join("gguf")).into_iter().flatten();
    let mut folders = converted.flatten().map(|entry| entry.path());
    let is_it = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&sha) && folder.join("tokenizer.json").is_file()
    };
    let found = folders.find(is_it);
    found.unwrap_or_else(|| panic!("no {sha} in {}", cache.join("gguf").display()))
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

pub fn codex() -> PathBuf {
    needed("METACLAW_TEST_CODEX")
}

pub fn opencode() -> PathBuf {
    needed("METACLAW_TEST_OPENCODE")
}

/// Hermes: the folder of its virtual environment.
pub fn hermes() -> PathBuf {
    needed("METACLAW_TEST_HERMES")
}

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
/// When it is set to something else than a number; so do the others.
pub fn seed() -> Option<u64> {
    number("METACLAW_TEST_SEED")
}

/// How many of the prepared conversations a test is to have, where there are more than it takes time for.
pub fn talks() -> Option<usize> {
    number("METACLAW_TEST_TALKS")
}

/// How many adapters a test is to put in one another's place.
pub fn swaps() -> Option<usize> {
    number("METACLAW_TEST_SWAPS")
}

/// How many layers a large model with random weights is to have; none where it is not to be made.
pub fn layers() -> Option<usize> {
    number("METACLAW_TEST_LAYERS")
}

/// How often a test is to kill what it kills at random.
pub fn kills() -> Option<usize> {
    number("METACLAW_TEST_KILLS")
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let said = std::env::var_os(name)?;
    let number = said.to_str().and_then(|said| said.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name} is a number, not {}", said.display())))
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
