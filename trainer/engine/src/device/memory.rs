//! How much memory a device has.

use tch::Device;

use super::card;
use crate::free_memory;

/// Memory of a device, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that are free.
    pub free: usize,
    pub total: usize,
}

/// The memory of a device by its own count; `None` if it cannot be read.
///
/// libtorch keeps freed GPU memory for itself, and CUDA counts it as taken. So read the free memory before training
/// begins.
pub fn memory(device: Device) -> Option<DeviceMemory> {
    match device {
        Device::Cpu => Some(DeviceMemory {
            free: free_memory::available()?,
            total: free_memory::total()?,
        }),
        Device::Cuda(number) => {
            let (free, total) = card::memory(number)?;
            Some(DeviceMemory { free, total })
        }
        Device::Mps | Device::Vulkan => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_memory_and_a_gpu_that_is_not_there_has_none() {
        let cpu = memory(Device::Cpu).unwrap();
        assert!(0 < cpu.free && cpu.free < cpu.total, "{cpu:?}");
        assert_eq!(memory(Device::Cuda(100)), None);
    }
}
