//! Simulates a process that is killed at a given moment: before or after each request to the log or the training
//! server.
//!
//! What was requested by then is done, and nothing comes after it, because the killed process never gets beyond the
//! moment. Each test has a thread of its own, and so a simulated process of its own.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

thread_local! {
    static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
}

struct Process {
    n_moments: usize,
    killed_at: usize,
    client: CancellationToken,
}

/// Starts a process that is killed at its moment of this number; its tasks end with `client`.
pub(crate) fn begins(killed_at: usize, client: &CancellationToken) {
    let process = Process {
        n_moments: 0,
        killed_at,
        client: client.clone(),
    };
    PROCESS.set(Some(process));
}

/// Ends the simulation; a process that starts meanwhile is not killed.
pub(crate) fn ends() {
    PROCESS.set(None);
}

pub(crate) fn n_moments() -> usize {
    PROCESS.with_borrow(|process| process.as_ref().map_or(0, |process| process.n_moments))
}

/// Marks a moment at which the process may be killed; a process that was not started passes it.
pub(crate) async fn moment() {
    super::progress::made();
    let is_killed = PROCESS.with_borrow_mut(|process| {
        let Some(process) = process else { return false };
        process.n_moments += 1;
        let is_killed = process.n_moments > process.killed_at;
        if is_killed {
            process.client.cancel();
        }
        is_killed
    });
    if is_killed {
        std::future::pending::<()>().await;
    }
}
