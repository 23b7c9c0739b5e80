//! Adapters that PEFT wrote, as the training server of the Python MetaClaw's fork keeps them.
//!
//! An adapter is registered as a replay's is: under a name of the learner's form, with a checkpoint that has seen no turn of
//! ours. So it serves nobody until its owner says `metaclaw adapters use NAME` and the gate lets it through. The trainer
//! checks the numbers themselves when it loads them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, unix_ms};
use metaclaw_skills::read_text;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    item::{MigratedKind, MigrationOutcome},
    work::Migration,
};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT wrote before it had safetensors.
const PICKLE: &str = "adapter_model.bin";
/// How deep below a given folder adapters are looked for.
const DEPTH: usize = 3;
const MAX_CONFIG: u64 = 1 << 20;
/// The largest header of a safetensors file that is read.
const MAX_HEADER: u64 = 64 << 20;
/// The most numbers of one tensor.
const MAX_NUMBERS: u64 = 1 << 32;

/// An adapter of an old home that can be registered.
#[derive(Debug)]
pub(super) struct PeftAdapter {
    from: PathBuf,
    agent: AgentId,
    /// The name that it gets: AGENT-LINEAGE-000001.
    name: String,
    lineage: String,
    hash: String,
    config: PeftConfig,
    /// Shape of each tensor.
    tensors: BTreeMap<String, Vec<u64>>,
}

/// The fields of `adapter_config.json` that a manifest has too. The trainer reads all of them.
#[derive(Debug, Deserialize)]
struct PeftConfig {
    base_model_name_or_path: Option<String>,
    r: u32,
    lora_alpha: f64,
    target_modules: Vec<String>,
}

/// A tensor in the header of a safetensors file.
#[derive(Debug, Deserialize)]
struct HeaderTensor {
    shape: Vec<u64>,
}

/// Finds the adapters of the old home; those that cannot be taken are noted.
pub(super) fn find(migration: &mut Migration<'_>) -> Vec<PeftAdapter> {
    let mut found: Vec<PeftAdapter> = Vec::new();
    for (agent, folder) in migration.old.adapters.clone() {
        let mut places = Vec::new();
        collect(&folder, DEPTH, &mut places);
        for place in places {
            let read = PeftAdapter::read(&agent, &place);
            let read = read.and_then(|it| match found.iter().find(|twin| twin.name == it.name) {
                Some(twin) => {
                    let twin = twin.from.display();
                    Err(format!("it has the same content as {twin}"))
                }
                None => Ok(it),
            });
            match read {
                Ok(adapter) => found.push(adapter),
                Err(why) => {
                    let name = place.display().to_string();
                    migration.note(MigratedKind::Adapter, name, MigrationOutcome::Left(why));
                }
            }
        }
    }
    found
}

/// Registers adapters at the trainer.
pub(super) fn register(
    migration: &mut Migration<'_>,
    adapters: &[PeftAdapter],
) -> anyhow::Result<()> {
    for adapter in adapters {
        let folder = migration.checkpoints.join("adapters");
        let is_there = folder.join(&adapter.name).exists();
        let name = format!("{} (was {})", adapter.name, adapter.from.display());
        if is_there {
            migration.note(MigratedKind::Adapter, name, MigrationOutcome::Present);
            continue;
        }
        if migration.writes {
            let written = adapter.write(&migration.checkpoints);
            written.with_context(|| format!("cannot register {}", adapter.from.display()))?;
        }
        migration.note(MigratedKind::Adapter, name, MigrationOutcome::Taken);
    }
    Ok(())
}

/// Collects the folders with an adapter, at most `depth` below.
fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join(CONFIG).is_file() {
        found.push(folder.to_owned());
        return;
    }
    if depth == 0 {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |it: &fs::DirEntry| it.file_type().is_ok_and(|kind| kind.is_dir());
    let mut below: Vec<PathBuf> = entries.filter(is_folder).map(|it| it.path()).collect();
    below.sort();
    for folder in below {
        collect(&folder, depth - 1, found);
    }
}

// === impl PeftAdapter ===

impl PeftAdapter {
    /// Reads what an adapter is; an error is the reason why it is left.
    fn read(agent: &AgentId, from: &Path) -> Result<Self, String> {
        let weights = from.join(WEIGHTS);
        if !weights.is_file() {
            return Err(if from.join(PICKLE).exists() {
                format!(
                    "{PICKLE} is a pickle, which can contain a program and is not read: save it again with PEFT (`save_pretrained(.., safe_serialization=True)`)"
                )
            } else {
                format!("it has no {WEIGHTS}")
            });
        }
        let config = read_text(&from.join(CONFIG), MAX_CONFIG).map_err(|it| it.to_string())?;
        let config: PeftConfig =
            serde_json::from_str(&config).map_err(|error| format!("{CONFIG}: {error}"))?;
        if config.base_model_name_or_path.is_none() {
            return Err(format!("{CONFIG} names no base_model_name_or_path"));
        }
        let tensors = header(&weights).map_err(|error| format!("{WEIGHTS}: {error}"))?;
        let hash = hash([&from.join(CONFIG), &weights]).map_err(|error| error.to_string())?;
        let lineage = hash[..8].to_owned();
        Ok(Self {
            from: from.to_owned(),
            agent: agent.clone(),
            name: format!("{agent}-{lineage}-000001"),
            lineage,
            hash,
            config,
            tensors,
        })
    }

    /// Writes the adapter and its checkpoint below the trainer's folder, each whole or not at all.
    fn write(&self, checkpoints: &Path) -> io::Result<()> {
        place(&checkpoints.join("checkpoints"), &self.name, |draft| {
            self.copy(draft)?;
            self.moments(&draft.join("optimizer.safetensors"))?;
            write_json(&draft.join("state.json"), &self.state()?)?;
            write_json(&draft.join("manifest.json"), &self.manifest())
        })?;
        place(&checkpoints.join("adapters"), &self.name, |draft| {
            self.copy(draft)
        })
    }

    fn copy(&self, to: &Path) -> io::Result<()> {
        for file in [CONFIG, WEIGHTS] {
            fs::copy(self.from.join(file), to.join(file))?;
        }
        Ok(())
    }

    /// The state of an optimiser that made no step.
    fn state(&self) -> io::Result<Value> {
        let written = fs::metadata(self.from.join(WEIGHTS))?.modified()?;
        let created_ms = unix_ms(written);
        let line = format!("migrated-{}", self.lineage);
        Ok(json!({"format": 2, "step": 0, "seed": 0, "line": line, "created_ms": created_ms}))
    }

    fn manifest(&self) -> Value {
        json!({
            "agent": self.agent,
            "lineage": self.lineage,
            "n": 1,
            "turns": [],
            "hash": self.hash,
            "parent": null,
            "shape": {
                "base": self.config.base_model_name_or_path,
                "rank": self.config.r,
                "alpha": self.config.lora_alpha,
                "targets": self.config.target_modules,
            },
        })
    }

    /// Writes the moments of an optimiser that made no step: zeros, which take no space on most file systems.
    fn moments(&self, path: &Path) -> io::Result<()> {
        let mut header = Map::new();
        let mut end = 0_u64;
        for which in ["exp_avg", "exp_avg_sq"] {
            for (name, shape) in &self.tensors {
                let bytes = shape.iter().product::<u64>() * size_of::<f32>() as u64;
                let offsets = [end, end + bytes];
                end += bytes;
                let tensor = json!({"dtype": "F32", "shape": shape, "data_offsets": offsets});
                header.insert(format!("{which}.{name}"), tensor);
            }
        }
        let mut header = serde_json::to_vec(&header)?;
        // Numbers begin at a multiple of eight bytes.
        header.resize(header.len().next_multiple_of(8), b' ');
        let n_header = header.len() as u64;
        let mut file = File::create(path)?;
        file.write_all(&n_header.to_le_bytes())?;
        file.write_all(&header)?;
        file.set_len(size_of::<u64>() as u64 + n_header + end)?;
        file.sync_all()
    }
}

/// Makes a folder of this name in `folder`: first a hidden one, which is then renamed.
fn place(folder: &Path, name: &str, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let draft = folder.join(format!(".{name}.tmp"));
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    fs::create_dir_all(&draft)?;
    write(&draft)?;
    let target = folder.join(name);
    if target.exists() {
        // A run before this one was ended between the two folders.
        fs::remove_dir_all(&target)?;
    }
    fs::rename(&draft, target)
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    fs::write(path, serde_json::to_vec_pretty(value)?)
}

/// The shapes of a safetensors file's tensors, from its header.
fn header(path: &Path) -> io::Result<BTreeMap<String, Vec<u64>>> {
    let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(damaged(format!("its header says {length} bytes")));
    }
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    let mut fields: Map<String, Value> = serde_json::from_slice(&text)?;
    fields.remove("__metadata__");
    let tensor = |(name, value): (String, Value)| -> io::Result<_> {
        let HeaderTensor { shape } = serde_json::from_value(value)?;
        let numbers = shape.iter().try_fold(1_u64, |n, size| n.checked_mul(*size));
        match numbers.filter(|n| *n <= MAX_NUMBERS) {
            Some(_) => Ok((name, shape)),
            None => Err(damaged(format!("{name} has the shape {shape:?}"))),
        }
    };
    fields.into_iter().map(tensor).collect()
}

/// The hash of two files' content, as hex digits.
fn hash(files: [&Path; 2]) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for file in files {
        hasher.update_reader(File::open(file)?)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}
