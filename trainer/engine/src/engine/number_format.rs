//! The number format that the engine chose, kept beside the checkpoints.
//!
//! Another format is another model to kept log-probabilities and to the gate's records, so a choice for a model and a
//! machine is made once.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::config::Dtype;
use crate::device::Devices;
use crate::torch::Result;

const FILE: &str = "number-formats.json";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeptFormat {
    dtype: Dtype,
    machine: String,
}

/// Returns the format that was chosen for this model on this machine, or chooses one and keeps it.
///
/// # Errors
/// What libtorch reports.
pub(super) fn choose(folder: &Path, model: &str, devices: &Devices) -> Result<Dtype> {
    choose_on(machine(devices), folder, model, || Dtype::fastest(devices))
}

fn choose_on(
    machine: String,
    folder: &Path,
    model: &str,
    fastest: impl FnOnce() -> Result<Dtype>,
) -> Result<Dtype> {
    let file = folder.join(FILE);
    let text = fs::read(&file).unwrap_or_default();
    let mut kept: BTreeMap<String, KeptFormat> = serde_json::from_slice(&text).unwrap_or_default();
    match kept.get(model) {
        Some(it) if it.machine == machine => {
            tracing::info!(dtype = %it.dtype, "dtype auto: chosen at an earlier start");
            return Ok(it.dtype);
        }
        Some(KeptFormat {
            dtype,
            machine: was,
        }) => {
            tracing::warn!(before = %dtype, %was, %machine, "dtype auto: the machine is another, so the number format is chosen anew");
        }
        None => {}
    }
    let dtype = fastest()?;
    kept.insert(model.to_owned(), KeptFormat { dtype, machine });
    let fresh = file.with_extension("new");
    let written = serde_json::to_vec_pretty(&kept).map_err(io::Error::from);
    let written = written.and_then(|text| fs::write(&fresh, text));
    if let Err(error) = written.and_then(|()| fs::rename(&fresh, &file)) {
        tracing::warn!(file = %file.display(), %error, "the number format is not kept: the next start chooses again");
    }
    Ok(dtype)
}

/// What the choice depends on.
#[expect(
    clippy::disallowed_methods,
    reason = "these are libtorch's own settings, which it reads from the environment itself"
)]
fn machine(devices: &Devices) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.unwrap_or_default().trim_matches([':', '\t', ' ']);
    let limits = ["ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA"];
    let limits = limits.map(|limit| std::env::var(limit).unwrap_or_default());
    format!("{name}, {devices}, {}", limits.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_chosen_once_for_a_model_and_a_machine() {
        let folder = tempfile::tempdir().unwrap();
        // Each row: machine, model, what a measurement would say now, what is used.
        for (machine, model, measured, used) in [
            ("a", "m", Some(Dtype::F32), Dtype::F32),
            ("a", "m", None, Dtype::F32),
            ("a", "n", Some(Dtype::Bf16), Dtype::Bf16),
            ("a", "m", None, Dtype::F32),
            ("b", "m", Some(Dtype::Bf16), Dtype::Bf16),
            ("b", "m", None, Dtype::Bf16),
            ("a", "n", None, Dtype::Bf16),
        ] {
            let measure = || Ok(measured.expect("it is measured again"));
            let chosen = choose_on(machine.to_owned(), folder.path(), model, measure).unwrap();
            assert_eq!(chosen, used, "{machine} {model}");
        }
        for damaged in ["", "{", "[]", r#"{"m": {"dtype": "f99", "machine": "b"}}"#] {
            fs::write(folder.path().join(FILE), damaged).unwrap();
            let chosen = choose_on("b".to_owned(), folder.path(), "m", || Ok(Dtype::F32));
            assert_eq!(chosen.unwrap(), Dtype::F32, "{damaged}");
        }
        let nowhere = folder.path().join("missing");
        let chosen = choose_on("b".to_owned(), &nowhere, "m", || Ok(Dtype::Bf16));
        assert_eq!(chosen.unwrap(), Dtype::Bf16);
    }
}
