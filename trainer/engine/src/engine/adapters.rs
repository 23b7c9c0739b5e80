//! Adapters that are loaded for serving, by name; the least recently asked for goes first.
//!
//! They are read, converted and scaled on whatever thread asks for them, never on the engine's, which only takes
//! handles on tensors that are ready. Their bytes are reserved before they are read and given back when the last
//! lease drops. What an adapter is, is told by its content: one that was evicted and read again, or saved again
//! unchanged, goes on with the prefixes that it had.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tch::{Device, TchError};

use crate::adapter::{self, AdapterError, BaseSpec};
use crate::folder::Stamp;
use crate::generate::GenerateError;
use crate::lora::Lora;
use crate::prefix::WeightsKey;

/// An adapter as the engine's thread serves it. A reply holds its own handle, so it ends on what it began with.
#[derive(Debug)]
pub struct ServedAdapter {
    /// As it was asked for.
    pub name: String,
    /// Its weights, detached, with the scale in B; f32 whatever the base is: for one token a small
    /// product in bf16 costs six times as much on a CPU.
    pub lora: Lora,
    /// Optimiser steps behind it.
    pub step: u64,
    /// Of its content.
    pub(crate) key: WeightsKey,
    lease: AdapterLease,
}

/// A hold on a loaded adapter: while one lives, its memory stays. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AdapterLease(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    name: String,
    step: u64,
    sha256: String,
    /// As [`ServedAdapter::lora`]. No two threads may use one tensor at a time, even to make another handle of it.
    lora: Mutex<Lora>,
    reserved: Reserved,
}

/// The adapters of an engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AdapterPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    checkpoint_dir: PathBuf,
    base: Arc<BaseSpec>,
    device: Device,
    budget: Arc<Budget>,
    /// Held while one is read: who asks for the same meanwhile finds it there afterwards.
    reading: Mutex<()>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// With what its folder was when it was read; the most recently used last.
    loaded: VecDeque<(Stamp, AdapterLease)>,
    /// Unloaded or replaced, while replies hold them.
    leaving: Vec<Weak<Loaded>>,
}

/// Bytes of adapters.
#[derive(Debug)]
struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// Bytes that were taken from a budget, and are given back when this drops.
#[derive(Debug)]
struct Reserved {
    budget: Arc<Budget>,
    bytes: usize,
}

/// How often an adapter is read again that was replaced meanwhile.
const READS: usize = 3;

// === impl AdapterLease ===

impl AdapterLease {
    /// As it was asked for.
    pub fn name(&self) -> &str {
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

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether somebody holds it besides the pool.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The first 64 of its 256 bits; 0 is the base.
    fn key(&self) -> WeightsKey {
        let first = self.0.sha256.get(..16).unwrap_or_default();
        WeightsKey::from_str_radix(first, 16).unwrap_or(0).max(1)
    }
}

// === impl ServedAdapter ===

impl ServedAdapter {
    /// Handles for the engine's thread; the one of `served` where a reply has it already.
    pub(super) fn of(
        lease: AdapterLease,
        served: &mut Vec<std::rc::Weak<Self>>,
    ) -> Result<Rc<Self>, TchError> {
        served.retain(|it| it.strong_count() > 0);
        let mut there = served.iter().filter_map(std::rc::Weak::upgrade);
        if let Some(there) = there.find(|it| it.lease.is(&lease)) {
            return Ok(there);
        }
        let lora = lock(&lease.0.lora);
        let device = lora
            .params()
            .next()
            .map_or(Device::Cpu, tch::Tensor::device);
        let own = Rc::new(Self {
            name: lease.name().to_owned(),
            lora: lora.to_kind(tch::Kind::Float, device)?,
            step: lease.step(),
            key: lease.key(),
            lease: lease.clone(),
        });
        served.push(Rc::downgrade(&own));
        Ok(own)
    }
}

// === impl AdapterPool ===

impl AdapterPool {
    /// Nothing is loaded yet; what will be takes at most `limit` bytes.
    pub(crate) fn new(
        checkpoint_dir: PathBuf,
        base: Arc<BaseSpec>,
        device: Device,
        limit: usize,
    ) -> Self {
        let used = AtomicUsize::new(0);
        Self(Arc::new(Pool {
            checkpoint_dir,
            base,
            device,
            budget: Arc::new(Budget { limit, used }),
            reading: Mutex::default(),
            names: Mutex::default(),
        }))
    }

    /// The adapter `<checkpoint_dir>/adapters/<name>`, read if it is not loaded or was replaced. Blocks meanwhile:
    /// not for the engine's thread.
    ///
    /// # Errors
    /// As [`adapter::load`], and [`AdapterError::Memory`] where adapters in use leave no room.
    pub fn load(&self, name: &str) -> Result<AdapterLease, AdapterError> {
        if let Some(ready) = self.ready(name)? {
            return Ok(ready);
        }
        let _reading = lock(&self.0.reading);
        for _ in 0..READS {
            if let Some(ready) = self.ready(name)? {
                return Ok(ready);
            }
            self.read(name)?;
        }
        let folder = adapter::folder_of(&self.0.checkpoint_dir, name)?;
        Err(AdapterError::Changing { folder })
    }

    /// The adapter of a name, if what is loaded is what its folder holds.
    ///
    /// # Errors
    /// A name that leads elsewhere.
    pub fn ready(&self, name: &str) -> Result<Option<AdapterLease>, AdapterError> {
        let stamp = adapter::stamp(&adapter::folder_of(&self.0.checkpoint_dir, name)?);
        let mut names = lock(&self.0.names);
        let is_it = |(was, lease): &(Stamp, AdapterLease)| lease.name() == name && *was == stamp;
        let Some(found) = names.loaded.iter().position(is_it) else {
            return Ok(None);
        };
        let found = names.loaded.remove(found);
        let lease = found.as_ref().map(|(_, lease)| lease.clone());
        names.loaded.extend(found);
        Ok(lease)
    }

    /// The loaded adapter of a name, or one that was and that somebody still holds; the disk is not asked.
    pub(super) fn held(&self, name: &str) -> Result<AdapterLease, AdapterError> {
        let names = lock(&self.0.names);
        let loaded = names.loaded.iter().map(|(_, lease)| lease.clone());
        let leaving = names.leaving.iter().filter_map(Weak::upgrade);
        let mut all = loaded.chain(leaving.map(AdapterLease));
        let found = all.find(|lease| lease.name() == name);
        found.ok_or_else(|| AdapterError::Unknown {
            name: name.to_owned(),
            folder: self.0.checkpoint_dir.join("adapters"),
        })
    }

    /// Forgets an adapter; its memory goes with the last reply that holds it. False when it was not loaded.
    pub fn unload(&self, name: &str) -> bool {
        let mut names = lock(&self.0.names);
        let before = names.loaded.len();
        names.forget(|_, lease| lease.name() == name);
        names.loaded.len() < before
    }

    /// The loaded adapters, the least recently used first.
    pub fn loaded(&self) -> Vec<AdapterLease> {
        let names = lock(&self.0.names);
        names
            .loaded
            .iter()
            .map(|(_, lease)| lease.clone())
            .collect()
    }

    /// Whether a reply holds an adapter of this name.
    pub fn is_in_use(&self, name: &str) -> bool {
        let names = lock(&self.0.names);
        let loaded = names.loaded.iter().map(|(_, lease)| lease);
        let mut in_use = loaded.filter(|lease| lease.is_in_use());
        let mut leaving = names.leaving.iter().filter_map(Weak::upgrade);
        in_use.any(|lease| lease.name() == name) || leaving.any(|it| it.name == name)
    }

    /// Bytes of the adapters that are loaded or held.
    pub fn bytes(&self) -> usize {
        self.0.budget.used.load(Ordering::Acquire)
    }

    /// Reads an adapter and puts it in the place of the one of its name.
    fn read(&self, name: &str) -> Result<(), AdapterError> {
        let Pool { base, device, .. } = &*self.0;
        let folder = adapter::existing(&self.0.checkpoint_dir, name)?;
        let stamp = adapter::stamp(&folder);
        let reserved = self.reserve(name, adapter::bytes(&folder, base)?)?;
        let read = adapter::read(&folder, base)?;
        let lora = read.lora.for_serving(*device)?;
        let mut names = lock(&self.0.names);
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
        let loaded = Loaded {
            name: name.to_owned(),
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

    /// Takes bytes from the budget; adapters that nobody holds make room, the least recently used first.
    fn reserve(&self, name: &str, bytes: usize) -> Result<Reserved, AdapterError> {
        let budget = &self.0.budget;
        loop {
            if let Some(reserved) = Reserved::take(budget, bytes) {
                return Ok(reserved);
            }
            let mut names = lock(&self.0.names);
            let idle = names
                .loaded
                .iter()
                .position(|(_, lease)| !lease.is_in_use());
            let Some(idle) = idle else {
                return Err(AdapterError::Memory {
                    name: name.to_owned(),
                    needed: bytes,
                    free: budget.limit.saturating_sub(self.bytes()),
                    limit: budget.limit,
                });
            };
            names.loaded.remove(idle);
        }
    }
}

// === impl Names ===

impl Names {
    /// Forgets some of the loaded; what is held leaves when it is let go.
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

// === impl Reserved ===

impl Reserved {
    fn take(budget: &Arc<Budget>, bytes: usize) -> Option<Self> {
        let more = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= budget.limit);
        let taken = budget
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Self {
            budget: Arc::clone(budget),
            bytes,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What a reply that needs the adapter `name` is told.
pub(super) fn refusal(name: &str, error: &AdapterError) -> GenerateError {
    let (name, detail) = (name.to_owned(), error.to_string());
    match error {
        AdapterError::Unknown { .. } | AdapterError::Name(_) => GenerateError::Adapter {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half changed by a panic while one of these is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
