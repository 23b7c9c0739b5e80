//! The keys of one upstream, and which of them pause.
//!
//! A refused key pauses for a time that depends on the class of the failure. Any answer that does not blame the key
//! resets its failures. Pausing affects only the order. If every key pauses, the one with the shortest wait is used, so
//! that the agent sees the upstream's own answer.

use std::{sync::Mutex, time::Duration};

use http::HeaderMap;
use metaclaw_chat::{Secret, now_ms};
use tokio::time::Instant;

use crate::{
    failure::{Failure, retry_after},
    lock::lock,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// The pause of a key that was refused for too many requests, if the upstream gives no time.
const RATE_LIMIT: Duration = Duration::from_secs(10);
/// The longest pause, whatever an upstream says.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug)]
pub(crate) struct KeyRing {
    keys: Vec<Secret>,
    states: Mutex<States>,
}

#[derive(Debug, Default)]
struct States {
    each: Vec<State>,
    n_uses: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The number of its last use, or 0 for never.
    last_use: u64,
    n_failures: u32,
    rest: Option<(Instant, Failure)>,
}

// === impl KeyRing ===

impl KeyRing {
    pub(crate) fn new(keys: &[Secret]) -> Self {
        let states = States {
            each: vec![State::default(); keys.len()],
            n_uses: 0,
        };
        Self {
            keys: keys.to_vec(),
            states: Mutex::new(states),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, index: usize) -> Option<&Secret> {
        self.keys.get(index)
    }

    /// Returns the key to use first: the least recently used of those that do not pause, else the one with the shortest
    /// wait. Returns `None` if there are no keys.
    pub(crate) fn first(&self) -> Option<usize> {
        self.choose(|_, _| true)
    }

    pub(crate) fn next(&self, tried: &[usize]) -> Option<usize> {
        self.choose(|index, is_resting| !is_resting && !tried.contains(&index))
    }

    /// Returns why every key pauses, or `None` if one does not.
    pub(crate) fn all_rest(&self) -> Option<Failure> {
        let now = Instant::now();
        let states = lock(&self.states);
        let mut why = None;
        for state in &states.each {
            why = Some(state.resting(now)?.1);
        }
        why
    }

    fn failed(&self, index: usize, failure: Failure, wait: Option<Duration>) {
        if let Some(state) = lock(&self.states).each.get_mut(index) {
            state.n_failures = state.n_failures.saturating_add(1);
            let rest = rest(failure, state.n_failures, wait);
            state.rest = rest.map(|rest| (Instant::now() + rest, failure));
        }
    }

    fn accepted(&self, index: usize) {
        if let Some(state) = lock(&self.states).each.get_mut(index) {
            state.n_failures = 0;
            state.rest = None;
        }
    }

    pub(crate) fn note(
        &self,
        upstream: &str,
        key: Option<usize>,
        failure: Option<Failure>,
        headers: &HeaderMap,
    ) {
        let Some(key) = key else {
            return;
        };
        match failure.filter(|failure| failure.is_of_the_key()) {
            Some(failure) => {
                let wait = retry_after(headers, now_ms());
                tracing::warn!(
                    upstream,
                    key,
                    ?failure,
                    ?wait,
                    "the upstream refused this key: the key is not used for a while"
                );
                self.failed(key, failure, wait);
            }
            None => self.accepted(key),
        }
    }

    fn choose(&self, may: impl Fn(usize, bool) -> bool) -> Option<usize> {
        let now = Instant::now();
        let mut states = lock(&self.states);
        let candidates = states.each.iter().enumerate();
        let candidates =
            candidates.filter(|(index, state)| may(*index, state.resting(now).is_some()));
        let rank = |state: &State| (state.resting(now).map(|(until, _)| until), state.last_use);
        let chosen = candidates.min_by_key(|(_, state)| rank(state))?.0;
        states.n_uses += 1;
        let n_uses = states.n_uses;
        if let Some(state) = states.each.get_mut(chosen) {
            state.last_use = n_uses;
        }
        Some(chosen)
    }
}

// === impl State ===

impl State {
    fn resting(&self, now: Instant) -> Option<(Instant, Failure)> {
        self.rest.filter(|(until, _)| *until > now)
    }
}

/// Returns how long a key pauses after its `n`th failure in a row.
///
/// The values are OpenClaw's (`auth.cooldowns`), except for 429: in the original, the first one paused a key for five
/// hours, as if its account had no credit.
fn rest(failure: Failure, n: u32, wait: Option<Duration>) -> Option<Duration> {
    let grown = |first: Duration, factor: u32, most: Duration| {
        let factor = factor.saturating_pow(n.saturating_sub(1));
        first.checked_mul(factor).unwrap_or(most).min(most)
    };
    match failure {
        Failure::RateLimit => Some(wait.unwrap_or_else(|| grown(RATE_LIMIT, 2, 10 * MINUTE))),
        Failure::Auth => Some(grown(MINUTE, 5, HOUR)),
        Failure::AuthPermanent => Some(grown(10 * MINUTE, 2, HOUR)),
        Failure::Billing => Some(grown(5 * HOUR, 2, LONGEST)),
        Failure::Overloaded
        | Failure::ModelNotFound
        | Failure::ContextLength
        | Failure::Unsupported
        | Failure::Timeout
        | Failure::Unreachable
        | Failure::Server => None,
    }
    .map(|rest| rest.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn ring(n_keys: usize) -> KeyRing {
        KeyRing::new(&vec![Secret::from("k"); n_keys])
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_turns_and_a_refused_one_rests() {
        let ring = ring(3);
        let turns: Vec<_> = (0..4).filter_map(|_| ring.first()).collect();
        assert_eq!(turns, [0, 1, 2, 0]);
        ring.failed(1, Failure::RateLimit, Some(Duration::from_secs(7)));
        assert_eq!([ring.first(), ring.first()], [Some(2), Some(0)]);
        assert_eq!(ring.next(&[0, 2]), None, "the third one rests");
        advance(Duration::from_secs(8)).await;
        assert_eq!(ring.next(&[0, 2]), Some(1));
        assert_eq!(self::ring(0).first(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_rest_the_one_with_the_least_to_wait_is_shown() {
        let ring = ring(2);
        assert_eq!(ring.all_rest(), None);
        ring.failed(0, Failure::Billing, None);
        assert_eq!(ring.all_rest(), None);
        ring.failed(1, Failure::RateLimit, None);
        assert_eq!(ring.all_rest(), Some(Failure::RateLimit));
        assert_eq!([ring.first(), ring.first()], [Some(1), Some(1)]);
        ring.accepted(0);
        assert_eq!(ring.first(), Some(0));
    }

    #[test]
    fn each_class_rests_for_its_own_time() {
        use Failure::{Auth, AuthPermanent, Billing, RateLimit, Server};
        const HOUR: u64 = 3_600;
        for (failure, n, wait, rests) in [
            (RateLimit, 1, None, Some(10)),
            (RateLimit, 1, Some(90), Some(90)),
            (RateLimit, 99, None, Some(600)),
            (RateLimit, 1, Some(u64::MAX), Some(24 * HOUR)),
            (Billing, 1, None, Some(5 * HOUR)),
            (Billing, 9, None, Some(24 * HOUR)),
            (Auth, 2, None, Some(300)),
            (Auth, 99, None, Some(HOUR)),
            (AuthPermanent, 1, None, Some(600)),
            (AuthPermanent, 99, None, Some(HOUR)),
            (Server, 1, Some(5), None),
        ] {
            let seconds =
                rest(failure, n, wait.map(Duration::from_secs)).map(|rest| rest.as_secs());
            assert_eq!(seconds, rests, "{failure:?} {n}");
        }
    }
}
