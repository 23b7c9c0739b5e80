//! An agent as its user has it, with a provider of her own, for `metaclaw wire` to change.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::room::{Room, run};
use crate::external;

/// What stands in `notes.txt`, where the agent works.
pub const NOTE: &str = "The kettle is blue.";

/// One agent: where it is, what its user has set, and how it is asked. The file `it/agents/wired.yaml` says more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WiredAgent {
    /// As `metaclaw wire` knows it.
    pub id: String,
    /// Its program, in the folder where it is installed.
    program: PathBuf,
    #[serde(default)]
    is_optional: bool,
    files: BTreeMap<String, String>,
    #[serde(default)]
    added: Vec<String>,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    arguments: Vec<String>,
    #[serde(default)]
    ending: Vec<String>,
    pub call: Option<(String, String)>, // pair: a tool and its arguments
    #[serde(default)]
    pub falls_back: bool,
}

/// One that is set up, in a home of its own.
#[derive(Debug)]
pub struct SetUp {
    agent: &'static WiredAgent,
    folder: PathBuf,
    room: Room,
}

// === impl WiredAgent ===

impl WiredAgent {
    /// In a fresh home, with a provider at `former`, `http://HOST:PORT`; none where it is not installed.
    pub fn set_up(&'static self, former: &str) -> Option<SetUp> {
        let Some(folder) = external::agent(&self.id, self.is_optional) else {
            println!("{} is not installed: `cargo xtask agents` does it", self.id);
            return None;
        };
        let room = Room::new();
        for (file, text) in &self.files {
            room.configure(file, &text.replace("FORMER", former));
        }
        for folder in [
            room.work(),
            room.home(),
            room.home().join(".nanobot/workspace"),
        ] {
            std::fs::create_dir_all(&folder).expect("a writable home");
            std::fs::write(folder.join("notes.txt"), NOTE).expect("a writable home");
        }
        let agent = self;
        Some(SetUp {
            agent,
            folder,
            room,
        })
    }
}

// === impl SetUp ===

impl SetUp {
    /// The home of its user.
    pub fn home(&self) -> PathBuf {
        self.room.home()
    }

    /// Says this in a process of its own; what the agent says to it.
    pub async fn say(&self, text: &str) -> String {
        let program = self.folder.join(&self.agent.program);
        let path = if self.agent.program.starts_with("bin") {
            self.folder.join("bin")
        } else {
            external::node()
        };
        let mut command = self.room.command(&program, &path);
        command
            .envs(&self.agent.variables)
            .args(&self.agent.arguments)
            .arg(text)
            .args(&self.agent.ending);
        run(command).await
    }

    /// The files that are to be as they were: none for one that is not there.
    pub fn files(&self) -> BTreeMap<&'static str, Option<String>> {
        let all = self.agent.files.keys().chain(&self.agent.added);
        let home = self.room.home();
        all.map(|file| (&**file, read(&home.join(file)))).collect()
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
