//! Parses the arguments of `cargo xtask gpu`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::places::Places;

pub(super) const USAGE: &str = "\
usage: cargo xtask gpu [--device LIST] [--dtype bf16|f32] [--model FOLDER] [--python PATH] [--peak-tflops N] [--small] [--threads N] [--out DIR]

  --device LIST     as the trainer's flags have it: 0 (the default), 0,1 or cpu
  --dtype NAME      bf16 (the default) or f32
  --model FOLDER    in Hugging Face form, 1.5B to 4B parameters; without it the demo model, which is too small for a GPU
  --python PATH     a Python with torch, transformers and peft: PEFT takes the same step
  --peak-tflops N   what the maker says of the device in this dtype; without it the fastest product measured here
  --small           little work, to try the command itself
  --threads N       of libtorch on the CPU (2)
  --out DIR         for inputs and the report (target/bench/gpu)";

/// What is measured, and on which device.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) devices: String,
    pub(super) dtype: String,
    pub(super) model: Option<PathBuf>,
    pub(super) python: Option<PathBuf>,
    pub(super) peak_tflops: Option<f64>,
    pub(super) small: bool,
    pub(super) threads: usize,
    pub(super) out: PathBuf,
}

// === impl Options ===

impl Options {
    pub(super) fn parse(places: &Places, args: &[String]) -> Result<Self> {
        let mut options = Self {
            devices: "0".to_owned(),
            dtype: "bf16".to_owned(),
            model: None,
            python: None,
            peak_tflops: None,
            small: false,
            threads: 2,
            out: places.target.join("bench").join("gpu"),
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--small" {
                options.small = true;
                continue;
            }
            let value = args
                .next()
                .with_context(|| format!("{flag} wants a value\n\n{USAGE}"))?;
            let number = || format!("{flag} {value}: a number is wanted");
            match flag.as_str() {
                "--device" => options.devices.clone_from(value),
                "--dtype" if matches!(value.as_str(), "bf16" | "f32") => {
                    options.dtype.clone_from(value);
                }
                "--model" => options.model = Some(value.into()),
                "--python" => options.python = Some(value.into()),
                "--peak-tflops" => {
                    options.peak_tflops = Some(value.parse().with_context(number)?);
                }
                "--threads" => options.threads = value.parse().with_context(number)?,
                "--out" => options.out = value.into(),
                _ => bail!("{flag} {value} is not known here\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        let folder = || Path::new("/t").to_owned();
        let places = Places {
            root: folder(),
            cache: folder(),
            target: folder(),
        };
        let args: Vec<String> = args.iter().map(|&it| it.to_owned()).collect();
        Options::parse(&places, &args)
    }

    #[test]
    fn flags_are_read_and_strays_are_refused() {
        let options = parse(&["--device", "cpu", "--small", "--peak-tflops", "989"]).unwrap();
        assert_eq!((options.devices.as_str(), options.small), ("cpu", true));
        assert_eq!(options.peak_tflops, Some(989.0));
        assert_eq!(options.out, Path::new("/t/bench/gpu"));
        for wrong in [
            ["--dtype", "f64"],
            ["--peak-tflops", "much"],
            ["--card", "0"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--device"]).is_err());
    }
}
