//! Copies the skills of an old home.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use metaclaw_skills::{Skill, SkillName, read_text};

use super::{
    old_home::{OldHome, entry_names, real},
    report::{MigratedKind, MigrationOutcome, MigrationReport},
};
use crate::home::Home;

const SKILL: &str = "SKILL.md";
const SHARED: &str = "_shared";
const LINK: &str = "it is a link, which may lead to a file that is no part of the skill: copy what it names yourself";
/// The largest SKILL.md, as the library reads it.
const MAX_SKILL: u64 = 256 << 10;

/// A skill's folder, and its place below the library: `name`, `_shared/name` or `agent/name`.
struct SkillFolder {
    from: PathBuf,
    place: PathBuf,
}

pub(super) fn take(old: &OldHome, home: &Home, report: &mut MigrationReport) -> anyhow::Result<()> {
    let own = old.dir.join("skills");
    let named = old.texts.get("skills.dir").map(|text| old.place(text));
    let named = named.filter(|dir| real(dir) != real(&own));
    let mut libraries = vec![(PathBuf::new(), own)];
    libraries.extend(named.map(|dir| (PathBuf::new(), dir)));
    let agents = old.folders_of_agents("skills_dir").into_iter();
    libraries.extend(agents.map(|(agent, dir)| (agent.as_str().into(), dir)));
    let new = home.skills();
    libraries.retain(|(_, dir)| real(dir) != real(&new));
    for (below, library) in libraries {
        for folder in skill_folders(&library, &below) {
            take_skill(&folder, &new, report)
                .with_context(|| format!("cannot copy {}", folder.from.display()))?;
        }
    }
    Ok(())
}

fn take_skill(
    folder: &SkillFolder,
    library: &Path,
    report: &mut MigrationReport,
) -> io::Result<()> {
    let outcome =
        decide(folder, library).unwrap_or_else(|error| MigrationOutcome::Left(error.to_string()));
    let is_taken = outcome == MigrationOutcome::Taken;
    let name = folder.place.display().to_string();
    report.note(MigratedKind::Skill, name, outcome);
    if !is_taken {
        return Ok(());
    }
    let mut links = Vec::new();
    if report.dry_run {
        copy(&folder.from, None, &folder.place, &mut links)?;
    } else {
        // The copy gets its name only when it is complete.
        let to = library.join(&folder.place);
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let draft = to.with_file_name(format!(".{name}.tmp"));
        if draft.exists() {
            fs::remove_dir_all(&draft)?;
        }
        copy(&folder.from, Some(&draft), &folder.place, &mut links)?;
        fs::rename(&draft, &to)?;
    }
    links.sort();
    for link in links {
        let left = MigrationOutcome::Left(LINK.to_owned());
        report.note(MigratedKind::Skill, link.display().to_string(), left);
    }
    Ok(())
}

/// Says what becomes of a skill; an error is the reason why it is left.
fn decide(folder: &SkillFolder, library: &Path) -> anyhow::Result<MigrationOutcome> {
    let file = folder.from.join(SKILL);
    // The folder of the library may be a link, and what is below it may not.
    let mut below = file.ancestors().take(1 + folder.place.iter().count());
    anyhow::ensure!(!below.any(Path::is_symlink), LINK);
    let text = read_text(&file, MAX_SKILL)?;
    Skill::parse(&text)?;
    for part in folder.place.iter().filter(|part| *part != SHARED) {
        part.to_string_lossy().parse::<SkillName>()?;
    }
    // Skills for all agents lie in the library or in `_shared`, so both places are compared.
    let mut places = vec![folder.place.clone()];
    if let Ok(name) = folder.place.strip_prefix(SHARED) {
        places.push(name.to_owned());
    } else if folder.place.iter().count() == 1 {
        places.push(Path::new(SHARED).join(&folder.place));
    }
    for place in places {
        match read_text(&library.join(&place).join(SKILL), MAX_SKILL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(own) if own == text => return Ok(MigrationOutcome::Present),
            Ok(_) | Err(_) => {
                let why = format!("{} is another one, which stays", place.display());
                return Ok(MigrationOutcome::Kept(why));
            }
        }
    }
    Ok(MigrationOutcome::Taken)
}

/// Finds the skills of a library: `name/SKILL.md`, and in a library of all agents `_shared/name/SKILL.md` and
/// `agent/name/SKILL.md`.
fn skill_folders(library: &Path, below: &Path) -> Vec<SkillFolder> {
    let is_library = below.as_os_str().is_empty();
    let mut found = Vec::new();
    // A library that is not there has no skills.
    let names = entry_names(library).unwrap_or_default();
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        let folder = SkillFolder {
            from: library.join(name),
            place: below.join(name),
        };
        if folder.from.join(SKILL).is_file() {
            found.push(folder);
        } else if is_library {
            found.extend(skill_folders(&folder.from, &folder.place));
        }
    }
    found
}

/// Copies a folder with its subfolders to `to`. Without `to`, nothing is copied. Links are never copied: their places
/// are added to `links`.
fn copy(from: &Path, to: Option<&Path>, place: &Path, links: &mut Vec<PathBuf>) -> io::Result<()> {
    if let Some(to) = to {
        fs::create_dir_all(to)?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place) = (entry.file_type()?, place.join(entry.file_name()));
        let to = to.map(|to| to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), to.as_deref(), &place, links)?;
        } else if kind.is_symlink() {
            links.push(place);
        } else if let Some(to) = to.filter(|_| kind.is_file()) {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
