//! The training server: what a test reads from it, and how a test makes it fail.

mod answers;
mod backend;
mod failure;
mod habit;
mod model;
mod state;

use std::sync::{Arc, Mutex, MutexGuard};

use metaclaw_chat::Message;
use metaclaw_trainer_api::{
    AdapterName, BackendError, BackendFuture, CheckpointName, Datum,
    wire::{CreateRequest, OptimStepRequest, Sampled},
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    answers::Answers,
    failure::Failure,
    habit::Habit,
    model::{END, ids as ids_of},
    state::{Damage, Poison, Weights},
};
use self::{
    failure::{lost, refusal},
    state::{Inner, Presence},
};
use super::crash;

#[derive(Debug, Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

// === impl World ===

impl Default for World {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner::new())))
    }
}

impl World {
    /// Makes the `n`th call from now on fail; counts only the calls of a step, from 0.
    pub(crate) fn fail(&self, n: usize, failure: Failure) {
        let mut inner = self.inner();
        let at = inner.n_calls + n;
        inner.failures.insert(at, failure);
    }

    pub(crate) fn poison(&self, mark: u32, poison: Poison) {
        self.inner().poison.insert(mark, poison);
    }

    pub(crate) fn damage(&self, end: &str, damage: Damage) {
        self.inner().damaged.insert(end.to_owned(), damage);
    }

    pub(crate) fn set_base(&self, name: &str, fingerprint: &str) {
        let mut inner = self.inner();
        inner.base = (name.to_owned(), fingerprint.to_owned());
        inner.restart();
    }

    pub(crate) fn set_max_rank(&self, max: u32) {
        self.inner().max_rank = max;
    }

    /// Sets the behaviour of the adapters that are saved from now on: the first ones in order, and all after them.
    pub(crate) fn train_into(&self, first: &[Habit], then: Habit) {
        let mut inner = self.inner();
        inner.coming = first.iter().copied().collect();
        inner.then = then;
    }

    /// Sets how calls that score replies fail, after `n` of them, once there is an adapter to test.
    pub(crate) fn fail_scoring(&self, n: usize, failures: &[Failure]) {
        let mut inner = self.inner();
        inner.unscored = std::iter::repeat_n(None, n).collect();
        inner.unscored.extend(failures.iter().copied().map(Some));
    }

    pub(crate) fn most_streams(&self) -> i64 {
        self.inner().streams.1
    }

    pub(crate) fn set_scores(&self, scores: bool) {
        self.inner().scores = scores;
    }

    /// Keeps the call that scores replies, and answers from now on that it is not available.
    pub(crate) fn lack_scores(&self) {
        self.inner().lacks_scores = true;
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.inner().prompts.clone()
    }

    pub(crate) fn n_forward(&self) -> usize {
        self.inner().n_forward
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.inner().presence = if is_away {
            Presence::Away
        } else {
            Presence::There
        };
    }

    /// Makes the `n`th call of a step from now on fail in this way; after it, the server cannot be reached.
    pub(crate) fn leave_at(&self, n: usize, last: Failure) {
        let mut inner = self.inner();
        inner.presence = Presence::LeavesAt(inner.n_calls + n, last);
    }

    pub(crate) fn is_away(&self) -> bool {
        self.inner().presence == Presence::Away
    }

    pub(crate) fn fail_health(&self, failure: Option<Failure>) {
        self.inner().health_failure = failure;
    }

    pub(crate) fn n_health(&self) -> usize {
        self.inner().n_health
    }

    pub(crate) fn n_asked(&self) -> usize {
        let inner = self.inner();
        inner.n_health + inner.n_calls
    }

    pub(crate) fn fail_text(&self, failure: Option<Failure>) {
        self.inner().text_failure = failure.map(|failure| (String::new(), failure));
    }

    pub(crate) fn fail_loads(&self, failure: Option<Failure>) {
        self.inner().load_failure = failure;
    }

    pub(crate) fn n_failed_loads(&self) -> usize {
        self.inner().n_failed_loads
    }

    pub(crate) fn fail_text_with(&self, part: &str, failure: Failure) {
        self.inner().text_failure = Some((part.to_owned(), failure));
    }

    pub(crate) fn set_answers(&self, answers: Answers) {
        self.inner().answers = answers;
    }

    /// Returns the last message of each prompt for which several replies were drawn.
    pub(crate) fn told(&self) -> Vec<String> {
        self.inner().told.clone()
    }

    /// Makes each draw of several replies wait for a permit from now on.
    pub(crate) fn hold_draws(&self) -> Arc<Semaphore> {
        let draws = Arc::new(Semaphore::new(0));
        self.inner().draws = Some(Arc::clone(&draws));
        draws
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.inner().events.clone()
    }

    pub(crate) fn ids_of_messages(messages: &[Message]) -> Vec<u32> {
        let messages = messages.iter().map(|m| Value::Object(m.as_map().clone()));
        let request = serde_json::json!({"messages": messages.collect::<Vec<_>>()});
        model::tokenize(&serde_json::from_value(request).unwrap())
    }

    pub(crate) fn cross_entropies(&self) -> Vec<Datum> {
        self.inner().targets.clone()
    }

    pub(crate) fn looked_at(&self) -> Vec<(bool, String)> {
        self.inner().looked_at.clone()
    }

    pub(crate) fn taught(&self) -> Vec<(String, String)> {
        let text = |datum: &Datum| {
            let parts = datum.parts();
            let weights = parts.weights.as_ref().unwrap();
            let width = weights.width();
            let rows = weights.values().chunks(width);
            let n_prompt = rows
                .take_while(|row| row.iter().all(|value| *value == 0.0))
                .count()
                + 1;
            let targets: Vec<u32> = parts
                .target_tokens
                .values()
                .chunks(width)
                .map(|row| row[0])
                .collect();
            let prompt = model::text(&parts.model_input_tokens[..n_prompt]);
            (prompt, model::text(&targets[n_prompt - 1..]))
        };
        self.inner().targets.iter().map(text).collect()
    }

    pub(crate) fn client(&self) -> CancellationToken {
        let client = CancellationToken::new();
        self.inner().client = client.clone();
        client
    }

    pub(crate) fn remember(&self, sampled: Sampled) {
        let mut inner = self.inner();
        let (base, fingerprint) = inner.base.clone();
        let sampled = Sampled {
            base,
            base_fingerprint: Some(fingerprint),
            ..sampled
        };
        inner.sampled.insert(sampled.id.clone(), sampled);
    }

    pub(crate) fn checkpoints(&self) -> Vec<(Value, Weights)> {
        let inner = self.inner();
        inner
            .checkpoints
            .iter()
            .map(|saved| (saved.info.manifest.clone(), saved.run.weights.clone()))
            .collect()
    }

    /// Deletes every checkpoint, but keeps the adapters of their names.
    pub(crate) fn delete_checkpoints(&self) {
        self.inner().checkpoints.clear();
    }

    pub(crate) fn adapter(&self, name: &str) -> Option<Weights> {
        self.inner()
            .adapters
            .get(&name.parse::<AdapterName>().unwrap())
            .cloned()
    }

    /// Refuses from now on to overwrite an adapter.
    pub(crate) fn keep_adapters(&self) {
        self.inner().keeps_adapters = true;
    }

    pub(crate) fn rates(&self) -> Vec<f64> {
        let inner = self.inner();
        inner.stepped.iter().map(|s| s.learning_rate).collect()
    }

    pub(crate) fn asked(&self) -> Option<(CreateRequest, OptimStepRequest)> {
        let inner = self.inner();
        Some((inner.created.last()?.clone(), inner.stepped.last()?.clone()))
    }

    pub(crate) fn passes(&self) -> Vec<Weights> {
        self.inner().passes.clone()
    }

    pub(crate) fn loaded(&self) -> Vec<String> {
        let inner = self.inner();
        inner.loaded.iter().map(AdapterName::to_string).collect()
    }

    pub(crate) fn kept(&self) -> Vec<Vec<String>> {
        let inner = self.inner();
        let names = |names: &Vec<CheckpointName>| names.iter().map(ToString::to_string).collect();
        inner.kept.iter().map(names).collect()
    }

    pub(crate) fn n_runs(&self) -> usize {
        self.inner().runs.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn call<T: Send + 'static>(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut Inner) -> Result<T, BackendError> + Send + 'static,
    ) -> BackendFuture<'_, T> {
        Box::pin(async move {
            let failure = self.inner().next_call();
            self.or_fails(call, failure, work).await
        })
    }

    async fn or_fails<T: Send + 'static>(
        &self,
        call: &'static str,
        failure: Option<Failure>,
        work: impl FnOnce(&mut Inner) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let timeout = || lost(call);
        let done = match failure {
            None => work(&mut self.inner()),
            Some(Failure::Unreachable) => Err(BackendError::NoEndpoint { call }),
            Some(Failure::LostBefore) => Err(timeout()),
            Some(Failure::LostAfter) => work(&mut self.inner()).and_then(|_| Err(timeout())),
            Some(Failure::ErrorAfter) => {
                work(&mut self.inner()).and_then(|_| Err(refusal(call, 500, None)))
            }
            Some(Failure::Refused) => Err(refusal(call, 400, None)),
            Some(Failure::Answers(status, code)) => Err(refusal(call, status, code)),
            Some(Failure::Killed) => {
                self.inner().restart();
                Err(BackendError::NoEndpoint { call })
            }
            Some(Failure::ClientKilledBefore) => self.kill_client().await,
            Some(Failure::ClientKilledAfter) => {
                work(&mut self.inner())?;
                self.kill_client().await
            }
            Some(Failure::WrittenLate(n)) => {
                let late = |inner: &mut Inner| drop(work(inner));
                self.inner().put_off(n, Box::new(late));
                self.kill_client().await
            }
        };
        crash::moment().await;
        done
    }

    async fn kill_client<T>(&self) -> T {
        self.inner().client.cancel();
        std::future::pending().await
    }
}
