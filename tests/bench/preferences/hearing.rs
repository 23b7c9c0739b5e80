//! Hearing: which messages become a wish in force, a proposed wish or a memory.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use metaclaw_chat::AgentId;
use metaclaw_skills::{
    LessonState, Library, MemoryConfig, MemoryScope, MemoryStore, Origin, Remembered, SkillsConfig,
    WishesConfig, hear, plain_facts,
};
use serde::Deserialize;

use crate::report::Table;

const OWN: &str = include_str!("../../../skills/testdata/told.jsonl");
const ASKED: &str = include_str!("../../../skills/testdata/asked.tsv");
const COLUMNS: &[&str] = &[
    "wish in force",
    "proposed",
    "memory",
    "in force or memory",
    "any",
];

/// A message of our own set.
#[derive(Debug, Deserialize)]
struct Told {
    text: String,
    kind: String,
    lang: String,
    half: String,
}

/// One entry of PrefEval's explicit preferences.
#[derive(Debug, Deserialize)]
struct Entry {
    preference: String,
    question: String,
}

struct Hearer {
    library: Library,
    memory: MemoryStore,
    n_owners: usize,
    lists: bool,
}

pub fn run(data: Option<&Path>, lists: bool) -> Result<()> {
    let home = tempfile::tempdir()?;
    let (library, _) = Library::open(
        home.path().join("skills"),
        SkillsConfig::default(),
        WishesConfig::default(),
    );
    let mut hearer = Hearer {
        library,
        memory: MemoryStore::open(home.path().join("memory"), MemoryConfig::default()),
        n_owners: 0,
        lists,
    };
    let mut table = Table::new(COLUMNS);
    for line in OWN.lines() {
        let told: Told = serde_json::from_str(line)?;
        let is_kept = matches!(&*told.kind, "preference" | "manner");
        let row = format!("own, {}, {}, {}", told.half, told.kind, told.lang);
        table.count(&row, &hearer.hear(&told.text, is_kept)?);
    }
    for line in ASKED.lines() {
        let (kind, text) = line.split_once('\t').context("no kind in asked.tsv")?;
        let heard = hearer.hear(text, kind != "question")?;
        table.count(&format!("own, about answers, {kind}"), &heard);
    }
    if let Some(data) = data {
        for entry in entries(data)? {
            let heard = hearer.hear(&entry.preference, true)?;
            table.count("PrefEval, stated preferences", &heard);
            let heard = hearer.hear(&entry.question, false)?;
            table.count("PrefEval, questions", &heard);
        }
    }
    table.print();
    Ok(())
}

fn entries(data: &Path) -> Result<Vec<Entry>> {
    let folder = data.join("benchmark_dataset/explicit_preference");
    let files = fs::read_dir(&folder).with_context(|| format!("{} is no folder", folder.display()));
    let mut paths = files?
        .map(|file| Ok(file?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    let mut entries = Vec::new();
    for path in paths {
        let read: Vec<Entry> = serde_json::from_str(&fs::read_to_string(&path)?)
            .with_context(|| path.display().to_string())?;
        entries.extend(read);
    }
    Ok(entries)
}

impl Hearer {
    /// Hears the first message of a new owner. Returns what it became, a cell for each column.
    fn hear(&mut self, said: &str, is_kept: bool) -> Result<[bool; 5]> {
        self.n_owners += 1;
        let agent: AgentId = format!("owner{}", self.n_owners).parse()?;
        let origin = Origin {
            agent,
            session: Some("first".parse()?),
            turn: None,
            sender: None,
            at_ms: 1,
        };
        let lessons = self.library.learn_new(&hear(said, false), &origin)?;
        let is_in = |state: &LessonState| lessons.iter().any(|one| one.state == *state);
        let in_force = is_in(&LessonState::InForce);
        let is_review =
            |one: &metaclaw_skills::Lesson| matches!(one.state, LessonState::Review { .. });
        let proposed = lessons.iter().any(is_review);
        let mut remembered = false;
        for fact in plain_facts([said]) {
            let scope = MemoryScope::default();
            let one = self.memory.remember(&fact, &scope, origin.clone())?;
            remembered |= matches!(one, Remembered::New(_));
        }
        let kept = in_force || remembered;
        let any = kept || proposed;
        if self.lists && kept != is_kept || self.lists && !is_kept && any {
            let of = if is_kept { "missed" } else { "false" };
            println!("{of} {in_force} {proposed} {remembered}: {said}");
        }
        Ok([in_force, proposed, remembered, kept, any])
    }
}
