//! Skills of an old home, and the history of those that a model wrote.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use metaclaw_chat::one_line;
use metaclaw_settings::write_private;
use metaclaw_skills::{HistoryEntry, Skill, SkillName, read_text};
use serde::Deserialize;

use super::{
    item::{MigratedKind, MigrationOutcome},
    old_home::real,
    work::Migration,
};

const SKILL: &str = "SKILL.md";
const SHARED: &str = "_shared";
/// Why a link is left.
const LINK: &str = "it is a link, which may lead to a file that is no part of the skill: copy what it names yourself";
const HISTORY: &str = "evolution_history.jsonl";
/// The largest SKILL.md, as the library reads it.
const MAX_SKILL: u64 = 256 << 10;
/// The largest history, and the largest file of skills in version 0.1's form.
const MAX_FILE: u64 = 16 << 20;
/// The places of a file of skills in version 0.1's form.
const LEGACY: [&str; 2] = [
    "conversation_skills.json",
    "memory_data/conversation/conversation_skills.json",
];

/// A skill's folder, and its place below the library.
struct SkillFolder {
    from: PathBuf,
    /// `name`, `_shared/name` or `agent/name`.
    place: PathBuf,
}

/// Version 0.1's skills, all in one file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LegacySkills {
    general_skills: Vec<LegacySkill>,
    task_specific_skills: BTreeMap<String, Vec<LegacySkill>>,
    common_mistakes: Vec<LegacySkill>,
}

#[derive(Debug, Deserialize)]
struct LegacySkill {
    name: String,
    description: String,
    content: String,
}

/// Copies the skills of the old libraries.
pub(super) fn take(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    for library in libraries(migration) {
        for folder in folders(&library, Path::new("")) {
            take_skill(migration, &folder)?;
        }
    }
    for (agent, library) in migration.old.of_agents("skills_dir") {
        if !is_own(migration, &library) {
            for folder in folders(&library, Path::new(agent.as_str())) {
                take_skill(migration, &folder)?;
            }
        }
    }
    take_legacy_skills(migration)
}

/// The old home's library, and the one that its settings name, where that is another folder.
fn libraries(migration: &Migration<'_>) -> Vec<PathBuf> {
    let own = migration.old.dir.join("skills");
    let named = migration.old.texts.get("skills.dir");
    let named = named.map(|text| migration.old.place(text));
    let named = named.filter(|dir| real(dir) != real(&own) && !is_own(migration, dir));
    [own].into_iter().chain(named).collect()
}

fn is_own(migration: &Migration<'_>, library: &Path) -> bool {
    real(library) == real(&migration.home.skills())
}

fn take_skill(migration: &mut Migration<'_>, folder: &SkillFolder) -> anyhow::Result<()> {
    let name = folder.place.display().to_string();
    let outcome = check(migration, folder).unwrap_or_else(MigrationOutcome::Left);
    if migration.writes && outcome == MigrationOutcome::Taken {
        let to = migration.home.skills().join(&folder.place);
        copy_folder(&folder.from, &to)
            .with_context(|| format!("cannot copy {}", folder.from.display()))?;
    }
    let mut links = Vec::new();
    if outcome == MigrationOutcome::Taken {
        find_links(&folder.from, &folder.place, &mut links)?;
    }
    migration.note(MigratedKind::Skill, name, outcome);
    for link in links {
        let left = MigrationOutcome::Left(LINK.to_owned());
        migration.note(MigratedKind::Skill, link.display().to_string(), left);
    }
    Ok(())
}

/// Finds the links in a skill's folder, which are not copied.
fn find_links(from: &Path, place: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place) = (entry.file_type()?, place.join(entry.file_name()));
        if kind.is_dir() {
            find_links(&entry.path(), &place, found)?;
        } else if kind.is_symlink() {
            found.push(place);
        }
    }
    found.sort();
    Ok(())
}

/// Says what becomes of a skill; an error is the reason why it is left.
fn check(migration: &Migration<'_>, folder: &SkillFolder) -> Result<MigrationOutcome, String> {
    let file = folder.from.join(SKILL);
    // The folder of the library may be a link, and what is below it may not.
    let below = file.ancestors().take(1 + folder.place.iter().count());
    if below.into_iter().any(Path::is_symlink) {
        return Err(LINK.to_owned());
    }
    let text = read_text(&file, MAX_SKILL).map_err(|it| it.to_string())?;
    Skill::parse(&text).map_err(|error| error.to_string())?;
    for part in folder.place.iter().filter(|part| *part != SHARED) {
        let part = part.to_string_lossy();
        part.parse::<SkillName>()
            .map_err(|error| error.to_string())?;
    }
    Ok(beside(migration, &folder.place, &text))
}

/// Compares a skill with those of the new home that all agents have, if it is for all too, or with the agent's.
fn beside(migration: &Migration<'_>, place: &Path, text: &str) -> MigrationOutcome {
    let library = migration.home.skills();
    let mut places = vec![place.to_owned()];
    if place.parent() == Some(Path::new("")) {
        places.push(Path::new(SHARED).join(place));
    }
    if let Ok(name) = place.strip_prefix(SHARED) {
        places.push(name.to_owned());
    }
    for place in places {
        match read_text(&library.join(&place).join(SKILL), MAX_SKILL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(own) if own == text => return MigrationOutcome::Present,
            Ok(_) | Err(_) => {
                let why = format!("{} is another one, which stays", place.display());
                return MigrationOutcome::Kept(why);
            }
        }
    }
    MigrationOutcome::Taken
}

/// Takes skills of version 0.1, each into a file of its own.
fn take_legacy_skills(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    for place in LEGACY {
        let path = migration.old.dir.join(place);
        if !path.exists() {
            continue;
        }
        let text = read_text(&path, MAX_FILE);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let read = serde_json::from_str::<LegacySkills>(&text);
        let read = read.with_context(|| format!("cannot read {}", path.display()))?;
        for (category, skill) in read.all() {
            take_legacy_skill(migration, &category, &skill)?;
        }
    }
    Ok(())
}

fn take_legacy_skill(
    migration: &mut Migration<'_>,
    category: &str,
    skill: &LegacySkill,
) -> anyhow::Result<()> {
    let text = skill.file(category);
    let outcome = match skill.name.parse::<SkillName>() {
        Err(error) => MigrationOutcome::Left(error.to_string()),
        Ok(_) if Skill::parse(&text).is_err() => {
            MigrationOutcome::Left("it has no description".to_owned())
        }
        Ok(name) => beside(migration, Path::new(name.as_str()), &text),
    };
    if migration.writes && outcome == MigrationOutcome::Taken {
        let folder = migration.home.skills().join(skill.name.trim());
        fs::create_dir_all(&folder)?;
        write_private(&folder.join(SKILL), text.as_bytes())?;
    }
    migration.note(MigratedKind::Skill, skill.name.trim(), outcome);
    Ok(())
}

/// Adds the lines of the old history that the new one does not have.
pub(super) fn take_history(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    let to = migration.home.skills().join(HISTORY);
    let mut text = match read_text(&to, MAX_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", to.display()))?,
    };
    let mut known: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let (mut n_taken, mut n_present, mut n_damaged) = (0_usize, 0_usize, 0_usize);
    for library in libraries(migration) {
        let from = library.join(HISTORY);
        let lines = match read_text(&from, MAX_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.with_context(|| format!("cannot read {}", from.display()))?,
        };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            if known.contains(line) {
                n_present += 1;
            } else if serde_json::from_str::<HistoryEntry>(line).is_err() {
                n_damaged += 1;
            } else {
                n_taken += 1;
                known.insert(line.to_owned());
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    if migration.writes && n_taken > 0 {
        fs::create_dir_all(migration.home.skills())?;
        write_private(&to, text.as_bytes())?;
    }
    let damaged = MigrationOutcome::Left("they are no lines of a history".to_owned());
    for (n, outcome) in [
        (n_taken, MigrationOutcome::Taken),
        (n_present, MigrationOutcome::Present),
        (n_damaged, damaged),
    ] {
        if n > 0 {
            let lines = if n == 1 { "line" } else { "lines" };
            migration.note(
                MigratedKind::History,
                format!("{n} {lines} of {HISTORY}"),
                outcome,
            );
        }
    }
    Ok(())
}

/// The skills of a library's folder: `name/SKILL.md`, `_shared/name/SKILL.md`, `agent/name/SKILL.md`.
fn folders(library: &Path, below: &Path) -> Vec<SkillFolder> {
    let mut found = Vec::new();
    for name in names(library) {
        let from = library.join(&name);
        let place = below.join(&name);
        if from.join(SKILL).is_file() {
            found.push(SkillFolder { from, place });
        } else if below.as_os_str().is_empty() {
            let own = |skill: String| SkillFolder {
                from: from.join(&skill),
                place: place.join(skill),
            };
            let skills = names(&from).into_iter().map(own);
            found.extend(skills.filter(|it| it.from.join(SKILL).is_file()));
        }
    }
    found
}

/// The folders in a folder, in order, without hidden ones.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.path().is_dir();
    let named = entries.filter(is_folder).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        (!name.starts_with('.')).then_some(name)
    });
    let mut names: Vec<String> = named.collect();
    names.sort();
    names
}

/// Copies the files of a folder and of the folders in it, but no links. The copy appears whole or not at all.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let draft = to.with_file_name(format!(".{name}.tmp"));
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    copy_files(from, &draft)?;
    fs::rename(&draft, to)
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let to = to.join(entry.file_name());
        if kind.is_dir() {
            copy_files(&entry.path(), &to)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

// === impl LegacySkills ===

impl LegacySkills {
    /// All of them, each with its category.
    fn all(self) -> Vec<(String, LegacySkill)> {
        let mut all = Vec::new();
        let mut add = |category: &str, skills: Vec<LegacySkill>| {
            all.extend(skills.into_iter().map(|it| (category.to_owned(), it)));
        };
        add("general", self.general_skills);
        for (category, skills) in self.task_specific_skills {
            add(&category, skills);
        }
        add("common_mistakes", self.common_mistakes);
        all
    }
}

// === impl LegacySkill ===

impl LegacySkill {
    /// The text of its SKILL.md, as the Python MetaClaw writes it.
    fn file(&self, category: &str) -> String {
        let mut text = format!(
            "---\nname: {}\ndescription: {}\n",
            one_line(&self.name),
            one_line(&self.description)
        );
        if category != "general" {
            let _ = writeln!(text, "category: {}", one_line(category));
        }
        let _ = write!(text, "---\n\n{}\n", self.content.trim());
        text
    }
}
