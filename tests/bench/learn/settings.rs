//! The common settings of the runs of one folder, and their total time.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use metaclaw_tests::external;
use serde::{Deserialize, Serialize};

use crate::{content, content::Content, judge::JudgeKind, rows};

/// What must be the same for runs in one table, and the time that they took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// The size and time of the product's programs.
    build: String,
    /// A hash of the wishes, questions, probes and rows.
    content: u64,
    n_test: usize,
    judge: JudgeKind,
    /// The time of all processes that added to it.
    pub minutes: f64,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings of the folder, if they belong to this build and content; else this build's, in a new
    /// folder.
    pub fn of(out: &Path, content: &Content, judge: JudgeKind) -> Result<Self> {
        let bin_dir = external::bin_dir();
        let build = ["metaclaw", "metaclaw-trainer-engine"].map(|name| build(&bin_dir, name));
        let [proxy, engine] = build;
        let own = Self {
            build: format!("{}, {}", proxy?, engine?),
            content: stamp(),
            n_test: content.test.len(),
            judge,
            minutes: 0.0,
        };
        let file = file(out);
        if !file.exists() {
            own.write(out)?;
            return Ok(own);
        }
        let before = Self::read(out).with_context(|| {
            format!(
                "{} is none of this bench: --again removes it",
                file.display()
            )
        })?;
        ensure!(
            (&before.build, before.content, before.n_test, before.judge)
                == (&own.build, own.content, own.n_test, own.judge),
            "{} has runs of another build, other questions, rows or another judge: --again removes them, --out names another folder\n{before:?}\n{own:?}",
            out.display()
        );
        Ok(before)
    }

    pub fn read(out: &Path) -> Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file(out))?)?)
    }

    pub fn write(&self, out: &Path) -> Result<()> {
        let file = file(out);
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn file(out: &Path) -> PathBuf {
    out.join("settings.json")
}

/// Returns an identity of a build.
fn build(folder: &Path, name: &str) -> Result<String> {
    let binary = folder.join(name);
    let file =
        fs::metadata(&binary).with_context(|| format!("{} is not there", binary.display()))?;
    Ok(format!(
        "{name} of {} bytes of {:?}",
        file.len(),
        file.modified()?
    ))
}

/// Returns a number that changes with any file of the bench's content.
fn stamp() -> u64 {
    // The hash is FNV-1a, which is the same in every build.
    let texts = content::FILES.iter().chain([&rows::ROWS]);
    let bytes = texts.flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
