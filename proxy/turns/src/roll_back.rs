//! An adapter that serves and turns out to be worse is taken back.

use crate::{
    error::LogError,
    keys,
    log::TurnLog,
    serving::{choose, serves},
    step::{Step, StepOutcome, TakenBack, attempts},
    store::Table,
    txn::Txn,
    values::{self, TxnError},
};

// === impl TurnLog ===

impl TurnLog {
    /// Has the agent of a step served with another adapter (none is the base model) in place of the one that the step made, as
    /// if its owner had chosen that ([`TurnLog::choose`]), and notes why with the step. False, and nothing changed, where the
    /// step's adapter does not serve.
    ///
    /// # Errors
    /// The store's, or [`LogError::Damaged`] where something does not read back.
    pub async fn roll_back(
        &self,
        step: &Step,
        to: Option<String>,
        why: &str,
    ) -> Result<bool, LogError> {
        let Some(StepOutcome::Trained { adapter, .. }) = step.outcome.clone() else {
            return Ok(false);
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
        self.write(roll_back).await
    }
}
