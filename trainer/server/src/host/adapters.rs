//! Adapters by name: which there are, in memory and on disk.

use std::{fs, io, path::PathBuf};

use metaclaw_engine::{adapter, engine::AdapterLease, folder};
use metaclaw_trainer_api::{
    AdapterName,
    wire::{AdapterInfo, LoadAdapterReply},
};

use metaclaw_trainer_terms::{ErrorCode, SamplerError, SamplerFailure};

use super::{Host, failure::RunError};
use crate::error::Result;
use crate::{error::ApiError, tinker::stored};

// === impl Host ===

impl Host {
    pub(crate) fn has_adapter(&self, name: &AdapterName) -> bool {
        adapter::existing(&self.store.folder, name).is_ok()
    }

    /// Describes every adapter on disk, by name.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) async fn adapters(&self) -> Result<Vec<AdapterInfo>> {
        // A caller that asks whether an adapter was saved waits for a running save.
        drop(self.store.turn().await);
        let names = self.adapter_names()?;
        let engine = self.engine.get().ok();
        let loaded = engine.map_or_else(Vec::new, |engine| engine.adapters().loaded());
        let info = |name: AdapterName| {
            let lease = loaded.iter().find(|lease| *lease.name() == name);
            self.adapter_info(name, lease)
        };
        Ok(names.into_iter().map(info).collect())
    }

    fn adapter_info(&self, name: AdapterName, lease: Option<&AdapterLease>) -> AdapterInfo {
        let folder = adapter::folder_of(&self.store.folder, &name);
        // Damage is reported when the adapter is requested.
        let info = adapter::info(&folder).ok();
        let step = info.as_ref().map_or(0, |info| info.step);
        let sha256 = lease.map(|lease| lease.sha256().to_owned());
        AdapterInfo {
            name,
            loaded: lease.is_some(),
            step: lease.map_or(step, AdapterLease::step),
            sha256: sha256.or_else(|| info?.sha256),
            bytes: lease.map(|lease| lease.bytes() as u64),
        }
    }

    /// The folder of an adapter, the SHA-256 of its content when it was written, and its optimiser steps.
    ///
    /// # Errors
    /// Where there is none, or what stands beside it is damaged.
    pub(crate) fn saved_adapter(
        &self,
        name: &AdapterName,
    ) -> Result<(PathBuf, Option<String>, u64), SamplerError> {
        let folder = adapter::existing(&self.store.folder, name);
        let folder = folder
            .map_err(|error| SamplerError::new(SamplerFailure::UnknownModel, error.to_string()))?;
        let info = adapter::info(&folder).map_err(|error| {
            SamplerError::field("model", error.to_string()).with_code(ErrorCode::AdapterDamaged)
        })?;
        Ok((folder, info.sha256, info.step))
    }

    /// Takes an adapter into memory; one that is there already stays as it is.
    ///
    /// # Errors
    /// 404 for an unknown one, 400 for one that does not fit, 503 where those in use leave no room.
    ///
    /// # Cancel safety
    /// A load that was begun is finished.
    pub(crate) async fn load_adapter(&self, name: &AdapterName) -> Result<LoadAdapterReply> {
        let lease = self.engine.get()?.load_adapter(name).await;
        let lease = lease.map_err(RunError::from)?;
        Ok(LoadAdapterReply {
            status: "ok".to_owned(),
            step: lease.step(),
            sha256: lease.sha256().to_owned(),
            bytes: lease.bytes() as u64,
        })
    }

    /// Takes an adapter out of memory once the replies that use it have ended; whether it was there.
    pub(crate) fn unload(&self, name: &AdapterName) -> bool {
        let engine = self.engine.get();
        engine.is_ok_and(|engine| engine.adapters().unload(name))
    }

    /// Deletes an adapter. The checkpoint of its name stays.
    ///
    /// # Errors
    /// 404 for an unknown one, 409 while a reply uses it.
    pub(crate) async fn delete_adapter(&self, name: AdapterName) -> Result<()> {
        let turn = self.store.turn().await;
        let adapters = self.engine.get()?.adapters().clone();
        if adapters.is_in_use(&name) {
            let text = format!("adapter {name} is in use: replies that it makes have not ended");
            return Err(ApiError::adapter_in_use(text));
        }
        let folder = self.store.folder.clone();
        let delete = move |_: &mut _| {
            let folder = adapter::existing(&folder, &name)?;
            adapters.unload(&name);
            folder::remove(&folder)?;
            tracing::info!(path = %folder.display(), "adapter deleted");
            Ok(())
        };
        turn.work(delete).await
    }

    /// Deletes what samplers of an earlier process left: their sessions have ended with it.
    pub(super) fn delete_ephemeral(&self) -> anyhow::Result<()> {
        let names = self.adapter_names()?.into_iter();
        for name in names.filter(stored::is_ephemeral) {
            folder::remove(&adapter::folder_of(&self.store.folder, &name))?;
        }
        Ok(())
    }

    /// Names of the adapters on disk, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn adapter_names(&self) -> Result<Vec<AdapterName>> {
        let folder = self.adapter_folder();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let text = format!("{} cannot be read: {error}", folder.display());
                return Err(ApiError::internal(text));
            }
        };
        // A half-written folder has a name that does not parse.
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let names = entries.flatten().filter_map(name);
        let mut names: Vec<AdapterName> = names.filter(|name| self.has_adapter(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn adapter_folder(&self) -> PathBuf {
        folder::adapters(&self.store.folder)
    }

    pub(crate) fn checkpoint_folder(&self) -> PathBuf {
        folder::checkpoints(&self.store.folder)
    }
}
