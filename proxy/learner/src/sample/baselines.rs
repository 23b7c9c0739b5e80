//! How good turns usually are, and how much better one was.

use metaclaw_turns::Turn;

use super::turns::is_tool_turn;

/// Verdicts that the baseline looks back over.
pub(crate) const MEMORY: usize = 100;
/// Verdicts of 0 that the mean is shrunk by: after a handful of verdicts it is near 0 still.
const PRIOR: f32 = 10.0;
/// Above this baseline nearly every turn is good, and pushing good ones on only sharpens the policy.
const SATURATED: f32 = 0.9;

/// The shrunk mean of recent verdicts: sum(r) / (n + 10).
///
/// # Units
/// `rewards`: -1, 0 or +1 each. Returns a number within (-1, 1); 0 when there is none.
pub(crate) fn baseline(rewards: impl IntoIterator<Item = f32>) -> f32 {
    let (sum, n) = rewards
        .into_iter()
        .fold((0.0, 0.0), |(sum, n), r| (sum + r, n + 1.0));
    sum / (n + PRIOR)
}

/// A = clip(r - b, -1, 1); 0 for a good turn once the baseline is above 0.9.
fn advantage(reward: f32, baseline: f32) -> f32 {
    if reward > 0.0 && baseline > SATURATED {
        return 0.0;
    }
    (reward - baseline).clamp(-1.0, 1.0)
}

/// The usual reward of an agent's recent turns, tool turns and others apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Baselines {
    pub(crate) tool: f32,
    pub(crate) chat: f32,
}

// === impl Baselines ===

impl Baselines {
    /// A of a turn, times the weight of its verdict.
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
