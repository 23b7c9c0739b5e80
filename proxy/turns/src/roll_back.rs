//! Rolls back an adapter that serves and turned out to be worse.

use std::future::ready;

use crate::{
    keys,
    log::{LogFuture, TurnLog},
    serving::{choose, serves},
    step::{Step, StepOutcome, TakenBack, attempts},
    store::Table,
    txn::Txn,
    values::{self, TxnError},
};

// === impl TurnLog ===

impl TurnLog {
    /// Serves the agent of a step with another adapter (none means the base model) instead of the step's adapter, as if
    /// the owner had chosen it ([`TurnLog::choose`]), and records the reason with the step. Returns false and changes
    /// nothing if the step's adapter does not serve.
    ///
    /// # Errors
    /// Returns the store's error, or [`LogError::Damaged`] if a value cannot be read.
    pub fn roll_back(&self, step: &Step, to: Option<String>, why: &str) -> LogFuture<'_, bool> {
        let Some(StepOutcome::Trained { adapter, .. }) = step.outcome.clone() else {
            return Box::pin(ready(Ok(false)));
        };
        let (step, why) = (step.begun.clone(), why.to_owned());
        let roll_back = move |txn: &mut Txn<'_>| {
            let agent = keys::agent(&step.agent);
            if serves(txn, &agent)?.as_ref() != Some(&adapter) {
                return Ok(false);
            }
            let key = keys::step(&step.agent, &step.lineage, step.n);
            let mut attempts = attempts(txn, &key)?;
            let choice = choose(txn, &agent, to)?;
            if let Some(made) = attempts
                .iter_mut()
                .find(|it| it.begun.attempt == step.attempt)
            {
                made.taken_back = Some(TakenBack {
                    at_ms: choice.at_ms,
                    to: choice.adapter,
                    why,
                });
                values::put_json(txn, Table::Steps, &key, &attempts)?;
            }
            Ok::<bool, TxnError>(true)
        };
        self.write(roll_back)
    }
}
