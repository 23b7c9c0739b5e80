//! The log of turns, who is in it, and what of it is old: sessions are forgotten after `turns.retention`, counts by day
//! after `turns.statistics_retention`.
//!
//! A clock that jumps deletes nothing: an age counts when the clock has shown it over a day of running
//! ([`metaclaw_turns::ClockReadings`]).

use std::time::Duration;

use metaclaw_chat::{AgentId, Span, now_ms, whole_ms};
use metaclaw_control::home::Home;
use metaclaw_settings::Config;
use metaclaw_turns::{LogError, TurnLog, TurnsConfig, day_of};
use tokio::{task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The first reading of the clock, and the first deletion, when the start is over.
const FIRST: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);
/// Readings from one deletion to the next.
const READINGS: u32 = 6;

pub(super) async fn open(config: &TurnsConfig, home: &Home) -> anyhow::Result<TurnLog> {
    let (folder, config) = (home.turns(), config.clone());
    let log = spawn_blocking(move || TurnLog::open(&folder, &config)).await??;
    // The first reading is older than the first turn of this process, whose time is this clock's.
    note(&log, Duration::ZERO, now_ms()).await;
    if let Some(doubt) = log.clock().doubt(now_ms()) {
        warn!("{doubt}");
    }
    Ok(log)
}

pub(super) async fn known_agents(config: &Config, log: &TurnLog) -> anyhow::Result<Vec<AgentId>> {
    let mut agents = log.agents().await?;
    agents.extend(config.gateway.agents.keys().cloned());
    let keys = config.gateway.proxy.keys.values();
    agents.extend(keys.flat_map(|key| key.agents.iter().cloned()));
    Ok(agents)
}

pub(super) async fn retain(log: TurnLog, config: TurnsConfig, ending: CancellationToken) {
    let (mut pause, mut is_doubted) = (FIRST, log.clock().doubt(now_ms()).is_some());
    for n in 0_u32.. {
        let slept = Instant::now();
        let sleep = ending.run_until_cancelled(tokio::time::sleep(pause));
        let is_over = sleep.await.is_none();
        // A timer that fires late has waited for the machine, and not run.
        note(&log, slept.elapsed().min(pause), now_ms()).await;
        let doubt = log.clock().doubt(now_ms());
        if let (Some(doubt), false) = (&doubt, is_doubted) {
            warn!("{doubt}");
        }
        (pause, is_doubted) = (EVERY, doubt.is_some());
        if is_over {
            return;
        }
        if !n.is_multiple_of(READINGS) {
            continue;
        }
        let forgetting = forget_old(&log, &config, now_ms());
        match ending.run_until_cancelled(forgetting).await {
            Some(Ok(0)) => {}
            Some(Ok(n)) => info!(
                "{n} sessions that ended over {} ago were forgotten",
                config.retention
            ),
            Some(Err(LogError::Closed)) | None => return,
            Some(Err(error)) => {
                warn!(%error, "what is old could not be forgotten; tried again in an hour");
            }
        }
    }
}

/// Notes what the clock shows. Without the file, the running of this process does not count after a restart.
async fn note(log: &TurnLog, ran: Duration, now_ms: u64) {
    match log.note_clock(ran, now_ms).await {
        Ok(Ok(())) | Err(LogError::Closed) => {}
        Ok(Err(error)) => warn!(%error, "the reading of the clock was not written down"),
        Err(error) => warn!(%error, "the log does not say when the last turn was"),
    }
}

/// Forgets what is too old by each reading of the clock over a day of running; how many sessions. The log is written
/// anew then, so that they are gone from the disk.
async fn forget_old(log: &TurnLog, config: &TurnsConfig, now_ms: u64) -> Result<u64, LogError> {
    let before_ms = |age: Span| {
        let confirmed_ms = log.clock().confirmed_ms(age.0, now_ms)?;
        Some(confirmed_ms.saturating_sub(whole_ms(age.0)))
    };
    let mut n_sessions = 0;
    if let Some(before_ms) = before_ms(config.retention) {
        n_sessions = log.forget_before(before_ms, now_ms).await?;
    }
    if n_sessions > 0 {
        log.compact().await?;
    }
    if let Some(before_ms) = before_ms(config.statistics_retention) {
        log.forget_statistics_before(day_of(before_ms)).await?;
    }
    Ok(n_sessions)
}

#[cfg(test)]
mod tests {
    use metaclaw_settings::{Layer, Loaded};
    use metaclaw_turns::{NewTurn, TurnFilter};

    use super::*;
    use crate::testing;

    const DAY: Duration = Duration::from_secs(24 * 3_600);
    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    const YEAR_MS: i64 = 365 * DAY_MS;

    fn turn(session: &str, ended_ms: u64) -> NewTurn {
        testing::turn(&AgentId::default_agent(), session, ended_ms)
    }

    /// Turns of 90, 25 and 23 hours ago, looked at with these settings: the sessions that are left, and the days that
    /// are counted.
    async fn left(text: &str) -> (Vec<String>, usize) {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        let config = loaded.config.turns;
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(dir.path(), &config).unwrap();
        let now_ms = now_ms();
        for hours in [90, 25, 23] {
            let ended_ms = now_ms - hours * 3_600_000;
            log.append(turn(&hours.to_string(), ended_ms))
                .await
                .unwrap();
        }
        // One reading deletes nothing, and neither do two within an hour.
        for ran in [0, 59 * 60] {
            note(&log, Duration::from_secs(ran), now_ms).await;
            assert_eq!(forget_old(&log, &config, now_ms).await.unwrap(), 0);
        }
        assert_eq!(log.list(TurnFilter::default()).await.unwrap().len(), 3);
        note(&log, DAY, now_ms).await;
        forget_old(&log, &config, now_ms).await.unwrap();
        assert_eq!(forget_old(&log, &config, now_ms).await.unwrap(), 0);
        let left = log.list(TurnFilter::default()).await.unwrap();
        let mut left: Vec<String> = left.iter().map(|left| left.session.to_string()).collect();
        left.sort();
        assert_eq!(log.funnel(None).await.unwrap().turns, 3, "counts stay");
        let n_days = log.statistics(0).await.unwrap().len();
        log.close().await;
        (left, n_days)
    }

    #[tokio::test]
    async fn what_ended_long_ago_goes_and_the_rest_stays() {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let (all, days) = left("").await;
        assert_eq!(all, owned(&["23", "25", "90"]));
        let (one, same_days) = left("turns: {retention: 24 h}\n").await;
        assert_eq!((one, same_days), (owned(&["23"]), days));
        let (none, _) = left("turns: {retention: 1 h}\n").await;
        assert_eq!(none, owned(&[]));
        // Four days back, and one.
        let (all, fewer) = left("turns: {statistics_retention: 48 h}\n").await;
        assert_eq!(all.len(), 3);
        assert!(0 < fewer && fewer < days, "{fewer} of {days}");
    }

    async fn n_turns(log: &TurnLog) -> usize {
        let filter = TurnFilter {
            limit: 1_000,
            ..TurnFilter::default()
        };
        log.list(filter).await.unwrap().len()
    }

    #[tokio::test]
    async fn no_jump_of_the_clock_deletes_a_turn_that_is_younger_than_the_retention() {
        let config = TurnsConfig::default();
        let dir = tempfile::tempdir().unwrap();
        let open = || TurnLog::open(dir.path(), &config).unwrap();
        let mut log = open();
        // The true time. The oldest turn is 28 days old, and in 30 hours no turn is 30 days old.
        let mut now = i64::try_from(now_ms()).unwrap();
        let at = |now: i64, wrong: i64| u64::try_from(now.saturating_add(wrong)).unwrap();
        for n in 0..300 {
            let ended_ms = at(now, -28 * DAY_MS + n * 2 * HOUR_MS);
            log.append(turn(&format!("true-{}", n / 5), ended_ms))
                .await
                .unwrap();
        }
        let mut n_all = 300;
        // What the clock shows too much, one after the other, over 3 hours of running each.
        for (n, wrong) in [
            2 * HOUR_MS,
            3 * DAY_MS,
            40 * DAY_MS,
            -2 * HOUR_MS,
            YEAR_MS,
            -10 * YEAR_MS,
            40 * YEAR_MS,
            40 * YEAR_MS,
            31 * DAY_MS,
            400 * DAY_MS,
        ]
        .into_iter()
        .enumerate()
        {
            // It jumps while the program runs, between two runs, and while the machine sleeps.
            if n % 3 == 1 {
                log.close().await;
                log = open();
            }
            note(&log, Duration::ZERO, at(now, wrong)).await;
            for hour in 0..3 {
                now += HOUR_MS;
                log.append(turn(&format!("jump-{n}-{hour}"), at(now, wrong)))
                    .await
                    .unwrap();
                n_all += 1;
                note(&log, Duration::from_secs(3_600), at(now, wrong)).await;
                forget_old(&log, &config, at(now, wrong)).await.unwrap();
                assert_eq!(n_turns(&log).await, n_all, "jump {n}");
            }
            note(&log, Duration::ZERO, at(now, 0)).await;
            forget_old(&log, &config, at(now, 0)).await.unwrap();
            assert_eq!(n_turns(&log).await, n_all, "back after jump {n}");
        }
        log.close().await;
    }

    #[tokio::test]
    async fn a_machine_that_runs_eight_hours_a_day_deletes_what_is_old() {
        let config = TurnsConfig::default();
        let dir = tempfile::tempdir().unwrap();
        let day_ms = 24 * 3_600_000;
        let begun_ms = now_ms();
        let log = TurnLog::open(dir.path(), &config).unwrap();
        log.append(turn("old", begun_ms - 31 * day_ms))
            .await
            .unwrap();
        log.append(turn("new", begun_ms)).await.unwrap();
        log.close().await;
        let mut left = Vec::new();
        for day in 0..5 {
            let log = TurnLog::open(dir.path(), &config).unwrap();
            let morning_ms = begun_ms + day * day_ms;
            note(&log, Duration::ZERO, morning_ms).await;
            for tick in 1..=48 {
                note(&log, EVERY, morning_ms + tick * 600_000).await;
            }
            forget_old(&log, &config, morning_ms + 8 * 3_600_000)
                .await
                .unwrap();
            assert_eq!(log.clock().doubt(morning_ms + 8 * 3_600_000), None);
            left.push(n_turns(&log).await);
            log.close().await;
        }
        assert_eq!(left, [2, 2, 1, 1, 1]);
    }
}
