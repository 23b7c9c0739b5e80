//! `metaclaw migrate`: takes what a home of the Python MetaClaw has into a home of this one.
//!
//! The old home is only read. Nothing of the new home is overwritten, and a second run adds nothing twice. Each thing that
//! was found becomes one [`MigrationItem`], which says what became of it.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde::Serialize;

use self::{adapters::PeftAdapter, old_home::OldHome, work::Migration};
use crate::{home::Home, instance::Instance, rollouts::RolloutImport};

mod adapters;
mod item;
mod leftovers;
mod old_home;
mod records;
mod settings;
mod skills;
mod work;

pub use self::{
    item::{MigratedKind, MigrationItem, MigrationOutcome},
    old_home::{MigrationRequest, OldHomeError},
};

/// What became of everything that was found.
#[derive(Debug, Serialize)]
pub struct MigrationReport {
    pub from: PathBuf,
    pub to: PathBuf,
    pub dry_run: bool,
    pub items: Vec<MigrationItem>,
}

/// What is taken at last, because it needs the settings of the new home.
struct Deferred {
    imports: Vec<RolloutImport>,
    adapters: Vec<PeftAdapter>,
}

/// Migrates a home. Everything is read and checked once before anything is written, so a home that cannot be read leaves
/// the new one as it was.
///
/// # Errors
/// [`OldHomeError`], or why a file cannot be read or written.
pub fn migrate<'a>(
    request: &'a MigrationRequest,
    home: &'a Home,
    instance: &'a Instance,
) -> BoxFuture<'a, anyhow::Result<MigrationReport>> {
    Box::pin(async move {
        let old = OldHome::open(request, home)?;
        let from = old.dir.clone();
        let mut migration = Migration {
            old,
            home,
            checkpoints: instance.checkpoints()?,
            writes: false,
            items: Vec::new(),
        };
        let mut deferred = take(&mut migration)?;
        if !request.dry_run {
            home.create()?;
            migration.writes = true;
            migration.items.clear();
            deferred = take(&mut migration)?;
            // The settings that were just taken may name another folder.
            migration.checkpoints = instance.checkpoints()?;
        }
        adapters::register(&mut migration, &deferred.adapters)?;
        records::import(&mut migration, deferred.imports, instance).await?;
        leftovers::note(&mut migration)?;
        Ok(MigrationReport {
            from,
            to: home.dir().to_owned(),
            dry_run: request.dry_run,
            items: migration.items,
        })
    })
}

/// Takes everything that needs neither the log of turns nor the new settings.
fn take(migration: &mut Migration<'_>) -> anyhow::Result<Deferred> {
    settings::take(migration)?;
    settings::take_keys(migration)?;
    skills::take(migration)?;
    skills::take_history(migration)?;
    Ok(Deferred {
        imports: records::read(migration)?,
        adapters: adapters::find(migration),
    })
}

#[cfg(test)]
mod tests;
