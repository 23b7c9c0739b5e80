//! The local trainer: started, watched, started again, and ended with us.
//!
//! One task owns the child. The child's stdin is a pipe that we hold: when we end, however we end,
//! it closes and the trainer goes too. A new one is only started after the old one was waited for,
//! so there are never two.

use std::{net::SocketAddr, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_control::status::TrainerState;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::child::Child;

mod child;
mod find;

pub(crate) use self::{
    child::TrainerSpec,
    find::{TrainerOrigin, TrainerProgram},
};
const GRACE: Duration = Duration::from_secs(5);

/// Called when the trainer answers, with its address, and when it does not any more, with none.
pub(crate) type OnAddress = Box<dyn Fn(Option<SocketAddr>) + Send + Sync>;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// The pauses are 0.1, 0.4, 1.6, 6.4, 25.6 and then 30 seconds.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .with_factor(4.0)
    .without_max_times();
/// After this uptime, the next failure counts as the first.
const HEALTHY: Duration = Duration::from_secs(60);

pub(crate) struct Supervisor {
    spec: TrainerSpec,
    state: watch::Sender<TrainerState>,
    on_address: OnAddress,
}

// === impl Supervisor ===

impl Supervisor {
    pub(crate) fn new(
        spec: TrainerSpec,
        on_address: OnAddress,
    ) -> (Self, watch::Receiver<TrainerState>) {
        let (state, watched) = watch::channel(TrainerState::Starting);
        let it = Self {
            spec,
            state,
            on_address,
        };
        (it, watched)
    }

    pub(crate) async fn run(self, ending: CancellationToken) {
        let mut backoff = Backoff::new();
        while !ending.is_cancelled() {
            let begun = Instant::now();
            let reason = self.run_once(&ending).await;
            (self.on_address)(None);
            if ending.is_cancelled() {
                break;
            }
            let pause = backoff.after(begun.elapsed());
            warn!(%reason, ?pause, "the trainer ended and is started again");
            self.state.send_replace(TrainerState::Down { reason });
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = ending.cancelled() => {}
            }
        }
        self.state.send_replace(TrainerState::Ended);
    }

    /// Runs one trainer process to its end; returns why it ended.
    async fn run_once(&self, ending: &CancellationToken) -> String {
        self.state.send_replace(TrainerState::Starting);
        let mut child = match Child::start(&self.spec) {
            Ok(child) => child,
            Err(error) => return format!("it cannot be started: {error}"),
        };
        let ready = tokio::select! {
            ready = child.ready() => ready,
            () = ending.cancelled() => {
                child.end(GRACE).await;
                return "we are ending".to_owned();
            }
        };
        let address = match ready {
            Ok(address) => address,
            Err(reason) => {
                child.end(Duration::ZERO).await;
                return reason;
            }
        };
        let pid = child.pid();
        info!(%address, pid, "the trainer is ready");
        (self.on_address)(Some(address));
        self.state
            .send_replace(TrainerState::Ready { address, pid });
        tokio::select! {
            reason = child.ended() => reason,
            () = ending.cancelled() => {
                child.end(GRACE).await;
                "we are ending".to_owned()
            }
        }
    }
}

#[derive(Debug)]
struct Backoff(ExponentialBackoff);

// === impl Backoff ===

impl Backoff {
    fn new() -> Self {
        Self(PAUSES.build())
    }

    /// Returns the pause after a failure; `lived` is the uptime before it.
    fn after(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            *self = Self::new();
        }
        self.0.next().unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod backoff_tests {
    use super::*;

    #[test]
    fn fast_at_first_and_fast_again_after_a_long_life() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(1);
        let pauses: Vec<u128> = (0..7).map(|_| backoff.after(short).as_millis()).collect();
        assert_eq!(pauses, [100, 400, 1_600, 6_400, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.after(HEALTHY), FIRST);
    }
}
