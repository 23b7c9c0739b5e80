//! Restraint: which of an owner's memories a request gets.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context as _, Result};
use metaclaw_chat::AgentId;
use metaclaw_skills::{MemoryConfig, MemoryKind, MemoryScope, MemoryStore};
use serde::Deserialize;

use crate::report::Table;

const OWN: &str = include_str!("../../../skills/testdata/recalled.jsonl");
const COLUMNS: &[&str] = &["in the prompt"];

/// A request of our own set, with memories that it should get and others.
#[derive(Debug, Deserialize)]
struct Asked {
    request: String,
    get: Vec<String>,
    leave: Vec<String>,
    lang: String,
    half: String,
}

/// A request of RPEval, with one trait or several.
#[derive(Debug, Deserialize)]
struct Entry {
    question: String,
    persona: OneOrMany,
    intent_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

pub fn run(data: Option<&Path>, lists: bool) -> Result<()> {
    let home = tempfile::tempdir()?;
    let store = MemoryStore::open(home.path(), MemoryConfig::default());
    let mut table = Table::new(COLUMNS);
    let mut n_owners = 0;
    let mut owner = |request: &str, traits: &[(&str, String)]| -> Result<Vec<bool>> {
        n_owners += 1;
        let agent: AgentId = format!("owner{n_owners}").parse()?;
        let all: Vec<&str> = traits.iter().map(|(told, _)| *told).collect();
        let got = recalled(&store, &agent, &all, request)?;
        for ((told, row), got) in traits.iter().zip(&got).filter(|_| lists) {
            println!("{row}: {got}: {request} <- {told}");
        }
        Ok(got)
    };
    for line in OWN.lines() {
        let asked: Asked = serde_json::from_str(line)?;
        let row = |label: &str| format!("own, {}, {label}, {}", asked.half, asked.lang);
        let get = asked.get.iter().map(|told| (&**told, row("to get")));
        let leave = asked.leave.iter().map(|told| (&**told, row("to leave")));
        let traits: Vec<(&str, String)> = get.chain(leave).collect();
        for ((_, row), got) in traits.iter().zip(owner(&asked.request, &traits)?) {
            table.count(row, &[got]);
        }
    }
    if let Some(data) = data {
        for (n, entry) in entries(data)?.iter().enumerate() {
            let half = if n % 2 == 0 { "tune" } else { "held out" };
            let (set, told) = match &entry.persona {
                OneOrMany::One(told) => ("one trait", std::slice::from_ref(told)),
                OneOrMany::Many(told) => ("several", &told[..]),
            };
            let labels: Vec<&str> = match &*entry.intent_type {
                "ignore" => vec!["ignore"],
                "support" => vec!["support"],
                "dominate" => vec!["dominate"],
                letters => letters.chars().map(label).collect::<Result<_>>()?,
            };
            let row = |label: &str| format!("{half}, {set}, {label}");
            let traits: Vec<(&str, String)> = (told.iter().zip(&labels))
                .map(|(told, label)| (&**told, row(label)))
                .collect();
            let got = owner(&entry.question, &traits)?;
            for (((_, row), label), got) in traits.iter().zip(&labels).zip(got) {
                table.count(&format!("RPEval, {row}"), &[got]);
                table.count(&format!("RPEval, {half}, {label}"), &[got]);
                table.count(&format!("RPEval, {label}"), &[got]);
            }
        }
    }
    table.print();
    timing(&store)
}

fn label(letter: char) -> Result<&'static str> {
    match letter {
        'A' => Ok("ignore"),
        'B' => Ok("support"),
        'C' => Ok("dominate"),
        other => anyhow::bail!("{other:?} is none of A, B and C"),
    }
}

fn entries(data: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in ["single", "multi"] {
        let path = data.join(format!(
            "benchmark_dataset/explicit_preference/{file}_testset.json"
        ));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        entries.extend(serde_json::from_str::<Vec<Entry>>(&text)?);
    }
    Ok(entries)
}

/// Gives an agent these memories. Returns which of them a request gets.
fn recalled(
    store: &MemoryStore,
    agent: &AgentId,
    told: &[&str],
    request: &str,
) -> Result<Vec<bool>> {
    let scope = MemoryScope::default();
    for one in told {
        store.write_down(agent, &scope, MemoryKind::Semantic, one, false)?;
    }
    let recall = store.recall(agent, &scope, request)?;
    let block = recall.block.unwrap_or_default();
    Ok(told.iter().map(|one| block.contains(one)).collect())
}

/// Prints how long the choice of memories takes.
fn timing(store: &MemoryStore) -> Result<()> {
    let asked: Vec<Asked> = OWN
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let told: Vec<&String> = asked
        .iter()
        .flat_map(|a| a.get.iter().chain(&a.leave))
        .collect();
    for n in [100, 1_000] {
        let agent: AgentId = format!("timed{n}").parse()?;
        let scope = MemoryScope::default();
        for (at, told) in told.iter().cycle().take(n).enumerate() {
            let told = format!("{told} ({at})");
            store.write_down(&agent, &scope, MemoryKind::Semantic, &told, false)?;
        }
        store.recall(&agent, &scope, "warm")?;
        let start = Instant::now();
        for one in &asked {
            store.recall(&agent, &scope, &one.request)?;
        }
        let each = start.elapsed() / u32::try_from(asked.len())?;
        println!("recall among {n} memories: {} µs", each.as_micros());
    }
    Ok(())
}
