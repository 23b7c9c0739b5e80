//! The pool of adapters in memory, by name, and how they are loaded.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use metaclaw_trainer_terms::AdapterName;
use parking_lot::Mutex;

use super::budget::{AdapterBudget, Reserved};
use super::lease::{AdapterLease, PooledAdapter};
use crate::adapter::{self, AdapterError, BaseSpec};
use crate::folder::{self, Stamp};
use crate::placement::Placement;

/// The adapters of an engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AdapterPool(Arc<AdapterSlots>);

#[derive(Debug)]
struct AdapterSlots {
    checkpoint_dir: PathBuf,
    base: Arc<BaseSpec>,
    placement: Placement,
    budget: Arc<AdapterBudget>,
    /// Held while an adapter is read. A second request for it waits and then finds it in memory.
    reading: Mutex<()>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Each adapter with its folder's stamp at reading, the most recently used last.
    loaded: VecDeque<(Stamp, AdapterLease)>,
    /// Unloaded or replaced, while replies hold them.
    leaving: Vec<Weak<PooledAdapter>>,
}

/// The number of attempts to read an adapter that is being replaced.
const READS: usize = 3;

// === impl AdapterPool ===

impl AdapterPool {
    /// An empty pool, whose adapters will take at most `limit` bytes.
    pub(in crate::engine) fn new(
        checkpoint_dir: PathBuf,
        base: Arc<BaseSpec>,
        placement: Placement,
        limit: usize,
    ) -> Self {
        Self(Arc::new(AdapterSlots {
            checkpoint_dir,
            base,
            placement,
            budget: AdapterBudget::new(limit),
            reading: Mutex::default(),
            names: Mutex::default(),
        }))
    }

    /// Returns the adapter `<checkpoint_dir>/adapters/<name>`. Reads it if it is not loaded or was replaced. This
    /// blocks, so the engine's thread must not call it.
    ///
    /// # Errors
    /// As [`adapter::load`], and [`AdapterError::Memory`] where adapters in use leave no room.
    pub fn load(&self, name: &AdapterName) -> Result<AdapterLease, AdapterError> {
        if let Some(ready) = self.ready(name) {
            return Ok(ready);
        }
        let _reading = self.0.reading.lock();
        for _ in 0..READS {
            if let Some(ready) = self.ready(name) {
                return Ok(ready);
            }
            self.read(name)?;
        }
        let folder = adapter::folder_of(&self.0.checkpoint_dir, name);
        Err(AdapterError::Changing { folder })
    }

    /// The loaded adapter of a name, if its folder has not changed since.
    pub fn ready(&self, name: &AdapterName) -> Option<AdapterLease> {
        let stamp = adapter::stamp(&adapter::folder_of(&self.0.checkpoint_dir, name));
        let mut names = self.0.names.lock();
        let is_it = |(was, lease): &(Stamp, AdapterLease)| lease.name() == name && *was == stamp;
        let found = names.loaded.iter().position(is_it)?;
        let found = names.loaded.remove(found)?;
        let lease = found.1.clone();
        names.loaded.push_back(found);
        Some(lease)
    }

    /// The loaded adapter of a name, or one that was and that somebody still holds; the disk is not asked.
    pub(in crate::engine) fn held(&self, name: &AdapterName) -> Result<AdapterLease, AdapterError> {
        let names = self.0.names.lock();
        let loaded = names.loaded.iter().map(|(_, lease)| lease.clone());
        let leaving = names.leaving.iter().filter_map(Weak::upgrade);
        let mut all = loaded.chain(leaving.map(AdapterLease));
        let found = all.find(|lease| lease.name() == name);
        found.ok_or_else(|| AdapterError::Unknown {
            name: name.clone(),
            folder: folder::adapters(&self.0.checkpoint_dir),
        })
    }

    /// Forgets an adapter; its memory goes with the last reply that holds it. False when it was not loaded.
    pub fn unload(&self, name: &AdapterName) -> bool {
        let mut names = self.0.names.lock();
        let before = names.loaded.len();
        names.forget(|_, lease| lease.name() == name);
        names.loaded.len() < before
    }

    /// Forgets every adapter, as [`Self::unload`] does.
    pub fn clear(&self) {
        self.0.names.lock().forget(|_, _| true);
    }

    /// The loaded adapters, the least recently used first.
    pub fn loaded(&self) -> Vec<AdapterLease> {
        let names = self.0.names.lock();
        let leases = names.loaded.iter().map(|(_, lease)| lease.clone());
        leases.collect()
    }

    /// Whether a reply holds an adapter of this name.
    pub fn is_in_use(&self, name: &AdapterName) -> bool {
        let names = self.0.names.lock();
        let loaded = names.loaded.iter().map(|(_, lease)| lease);
        let mut in_use = loaded.filter(|lease| lease.is_in_use());
        let mut leaving = names.leaving.iter().filter_map(Weak::upgrade);
        in_use.any(|lease| lease.name() == name) || leaving.any(|adapter| adapter.name == *name)
    }

    /// Bytes of the adapters that are loaded or held.
    pub fn bytes(&self) -> usize {
        self.0.budget.used()
    }

    fn read(&self, name: &AdapterName) -> Result<(), AdapterError> {
        let AdapterSlots {
            base, placement, ..
        } = &*self.0;
        let folder = adapter::existing(&self.0.checkpoint_dir, name)?;
        let stamp = adapter::stamp(&folder);
        let reserved = self.reserve(name, adapter::bytes(&folder, base)?)?;
        let read = adapter::read(&folder, base)?;
        let lora = read.lora.for_serving(placement)?;
        let mut names = self.0.names.lock();
        let of_name = |(_, lease): &&mut (Stamp, AdapterLease)| lease.name() == name;
        if let Some((was, old)) = names.loaded.iter_mut().find(of_name)
            && old.sha256() == read.sha256
            && old.step() == read.step
        {
            // Written again, with the same content.
            *was = stamp;
            return Ok(());
        }
        names.forget(|_, lease| lease.name() == name);
        let loaded = PooledAdapter {
            name: name.clone(),
            step: read.step,
            sha256: read.sha256,
            lora: Mutex::new(lora),
            reserved,
        };
        names
            .loaded
            .push_back((stamp, AdapterLease(Arc::new(loaded))));
        Ok(())
    }

    /// Takes bytes from the budget. Adapters without a lease are evicted, the least recently used first.
    fn reserve(&self, name: &AdapterName, bytes: usize) -> Result<Reserved, AdapterError> {
        let budget = &self.0.budget;
        loop {
            if let Some(reserved) = Reserved::take(budget, bytes) {
                return Ok(reserved);
            }
            let mut names = self.0.names.lock();
            let mut loaded = names.loaded.iter();
            let idle = loaded.position(|(_, lease)| !lease.is_in_use());
            let Some(idle) = idle else {
                return Err(AdapterError::Memory {
                    name: name.clone(),
                    needed: bytes,
                    free: budget.limit().saturating_sub(self.bytes()),
                    limit: budget.limit(),
                });
            };
            names.loaded.remove(idle);
        }
    }
}

// === impl Names ===

impl Names {
    /// Removes some of the loaded adapters. Leased ones are freed when their last lease drops.
    fn forget(&mut self, which: impl Fn(&Stamp, &AdapterLease) -> bool) {
        self.leaving.retain(|lease| lease.strong_count() > 0);
        let leaving = &mut self.leaving;
        self.loaded.retain(|(stamp, lease)| {
            let goes = which(stamp, lease);
            if goes && lease.is_in_use() {
                leaving.push(Arc::downgrade(&lease.0));
            }
            !goes
        });
    }
}
