//! Who writes skills from turns that went wrong.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use metaclaw_control::token_budget::TokenBudget;
use metaclaw_learner::Evolver;
use metaclaw_llm::AskParams;
use metaclaw_settings::address::elsewhere;

use super::{budgeted_model::BudgetedModel, learner::address, plan::StartPlan, whole_answer::ROOM};

/// Skills are to be alike for like failures.
const TEMPERATURE: f64 = 0.4;
/// The pause between two looks at how many turns there are.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The evolver, and what the banner adds to where things go; none where none is wanted, or no model can be asked.
pub(super) fn evolver(
    plan: &StartPlan,
    budget: &Arc<TokenBudget>,
) -> anyhow::Result<Option<(Evolver, String)>> {
    let (skills, turns) = (&plan.loaded.config.skills, &plan.loaded.config.turns);
    let is_wanted = skills.enabled && skills.auto_evolve && turns.enabled;
    let every_n_turns = skills.evolution_every_n_turns;
    let config = &plan.loaded.config;
    let Some(asked) =
        address(&config.evolver.address, config).filter(|_| is_wanted && every_n_turns > 0)
    else {
        return Ok(None);
    };
    let timeout = config.evolver.timeout;
    let client = asked.client(plan, timeout).context("evolver")?;
    let params = AskParams {
        temperature: Some(TEMPERATURE),
        max_tokens: Some(ROOM),
        ..AskParams::default()
    };
    let told = format!(
        ", skill writing -> {} ({})",
        elsewhere(asked.url),
        asked.model
    );
    let model = BudgetedModel {
        client,
        params,
        budget: Arc::clone(budget),
    };
    let budget = Arc::clone(budget);
    let evolver = Evolver {
        model: Arc::new(model),
        every_n_turns,
        may_start: Arc::new(move || budget.allows()),
        look_every: LOOK_EVERY,
    };
    Ok(Some((evolver, told)))
}
