//! What the tests need from outside the checkout, and where `cargo xtask test` has put it.

use std::path::PathBuf;

/// The folder that holds the built `metaclaw` and `metaclaw-trainer`.
pub fn bin_dir() -> Option<PathBuf> {
    place("METACLAW_TEST_BIN_DIR")
}

/// The demo model's GGUF file.
pub fn model() -> Option<PathBuf> {
    place("METACLAW_TEST_MODEL")
}

/// A Python that has the `openai` and `anthropic` packages.
pub fn python() -> Option<PathBuf> {
    place("METACLAW_TEST_PYTHON")
}

/// OpenClaw: the folder of its npm project, and the folder that holds the Node it needs.
pub fn openclaw() -> Option<(PathBuf, PathBuf)> {
    Some((
        place("METACLAW_TEST_OPENCLAW")?,
        place("METACLAW_TEST_NODE")?,
    ))
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

fn place(name: &str) -> Option<PathBuf> {
    let place = std::env::var_os(name).map(PathBuf::from)?;
    assert!(
        place.exists(),
        "{name} is set to {}, where nothing is",
        place.display()
    );
    Some(place)
}

/// Takes what a test needs or ends the test with the reason printed.
#[macro_export]
macro_rules! need {
    ($what:expr) => {
        match $what {
            Some(found) => found,
            None => {
                eprintln!(
                    "skipped: {} is not set; `cargo xtask test` sets it",
                    stringify!($what)
                );
                return;
            }
        }
    };
}
