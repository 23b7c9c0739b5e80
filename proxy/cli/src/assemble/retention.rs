//! What is old is forgotten: sessions after `turns.retention`, counts by day after `turns.statistics_retention`.

use std::time::Duration;

use metaclaw_chat::{Span, now_ms};
use metaclaw_turns::{LogError, TurnLog, TurnsConfig, day_of};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The first look, when the start is over.
const FIRST: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(3_600);

/// Looks now and then, until `ending`.
pub(super) async fn run(log: TurnLog, config: TurnsConfig, ending: CancellationToken) {
    let looks = async {
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            match look(&log, &config).await {
                Ok(0) => {}
                Ok(n) => info!(
                    "{n} sessions that ended over {} ago were forgotten",
                    config.retention
                ),
                Err(LogError::Closed) => return,
                Err(error) => {
                    warn!(%error, "what is old could not be forgotten; tried again in an hour");
                }
            }
        }
    };
    ending.run_until_cancelled(looks).await;
}

/// Forgets what is too old; how many sessions. The log is written anew then, so that they are gone from the disk.
async fn look(log: &TurnLog, config: &TurnsConfig) -> Result<u64, LogError> {
    let before_ms = |span| now_ms().saturating_sub(ms(span));
    let n_sessions = log.forget_before(before_ms(config.retention)).await?;
    if n_sessions > 0 {
        log.compact().await?;
    }
    let oldest = day_of(before_ms(config.statistics_retention));
    log.forget_statistics_before(oldest).await?;
    Ok(n_sessions)
}

fn ms(span: Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_settings::{Layer, Loaded};
    use metaclaw_turns::{NewTurn, TurnFilter};

    use super::*;
    use crate::testing;

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
        look(&log, &config).await.unwrap();
        assert_eq!(look(&log, &config).await.unwrap(), 0);
        let left = log.list(TurnFilter::default()).await.unwrap();
        let mut left: Vec<String> = left.iter().map(|it| it.session.to_string()).collect();
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
}
