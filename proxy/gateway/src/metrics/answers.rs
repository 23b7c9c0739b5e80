//! The results of each upstream, and the last one, for `metaclaw status` and `/readyz`.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use metaclaw_chat::now_ms;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::lock::lock;

/// For so long, an upstream that failed counts as unable to answer. Afterwards it may be tried again.
pub(crate) const FAILING: Duration = Duration::from_secs(60);

/// An upstream's results since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamAnswers {
    /// Requests that it answered with a status below 400.
    pub n_good: u64,
    /// Requests that it refused, or did not answer.
    pub n_failed: u64,
    /// When it last succeeded, in Unix milliseconds.
    pub last_good_ms: Option<u64>,
    /// When it last failed, in Unix milliseconds.
    pub last_failed_ms: Option<u64>,
    /// The last failure: a status, or what prevented an answer. It contains no conversation text.
    pub last_failure: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<BTreeMap<String, Known>>);

#[derive(Debug, Default)]
struct Known {
    answers: UpstreamAnswers,
    /// Since when it cannot answer any caller, according to its last answer.
    unable_since: Option<Instant>,
}

// === impl Answers ===

impl Answers {
    pub(crate) fn good(&self, upstream: &str) {
        let mut all = lock(&self.0);
        let known = all.entry(upstream.to_owned()).or_default();
        known.unable_since = None;
        known.answers.n_good += 1;
        known.answers.last_good_ms = Some(now_ms());
    }

    /// Records a failure. `is_unable` means that any request would fail.
    pub(crate) fn failed(&self, upstream: &str, why: String, is_unable: bool) {
        let mut all = lock(&self.0);
        let known = all.entry(upstream.to_owned()).or_default();
        known.unable_since = is_unable.then(Instant::now);
        known.answers.n_failed += 1;
        known.answers.last_failed_ms = Some(now_ms());
        known.answers.last_failure = Some(why);
    }

    pub(crate) fn unable(&self, upstream: &str) -> Option<String> {
        let all = lock(&self.0);
        let known = all.get(upstream)?;
        let since = known.unable_since;
        let is_unable = since.is_some_and(|since| since.elapsed() < FAILING);
        known.answers.last_failure.clone().filter(|_| is_unable)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, UpstreamAnswers> {
        let known = lock(&self.0);
        let all = known.iter();
        all.map(|(name, known)| (name.clone(), known.answers.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_failed_is_given_another_chance_and_never_forgotten() {
        let answers = Answers::default();
        assert_eq!(answers.unable("a"), None);
        answers.failed("a", "401 Unauthorized".to_owned(), true);
        assert_eq!(answers.unable("a").as_deref(), Some("401 Unauthorized"));
        advance(FAILING).await;
        assert_eq!(answers.unable("a"), None);
        answers.failed("a", "cannot be reached".to_owned(), true);
        answers.good("a");
        assert_eq!(answers.unable("a"), None);
        answers.failed("a", "400 Bad Request".to_owned(), false);
        assert_eq!(answers.unable("a"), None, "that was this caller's");
        let all = answers.all();
        let it = &all["a"];
        assert_eq!((it.n_good, it.n_failed), (1, 3));
        assert_eq!(it.last_failure.as_deref(), Some("400 Bad Request"));
    }
}
