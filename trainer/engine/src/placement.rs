//! Which layer of a model is on which device.
//!
//! Several devices take the layers in order, as many each; hidden states move at the borders. The embedding is where the
//! first layer is, the last norm and the LM head where the last one is.

use std::ops::Range;

use tch::{Device, TchError, Tensor};

use crate::device::{self, Devices};
use crate::torch::Result;

/// A device for each layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The stages in the order of the layers; at least one.
    stages: Vec<Stage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stage {
    device: Device,
    layers: Range<usize>,
}

// === impl Placement ===

impl Placement {
    /// Every layer, however many there are, on one device.
    pub fn on(device: Device) -> Self {
        let layers = 0..usize::MAX;
        Self {
            stages: vec![Stage { device, layers }],
        }
    }

    /// Gives each device the same number of layers. If there are more devices than layers, the last devices have none.
    pub fn new(devices: &Devices, n_layers: usize) -> Self {
        let devices = devices.as_slice();
        let n = devices.len().min(n_layers).max(1);
        let edge = |i: usize| n_layers * i / n;
        let stages = devices
            .iter()
            .take(n)
            .enumerate()
            .map(|(i, &device)| Stage {
                device,
                layers: edge(i)..edge(i + 1),
            });
        Self {
            stages: stages.collect(),
        }
    }

    /// The device of the embedding, where ids go in.
    pub fn first(&self) -> Device {
        self.of(0)
    }

    /// The device of the last norm and the LM head, where logits come out.
    pub fn last(&self) -> Device {
        self.of(usize::MAX)
    }

    /// The device of a layer.
    pub fn of(&self, layer: usize) -> Device {
        self.stages
            .get(self.stage_of(layer))
            .map_or(Device::Cpu, |stage| stage.device)
    }

    /// Which of the devices, in order, a layer is on.
    pub fn stage_of(&self, layer: usize) -> usize {
        let before = self.stages.iter().filter(|stage| stage.layers.end <= layer);
        before.count().min(self.stages.len().saturating_sub(1))
    }

    /// The devices in order, each with how many of `n_layers` it has.
    pub fn shares(&self, n_layers: usize) -> impl Iterator<Item = (Device, usize)> {
        let share = move |stage: &Stage| {
            let end = stage.layers.end.min(n_layers);
            (stage.device, end.saturating_sub(stage.layers.start))
        };
        self.stages.iter().map(share)
    }

    /// Makes one value for each device, in order.
    ///
    /// # Errors
    /// The first that `make` returns.
    pub fn each<T>(&self, make: impl FnMut(Device) -> Result<T>) -> Result<PerDevice<T>> {
        let made = self.stages.iter().map(|stage| stage.device).map(make);
        Ok(PerDevice(made.collect::<Result<_, _>>()?))
    }

    /// Waits until every device has finished its queued work, which a measurement of time needs.
    pub fn wait(&self) {
        self.stages
            .iter()
            .for_each(|stage| device::wait(stage.device));
    }

    /// The tensor where a layer is: itself if it is there.
    ///
    /// # Shapes
    /// Any; returns the same.
    ///
    /// # Errors
    /// What libtorch refuses, for want of memory above all.
    pub fn moved(&self, tensor: &Tensor, layer: usize) -> Result<Tensor> {
        let device = self.of(layer);
        if tensor.device() == device {
            return Ok(tensor.shallow_clone());
        }
        tensor.f_to_device(device)
    }
}

/// One value for each device of a [`Placement`].
#[derive(Debug)]
pub struct PerDevice<T>(Vec<T>);

// === impl PerDevice ===

impl<T> PerDevice<T> {
    /// The value of the device that a layer is on.
    ///
    /// # Errors
    /// When it was made for another placement.
    pub fn of(&self, placement: &Placement, layer: usize) -> Result<&T> {
        let stage = placement.stage_of(layer);
        let missing =
            || TchError::Torch(format!("layer {layer} is on a device of another placement"));
        self.0.get(stage).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(devices: &str, n_layers: usize) -> Vec<(Device, usize)> {
        let placement = Placement::new(&devices.parse().unwrap(), n_layers);
        placement.shares(n_layers).collect()
    }

    #[test]
    fn layers_are_shared_in_order() {
        let gpu = Device::Cuda;
        assert_eq!(stages("0", 5), [(gpu(0), 5)]);
        assert_eq!(stages("1,0", 5), [(gpu(1), 2), (gpu(0), 3)]);
        assert_eq!(stages("0,1,2", 2), [(gpu(0), 1), (gpu(1), 1)]);
        let placement = Placement::new(&"1,0,cpu".parse().unwrap(), 7);
        let of: Vec<Device> = (0..7).map(|layer| placement.of(layer)).collect();
        let cpu = Device::Cpu;
        assert_eq!(of, [gpu(1), gpu(1), gpu(0), gpu(0), cpu, cpu, cpu]);
        assert_eq!((placement.first(), placement.last()), (gpu(1), cpu));
        assert_eq!(Placement::on(gpu(3)).of(1000), gpu(3));
    }

    #[test]
    fn each_device_has_its_own() {
        let placement = Placement::new(&"2,1".parse().unwrap(), 4);
        let names = placement
            .each(|device| Ok(crate::device::name(device)))
            .unwrap();
        let of = |layer| names.of(&placement, layer).unwrap().as_str();
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            ["cuda:2", "cuda:2", "cuda:1", "cuda:1"]
        );
        assert!(PerDevice::<u8>(Vec::new()).of(&placement, 0).is_err());
    }
}
