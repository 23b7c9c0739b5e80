//! Whether agents can still work with what a model writes: the tool prompts asked of the base model or of an adapter.

use futures_util::{StreamExt as _, future::try_join_all, stream::FuturesUnordered};
use metaclaw_trainer_api::BackendError;

use super::{
    probes::ToolPrompt,
    report::{Bound, GateTest},
};
use crate::policy::{DrawRequest, Policy};

/// The seed of what is drawn greedily, where it decides nothing.
const NO_SEED: u64 = 0;

/// How many prompts were answered well, of so many that were asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    asked: usize,
}

/// Which of the prompts somebody (an adapter; none is the base model) answers so that an agent can work with it.
pub(super) async fn each(
    policy: &Policy,
    adapter: Option<&str>,
    prompts: &[ToolPrompt],
) -> Result<Vec<bool>, BackendError> {
    let passed = prompts.iter().map(|prompt| passes(policy, adapter, prompt));
    try_join_all(passed).await
}

/// Whether an adapter answers as many as the base model: those first that the base answers, since an adapter can hardly but
/// lose these; the others only where it has. As soon as that is decided nothing more is asked.
pub(super) async fn test(
    policy: &Policy,
    adapter: &str,
    (prompts, base): (&[ToolPrompt], &[bool]),
) -> Result<GateTest, BackendError> {
    let least = base.iter().filter(|passed| **passed).count();
    let mut tally = Tally::default();
    for is_base in [true, false] {
        let asked = prompts.iter().zip(base);
        let asked = asked.filter(|(_, passed)| **passed == is_base);
        let asked = asked.map(|(prompt, _)| passes(policy, Some(adapter), prompt));
        if tally.is_decided(least, prompts.len()) {
            break;
        }
        let mut answers: FuturesUnordered<_> = asked.collect();
        while !tally.is_decided(least, prompts.len())
            && let Some(passed) = answers.next().await
        {
            tally.add(passed?);
        }
    }
    let unit = format!(
        "of {} prompts answered as agents need it, of {} asked",
        prompts.len(),
        tally.asked
    );
    let limit = (Bound::AtLeast, least as f64);
    Ok(GateTest::of("tools", tally.passed as f64, limit, &unit))
}

async fn passes(
    policy: &Policy,
    adapter: Option<&str>,
    prompt: &ToolPrompt,
) -> Result<bool, BackendError> {
    let ids = policy.render(prompt.messages(), prompt.offered()).await?;
    let request = DrawRequest {
        adapter,
        prompt: &ids,
        n: 1,
        max_tokens: prompt.max_tokens,
        temperature: 0.0,
        seed: NO_SEED,
    };
    let drawn = policy.draw(request).await?;
    let reply = drawn.first();
    Ok(reply.is_some_and(|reply| prompt.check.passes(&reply.text, &prompt.tools)))
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, passed: bool) {
        self.asked += 1;
        self.passed += usize::from(passed);
    }

    /// Whether so many of all are answered well, or can no longer be.
    fn is_decided(self, least: usize, n: usize) -> bool {
        let most = self.passed + n.saturating_sub(self.asked);
        self.passed >= least || most < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_or_out_of_reach_is_decided() {
        let is_decided = |passed, asked| Tally { passed, asked }.is_decided(8, 16);
        assert!(!is_decided(0, 0));
        assert!(!is_decided(7, 15));
        assert!(is_decided(8, 8));
        assert!(!is_decided(0, 8), "the other eight may all be right");
        assert!(is_decided(0, 9));
        assert!(Tally::default().is_decided(0, 16), "less is not possible");
    }
}
