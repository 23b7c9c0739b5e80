//! Whether agents can still work with what a model writes: the tool prompts asked of the base model or of an adapter.

use futures_util::{
    StreamExt as _, TryFutureExt as _, future::try_join_all, stream::FuturesUnordered,
};
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    probes::ToolPrompt,
    report::{GateLimit, GateTest},
};
use crate::{
    calls::has_broken_call,
    policy::{DrawRequest, PolicyModel},
};

/// The seed of what is drawn greedily, where it decides nothing.
const NO_SEED: u64 = 0;

/// How a prompt was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolAnswer {
    /// So that an agent can work with it.
    pub(super) passed: bool,
    /// With a call that nobody can carry out.
    pub(super) broke_call: bool,
}

/// How many prompts were answered well, of so many that were asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ToolTally {
    passed: usize,
    asked: usize,
    /// Calls that were broken, and by the base model to the same prompts.
    broken: usize,
    broken_by_base: usize,
}

/// How somebody (an adapter; none is the base model) answers each of the prompts.
pub(super) async fn each(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompts: &[ToolPrompt],
) -> Result<Vec<ToolAnswer>, BackendError> {
    let answered = prompts.iter().map(|prompt| ask(policy, adapter, prompt));
    try_join_all(answered).await
}

/// Whether an adapter answers as many as the base model, and breaks no call that the base model does not: those first that
/// the base answers, since an adapter can hardly but lose these; the others only where it has. As soon as that is decided nothing
/// more is asked.
pub(super) async fn test(
    policy: &PolicyModel,
    adapter: &str,
    prompts: &[ToolPrompt],
    base: &[ToolAnswer],
) -> Result<Vec<GateTest>, BackendError> {
    let least = base.iter().filter(|it| it.passed).count();
    let mut tally = ToolTally::default();
    for is_base in [true, false] {
        let asked = prompts.iter().zip(base);
        let asked = asked.filter(|(_, of_base)| of_base.passed == is_base);
        let asked = asked.map(|(prompt, of_base)| {
            let own = ask(policy, Some(adapter), prompt);
            own.map_ok(|own| (own, *of_base))
        });
        if tally.is_decided(least, prompts.len()) {
            break;
        }
        let mut answers: FuturesUnordered<_> = asked.collect();
        while !tally.is_decided(least, prompts.len())
            && let Some(answered) = answers.next().await
        {
            let (own, of_base) = answered?;
            tally.add(own, of_base);
        }
    }
    let unit = format!(
        "of {} prompts answered as agents need it, of {} asked",
        prompts.len(),
        tally.asked
    );
    let passed = GateLimit::at_least(least as f64);
    let unbroken = GateLimit::at_most(tally.broken_by_base as f64);
    Ok(vec![
        GateTest::of("tools", tally.passed as f64, passed, &unit),
        GateTest::of(
            "broken_calls",
            tally.broken as f64,
            unbroken,
            "replies to them have a call that nobody can carry out",
        ),
    ])
}

async fn ask(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompt: &ToolPrompt,
) -> Result<ToolAnswer, BackendError> {
    let ids = policy.render(prompt.messages(), prompt.offered()).await?;
    let request = DrawRequest {
        adapter,
        prompt: &ids,
        n: 1,
        max_tokens: prompt.max_tokens,
        temperature: 0.0,
        seed: NO_SEED,
    };
    let reply = policy.draw_one(request).await?.text;
    Ok(ToolAnswer {
        passed: prompt.check.passes(&reply, &prompt.tools),
        broke_call: has_broken_call(&reply, &prompt.tools),
    })
}

// === impl ToolTally ===

impl ToolTally {
    fn add(&mut self, own: ToolAnswer, base: ToolAnswer) {
        self.asked += 1;
        self.passed += usize::from(own.passed);
        self.broken += usize::from(own.broke_call);
        self.broken_by_base += usize::from(base.broke_call);
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
        let is_decided = |passed, asked| {
            let tally = ToolTally {
                passed,
                asked,
                ..ToolTally::default()
            };
            tally.is_decided(8, 16)
        };
        assert!(!is_decided(0, 0));
        assert!(!is_decided(7, 15));
        assert!(is_decided(8, 8));
        assert!(!is_decided(0, 8), "the other eight may all be right");
        assert!(is_decided(0, 9));
        assert!(
            ToolTally::default().is_decided(0, 16),
            "less is not possible"
        );
    }
}
