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

use anyhow::{Context as _, bail, ensure};
use metaclaw_chat::{AgentId, unix_ms};
use metaclaw_skills::read_text;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    old_home::OldHome,
    report::{MigratedKind, MigrationOutcome, MigrationReport},
};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT wrote before it had safetensors.
const PICKLE: &str = "adapter_model.bin";
/// How deep below a given folder adapters are looked for.
const DEPTH: usize = 3;
const MAX_CONFIG: u64 = 1 << 20;
const MAX_HEADER: u64 = 64 << 20;
const MAX_NUMBERS: u64 = 1 << 32;

struct PeftAdapter {
    from: PathBuf,
    agent: AgentId,
    /// The name under which it is registered: `AGENT-LINEAGE-000001`.
    name: String,
    lineage: String,
    hash: String,
    config: PeftConfig,
    tensors: BTreeMap<String, HeaderTensor>,
}

/// The fields of `adapter_config.json` that a manifest has too. The trainer reads all of them.
#[derive(Deserialize)]
struct PeftConfig {
    base_model_name_or_path: Option<String>,
    r: u32,
    lora_alpha: f64,
    target_modules: Vec<String>,
}

#[derive(Deserialize)]
struct HeaderTensor {
    shape: Vec<u64>,
}

pub(super) fn take(
    old: &OldHome,
    checkpoints: &Path,
    report: &mut MigrationReport,
) -> anyhow::Result<()> {
    let mut places: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (agent, folder) in &old.adapters {
        for from in adapter_folders(folder, DEPTH) {
            let shown = from.display().to_string();
            let mut left = |why| {
                report.note(MigratedKind::Adapter, &*shown, MigrationOutcome::Left(why));
            };
            let adapter = match PeftAdapter::read(agent, &from) {
                Ok(adapter) => adapter,
                Err(error) => {
                    left(format!("{error:#}"));
                    continue;
                }
            };
            if let Some(twin) = places.get(&adapter.name) {
                left(format!("it has the same content as {}", twin.display()));
                continue;
            }
            let outcome = if checkpoints.join("adapters").join(&adapter.name).exists() {
                MigrationOutcome::Present
            } else {
                MigrationOutcome::Taken
            };
            if outcome == MigrationOutcome::Taken && !report.dry_run {
                let written = adapter.write(checkpoints);
                written.with_context(|| format!("cannot register {shown}"))?;
            }
            let name = format!("{} (was {shown})", adapter.name);
            report.note(MigratedKind::Adapter, name, outcome);
            places.insert(adapter.name, from);
        }
    }
    Ok(())
}

fn adapter_folders(folder: &Path, depth: usize) -> Vec<PathBuf> {
    if folder.join(CONFIG).is_file() {
        return vec![folder.to_owned()];
    }
    if depth == 0 {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let paths = entries.filter(is_folder).map(|entry| entry.path());
    let mut below: Vec<PathBuf> = paths.collect();
    below.sort();
    let found = below.iter().map(|below| adapter_folders(below, depth - 1));
    found.flatten().collect()
}

// === impl PeftAdapter ===

impl PeftAdapter {
    /// Reads what an adapter is; an error is the reason why it is left.
    fn read(agent: &AgentId, from: &Path) -> anyhow::Result<Self> {
        let (config, weights) = (from.join(CONFIG), from.join(WEIGHTS));
        if !weights.is_file() {
            ensure!(from.join(PICKLE).exists(), "it has no {WEIGHTS}");
            bail!(
                "{PICKLE} is a pickle, which can contain a program and is not read: save it again with PEFT (`save_pretrained(.., safe_serialization=True)`)"
            );
        }
        let mut hasher = blake3::Hasher::new();
        for file in [&config, &weights] {
            hasher.update_reader(File::open(file)?)?;
        }
        let hash = hasher.finalize().to_hex().to_string();
        let config: PeftConfig =
            serde_json::from_str(&read_text(&config, MAX_CONFIG)?).context(CONFIG)?;
        ensure!(
            config.base_model_name_or_path.is_some(),
            "{CONFIG} names no base_model_name_or_path"
        );
        let lineage = hash[..8].to_owned();
        Ok(Self {
            from: from.to_owned(),
            agent: agent.clone(),
            name: format!("{agent}-{lineage}-000001"),
            lineage,
            hash,
            config,
            tensors: header(&weights).context(WEIGHTS)?,
        })
    }

    fn write(&self, checkpoints: &Path) -> io::Result<()> {
        let copy = |to: &Path| -> io::Result<()> {
            for file in [CONFIG, WEIGHTS] {
                fs::copy(self.from.join(file), to.join(file))?;
            }
            Ok(())
        };
        make_folder(&checkpoints.join("checkpoints"), &self.name, |draft| {
            copy(draft)?;
            self.write_moments(&draft.join("optimizer.safetensors"))?;
            write_json(&draft.join("state.json"), &self.state()?)?;
            write_json(&draft.join("manifest.json"), &self.manifest())
        })?;
        make_folder(&checkpoints.join("adapters"), &self.name, copy)
    }

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
    fn write_moments(&self, path: &Path) -> io::Result<()> {
        let mut header = Map::new();
        let mut end = 0_u64;
        for which in ["exp_avg", "exp_avg_sq"] {
            for (name, HeaderTensor { shape }) in &self.tensors {
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
fn make_folder(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let (draft, target) = (folder.join(format!(".{name}.tmp")), folder.join(name));
    // An interrupted migration may have left either of these folders.
    for earlier in [&draft, &target] {
        if earlier.exists() {
            fs::remove_dir_all(earlier)?;
        }
    }
    fs::create_dir_all(&draft)?;
    write(&draft)?;
    fs::rename(draft, target)
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    fs::write(path, serde_json::to_vec_pretty(value)?)
}

fn header(path: &Path) -> anyhow::Result<BTreeMap<String, HeaderTensor>> {
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    ensure!(
        length <= MAX_HEADER,
        "its header has {length} bytes, and at most {MAX_HEADER} are read"
    );
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    let mut fields: Map<String, Value> = serde_json::from_slice(&text)?;
    fields.remove("__metadata__");
    let tensors: BTreeMap<String, HeaderTensor> = serde_json::from_value(fields.into())?;
    for (name, HeaderTensor { shape }) in &tensors {
        let numbers = shape.iter().try_fold(1_u64, |n, size| n.checked_mul(*size));
        ensure!(
            numbers.is_some_and(|n| n <= MAX_NUMBERS),
            "{name} has the shape {shape:?}, which is more than {MAX_NUMBERS} numbers"
        );
    }
    Ok(tensors)
}
