//! Shares skills with the other homes of a folder or a bucket, every `skills.share.interval`.

mod bucket;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail};
use metaclaw_chat::{Secret, now_ms};
use metaclaw_skills::{
    FolderStore, Library, ShareConfig, ShareKey, ShareReport, ShareStore, ShareSync,
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::bucket::BucketStore;
use super::background::Background;
use crate::{environment::Environment, site::Site};

/// The shortest interval that is used. A shorter `skills.share.interval` would only keep the disk busy.
const SHORTEST: Duration = Duration::from_secs(1);

pub(super) fn start(
    config: &ShareConfig,
    site: &Site,
    library: &Library,
    background: &Background,
) -> anyhow::Result<()> {
    let Background { tasks, ending } = background;
    let store: Box<dyn ShareStore> = match (&config.folder, &config.bucket) {
        (None, None) => return Ok(()),
        (Some(folder), None) => Box::new(FolderStore::new(folder, library.dir())),
        (None, Some(place)) => Box::new(BucketStore::new(config, site, place, ending.clone())?),
        (Some(_), Some(_)) => bail!(
            "skills.share.folder and skills.share.bucket are both set, and skills are shared in one place: remove one"
        ),
    };
    let key = key(config, &site.environment)?;
    let sync = ShareSync::new(library.clone(), store, config, key);
    tasks.spawn(run(sync, config.interval.0.max(SHORTEST), ending.clone()));
    Ok(())
}

fn key(config: &ShareConfig, environment: &Environment) -> anyhow::Result<Option<ShareKey>> {
    let key = match (&config.key, &config.key_env) {
        (Some(key), _) => key.clone(),
        (None, Some(name)) => Secret::from(environment.get(name).with_context(|| {
            format!("skills.share.key_env names the variable {name}, which is not set")
        })?),
        (None, None) => return Ok(None),
    };
    Ok(Some(ShareKey::new(&key)?))
}

async fn run(mut sync: ShareSync, interval: Duration, ending: CancellationToken) {
    let looks = async {
        let mut told = BTreeSet::new();
        loop {
            let look = spawn_blocking(move || {
                let looked = sync.sync(now_ms());
                (sync, looked)
            });
            let looked = match look.await {
                Ok((back, looked)) => {
                    sync = back;
                    looked
                }
                Err(error) => {
                    warn!(%error, "skills are not shared any more until the next start");
                    return;
                }
            };
            match looked {
                Ok(Some(report)) => told = log(&report, &told),
                // Another process of this home shares them.
                Ok(None) => {}
                Err(error) => warn!(%error, "skills could not be shared; tried again"),
            }
            tokio::time::sleep(interval).await;
        }
    };
    // Access to a mount that hangs may never return. It must not delay the shutdown.
    ending.run_until_cancelled(looks).await;
}

/// Logs what is new. Returns the present problems.
fn log(report: &ShareReport, told: &BTreeSet<String>) -> BTreeSet<String> {
    if !report.in_force.is_empty() {
        let names = &report.in_force;
        info!("skills of your other machines are in force: {names:?}");
    }
    if !report.withdrawn.is_empty() {
        info!(
            "skills were withdrawn where they were written: {:?}",
            report.withdrawn
        );
    }
    if !report.waiting.is_empty() {
        let n = report.waiting.len();
        info!("{n} shared skills wait for your review  (metaclaw skills review)");
    }
    let withheld = report.withheld.iter().map(|it| format!("not shared: {it}"));
    let problems: BTreeSet<String> = report.problems.iter().cloned().chain(withheld).collect();
    for problem in problems.difference(told) {
        warn!("skills.share: {problem}");
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use metaclaw_chat::{AgentId, Span};
    use metaclaw_skills::{SkillsConfig, WishesConfig};
    use tokio_util::task::TaskTracker;

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn home(dir: &Path, share: &Path) -> (Library, ShareSync) {
        let (library, _) = Library::open(dir, SkillsConfig::default(), WishesConfig::default());
        let store = FolderStore::new(share, dir);
        let config = ShareConfig::default();
        let key = ShareKey::new(&KEY.into()).unwrap();
        let sync = ShareSync::new(library.clone(), Box::new(store), &config, Some(key));
        (library, sync)
    }

    #[tokio::test(start_paused = true)]
    async fn two_homes_are_in_step_within_60_s() {
        let [one, other, share] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let (_, here) = home(one.path(), share.path());
        let (library, there) = home(other.path(), share.path());
        let ending = CancellationToken::new();
        let interval = ShareConfig::default().interval;
        assert_eq!(interval, Span::secs(30));
        let tasks = TaskTracker::new();
        for sync in [here, there] {
            tasks.spawn(run(sync, interval.0, ending.clone()));
        }
        tasks.close();
        // Both have looked for the first time.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let file = one.path().join("main/weather/SKILL.md");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = "---\nname: weather\ndescription: Use when asked.\n---\n\n1. Ask.\n";
        fs::write(&file, text).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        library.rescan();
        let agent: AgentId = "main".parse().unwrap();
        assert_eq!(library.skills(&agent).len(), 1);
        ending.cancel();
        tasks.wait().await;
    }

    #[test]
    fn the_key_is_of_the_settings_or_of_the_environment() {
        let environment = Environment::from_pairs([("SHARE_KEY", KEY), ("SHORT", "abc")]);
        let key = |key: Option<&str>, name: Option<&str>| {
            let config = ShareConfig {
                key: key.map(Secret::from),
                key_env: name.map(str::to_owned),
                ..ShareConfig::default()
            };
            super::key(&config, &environment).map(|key| key.is_some())
        };
        assert!(!key(None, None).unwrap());
        assert!(key(Some(KEY), None).unwrap());
        assert!(key(None, Some("SHARE_KEY")).unwrap());
        let unset = key(None, Some("NONE")).unwrap_err().to_string();
        assert_eq!(
            unset,
            "skills.share.key_env names the variable NONE, which is not set"
        );
        assert!(
            key(None, Some("SHORT"))
                .unwrap_err()
                .to_string()
                .contains("3 characters")
        );
    }
}
