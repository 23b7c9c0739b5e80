//! The lock of the library's folder. Several proxies of one home folder (`--port`) share it, and each change of lessons
//! reads a file and writes it again.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::journal::JournalError;

/// The file's name. A name with a dot is no lesson.
const FILE: &str = ".lock";

/// Waits until no other process or thread changes lessons. The lock is held while the returned file is open.
pub(crate) fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join(FILE);
    let locked = fs::create_dir_all(dir).and_then(|()| {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|source| JournalError { path, source })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use metaclaw_chat::AgentId;

    use crate::{Library, SkillsConfig, WishesConfig};

    const EACH: u64 = 25;

    /// Two libraries in one process know as little about each other as two processes.
    #[test]
    fn two_writers_lose_nothing_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
            Library::open(dir.path(), skills, wishes).0
        };
        let agent: AgentId = "main".parse().unwrap();
        let write = |who: &str| {
            let library = open();
            for n in 0..EACH {
                let wish = format!("Mention {who}{n}.");
                let lesson = library.write_down(&agent, &wish, n).unwrap();
                assert!(lesson.is_some());
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| write("a"));
            scope.spawn(|| write("b"));
        });
        let library = open();
        let lessons = library.journal().unwrap();
        let numbers: Vec<u64> = lessons.iter().map(|it| it.n).collect();
        assert_eq!(numbers, (1..=2 * EACH).collect::<Vec<_>>());
        let mut learned: Vec<_> = lessons.into_iter().map(|it| it.wish).collect();
        let mut standing: Vec<_> = library
            .own_wishes(&agent)
            .into_iter()
            .map(|it| it.text)
            .collect();
        learned.sort();
        standing.sort();
        assert_eq!(standing, learned);
    }
}
