//! The interface of a training method.
//!
//! Asks a training run for log-probabilities during a step, without gradients.

use std::{fmt, future, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{
    BackendError, Datum, DatumError, LossConfig, LossFn, RunId, TrainingBackend,
    wire::{ForwardReply, ForwardRequest},
};
use metaclaw_turns::Turn;
use serde::Serialize;

use super::surrogate::{Distil, Surrogate};
use crate::{
    formulas::RatioClip,
    sample::{AnchorReply, Baselines, Batch, ExcludeReason, LogprobQuery, Teaching},
};

/// A training method: which judged turns it uses, and how it builds examples from them.
pub(crate) trait Method: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// The signals that it learns from. Two methods with the same signal cannot be combined.
    fn signals(&self) -> &'static [TrainingSignal];

    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want;

    /// Returns the examples of a batch, possibly none.
    ///
    /// # Errors
    /// Returns [`NotAnExample`] for the first sample that cannot be trained on.
    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample>;

    /// Returns whether the method can use a turn with this verdict. This is called only for a method that learns from
    /// verdicts.
    fn takes(&self, score: Option<Score>) -> bool {
        matches!(score, Some(Score::Good | Score::Bad))
    }

    fn compares(&self) -> Compares {
        Compares::Nothing
    }

    /// Returns the advantage of each turn by its verdict, before the limit; a turn with 0 is not trained on.
    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        vec![0.0; turns.len()]
    }

    fn usual_loss(&self) -> LossFn {
        LossFn::Cispo
    }

    /// Returns the text that gives the teacher a hint, or `None` for the hint in the form of a wish.
    fn words_of_hint(&self, _hint: &str) -> Option<String> {
        None
    }

    /// Computes the weights of examples that depend on the current policy, before each pass of the step. Returns the
    /// loss if it is computed here; the default does nothing.
    ///
    /// # Errors
    /// Returns the training server's errors.
    fn refresh<'a>(
        &'a self,
        _examples: &'a mut [Example],
        _policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        future::ready(Ok(None)).boxed()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrainingSignal {
    /// The teacher's reply to the turn's prompt.
    Target,
    /// How probable a teacher that was given a hint finds the turn's own reply.
    Hint,
    Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The teacher has to answer its prompt.
    Target,
    /// The method uses the turn's own ids as they are.
    Own,
    /// The prompts with its hints have to be rendered first.
    Hint,
    /// Something else must happen first.
    Wait,
    Never(ExcludeReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    /// Nothing: the verdict is the advantage, or there is none.
    Nothing,
    /// The mean score of the agent's turns.
    Baseline,
    /// The other turns of its batch.
    Batch,
    /// Other replies to the same prompt, which come into its batch.
    Siblings,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objective {
    pub(crate) w_redo: f32,
    pub(crate) w_opd: f32,
    pub(crate) w_rl: f32,
    pub(crate) anchor: f32,
    pub(crate) policy_loss: PolicyLoss,
    /// The loss for rollouts, which does not depend on `rl.method`.
    pub(crate) rollout_loss: PolicyLoss,
    pub(crate) clip: RatioClip,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyLoss {
    pub(crate) loss: LossFn,
    pub(crate) config: LossConfig,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) method: &'static dyn Method,
    pub(crate) loss: LossFn,
    pub(crate) loss_config: LossConfig,
    pub(crate) examples: Vec<Example>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Example {
    pub(crate) datum: Datum,
    /// The turns that it is made of; an anchor has none.
    pub(crate) turns: Vec<TurnId>,
    /// The source of weights that are computed during the step, or `None` if the datum has its weights.
    pub(crate) state: Option<ExampleState>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExampleState {
    /// The turn's own reply, which a teacher has to rate.
    Distil(Arc<Distil>),
    /// The same with its advantages, which the first pass of a step computes.
    Surrogate(Surrogate),
    Anchor(AnchorTerm),
}

/// A reply of the base model that the weights are kept near, with its weight in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AnchorTerm {
    pub(crate) reply: Arc<AnchorReply>,
    /// The weight of the divergence at one id, with its share of the batch.
    pub(crate) share: f32,
}

#[derive(Debug, thiserror::Error)]
#[error("the token ids of {turns:?} are no sequence: {error}")]
pub(crate) struct NotAnExample {
    pub(crate) turns: Vec<TurnId>,
    #[source]
    pub(crate) error: DatumError,
}

// === impl Method ===

impl PartialEq for dyn Method {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn weighted(method: &'static dyn Method, examples: Vec<Example>) -> Self {
        Self {
            method,
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            examples,
        }
    }
}

// === impl Example ===

impl Example {
    /// # Errors
    /// Returns [`NotAnExample`] for the first sample that cannot be trained on.
    pub(crate) fn new(
        turns: Vec<TurnId>,
        datum: Result<Datum, DatumError>,
    ) -> Result<Self, NotAnExample> {
        match datum {
            Ok(datum) => Ok(Self {
                datum,
                turns,
                state: None,
            }),
            Err(error) => Err(NotAnExample { turns, error }),
        }
    }

    pub(crate) fn refreshed_by(self, state: ExampleState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}

// === impl ExampleState ===

impl ExampleState {
    pub(crate) fn n_trained(&self) -> usize {
        match self {
            Self::Distil(distil) => distil.reply.len(),
            Self::Surrogate(surrogate) => surrogate.n_ids(),
            Self::Anchor(anchor) => anchor.reply.ids.len(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LogprobClient<'a> {
    pub(crate) backend: &'a dyn TrainingBackend,
    pub(crate) run: &'a RunId,
    /// Whether the teacher uses the run's adapter (`rl.teacher: current`), or is the base model.
    pub(crate) teacher_has_adapter: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LogprobQuestion {
    pub(super) adapter: bool,
    pub(super) top_k: u32,
}

/// The answer for one reply of R ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LogprobAnswer {
    /// `[R · K]`: the requested log-probabilities, in row-major order.
    pub(super) logprobs: Vec<f32>,
    /// `[R][top_k]`: the most probable ids.
    pub(super) ids: Vec<Vec<u32>>,
    /// `[R][top_k]`: their log-probabilities.
    pub(super) likely: Vec<Vec<f32>>,
}

// === impl LogprobClient ===

impl LogprobClient<'_> {
    /// Asks for the log-probabilities of replies; each comes with its number in the call of the step.
    ///
    /// # Errors
    /// Returns the server's errors; if an error names a reply, by its number in the call. An answer of other shapes
    /// than requested is an error too, and so is a reply that is not a sequence.
    pub(super) async fn ask(
        self,
        question: LogprobQuestion,
        queries: impl Iterator<Item = (usize, Result<LogprobQuery, DatumError>)>,
    ) -> Result<Vec<LogprobAnswer>, BackendError> {
        let queries: Result<Vec<_>, _> = queries.map(|(at, it)| Ok((at, it?))).collect();
        let queries = queries.map_err(|error| no_sequence(&error))?;
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let numbers: Vec<usize> = queries.iter().map(|(at, _)| *at).collect();
        let shapes = queries.iter().map(|(_, it)| (it.positions.len(), it.width));
        let shapes: Vec<(usize, usize)> = shapes.collect();
        let parts = queries.into_iter().map(|(_, it)| (it.datum, it.positions));
        let (datums, positions) = parts.unzip();
        let request = ForwardRequest {
            session_id: self.run.clone(),
            datums,
            adapter: question.adapter,
            positions: Some(positions),
            top_k: question.top_k,
        };
        let reply = self.backend.forward(request).await;
        let reply = reply.map_err(|error| renumbered(error, &numbers))?;
        answers(reply, &shapes, question.top_k as usize)
    }

    /// Returns the run's current log-probabilities, with its adapter.
    ///
    /// # Errors
    /// Returns the errors of [`LogprobClient::ask`].
    pub(super) async fn now(
        self,
        queries: impl Iterator<Item = Result<LogprobQuery, DatumError>>,
    ) -> Result<Vec<LogprobAnswer>, BackendError> {
        let question = LogprobQuestion {
            adapter: true,
            top_k: 0,
        };
        self.ask(question, queries.enumerate()).await
    }
}

/// Returns the sum of the losses of some examples, and their datums.
///
/// # Errors
/// Returns an unreadable answer if a result is not finite, or has another shape than its sequence.
pub(super) fn sum(
    each: impl Iterator<Item = Result<(f64, Datum), DatumError>>,
) -> Result<(f64, Vec<Datum>), BackendError> {
    let each: Result<Vec<_>, _> = each.collect();
    let (losses, datums): (Vec<f64>, Vec<Datum>) = each
        .map_err(|error| no_sequence(&error))?
        .into_iter()
        .unzip();
    Ok((losses.iter().sum(), datums))
}

fn no_sequence(error: &DatumError) -> BackendError {
    unreadable(error.to_string())
}

fn answers(
    reply: ForwardReply,
    shapes: &[(usize, usize)],
    top_k: usize,
) -> Result<Vec<LogprobAnswer>, BackendError> {
    let n = shapes.len();
    let (mut ids, mut likely) = (reply.topk_ids, reply.topk_logprobs);
    if top_k == 0 {
        ids = vec![Vec::new(); n];
        likely = vec![Vec::new(); n];
    }
    let fits = |(answer, (rows, width)): (&LogprobAnswer, &(usize, usize))| {
        let n_lists = if top_k == 0 { 0 } else { *rows };
        let of_lists = |lengths: &mut dyn Iterator<Item = usize>| {
            let lengths: Vec<usize> = lengths.collect();
            lengths.len() == n_lists && lengths.iter().all(|length| *length == top_k)
        };
        answer.logprobs.len() == rows * width
            && of_lists(&mut answer.ids.iter().map(Vec::len))
            && of_lists(&mut answer.likely.iter().map(Vec::len))
    };
    let each = reply.logprobs.into_iter().zip(ids).zip(likely);
    let answers = each.map(|((logprobs, ids), likely)| LogprobAnswer {
        logprobs,
        ids,
        likely,
    });
    let answers: Vec<LogprobAnswer> = answers.collect();
    if answers.len() == n && answers.iter().zip(shapes).all(fits) {
        return Ok(answers);
    }
    Err(unreadable(format!(
        "it is not of the shapes {shapes:?} with the {top_k} likeliest that were asked for"
    )))
}

/// Translates the error to the numbers of the call, which may have more sequences than this request.
fn renumbered(mut error: BackendError, numbers: &[usize]) -> BackendError {
    let of_call = error.datum().and_then(|at| numbers.get(at));
    let of_call = of_call.map(|at| format!("datums[{at}]"));
    if let (Some(of_call), BackendError::Status { param, .. }) = (of_call, &mut error) {
        *param = Some(of_call);
    }
    error
}

fn unreadable(why: String) -> BackendError {
    BackendError::Unreadable {
        call: "forward",
        url: "the training server".to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(logprobs: &[&[f32]], ids: &[&[&[u32]]]) -> ForwardReply {
        let ids = ids
            .iter()
            .map(|it| it.iter().map(|it| it.to_vec()).collect());
        let topk_ids: Vec<Vec<Vec<u32>>> = ids.collect();
        let zeros = |it: &Vec<Vec<u32>>| it.iter().map(|it| vec![0.0; it.len()]).collect();
        ForwardReply {
            logprobs: logprobs.iter().map(|logprob| logprob.to_vec()).collect(),
            topk_logprobs: topk_ids.iter().map(zeros).collect(),
            topk_ids,
        }
    }

    #[test]
    fn an_answer_of_another_shape_is_no_answer() {
        let two_rows: &[&[u32]] = &[&[1, 2], &[3, 4]];
        let good = reply(&[&[-1.0; 4]], &[two_rows]);
        let found = answers(good, &[(2, 2)], 2).unwrap();
        assert_eq!(found[0].ids, [[1, 2], [3, 4]]);
        assert!(answers(reply(&[&[-1.0; 2]], &[]), &[(2, 1)], 0).is_ok());
        for (bad, top_k) in [
            (reply(&[], &[]), 0),
            (reply(&[&[-1.0; 3]], &[]), 0),
            (reply(&[&[-1.0; 4]], &[]), 2),
            (reply(&[&[-1.0; 4]], &[&two_rows[..1]]), 2),
            (reply(&[&[-1.0; 4]], &[two_rows]), 3),
        ] {
            let error = answers(bad, &[(2, 2)], top_k).unwrap_err();
            let is_so = error.is_ambiguous() && error.to_string().contains("[(2, 2)]");
            assert!(is_so, "{error}");
        }
    }

    #[test]
    fn a_reply_that_is_refused_is_named_as_in_its_call() {
        let named = |at: usize| BackendError::Status {
            call: "forward",
            url: String::new(),
            status: 400,
            code: None,
            param: Some(format!("datums[{at}].target_tokens")),
            message: String::new(),
        };
        assert_eq!(renumbered(named(1), &[2, 5]).datum(), Some(5));
        assert_eq!(renumbered(named(7), &[2, 5]).datum(), Some(7), "as it came");
    }
}
