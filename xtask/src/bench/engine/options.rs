//! Parses the arguments.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::places::Places;

pub(super) const USAGE: &str = "\
usage: cargo xtask bench engine [--only CELL,..] [--quick] [--repeats N] [--threads N] [--dtype bf16|f32]
                                [--adapter f32|bf16] [--python PATH] [--out FOLDER]

  --only CELL     these cells alone (their names are in the table)
  --quick         every cell once instead of 7 times
  --threads N     threads of libtorch on both sides [default: 2]
  --dtype         of the weights on both sides [default: bf16]
  --adapter       of PEFT's LoRA matrices; ours are f32, as PEFT's own default is [default: f32]
  --python PATH   a Python with torch, transformers and peft, instead of the one that is set up in the cache folder
  --out FOLDER    where inputs, runs and result.json go [default: bench/engine in the target folder]";

/// The parsed arguments.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) only: Vec<String>,
    pub(super) repeats: usize,
    pub(super) threads: usize,
    pub(super) dtype: String,
    pub(super) adapter_f32: bool,
    pub(super) python: Option<PathBuf>,
    pub(super) out: PathBuf,
}

// === impl Options ===

impl Options {
    pub(super) fn parse(places: &Places, args: &[String]) -> Result<Self> {
        let mut options = Self {
            only: Vec::new(),
            repeats: 7,
            threads: 2,
            dtype: "bf16".to_owned(),
            adapter_f32: true,
            python: None,
            out: places.target.join("bench").join("engine"),
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--quick" {
                options.repeats = 1;
                continue;
            }
            let value = args
                .next()
                .with_context(|| format!("{flag} needs a value\n\n{USAGE}"))?;
            match flag.as_str() {
                "--only" => options.only = value.split(',').map(str::to_owned).collect(),
                "--repeats" => options.repeats = number(flag, value)?,
                "--threads" => options.threads = number(flag, value)?,
                "--dtype" if ["bf16", "f32"].contains(&value.as_str()) => {
                    options.dtype.clone_from(value);
                }
                "--adapter" if ["bf16", "f32"].contains(&value.as_str()) => {
                    options.adapter_f32 = value == "f32";
                }
                "--python" => options.python = Some(value.into()),
                "--out" => options.out = value.into(),
                _ => bail!("`{flag} {value}` is not known\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

fn number(flag: &str, value: &str) -> Result<usize> {
    let number = value.parse::<usize>().ok().filter(|n| *n > 0);
    number.with_context(|| format!("{flag} is {value:?}: a number from 1 on"))
}
