//! `$include`: a part of the configuration in another file. It is read like OpenClaw reads it, and never written.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{document, files::read_bounded, found::DetectError, surroundings::Surroundings};

const INCLUDE: &str = "$include";
/// This is OpenClaw's own limit.
const MAX_DEPTH: usize = 10;

pub(super) fn read(file: &Path, surroundings: &Surroundings) -> Result<Value, DetectError> {
    let roots = surroundings
        .get("OPENCLAW_INCLUDE_ROOTS")
        .unwrap_or_default();
    let own = file.parent().unwrap_or(file).to_owned();
    let named = roots.split(':').map(str::trim).filter(|it| !it.is_empty());
    let named = named.map(|it| surroundings.path(it));
    let reader = Reader {
        roots: [own].into_iter().chain(named).collect(),
    };
    reader.file(file, 0)
}

struct Reader {
    roots: Vec<PathBuf>,
}

// === impl Reader ===

impl Reader {
    fn file(&self, path: &Path, depth: usize) -> Result<Value, DetectError> {
        if depth > MAX_DEPTH {
            let why = format!("included more than {MAX_DEPTH} deep");
            return Err(DetectError::new(path, why));
        }
        let text = read_bounded(path).map_err(|error| DetectError::new(path, error))?;
        let value = document::value(&text).map_err(|error| DetectError::new(path, error))?;
        self.resolved(value, path, depth)
    }

    /// Resolves a value with its includes. The keys beside `$include` override the included ones.
    fn resolved(&self, value: Value, from: &Path, depth: usize) -> Result<Value, DetectError> {
        let Value::Object(fields) = value else {
            return Ok(value);
        };
        let mut whole = Value::Object(Map::new());
        for name in included(fields.get(INCLUDE)) {
            let path = from.parent().unwrap_or(from).join(name);
            self.check(&path)?;
            merge(&mut whole, self.file(&path, depth + 1)?);
        }
        let mut own = Map::new();
        for (name, value) in fields {
            if name != INCLUDE {
                own.insert(name, self.resolved(value, from, depth)?);
            }
        }
        merge(&mut whole, Value::Object(own));
        Ok(whole)
    }

    fn check(&self, path: &Path) -> Result<(), DetectError> {
        let real = path.canonicalize();
        let real = real.map_err(|error| DetectError::new(path, error))?;
        let mut roots = self
            .roots
            .iter()
            .filter_map(|root| root.canonicalize().ok());
        if roots.any(|root| real.starts_with(root)) {
            Ok(())
        } else {
            Err(DetectError::new(path, "it lies outside OpenClaw's folder"))
        }
    }
}

fn included(given: Option<&Value>) -> Vec<String> {
    match given {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(|it| Some(it.as_str()?.to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}

/// Merges `over` into `below`: objects are merged, lists concatenated, everything else replaced.
fn merge(below: &mut Value, over: Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (name, value) in over {
                merge(below.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(below), Value::Array(over)) => below.extend(over),
        (below, over) => *below = over,
    }
}
