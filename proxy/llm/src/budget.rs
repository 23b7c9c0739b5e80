//! What learning may spend on asking other people's models: `budget.*`.

use serde::{Deserialize, Serialize};

const DAY_MS: u64 = 86_400_000;

/// Settings: the keys `budget.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    /// Part of the tokens that the chat spent this day, in 0..1.
    pub share: f64,
    /// Tokens a day, if that is more.
    pub tokens_per_day: u64,
}

/// Tokens spent this day (UTC), and whether there are some left. Holds no clock.
///
/// A question is allowed while anything is left, so the last one may go over; it counts for its day.
#[derive(Debug, Clone)]
pub struct Budget {
    config: BudgetConfig,
    day: u64,
    chat: u64,
    spent: u64,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            share: 0.05,
            tokens_per_day: 50_000,
        }
    }
}

// === impl Budget ===

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(config: BudgetConfig) -> Self {
        Self {
            config,
            day: 0,
            chat: 0,
            spent: 0,
        }
    }

    /// Counts tokens that the chat itself used at `now_ms`.
    pub fn chat_used(&mut self, now_ms: u64, tokens: u64) {
        self.turn_to(now_ms);
        self.chat = self.chat.saturating_add(tokens);
    }

    /// Counts tokens that a question used.
    pub fn used(&mut self, now_ms: u64, tokens: u64) {
        self.turn_to(now_ms);
        self.spent = self.spent.saturating_add(tokens);
    }

    /// Whether another question may be asked.
    pub fn allows(&mut self, now_ms: u64) -> bool {
        self.left(now_ms) > 0
    }

    /// Tokens left of this day's.
    pub fn left(&mut self, now_ms: u64) -> u64 {
        self.turn_to(now_ms);
        self.limit().saturating_sub(self.spent)
    }

    /// Tokens spent, and the most that may be, this day.
    pub fn state(&mut self, now_ms: u64) -> (u64, u64) {
        self.turn_to(now_ms);
        (self.spent, self.limit())
    }

    fn limit(&self) -> u64 {
        let share = self.config.share.clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a float as large as u64 is cut to it"
        )]
        let of_chat = (self.chat as f64 * share) as u64;
        of_chat.max(self.config.tokens_per_day)
    }

    /// A new day begins with nothing spent. A clock set back does not bring the last day again.
    fn turn_to(&mut self, now_ms: u64) {
        let day = now_ms / DAY_MS;
        if day > self.day {
            (self.day, self.chat, self.spent) = (day, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 20_000 * DAY_MS;

    #[test]
    fn a_day_has_a_share_of_the_chat_or_the_fixed_number_whichever_is_more() {
        let mut budget = Budget::new(BudgetConfig::default());
        assert_eq!(budget.left(NOW), 50_000);
        budget.chat_used(NOW, 400_000);
        assert_eq!(budget.left(NOW), 50_000);
        budget.chat_used(NOW, 1_600_000);
        assert_eq!(budget.left(NOW), 100_000);
        budget.used(NOW, 100_001);
        assert!(!budget.allows(NOW));
        assert_eq!(budget.state(NOW), (100_001, 100_000));
    }

    #[test]
    fn a_new_day_begins_with_nothing_spent_and_an_old_one_does_not_return() {
        let mut budget = Budget::new(BudgetConfig::default());
        budget.used(NOW, 60_000);
        assert!(!budget.allows(NOW + DAY_MS - 1));
        assert!(budget.allows(NOW + DAY_MS));
        budget.used(NOW, 60_000);
        assert!(!budget.allows(NOW + DAY_MS));
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        let mut budget = Budget::new(BudgetConfig {
            share: -3.0,
            tokens_per_day: 0,
        });
        budget.chat_used(NOW, 1_000);
        assert!(!budget.allows(NOW));
    }
}
