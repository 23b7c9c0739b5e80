//! An agent as its user has it, with a provider of her own, for `metaclaw wire` to change.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::room::{Room, run};

/// What stands in `notes.txt`, where the agent works.
pub const NOTE: &str = "The kettle is blue.";

/// One agent: where it is, what its user has set, and how it is asked.
#[derive(Debug, Clone, Copy)]
pub struct WiredAgent {
    /// As `metaclaw wire` knows it.
    pub id: &'static str,
    /// Its program, and the folder that comes first where programs are looked for.
    pub program: fn() -> Option<(PathBuf, PathBuf)>,
    /// Files of its home; `FORMER` stands for the address of its user's provider.
    pub files: &'static [(&'static str, &'static str)],
    /// Files that are not there before, and not after.
    pub added: &'static [&'static str],
    pub variables: &'static [(&'static str, &'static str)],
    /// What comes before the message.
    pub arguments: &'static [&'static str],
    /// What comes behind it.
    pub ending: &'static [&'static str],
    /// The tool that reads the note, and its arguments; none where the agent has no tools.
    pub call: Option<(&'static str, &'static str)>,
    /// Whether it asks its user's provider where the proxy is gone.
    pub falls_back: bool,
}

/// One that is set up, in a home of its own.
#[derive(Debug)]
pub struct SetUp {
    agent: WiredAgent,
    room: Room,
}

// === impl WiredAgent ===

impl WiredAgent {
    /// In a fresh home, with a provider at `former`, `http://HOST:PORT`; none where it is not installed.
    pub fn set_up(self, former: &str) -> Option<SetUp> {
        if (self.program)().is_none() {
            println!("{} is not installed: `cargo xtask agents` does it", self.id);
            return None;
        }
        let room = Room::new();
        for (file, text) in self.files {
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
        Some(SetUp { agent: self, room })
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
        let (program, path) = (self.agent.program)().expect("it is installed");
        let mut command = self.room.command(&program, &path);
        command
            .envs(self.agent.variables.iter().copied())
            .args(self.agent.arguments)
            .arg(text)
            .args(self.agent.ending);
        run(command).await
    }

    /// The files that are to be as they were: none for one that is not there.
    pub fn files(&self) -> BTreeMap<&'static str, Option<String>> {
        let set = self.agent.files.iter().map(|(file, _)| *file);
        let all = set.chain(self.agent.added.iter().copied());
        let home = self.room.home();
        all.map(|file| (file, read(&home.join(file)))).collect()
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
