//! The paths of what the tests need from outside the checkout, where `cargo xtask test` has put it.
//!
//! A test that needs one of them is `#[ignore = "needs .., cargo xtask test --all runs it"]`, and fails if it is run
//! without it.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use sha2::{Digest as _, Sha256};

/// A browser, and the npm project of its driver.
#[derive(Debug, Clone)]
pub struct ChromiumPlaces {
    pub program: PathBuf,
    pub driver: PathBuf,
}

/// Returns the folder with the built `metaclaw` and `metaclaw-trainer`.
///
/// # Panics
/// Panics if no variable names it; so do the others.
pub fn bin_dir() -> PathBuf {
    needed("METACLAW_TEST_BIN_DIR")
}

/// Returns the path of the demo model's GGUF file.
pub fn model() -> PathBuf {
    needed("METACLAW_TEST_MODEL")
}

/// Returns the folder into which the training server has converted the demo model; it has the model's tokenizer.
///
/// # Panics
/// Panics if no training server was ready with the model before.
pub fn converted() -> PathBuf {
    converted_from(&model())
}

/// The same of another GGUF file. A folder is returned as it is.
///
/// # Panics
/// The same.
pub fn converted_from(model: &Path) -> PathBuf {
    if model.is_dir() {
        return model.to_owned();
    }
    let cache = std::env::var_os("METACLAW_CACHE").map(PathBuf::from);
    let default = || std::env::home_dir().map(|home| home.join(".cache/metaclaw"));
    let cache = cache.or_else(default).expect("METACLAW_CACHE or HOME");
    let file = std::fs::read(model).expect("a model that can be read");
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

/// Returns a Python that has the `openai` and `anthropic` packages.
pub fn python() -> PathBuf {
    needed("METACLAW_TEST_PYTHON")
}

/// Returns a Python that has the `tinker` package, and not `transformers`.
pub fn tinker() -> PathBuf {
    needed("METACLAW_TEST_TINKER")
}

/// Returns a Python that has the `wandb` package, or `None` if pip could not install it.
pub fn wandb() -> Option<PathBuf> {
    place("METACLAW_TEST_WANDB")
}

/// Returns a Python that runs vLLM, or `None` if this machine has too little memory or no network for it.
pub fn vllm() -> Option<PathBuf> {
    place("METACLAW_TEST_VLLM")
}

/// Returns OpenClaw: the folder of its npm project, and the folder of the Node that it needs.
pub fn openclaw() -> (PathBuf, PathBuf) {
    (
        needed("METACLAW_TEST_OPENCLAW"),
        needed("METACLAW_TEST_NODE"),
    )
}

/// Returns the folder of the Node that runs OpenClaw and the browser's driver.
pub fn node() -> PathBuf {
    needed("METACLAW_TEST_NODE")
}

/// Returns Chromium and its driver, or `None` where there is none and xtask could not install it.
pub fn chromium() -> Option<ChromiumPlaces> {
    let program = place("METACLAW_TEST_CHROMIUM")?;
    let driver = needed("METACLAW_TEST_PLAYWRIGHT");
    Some(ChromiumPlaces { program, driver })
}

/// Returns the folder for pictures of the page, if they are wanted.
pub fn screenshots() -> Option<PathBuf> {
    place("METACLAW_TEST_SCREENSHOTS")
}

/// Returns Claude Code: the folder of its npm project. It runs with OpenClaw's Node.
pub fn claude_code() -> PathBuf {
    needed("METACLAW_TEST_CLAUDE_CODE")
}

pub fn codex() -> PathBuf {
    needed("METACLAW_TEST_CODEX")
}

pub fn opencode() -> PathBuf {
    needed("METACLAW_TEST_OPENCODE")
}

/// Returns Hermes: the folder of its virtual environment.
pub fn hermes() -> PathBuf {
    needed("METACLAW_TEST_HERMES")
}

pub fn nanobot() -> PathBuf {
    needed("METACLAW_TEST_NANOBOT")
}

/// Returns the virtual environment with the package verifiers.
pub fn verifiers() -> PathBuf {
    needed("METACLAW_TEST_VERIFIERS")
}

/// Returns the folder where an agent is installed. An optional one is there only in `cargo xtask agents`.
pub fn agent(id: &str, is_optional: bool) -> Option<PathBuf> {
    let name = format!("METACLAW_TEST_{}", id.to_uppercase().replace('-', "_"));
    if is_optional {
        place(&name)
    } else {
        Some(needed(&name))
    }
}

/// Returns a program that `cargo xtask bench relay` compares the proxy with, or `None` if it is not installed.
pub fn relay_peer(name: &str) -> Option<PathBuf> {
    place(&format!("METACLAW_BENCH_{}", name.to_uppercase()))
}

/// Returns the seed for a test with random choices, to repeat a run that printed it.
///
/// # Panics
/// Panics if it is set to something else than a number; so do the others.
pub fn seed() -> Option<u64> {
    number("METACLAW_TEST_SEED")
}

/// Returns how many of the prepared conversations a test runs, if all would take too long.
pub fn talks() -> Option<usize> {
    number("METACLAW_TEST_TALKS")
}

/// Returns how many adapters a test exchanges for each other.
pub fn swaps() -> Option<usize> {
    number("METACLAW_TEST_SWAPS")
}

/// Returns how many layers a large model with random weights has, or `None` if it is not wanted.
pub fn layers() -> Option<usize> {
    number("METACLAW_TEST_LAYERS")
}

/// Returns how often a test kills its process at random.
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
