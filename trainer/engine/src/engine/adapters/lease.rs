//! A hold on an adapter in memory.

use std::sync::Arc;

use metaclaw_trainer_terms::AdapterName;
use parking_lot::{Mutex, MutexGuard};

use super::budget::Reserved;
use crate::kv::WeightsKey;
use crate::lora::Lora;

/// A hold on a loaded adapter: while one lives, its memory stays. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AdapterLease(pub(super) Arc<PooledAdapter>);

#[derive(Debug)]
pub(super) struct PooledAdapter {
    pub(super) name: AdapterName,
    pub(super) step: u64,
    pub(super) sha256: String,
    /// The weights, as in [`super::ServedAdapter::lora`]. Two threads may not use one tensor at the same time, not even
    /// to make another handle of it.
    pub(super) lora: Mutex<Lora>,
    pub(super) reserved: Reserved,
}

// === impl AdapterLease ===

impl AdapterLease {
    /// The requested name.
    pub fn name(&self) -> &AdapterName {
        &self.0.name
    }

    /// Optimiser steps behind it.
    pub fn step(&self) -> u64 {
        self.0.step
    }

    /// SHA-256 of its content, in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.0.sha256
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.0.reserved.bytes
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether somebody holds it besides the pool.
    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The first 64 of its 256 bits; 0 is the base.
    pub(super) fn key(&self) -> WeightsKey {
        let first = self.0.sha256.get(..16).unwrap_or_default();
        WeightsKey::from_str_radix(first, 16).unwrap_or(0).max(1)
    }

    /// Locks the weights. Hold the guard only while you make handles on them.
    pub(super) fn lora(&self) -> MutexGuard<'_, Lora> {
        self.0.lora.lock()
    }
}
