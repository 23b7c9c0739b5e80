//! Writes `reports/YYYY-MM-DD.md` in the home, once for each day after its end, from the running proxy.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use jiff::civil::Date;
use metaclaw_chat::now_ms;
use metaclaw_settings::write_private;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Period, PeriodReport, curve,
    days::day_of,
    gather::{ReportSources, gather},
    markdown,
};

/// The time of the first check, after the start.
const FIRST: Duration = Duration::from_secs(90);
const EVERY: Duration = Duration::from_secs(600);
/// The number of past days that are written after the proxy was off.
const BEHIND: u32 = 7;
/// The text in place of deleted words.
const FORGOTTEN: &str = "- (forgotten)";

/// Writes due digests at intervals, until `ending`.
pub fn run(
    sources: ReportSources,
    folder: PathBuf,
    ending: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let looks = async {
            let mut done = BTreeSet::new();
            let mut pause = FIRST;
            loop {
                tokio::time::sleep(pause).await;
                pause = EVERY;
                let today = day_of(now_ms(), &sources.zone);
                // A clock that was ahead ends no day early.
                done.retain(|day| *day < today);
                for day in due(today, &folder, &done) {
                    match write_one(&sources, &folder, day).await {
                        Ok(()) => {
                            done.insert(day);
                        }
                        Err(error) => warn!(%day, "the digest could not be written: {error:#}"),
                    }
                }
            }
        };
        ending.run_until_cancelled(looks).await;
    })
}

/// Returns the recent past days without a digest.
fn due(today: Date, folder: &Path, done: &BTreeSet<Date>) -> Vec<Date> {
    let Ok(yesterday) = today.yesterday() else {
        return Vec::new();
    };
    let days = Period::until(yesterday, BEHIND).days();
    // A digest of the future was written with a clock that was ahead, perhaps before its day was over.
    let is_written = |day: &Date| {
        let written = path(folder, *day, "md").metadata();
        let at = written.and_then(|it| it.modified());
        at.is_ok_and(|at| at <= SystemTime::now())
    };
    let days = days.filter(|day| !done.contains(day) && !is_written(day));
    days.collect()
}

async fn write_one(sources: &ReportSources, folder: &Path, day: Date) -> anyhow::Result<()> {
    let mut report = gather(sources, Period::day(day), now_ms()).await?;
    // Words of prompts are deleted with their turns, and this file stays.
    for broken in &mut report.prefix.latest {
        broken.before.clear();
        broken.now.clear();
    }
    if report.is_empty() {
        return Ok(());
    }
    let folder = folder.to_owned();
    let written = tokio::task::spawn_blocking(move || write(&folder, day, &report)).await??;
    info!("the digest of {day} lies in {}", written.display());
    Ok(())
}

/// Writes a digest and its picture, readable by the owner only.
fn write(folder: &Path, day: Date, report: &PeriodReport) -> io::Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let picture = path(folder, day, "svg");
    write_private(&picture, curve::svg(&report.days).as_bytes())?;
    let name = picture.file_name().unwrap_or_default().to_string_lossy();
    let text = markdown::text(report, Some(&name)) + "\n";
    let path = path(folder, day, "md");
    write_private(&path, text.as_bytes())?;
    Ok(path)
}

fn path(folder: &Path, day: Date, kind: &str) -> PathBuf {
    folder.join(format!("{day}.{kind}"))
}

/// Removes lines with any of these words from every digest, so that no file contains deleted words.
pub(crate) fn forget(folder: &Path, words: &[String]) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let words: Vec<String> = words.iter().map(|it| markdown::plain(it)).collect();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let goes = |line: &str| {
            words
                .iter()
                .any(|it| !it.is_empty() && line.contains(it.as_str()))
        };
        if text.lines().any(goes) {
            let lines = text.lines().map(|it| if goes(it) { FORGOTTEN } else { it });
            let left: Vec<&str> = lines.collect();
            write_private(&path, (left.join("\n") + "\n").as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_digest_is_due_for_each_day_that_is_over_and_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let today = date(2026, 11, 22);
        let mut done = BTreeSet::new();
        assert_eq!(due(today, folder.path(), &done).len(), BEHIND as usize);
        let report = PeriodReport::default();
        let yesterday = today.yesterday().unwrap();
        write(folder.path(), yesterday, &report).unwrap();
        let left = due(today, folder.path(), &done);
        assert_eq!(left.len(), BEHIND as usize - 1);
        assert!(!left.contains(&yesterday));
        done.extend(left);
        assert_eq!(due(today, folder.path(), &done), []);
        let tomorrow = today.tomorrow().unwrap();
        assert_eq!(due(tomorrow, folder.path(), &done), [today]);
        for (ahead, is_due) in [(3_600, true), (40 * 86_400, true), (0, false)] {
            let file = fs::File::open(path(folder.path(), yesterday, "md")).unwrap();
            let at = SystemTime::now() + Duration::from_secs(ahead);
            file.set_modified(at).unwrap();
            let days = due(today, folder.path(), &BTreeSet::new());
            assert_eq!(days.contains(&yesterday), is_due, "{ahead}");
        }
    }

    #[test]
    fn what_is_forgotten_stands_in_no_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("2026-11-22.md");
        fs::write(&path, "# Day\n- 1: too long, Zorro\n  - Zorro\n- 2: else\n").unwrap();
        forget(folder.path(), &[String::new(), "Zorro".to_owned()]).unwrap();
        let left = fs::read_to_string(&path).unwrap();
        assert_eq!(left, "# Day\n- (forgotten)\n- (forgotten)\n- 2: else\n");
        forget(&folder.path().join("none"), &["x".to_owned()]).unwrap();
    }
}
