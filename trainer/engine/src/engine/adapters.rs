//! Adapters that are loaded for serving, by name; the least recently asked for goes first.
//!
//! They are read, converted and scaled on whatever thread asks for them, never on the engine's, which only takes
//! handles on tensors that are ready. Their bytes are reserved before they are read and given back when the last
//! lease drops. What an adapter is, is told by its content: one that was evicted and read again, or saved again
//! unchanged, goes on with the prefixes that it had.

mod budget;
mod lease;
mod pool;

use std::rc::{Rc, Weak};

use metaclaw_trainer_terms::AdapterName;

pub use self::lease::AdapterLease;
pub use self::pool::AdapterPool;
use crate::adapter::AdapterError;
use crate::generate::GenerateError;
use crate::kv::WeightsKey;
use crate::lora::Lora;
use crate::torch::Result;

/// An adapter as the engine's thread serves it. A reply holds its own handle, so it ends on what it began with.
#[derive(Debug)]
pub struct ServedAdapter {
    /// The requested name.
    pub name: AdapterName,
    /// The adapter's weights, detached, with the scale multiplied into B. They are f32 for every base, because for one
    /// token a small product in bf16 takes a CPU six times as long. A GPU stacks copies of them in the base's dtype.
    pub lora: Lora,
    /// Optimiser steps behind it.
    pub step: u64,
    pub(crate) key: WeightsKey,
    lease: AdapterLease,
}

// === impl ServedAdapter ===

impl ServedAdapter {
    /// Handles for the engine's thread; the one of `served` where a reply has it already.
    pub(super) fn of(lease: &AdapterLease, served: &mut Vec<Weak<Self>>) -> Result<Rc<Self>> {
        served.retain(|adapter| adapter.strong_count() > 0);
        let mut there = served.iter().filter_map(Weak::upgrade);
        if let Some(there) = there.find(|adapter| adapter.lease.is(lease)) {
            return Ok(there);
        }
        let own = Rc::new(Self {
            name: lease.name().clone(),
            lora: lease.lora().handles()?,
            step: lease.step(),
            key: lease.key(),
            lease: lease.clone(),
        });
        served.push(Rc::downgrade(&own));
        Ok(own)
    }
}

pub(super) fn refusal(name: &AdapterName, error: &AdapterError) -> GenerateError {
    let (name, detail) = (name.clone(), error.to_string());
    match error {
        AdapterError::Unknown { .. } => GenerateError::Adapter {
            name,
            detail,
            missing: true,
        },
        AdapterError::Memory { .. } | AdapterError::Changing { .. } => {
            GenerateError::AdapterBusy { detail }
        }
        AdapterError::NoCheckpoint { .. }
        | AdapterError::File(_)
        | AdapterError::Field { .. }
        | AdapterError::Base { .. }
        | AdapterError::Content { .. }
        | AdapterError::Interrupted { .. }
        | AdapterError::Tensors { .. }
        | AdapterError::Torch(_) => GenerateError::Adapter {
            name,
            detail,
            missing: false,
        },
    }
}

#[cfg(test)]
mod tests;
