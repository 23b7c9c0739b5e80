//! The two families of tasks. Each has its own wordings and values for training and for the held-out tasks.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{draw::SeededDraw, one_liners, share::Share, smart_home};

/// The tasks of a run that are trained on.
const N_TRAIN: usize = 240;
/// The held-out tasks, which are the same for all runs.
const N_HELD_OUT: usize = 64;
/// How often a wording is drawn again because the task exists already.
const DRAWS: usize = 10_000;

/// What the tasks are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchFamily {
    /// Requests in a home, each for one call of a tool (track `toolcall`).
    SmartHome,
    /// One-line commands in a shell (track `terminal`).
    OneLiners,
}

// === impl BenchFamily ===

impl BenchFamily {
    pub const ALL: [Self; 2] = [Self::SmartHome, Self::OneLiners];

    /// The name of the track that runs the tasks.
    pub fn track(self) -> &'static str {
        match self {
            Self::SmartHome => "toolcall",
            Self::OneLiners => "terminal",
        }
    }

    /// Returns tasks for a track. No two ask the same, and each kind has its share.
    pub fn tasks(self, share: Share, seed: u64) -> Vec<Value> {
        let n = match share {
            Share::Train => N_TRAIN,
            Share::HeldOut => N_HELD_OUT,
        };
        let mut draw = SeededDraw::new(seed);
        let mut asked = HashSet::new();
        let mut tasks = Vec::with_capacity(n);
        for i in 0..DRAWS {
            let mut task = match self {
                Self::SmartHome => smart_home::task(i, share, &mut draw),
                Self::OneLiners => one_liners::task(i, share, &mut draw),
            };
            if asked.insert(task["prompt"].to_string()) {
                task["id"] = json!(format!("{}-{}", share.name(), tasks.len()));
                tasks.push(task);
            }
            if tasks.len() == n {
                break;
            }
        }
        tasks
    }

    /// Writes the tasks and all files that they name into a folder.
    ///
    /// # Errors
    /// If there are too few wordings, or the folder cannot be written.
    pub fn write(self, folder: &Path, seed: u64) -> Result<()> {
        for (share, seed, n) in [
            (Share::Train, seed, N_TRAIN),
            (Share::HeldOut, 0, N_HELD_OUT),
        ] {
            let tasks = self.tasks(share, seed);
            ensure!(tasks.len() == n, "only {} different tasks", tasks.len());
            let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
            fs::write(
                folder.join(format!("{}.jsonl", share.name())),
                lines.join("\n") + "\n",
            )?;
        }
        if self == Self::SmartHome {
            fs::write(folder.join("tools.json"), smart_home::tools().to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_follow_from_the_seed_and_none_is_held_out_and_trained() {
        for family in BenchFamily::ALL {
            let train = family.tasks(Share::Train, 1);
            let held_out = family.tasks(Share::HeldOut, 0);
            assert_eq!((train.len(), held_out.len()), (N_TRAIN, N_HELD_OUT));
            assert_eq!(train, family.tasks(Share::Train, 1));
            assert_ne!(train, family.tasks(Share::Train, 2));
            let prompts: HashSet<&str> = train
                .iter()
                .filter_map(|it| it["prompt"].as_str())
                .collect();
            for task in &held_out {
                let prompt = task["prompt"].as_str().unwrap();
                assert!(!prompts.contains(prompt), "{prompt}");
            }
        }
    }
}
