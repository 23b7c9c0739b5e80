//! A process that is killed at one of its moments: before and after each question to the log or the training server.
//!
//! What was asked for by then is there; nothing is after it, since whoever is killed never gets beyond the moment. Each test
//! has a thread of its own, and so a process of its own.

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

/// A process begins, to be killed at its moment of this number; its tasks end with `client`.
pub(crate) fn begins(killed_at: usize, client: &CancellationToken) {
    let process = Process {
        n_moments: 0,
        killed_at,
        client: client.clone(),
    };
    PROCESS.set(Some(process));
}

/// It is over; whoever begins meanwhile is not killed.
pub(crate) fn ends() {
    PROCESS.set(None);
}

/// How many moments the process has had.
pub(crate) fn n_moments() -> usize {
    PROCESS.with_borrow(|process| process.as_ref().map_or(0, |it| it.n_moments))
}

/// A moment at which the process may be killed; one that was never comes beyond it.
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
