//! One run: a process, its figures, and the load of other programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use metaclaw_fetch::{command, hex, writing};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::cell::{BenchSide, Program};

#[derive(Debug)]
pub(super) struct BenchPrograms {
    pub(super) engine: PathBuf,
    pub(super) libtorch: PathBuf,
    pub(super) python: PathBuf,
    pub(super) script: PathBuf,
    /// vLLM's Python, if it is installed.
    pub(super) vllm: Option<PathBuf>,
    pub(super) vllm_script: PathBuf,
    pub(super) threads: usize,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub(super) struct RunRecord {
    pub(super) cell: String,
    pub(super) side: String,
    pub(super) figures: Value,
    was_there: bool,
}

// === impl Programs ===

impl BenchPrograms {
    /// Runs it, or reads what the same program found for the same input.
    pub(super) fn run(
        &self,
        cell: &str,
        side: &BenchSide,
        repeat: usize,
        out: &Path,
    ) -> Result<RunRecord> {
        let input = side.input.to_string();
        let stem = format!("{cell}-{}", side.name);
        let file = out.join(format!("{stem}-{repeat}.json"));
        let key = self.key(side, &input)?;
        let there = fs::read(&file)
            .ok()
            .and_then(|it| serde_json::from_slice::<Value>(&it).ok());
        let record = |figures: Value, was_there| RunRecord {
            cell: cell.to_owned(),
            side: side.name.to_owned(),
            figures,
            was_there,
        };
        if let Some(there) = there.filter(|it| it["key"] == key.as_str()) {
            return Ok(record(there["figures"].clone(), true));
        }
        let inputs = out.join(format!("{stem}.input.json"));
        writing(fs::write(&inputs, input), &inputs)?;
        let figures = self.attempt(side, &inputs)?;
        let text = json!({"key": key, "figures": figures}).to_string();
        writing(fs::write(&file, text), &file)?;
        Ok(record(figures, false))
    }

    fn attempt(&self, side: &BenchSide, inputs: &Path) -> Result<Value> {
        let (begun, busy, own) = (Instant::now(), machine_busy()?, children()?);
        let printed = command::output(self.command(side).arg(inputs))?;
        let (wall, busy, own) = (
            begun.elapsed().as_secs_f64(),
            machine_busy()? - busy,
            children()? - own,
        );
        let line = printed.lines().last().context("it printed nothing")?;
        let mut figures: Value = serde_json::from_str(line).context("its last line is no JSON")?;
        figures["one"] = 1.0.into();
        let figure = |field: &str| figures[field].as_f64();
        if let (Some(n), Some(wall), Some(cpu)) =
            (figure("new_tokens"), figure("wall_s"), figure("cpu_s"))
        {
            figures["tokens_per_s"] = (n / wall).into();
            figures["cpu_s_per_token"] = (cpu / n).into();
        }
        figures["others_cpus"] = ((busy - own) / wall).max(0.0).into();
        Ok(figures)
    }

    fn command(&self, side: &BenchSide) -> Command {
        let mut command = match side.program {
            Program::Engine => {
                let mut engine = Command::new(&self.engine);
                engine.env("LD_LIBRARY_PATH", &self.libtorch);
                engine
            }
            Program::Peer => {
                let mut peer = Command::new(&self.python);
                peer.arg(&self.script).env("PYTHONDONTWRITEBYTECODE", "1");
                peer
            }
            Program::Vllm => {
                let mut vllm = Command::new(self.vllm.as_ref().unwrap_or(&self.python));
                // vLLM's model is not compiled, which would take minutes and a C++ compiler. Its processes keep Python's
                // bytecode, so that they need not compile it each time.
                vllm.arg(&self.vllm_script)
                    .env("TORCHDYNAMO_DISABLE", "1")
                    .env("VLLM_NO_USAGE_STATS", "1")
                    .env_remove("PYTHONDONTWRITEBYTECODE");
                vllm
            }
        };
        // The values are those of the trainer's launcher. Both are best for PyTorch too: with active waiting, a step of
        // 4 x 256 took 4 times the CPU on a busy machine of two cores, and with glibc's own thresholds 3 % more.
        command
            .env("OMP_WAIT_POLICY", "passive")
            .env("GOMP_SPINCOUNT", "1000")
            .env("MALLOC_TRIM_THRESHOLD_", "268435456")
            .env("MALLOC_MMAP_THRESHOLD_", "67108864")
            .env("MALLOC_TOP_PAD_", "67108864")
            .env("OMP_NUM_THREADS", self.threads.to_string())
            .env("HF_HUB_OFFLINE", "1");
        command
    }

    /// The program's and the input's content.
    fn key(&self, side: &BenchSide, input: &str) -> Result<String> {
        let program = match side.program {
            Program::Engine => &self.engine,
            Program::Peer => &self.script,
            Program::Vllm => &self.vllm_script,
        };
        let bytes =
            fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let mut hash = Sha256::new();
        hash.update(bytes);
        hash.update(input);
        Ok(hex(&hash.finalize()))
    }
}

// === impl Record ===

impl RunRecord {
    #[cfg(test)]
    pub(super) fn of(cell: &str, side: &str, figures: Value) -> Self {
        let (cell, side) = (cell.to_owned(), side.to_owned());
        Self {
            cell,
            side,
            figures,
            was_there: false,
        }
    }

    /// Returns one number of the result.
    pub(super) fn figure(&self, field: &str) -> Option<f64> {
        self.figures[field].as_f64()
    }

    pub(super) fn line(&self) -> String {
        let number = |field: &str| self.figure(field).unwrap_or(f64::NAN);
        format!(
            "{:<8} {:>8.2} s of CPU {:>8.2} s {:>7.0} MB  others: {:.1} CPUs{}",
            self.side,
            number("cpu_s"),
            number("wall_s"),
            number("peak_bytes") / 1e6,
            number("others_cpus"),
            if self.was_there {
                "  (there already)"
            } else {
                ""
            },
        )
    }
}

/// Returns the CPU seconds of the whole machine.
fn machine_busy() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let fields = line.split_whitespace().skip(1).enumerate();
    // The fields are user, nice and system; idle, waiting, interrupts and other machines' time are left out.
    let busy = fields.filter(|(index, _)| matches!(index, 0..=2 | 5..=7));
    let ticks = busy.map(|(_, ticks)| ticks.parse::<f64>());
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// Returns the CPU seconds of the processes that this one has waited for.
fn children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("/proc/self/stat has no name")?;
    let ticks = fields.split_whitespace().skip(13).take(2);
    Ok(ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()? / 100.0)
}
