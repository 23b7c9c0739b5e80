//! Computes how good turns usually are, and how much better one was.

use metaclaw_turns::Turn;

use super::turns::is_tool_turn;

/// The number of verdicts in the baseline.
pub(crate) const MEMORY: usize = 100;
/// The number of verdicts of 0 that are added to the mean, so that it is still near 0 after a few verdicts.
const PRIOR: f32 = 10.0;
/// Above this baseline, nearly every turn is good, and training on good ones would only make the policy more
/// deterministic.
const SATURATED: f32 = 0.9;

/// Returns the mean of recent verdicts, shrunk towards 0: sum(r) / (n + 10).
///
/// # Units
/// `rewards`: each is -1, 0 or +1. Returns a number within (-1, 1), or 0 without rewards.
pub(crate) fn baseline(rewards: impl IntoIterator<Item = f32>) -> f32 {
    let (sum, n) = rewards
        .into_iter()
        .fold((0.0, 0.0), |(sum, n), r| (sum + r, n + 1.0));
    sum / (n + PRIOR)
}

/// Returns A = clip(r - b, -1, 1), or 0 for a good turn once the baseline is above 0.9.
fn advantage(reward: f32, baseline: f32) -> f32 {
    if reward > 0.0 && baseline > SATURATED {
        return 0.0;
    }
    (reward - baseline).clamp(-1.0, 1.0)
}

/// The mean rewards of an agent's recent turns, separately for turns with and without tools.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Baselines {
    pub(crate) tool: f32,
    pub(crate) chat: f32,
}

// === impl Baselines ===

impl Baselines {
    /// Returns the advantage A of a turn, times the weight of its verdict.
    pub(crate) fn advantage(self, turn: &Turn) -> f32 {
        let Some(verdict) = &turn.verdict else {
            return 0.0;
        };
        let usual = if is_tool_turn(turn) {
            self.tool
        } else {
            self.chat
        };
        verdict.weight * advantage(verdict.score.value(), usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_shrunk_towards_nothing() {
        assert!(baseline([]).abs() < 1e-6);
        assert!((baseline([1.0; 10]) - 0.5).abs() < 1e-6);
        assert!((baseline([-1.0; 90]) + 0.9).abs() < 1e-6);
        assert!(baseline([1.0, -1.0, 0.0]).abs() < 1e-6);
    }

    #[test]
    fn what_is_usual_moves_little_and_nothing_moves_more_than_one() {
        for (reward, baseline, expected) in [
            (1.0, 0.0, 1.0),
            (1.0, 0.5, 0.5),
            (1.0, -0.5, 1.0),
            (-1.0, 0.5, -1.0),
            (-1.0, -0.5, -0.5),
            (1.0, 0.95, 0.0),
            (-1.0, 0.95, -1.0),
        ] {
            let given = advantage(reward, baseline);
            assert!(
                (given - expected).abs() < 1e-6,
                "r {reward}, b {baseline}: {given}"
            );
        }
    }
}
