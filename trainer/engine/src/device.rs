//! The devices that an engine computes on: which were asked for, which there are, what memory they have.
//!
//! A device is a parameter of every tensor; nothing in this crate changes a device of the process or of a thread. The
//! CUDA part of libtorch is a library of its own, which is loaded when this module is first asked (`card`): one program
//! runs on a libtorch with CUDA and on one without.

mod card;
mod memory;

use std::fmt;
use std::str::FromStr;

use tch::Device;

pub use self::card::{Cuda, cuda, unused_gpus};
pub use self::memory::{DeviceMemory, memory};

/// The devices that share the layers of a model, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices(Vec<Device>);

/// Why devices cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A word that names no device.
    #[error(
        "{word:?} is no device: say cpu, or the number of a GPU as 0, or several with commas as 0,1"
    )]
    Name { word: String },
    /// A GPU without a libtorch that can use it.
    #[error("GPU {wanted} is asked for, {why}")]
    NoCuda {
        wanted: usize,
        /// What this build supports, what this machine has, and how to mend it.
        why: String,
    },
    /// A number that no GPU has.
    #[error("GPU {wanted} is asked for, libtorch sees {n_gpus}: allowed are 0 to {}, or cpu", n_gpus - 1)]
    Missing {
        wanted: usize,
        /// How many there are; at least one.
        n_gpus: usize,
    },
}

// === impl Devices ===

impl Devices {
    pub fn cpu() -> Self {
        Self(vec![Device::Cpu])
    }

    /// The first GPU where libtorch sees one, else the CPU.
    pub fn by_default() -> Self {
        match cuda() {
            Cuda::Ready { .. } => Self(vec![Device::Cuda(0)]),
            Cuda::NoGpu | Cuda::Absent | Cuda::Broken { .. } => Self::cpu(),
        }
    }

    /// The default devices of serving: the second GPU if training has only the first, otherwise the devices of
    /// training.
    pub fn beside(training: &Self) -> Self {
        match cuda() {
            Cuda::Ready { n_gpus: 2.. } if training.0 == [Device::Cuda(0)] => {
                Self(vec![Device::Cuda(1)])
            }
            _ => training.clone(),
        }
    }

    /// The devices in the order of the layers; at least one.
    pub fn as_slice(&self) -> &[Device] {
        &self.0
    }

    /// The numbers of the GPUs among them, ascending, each once.
    pub fn gpus(&self) -> Vec<usize> {
        let numbers = self.0.iter().filter_map(|device| match device {
            Device::Cuda(number) => Some(*number),
            Device::Cpu | Device::Mps | Device::Vulkan => None,
        });
        let mut numbers: Vec<usize> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Checks that libtorch can compute on every device.
    ///
    /// # Errors
    /// [`DeviceError`] says what was asked for, what there is, and what mends it.
    pub fn check(&self) -> Result<(), DeviceError> {
        let Some(&highest) = self.gpus().last() else {
            return Ok(());
        };
        let found = cuda();
        let Cuda::Ready { n_gpus } = *found else {
            return Err(DeviceError::NoCuda {
                wanted: highest,
                why: found.to_string(),
            });
        };
        if highest < n_gpus {
            return Ok(());
        }
        let wanted = highest;
        Err(DeviceError::Missing { wanted, n_gpus })
    }
}

impl FromStr for Devices {
    type Err = DeviceError;

    /// `cpu`, `0`, `0,1`; also as PyTorch writes it, `cuda:1`.
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let device = |word: &str| {
            let word = word.trim();
            let number = word.strip_prefix("cuda:").unwrap_or(word);
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            // libtorch counts devices in a signed byte.
            let number = number.parse().ok().filter(|n| *n < 128 && is_number);
            match number {
                Some(number) => Ok(Device::Cuda(number)),
                None if word == "cpu" => Ok(Device::Cpu),
                None => Err(DeviceError::Name { word: word.into() }),
            }
        };
        let devices = text.split(',').map(device).collect::<Result<_, _>>();
        devices.map(Self)
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|&device| name(device)).collect();
        f.write_str(&names.join(","))
    }
}

/// The device's name in PyTorch's form: `cpu`, `cuda:0`.
pub fn name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".into(),
        Device::Cuda(number) => format!("cuda:{number}"),
        Device::Mps => "mps".into(),
        Device::Vulkan => "vulkan".into(),
    }
}

/// Waits until a device has finished its queued work, which a measurement of time needs. A CPU has no queue.
pub fn wait(device: Device) {
    if let Device::Cuda(number) = device {
        tch::Cuda::synchronize(i64::try_from(number).unwrap_or(0));
    }
}

/// Whether libtorch refused for want of memory, on whatever device.
///
/// The bindings pass an exception's text and not its type: `c10::OutOfMemoryError` says "CUDA out of memory", the CPU's
/// allocator "can't allocate memory" or "not enough memory".
pub fn is_out_of_memory(error: &impl fmt::Display) -> bool {
    let text = error.to_string();
    let words = [
        "out of memory",
        "can't allocate memory",
        "not enough memory",
    ];
    words.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_flags_have_them() {
        let read = |text: &str| text.parse::<Devices>().map(|devices| devices.to_string());
        assert_eq!(read("cpu").unwrap(), "cpu");
        assert_eq!(read("0").unwrap(), "cuda:0");
        assert_eq!(read("2, 0").unwrap(), "cuda:2,cuda:0");
        assert_eq!(read("cpu,cpu,cpu").unwrap(), "cpu,cpu,cpu");
        assert_eq!(read("cuda:1").unwrap(), "cuda:1");
        for wrong in ["", "0,", "gpu", "-1", "+1", "cuda", "cuda:", "128", "1.0"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("is no device: say cpu"), "{wrong}: {error}");
        }
        let numbers = "2,0,cpu,2".parse::<Devices>().unwrap().gpus();
        assert_eq!(numbers, [0, 2]);
    }

    #[test]
    fn want_of_memory_is_told_from_other_refusals() {
        let said = |text: &str| is_out_of_memory(&text);
        assert!(said("CUDA out of memory. Tried to allocate 20.00 GiB."));
        assert!(said(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."
        ));
        assert!(!said("mat1 and mat2 shapes cannot be multiplied"));
        // What libtorch here says itself, whatever the machine has.
        let huge = tch::Tensor::f_empty([1 << 60], (tch::Kind::Uint8, Device::Cpu)).unwrap_err();
        assert!(is_out_of_memory(&huge), "{huge}");
    }
}
