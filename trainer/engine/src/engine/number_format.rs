//! The number format that the engine chose, kept beside the checkpoints.
//!
//! Another format is another model to kept log-probabilities and to the gate's records, so a choice for a model and a
//! machine is made once.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tch::TchError;

use super::config::Dtype;
use crate::device::Devices;

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
pub(super) fn choose(folder: &Path, model: &str, devices: &Devices) -> Result<Dtype, TchError> {
    choose_on(machine(devices), folder, model, || Dtype::fastest(devices))
}

fn choose_on(
    machine: String,
    folder: &Path,
    model: &str,
    fastest: impl FnOnce() -> Result<Dtype, TchError>,
) -> Result<Dtype, TchError> {
    let file = folder.join(FILE);
    let mut kept = read(&file).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "the number format is chosen anew");
        BTreeMap::new()
    });
    let before = kept.get(model).map(|it| (it.dtype, it.machine.clone()));
    if let Some((dtype, was)) = &before
        && *was == machine
    {
        tracing::info!(%dtype, "dtype auto: chosen at an earlier start");
        return Ok(*dtype);
    }
    let dtype = fastest()?;
    if let Some((old, was)) = before {
        tracing::warn!(%dtype, before = %old, %machine, %was, "dtype auto: chosen anew, because the machine is another");
    }
    kept.insert(model.to_owned(), KeptFormat { dtype, machine });
    if let Err(error) = write(&file, &kept) {
        tracing::warn!(file = %file.display(), %error, "the number format is not kept: the next start chooses again");
    }
    Ok(dtype)
}

/// What the choice depends on.
fn machine(devices: &Devices) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let fields = ["model name", "CPU part"];
    let mut lines = cpu.lines().filter_map(|line| line.split_once(':'));
    let cpu = lines.find(|(name, _)| fields.contains(&name.trim()));
    let cpu = cpu.map_or("unknown CPU", |(_, name)| name.trim());
    let limits = ["ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA"].map(|name| {
        let value = std::env::var(name).unwrap_or_default();
        format!("{name}={value}")
    });
    format!("{cpu}, {devices}, {}", limits.join(", "))
}

fn read(file: &Path) -> io::Result<BTreeMap<String, KeptFormat>> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

fn write(file: &Path, kept: &BTreeMap<String, KeptFormat>) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, serde_json::to_vec_pretty(kept)?)?;
    fs::rename(&fresh, file)
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
