//! Tests with a network that fails for an hour, by a clock that the test moves.

use std::{sync::mpsc, time::Instant};

use super::*;

/// This is in real time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

/// The runtime's clock, which only the test moves, because it would otherwise run ahead whenever a task waits for a
/// socket.
struct Clock(mpsc::Sender<()>);

impl Clock {
    fn stop() -> Self {
        let (end, ended) = mpsc::channel();
        // While this thread is busy, the clock does not run ahead.
        tokio::task::spawn_blocking(move || ended.recv());
        tokio::time::pause();
        Self(end)
    }

    /// The clock runs normally again.
    fn go_on(self) {
        tokio::time::resume();
        drop(self.0);
    }
}

/// Advances by some seconds; sockets are served in each of them.
async fn seconds(n: u64) {
    for _ in 0..n {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

/// Stops the network once `is_time`, for an hour; then the time runs on.
async fn gone_for_an_hour(server: &Server, is_time: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_time() {
        assert!(began.elapsed() < PATIENCE, "it is never asked");
        tokio::task::yield_now().await;
    }
    server.set_away(true);
    seconds(3_600).await;
    let n_tries = server.inner().n_dropped;
    assert!(n_tries > 1, "it is tried again: {n_tries}");
    server.set_away(false);
    while began.elapsed() < PATIENCE {
        seconds(1).await;
    }
}

fn patient(server: &Server, timeout: Duration) -> TinkerBackend {
    TinkerBackend::new(TinkerConfig {
        timeout,
        ..config(server)
    })
}

#[tokio::test]
async fn a_step_that_may_take_longer_than_the_network_is_gone_is_taken_once() {
    for is_taken in [false, true] {
        let server = Server::start(CLOUD).await;
        let backend = patient(&server, 120 * MINUTE);
        let run = open(&backend).await;
        pass(&backend, &run, &[11]).await.unwrap();
        if is_taken {
            // Its answer is lost with the network.
            server.fail("optim_step", &[Fault::After]);
        }
        let clock = Clock::stop();
        server.set_away(!is_taken);
        let is_time = || !is_taken || server.n_asked("optim_step") > 0;
        let stepped = tokio::select! {
            stepped = step(&backend, &run) => stepped,
            () = gone_for_an_hour(&server, is_time) => panic!("no answer when the network is there again"),
        };
        clock.go_on();
        assert_eq!(stepped.unwrap(), 1, "{is_taken}");
        save(&backend, &run, "a-1-1").await.unwrap();
        assert_eq!(server.saved("/weights/")[0].1, [11], "{is_taken}");
    }
}

#[tokio::test]
async fn what_was_asked_before_the_network_went_for_too_long_is_in_doubt_and_is_not_asked_again() {
    let server = Server::start(CLOUD).await;
    let backend = patient(&server, 10 * MINUTE);
    let run = open(&backend).await;
    train_and_save(&backend, &run, 11, "a-1-1").await;
    server.fail("forward_backward", &[Fault::After]);
    let clock = Clock::stop();
    let n_before = server.n_asked("forward_backward");
    let is_time = || server.n_asked("forward_backward") > n_before;
    let passed = tokio::select! {
        passed = pass(&backend, &run, &[12]) => passed,
        () = gone_for_an_hour(&server, is_time) => panic!("it has not given up"),
    };
    clock.go_on();
    server.set_away(false);
    let error = passed.unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
    // Nothing more is done with a model that may have the gradients or not: training continues from the checkpoint.
    let again = pass(&backend, &run, &[12]).await.unwrap_err();
    assert!(again.is_unknown_run(), "{again}");
    assert_eq!(server.n_asked("forward_backward"), n_before + 1);
    assert_eq!(load(&backend, &run, "a-1-1").await, 1);
    train_and_save(&backend, &run, 12, "a-1-2").await;
    let last = server.saved("/weights/").pop().unwrap();
    assert_eq!(last.1, [11, 12], "each once");
}
