//! Settings and providers' keys of an old home.

use std::path::Path;

use anyhow::Context as _;
use metaclaw_settings::{
    adopt::{self, AdoptedKey},
    auth_profiles::Profiles,
};

use super::{
    item::{MigratedKind, MigrationOutcome},
    work::Migration,
};

/// Keys that are not taken, because what they name is taken itself.
const WITHOUT: [(&str, &str); 1] = [(
    "skills.dir",
    "the skills themselves are copied into the new home",
)];

/// Writes the settings that have an effect here into the new file.
pub(super) fn take(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    let from = migration.old.dir.join("config.yaml");
    if !from.exists() {
        return Ok(());
    }
    let to = migration.home.config();
    let adopted = adopt::adopt(&from, &to, &WITHOUT)?;
    if migration.writes {
        adopted.write(&to)?;
    }
    for (key, became) in adopted.keys {
        let outcome = match became {
            AdoptedKey::Taken => MigrationOutcome::Taken,
            AdoptedKey::Present => MigrationOutcome::Present,
            AdoptedKey::Kept => {
                let file = to.display();
                MigrationOutcome::Kept(format!("{file} has another value, which stays"))
            }
            AdoptedKey::Left(why) => MigrationOutcome::Left(why),
        };
        migration.note(MigratedKind::Setting, key, outcome);
    }
    Ok(())
}

/// Copies the keys and tokens of providers.
pub(super) fn take_keys(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    let theirs = load(&migration.old.dir.join("auth-profiles.json"))?;
    let to = migration.home.auth_profiles();
    let mut ours = load(&to)?;
    let mut n_taken = 0;
    for profile in theirs.list() {
        let own = ours.list().into_iter().find(|it| it.id == profile.id);
        let outcome = match own {
            Some(own) if own.secret.expose() == profile.secret.expose() => {
                MigrationOutcome::Present
            }
            Some(_) => MigrationOutcome::Kept("another one of this name is stored".to_owned()),
            None => {
                ours.adopt(&theirs, &profile.id);
                n_taken += 1;
                MigrationOutcome::Taken
            }
        };
        migration.note(MigratedKind::Key, profile.id, outcome);
    }
    if migration.writes && n_taken > 0 {
        ours.save(&to)?;
    }
    Ok(())
}

fn load(path: &Path) -> anyhow::Result<Profiles> {
    Profiles::load(path).with_context(|| format!("cannot read {}", path.display()))
}
