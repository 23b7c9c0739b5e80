//! What the chat cost in money: tokens of each day, agent and model, and the prices of the models.
//!
//! The log counts tokens by agent and day, and not by model. So only turns that still exist have a cost.

use std::collections::BTreeSet;

use jiff::civil::Date;
use metaclaw_chat::{AgentId, Usage};
use metaclaw_llm::{ModelPrice, list_prices, price_of};
use metaclaw_turns::TurnSummary;
use serde::{Deserialize, Serialize};

pub use metaclaw_llm::{dollars, list_prices_as_of};

/// The prices of this home.
#[derive(Debug, Clone, Default)]
pub struct ModelPrices {
    /// What the owner stated (`budget.prices`).
    pub own: Vec<ModelPrice>,
    /// The upstreams on this machine, whose models cost nothing if the owner states no price.
    pub here: BTreeSet<String>,
}

/// What the turns of one day, agent and model cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostRow {
    pub day: Date,
    pub agent: AgentId,
    /// As the upstream was asked for it.
    pub model: String,
    pub upstream: String,
    pub turns: u64,
    pub tokens: Usage,
    /// In pico-dollars ([`dollars`]), or `None` if the price of the model is not known.
    pub cost: Option<u64>,
}

/// Adds a turn to the row of its day, agent and model.
pub(crate) fn add(rows: &mut Vec<CostRow>, day: Date, turn: &TurnSummary) {
    let is_its = |row: &CostRow| {
        let is_same_model = row.model == turn.model && row.upstream == turn.upstream;
        row.day == day && row.agent == turn.agent && is_same_model
    };
    let at = rows.iter().position(is_its).unwrap_or_else(|| {
        rows.push(CostRow {
            day,
            agent: turn.agent.clone(),
            model: turn.model.clone(),
            upstream: turn.upstream.clone(),
            turns: 0,
            tokens: Usage::default(),
            cost: None,
        });
        rows.len() - 1
    });
    let (row, usage) = (&mut rows[at], turn.usage.unwrap_or_default());
    row.turns += 1;
    row.tokens.prompt_tokens += usage.prompt_tokens;
    row.tokens.cached_tokens += usage.cached_tokens;
    row.tokens.completion_tokens += usage.completion_tokens;
}

// === impl ModelPrices ===

impl ModelPrices {
    pub(crate) fn set_costs(&self, rows: &mut [CostRow]) {
        for row in rows {
            row.cost = self.cost(&row.model, &row.upstream, &row.tokens);
        }
    }

    fn cost(&self, model: &str, upstream: &str, tokens: &Usage) -> Option<u64> {
        let own = price_of(model, &self.own);
        if own.is_none() && self.here.contains(upstream) {
            return Some(0);
        }
        let price = own.or_else(|| price_of(model, list_prices()));
        price.map(|price| price.cost(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_this_machine_costs_nothing_unless_its_owner_states_a_price() {
        let own = |text: &str| ModelPrice::try_from(text.to_owned()).unwrap();
        let prices = ModelPrices {
            own: vec![own("mine* 1 2"), own("gpt-5 3 4")],
            here: BTreeSet::from(["policy".to_owned()]),
        };
        let tokens = Usage {
            prompt_tokens: 1_000_000,
            ..Usage::default()
        };
        for (model, upstream, cost) in [
            ("gpt-4o", "llm", Some("$2.50")),
            ("gpt-4o", "policy", Some("nothing")),
            ("gpt-5", "llm", Some("$3.00")),
            ("mine-2", "policy", Some("$1.00")),
            ("theirs", "llm", None),
            ("theirs", "policy", Some("nothing")),
        ] {
            let said = prices.cost(model, upstream, &tokens).map(dollars);
            assert_eq!(said.as_deref(), cost, "{model} at {upstream}");
        }
    }
}
