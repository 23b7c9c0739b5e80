//! Clocks, memory use, and memory bandwidth.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use metaclaw_engine::device;
use serde_json::{Value, json};
use tch::{Device, Tensor};

use crate::failure::Failure;
use crate::input::Input;

/// Measures wall and processor time from its start.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Instant,
    cpu: f64,
}

impl Clock {
    /// # Errors
    /// Fails if `/proc` is missing.
    pub(crate) fn start() -> Result<Self, Failure> {
        Ok(Self {
            begun: Instant::now(),
            cpu: cpu_seconds()?,
        })
    }

    /// Returns `wall_s` and `cpu_s` since the start.
    ///
    /// # Errors
    /// Fails if `/proc` is missing.
    pub(crate) fn figures(&self) -> Result<Value, Failure> {
        let wall = self.begun.elapsed().as_secs_f64();
        Ok(json!({"wall_s": wall, "cpu_s": cpu_seconds()? - self.cpu}))
    }
}

/// Returns user and system time of this process, from Linux's hundredths of a second.
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// Returns the highest memory of this process, including mapped weights.
///
/// # Errors
/// Fails if `/proc` is missing.
pub(crate) fn peak_bytes() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let line = line.ok_or("/proc/self/status has no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Returns the used bytes of the GPUs, by all processes, or `None` without a GPU.
///
/// # Errors
/// Fails like [`Input::devices`].
pub(crate) fn device_bytes(input: &Input) -> Result<Option<usize>, Failure> {
    let gpus = input.devices()?.gpus();
    let taken = gpus.into_iter().map(|gpu| {
        let memory = device::memory(Device::Cuda(gpu))?;
        Some(memory.total.saturating_sub(memory.free))
    });
    let taken: Vec<usize> = taken.collect::<Option<_>>().unwrap_or_default();
    Ok((!taken.is_empty()).then(|| taken.iter().sum()))
}

/// Measures floating-point operations per second, as the best of five products.
///
/// # Errors
/// Returns libtorch's error.
pub(crate) fn peak(input: &Input, side: i64) -> Result<Value, Failure> {
    let _before = tch::get_num_threads();
    tch::set_num_threads(i32::try_from(input.threads)?);
    let device = *input.devices()?.as_slice().first().ok_or("no device")?;
    let kind = input.dtype()?.kind();
    let ones = || Tensor::f_ones([side, side], (kind, device));
    let (one, other) = (ones()?, ones()?);
    let clock = Clock::start()?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begun = Instant::now();
        let _product = black_box(one.f_mm(&other)?);
        device::wait(device);
        best = best.min(begun.elapsed().as_secs_f64());
    }
    let mut figures = clock.figures()?;
    figures["flops_per_s"] = (2.0 * (side as f64).powi(3) / best).into();
    Ok(figures)
}

/// Measures reading a gigabyte with so many threads, as the best of five. Decoding cannot be faster.
///
/// # Errors
/// Fails if a thread panicked.
pub(crate) fn bandwidth(threads: usize) -> Result<Value, Failure> {
    const BYTES: usize = 1 << 30;
    let numbers = vec![1_u64; BYTES / 8];
    let clock = Clock::start()?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begun = Instant::now();
        let part = numbers.len() / threads.max(1);
        let sum = thread::scope(|scope| {
            let readers: Vec<_> = numbers
                .chunks(part)
                .map(|part| scope.spawn(|| part.iter().copied().fold(0, u64::wrapping_add)))
                .collect();
            let sums = readers.into_iter().map(|reader| reader.join().ok());
            sums.sum::<Option<u64>>()
        });
        black_box(sum.ok_or("a reader panicked")?);
        best = best.min(begun.elapsed().as_secs_f64());
    }
    let mut figures = clock.figures()?;
    figures["read_bytes_per_s"] = (BYTES as f64 / best).into();
    Ok(figures)
}
