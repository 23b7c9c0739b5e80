//! What was learned in words: the skill library, kept up with its folder, and the store of memories.

use std::time::Duration;

use metaclaw_chat::AgentId;
use metaclaw_control::{
    forgetting::{self, Forgotten, KeptLessons},
    home::Home,
};
use metaclaw_settings::Config;
use metaclaw_skills::{
    LearnError, Library, MemoryStore, SettledLessons, SkillWarning, install_bank,
};
use metaclaw_turns::TurnLog;
use metaclaw_wiring::remembering;
use tokio::{
    task::{JoinError, spawn_blocking},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::turn_log;

/// How often the folder is scanned: works on network and container mounts too.
const RESCAN: Duration = Duration::from_secs(2);
/// A pause is at least so many times as long as the scan before it, so that 50,000 skills or a slow mount do not keep a
/// core busy.
const PAUSE_PER_SCAN: u32 = 20;
const LONG: Duration = Duration::from_secs(3);

pub(crate) fn library(config: &Config, home: &Home) -> (Library, Vec<SkillWarning>) {
    let (skills, wishes) = (config.skills.clone(), config.wishes.clone());
    let folder = skills.dir.clone().unwrap_or_else(|| home.skills());
    Library::open(folder, skills, wishes)
}

/// The store of memories. It is there even with `memory.enabled: false`, for commands.
pub(crate) fn memory(config: &Config, home: &Home) -> MemoryStore {
    let config = config.memory.clone();
    let folder = config.dir.clone().unwrap_or_else(|| home.memory());
    MemoryStore::open_beside(folder, config, remembering())
}

/// Opens both, and finishes what an earlier process left half done. Also returns what cannot be used.
pub(super) async fn start(
    config: &Config,
    home: &Home,
    log: &TurnLog,
) -> anyhow::Result<(KeptLessons, Vec<String>)> {
    let agents = turn_log::known_agents(config, log).await?;
    let (kept, unusable) = open(config, home, agents).await?;
    finish_forgetting(&kept, log, home).await;
    Ok((kept, unusable))
}

/// Both, off the runtime's threads and with the skills that we ship; logs what cannot be used, or seems to be meant as
/// something else than a folder of one of `agents`, and when reading takes long.
pub(super) async fn open(
    config: &Config,
    home: &Home,
    agents: Vec<AgentId>,
) -> anyhow::Result<(KeptLessons, Vec<String>)> {
    let memory = memory(config, home);
    let (config, home) = (config.clone(), home.clone());
    let open = move || {
        install(&config, &home);
        let (library, mut warnings) = library(&config, &home);
        log_settled(library.settle_lessons());
        library.meet(agents);
        warnings.extend(library.rescan());
        (library, warnings)
    };
    let (library, warnings) = scan(open).await?;
    log_warnings(&warnings);
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok((KeptLessons { library, memory }, warnings))
}

/// Says what a start found in the lessons and mended. Words of lessons do not belong into a log that may be kept.
fn log_settled(settled: Result<SettledLessons, LearnError>) {
    let settled = settled.unwrap_or_else(|error| {
        let error = anyhow::Error::from(error);
        warn!("the history of lessons and WISHES.md were not compared: {error:#}");
        SettledLessons::default()
    });
    let n_finished = settled.n_finished;
    if n_finished > 0 {
        info!(
            n_finished,
            "changes of wishes that had been interrupted are made now"
        );
    }
    for lesson in settled.found {
        let (agent, n) = (&lesson.origin.agent, lesson.n);
        info!(%agent, "a wish in force was not in the history of lessons. It is now: `metaclaw undo {n}` takes it back");
    }
}

/// Removes incomplete files, and finishes the deletion of sessions that a kill or an error interrupted. If this fails,
/// the next start tries again.
async fn finish_forgetting(kept: &KeptLessons, log: &TurnLog, home: &Home) {
    match forgetting::remove_drafts(kept, home).await {
        Ok(0) => {}
        Ok(n) => info!("removed {n} incomplete files of interrupted processes"),
        Err(error) => warn!("cannot remove incomplete files: {error:#}"),
    }
    match forgetting::finish_forgetting(log, kept.clone(), home).await {
        Ok(None) => {}
        Ok(Some(Forgotten {
            n_sessions,
            n_turns,
            n_lessons,
            ..
        })) => info!(
            n_sessions,
            n_turns, n_lessons, "the deletion of sessions that had been interrupted is finished"
        ),
        Err(error) => {
            warn!("the deletion of sessions that had been interrupted is not finished: {error:#}");
        }
    }
}

/// Puts the skills that we ship into our own folder; one that somebody chose is theirs.
fn install(config: &Config, home: &Home) {
    let skills = &config.skills;
    if !skills.enabled || skills.dir.is_some() {
        return;
    }
    match install_bank(&home.skills()) {
        Ok(0) => {}
        Ok(n) => info!(
            "{n} skills that we ship were put into {}",
            home.skills().display()
        ),
        Err(error) => warn!(%error, "the skills that we ship could not be installed"),
    }
}

pub(super) async fn rescan(library: Library, ending: CancellationToken) {
    let scans = async {
        let mut pause = RESCAN;
        loop {
            tokio::time::sleep(pause).await;
            let scanned = library.clone();
            let begun = Instant::now();
            match scan(move || scanned.rescan()).await {
                Ok(warnings) => log_warnings(&warnings),
                Err(error) => warn!(%error, "the skill library could not be looked at"),
            }
            pause = pause_after(begun.elapsed());
        }
    };
    // A scan of a mount that hangs never ends: it must not delay the shutdown.
    ending.run_until_cancelled(scans).await;
}

fn pause_after(scan: Duration) -> Duration {
    RESCAN.max(scan * PAUSE_PER_SCAN)
}

async fn scan<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let mut scanning = spawn_blocking(work);
    if let Ok(done) = timeout(LONG, &mut scanning).await {
        return done;
    }
    warn!(
        "looking at the skills folder takes over {LONG:?}: is it very large, or on a slow mount?"
    );
    scanning.await
}

fn log_warnings(warnings: &[SkillWarning]) {
    for warning in warnings {
        warn!("{warning}");
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

    use super::*;

    /// Security row 7: a skill that could not be read held all others up without a word.
    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_is_told_of_while_it_lasts() {
        let lines = tempfile::NamedTempFile::new().unwrap();
        let log = tracing_subscriber::fmt().with_writer(Arc::new(lines.reopen().unwrap()));
        let _log = tracing::subscriber::set_default(log.finish());
        let said = || std::fs::read_to_string(lines.path()).unwrap();
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let mut looking = pin!(scan(move || busy.recv()));
        for (wait, is_told) in [(LONG / 2, false), (LONG, true)] {
            let polled = poll_fn(|cx| Poll::Ready(looking.as_mut().poll(cx).is_pending()));
            assert!(polled.await);
            tokio::time::advance(wait).await;
            let polled = poll_fn(|cx| Poll::Ready(looking.as_mut().poll(cx).is_pending()));
            assert!(polled.await);
            assert_eq!(
                said().contains("looking at the skills folder takes"),
                is_told
            );
        }
        drop(free);
        assert!(looking.await.unwrap().is_err());
    }

    #[test]
    fn the_longer_a_look_takes_the_longer_is_the_pause() {
        assert_eq!(pause_after(Duration::from_millis(3)), RESCAN);
        assert_eq!(
            pause_after(Duration::from_secs(5)),
            Duration::from_secs(100)
        );
    }
}
