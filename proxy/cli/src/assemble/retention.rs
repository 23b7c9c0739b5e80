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
    let retention = config.retention;
    let looks = async {
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            match look(&log, retention).await {
                Ok(0) => {}
                Ok(n) => info!("{n} sessions that ended over {retention} ago were forgotten"),
                Err(LogError::Closed) => return,
                Err(error) => {
                    warn!(%error, "old sessions could not be forgotten; tried again in an hour");
                }
            }
            let oldest = now_ms().saturating_sub(ms(config.statistics_retention));
            if let Err(error) = log.forget_statistics_before(day_of(oldest)).await {
                warn!(%error, "old counts could not be forgotten; tried again in an hour");
            }
        }
    };
    ending.run_until_cancelled(looks).await;
}

/// Forgets what is too old; how many sessions. The log is written anew then, so that they are gone from the disk.
async fn look(log: &TurnLog, retention: Span) -> Result<u64, LogError> {
    let before_ms = now_ms().saturating_sub(ms(retention));
    let n_sessions = log.forget_before(before_ms).await?;
    if n_sessions > 0 {
        log.compact().await?;
    }
    Ok(n_sessions)
}

fn ms(span: Span) -> u64 {
    u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::{NewTurn, TurnFilter};

    use super::*;
    use crate::testing;

    fn turn(session: &str, ended_ms: u64) -> NewTurn {
        testing::turn(&AgentId::default_agent(), session, ended_ms)
    }

    #[tokio::test]
    async fn what_ended_long_ago_goes_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
        let hour_ms = 3_600_000;
        log.append(turn("old", now_ms() - 25 * hour_ms))
            .await
            .unwrap();
        log.append(turn("new", now_ms() - 23 * hour_ms))
            .await
            .unwrap();
        assert_eq!(look(&log, Span::hours(24)).await.unwrap(), 1);
        assert_eq!(look(&log, Span::hours(24)).await.unwrap(), 0);
        let left = log.list(TurnFilter::default()).await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].session.as_str(), "new");
        assert_eq!(log.funnel(None).await.unwrap().turns, 2, "counts stay");
        log.close().await;
    }
}
