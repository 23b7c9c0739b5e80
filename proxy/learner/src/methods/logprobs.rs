//! Asks a training run for log-probabilities during a step, without gradients.

use metaclaw_trainer_api::{
    BackendError, Datum, DatumError, RunId, TrainingBackend,
    wire::{ForwardReply, ForwardRequest},
};

use crate::sample::LogprobQuery;

/// A training run that is asked for log-probabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogprobClient<'a> {
    pub(crate) backend: &'a dyn TrainingBackend,
    pub(crate) run: &'a RunId,
    /// Whether the teacher uses the run's adapter (`rl.teacher: current`), or is the base model.
    pub(crate) teacher_has_adapter: bool,
}

/// The model that is asked, and the number of most probable ids to return.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogprobQuestion {
    /// Whether the model uses the run's adapter, or is the base model alone.
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
            lengths.len() == n_lists && lengths.iter().all(|it| *it == top_k)
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
            logprobs: logprobs.iter().map(|it| it.to_vec()).collect(),
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
            assert!(
                error.is_ambiguous() && error.to_string().contains("[(2, 2)]"),
                "{error}"
            );
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
