//! The local trainer: started, watched, started again, and ended with us.
//!
//! One task owns the child. The child's stdin is a pipe that we hold: when we end, however we end,
//! it closes and the trainer goes too. A new one is only started after the old one was waited for,
//! so there are never two.

use std::{net::SocketAddr, time::Duration};

use metaclaw_control::status::TrainerState;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod backoff;
mod child;
mod find;
mod priority;
mod spec;

use self::{backoff::Backoff, child::Child};
pub(crate) use self::{
    find::{TrainerOrigin, TrainerProgram},
    spec::TrainerSpec,
};

/// How long a trainer that was told to end may take.
const GRACE: Duration = Duration::from_secs(5);

/// Called when the trainer answers, with its address, and when it does not any more, with none.
pub(crate) type OnAddress = Box<dyn Fn(Option<SocketAddr>) + Send + Sync>;

/// The supervising task's parts.
pub(crate) struct Supervisor {
    spec: TrainerSpec,
    state: watch::Sender<TrainerState>,
    on_address: OnAddress,
}

// === impl Supervisor ===

impl Supervisor {
    /// A supervisor of `spec`, and where its state can be watched.
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

    /// Keeps a trainer running until `ending`.
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

#[cfg(test)]
mod tests;
