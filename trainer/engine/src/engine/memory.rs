//! How much of each device's memory keys, values and activations may have.

use std::collections::BTreeMap;

use tch::Device;

use super::config::EngineConfig;
use crate::device::{self, Devices};
use crate::kv::{self, FEWEST_STATES, KvPool, PAGE};
use crate::model::Model;
use crate::placement::Placement;
use crate::weights::LoadError;

/// The share of a GPU for keys and values if it serves and trains. A GPU that only serves gives nearly all of its
/// memory.
const SHARED: f64 = 0.5;
const ALONE: f64 = 0.9;
/// States for each reply, if half of the memory suffices for so many: those that it needs, and some that are kept.
const STATES: usize = 8;
/// The share of the remaining GPU memory for the activations of training. Runs, adapters and libtorch's cache take the
/// rest.
const ACTIVATIONS: f64 = 0.7;

pub(super) fn kv_pool(config: &EngineConfig, model: &Model) -> Result<KvPool, LoadError> {
    let model_config = &model.config;
    let position = KvPool::position_bytes(model_config, model.kind);
    let state = kv::slot_bytes(model_config, model.kind);
    let n_streams = config.max_streams.max(1);
    let most =
        n_streams * (model_config.context.next_multiple_of(PAGE) * position + STATES * state);
    let free = config.memory.or_else(|| free(model, on_gpu(model)));
    let by_itself = if on_gpu(model) {
        let share = if shares_a_gpu(&config.training, &config.inference) {
            SHARED
        } else {
            ALONE
        };
        scaled(free.unwrap_or(0), share)
    } else {
        kv::default_budget(free, position, model_config.context)
    };
    let field = match (config.kv_budget, config.memory) {
        (Some(_), _) => "kv_budget",
        (None, Some(_)) => "memory",
        (None, None) => "free memory",
    };
    let budget = config.kv_budget.unwrap_or(by_itself);
    let for_states = (budget / 2).min(n_streams * STATES * state);
    // One more is that of every text's beginning.
    let n_states = (for_states / state.max(1)).saturating_sub(1);
    let lacks_states = state > 0 && n_states < FEWEST_STATES;
    if budget < PAGE * position || lacks_states {
        return Err(LoadError::Setting {
            field,
            value: config.kv_budget.or(free).unwrap_or(budget).to_string(),
            allowed: if lacks_states {
                "twice the room of five states of a sequence or more"
            } else {
                "room for the keys and values of 16 positions or more"
            },
        });
    }
    let (kind, placement) = (model.kind, &model.placement);
    let for_pages = budget.min(most) - for_states;
    let pool = KvPool::new(model_config, for_pages, kind, placement)?;
    let pool = pool.with_states(model_config, n_states, kind, placement)?;
    let (positions, bytes) = (pool.n_pages() * PAGE, pool.bytes());
    tracing::info!(positions, n_states, bytes, "memory for keys and values");
    Ok(pool)
}

/// Memory for the activations of training, after everything else of the start has its place. `None` on a CPU without a
/// setting: there each job reads the free memory.
pub(super) fn for_training(config: &EngineConfig, model: &Model, pool: &KvPool) -> Option<usize> {
    if let Some(all) = config.memory {
        return Some(all.saturating_sub(pool.bytes()));
    }
    if !on_gpu(model) {
        return None;
    }
    free(model, true).map(|free| scaled(free, ACTIVATIONS))
}

/// The memory that all layers together may take, so that no device exceeds its own.
fn free(model: &Model, gpus_alone: bool) -> Option<usize> {
    let of = |device| device::memory(device).map(|memory| memory.free);
    let counted = |device: Device| !gpus_alone || device != Device::Cpu;
    for_all_layers(&model.placement, model.config.n_layers, |device| {
        counted(device).then(|| of(device)).flatten()
    })
}

/// The smallest allowance over all devices, each scaled by its share of the layers. `None` if no device reports one.
fn for_all_layers(
    placement: &Placement,
    n_layers: usize,
    free: impl Fn(Device) -> Option<usize>,
) -> Option<usize> {
    let mut shares: BTreeMap<String, (Device, usize)> = BTreeMap::new();
    for (device, n) in placement.shares(n_layers) {
        let share = shares.entry(device::name(device)).or_insert((device, 0));
        share.1 += n;
    }
    let allowed = shares.into_values().filter_map(|(device, n)| {
        let free = free(device)?;
        Some(free / n.max(1) * n_layers)
    });
    allowed.min()
}

fn on_gpu(model: &Model) -> bool {
    let mut devices = model.placement.shares(model.config.n_layers);
    devices.any(|(device, _)| device != Device::Cpu)
}

fn shares_a_gpu(one: &Devices, other: &Devices) -> bool {
    let others = other.gpus();
    one.gpus().iter().any(|gpu| others.contains(gpu))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of bytes"
)]
fn scaled(bytes: usize, share: f64) -> usize {
    (bytes as f64 * share) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_with_the_least_room_for_its_layers_decides() {
        let placement = |devices: &str| Placement::new(&devices.parse().unwrap(), 30);
        let free = |device| match device {
            Device::Cuda(0) => Some(80_000),
            Device::Cuda(1) => Some(24_000),
            _ => None,
        };
        let allowed = |devices| for_all_layers(&placement(devices), 30, free);
        assert_eq!(allowed("0"), Some(80_000 / 30 * 30));
        assert_eq!(allowed("0,1"), Some(24_000 / 15 * 30));
        // Named twice, a device has both shares.
        assert_eq!(allowed("0,1,1"), Some(24_000 / 20 * 30));
        assert_eq!(allowed("cpu"), None);
        assert_eq!(scaled(1000, SHARED), 500);
    }
}
