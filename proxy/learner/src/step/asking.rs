//! A run asked for log-probabilities in the middle of a step, without gradients.

use metaclaw_trainer_api::{
    BackendError, RunId,
    wire::{ForwardReply, ForwardRequest},
};

use super::runner::StepRunner;
use crate::samples::Asked;

/// Whose log-probabilities, and how many of the likeliest ids beside them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) run: &'a RunId,
    /// With the run's adapter, or the base model's.
    pub(super) adapter: bool,
    pub(super) top_k: u32,
}

/// What was answered of one reply of R ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answer {
    /// `[R · K]`: the log-probabilities that were asked for, in row-major order.
    pub(super) logprobs: Vec<f32>,
    /// `[R][top_k]`: the likeliest ids.
    pub(super) ids: Vec<Vec<u32>>,
    /// `[R][top_k]`: their log-probabilities.
    pub(super) likely: Vec<Vec<f32>>,
}

// === impl StepRunner ===

impl StepRunner {
    /// Asks about replies, each with its number in the call that it is asked for.
    ///
    /// # Errors
    /// The server's; where it names a reply, by its number in the call. An answer of other shapes than were asked for is one
    /// too.
    pub(super) async fn ask(
        &self,
        question: Question<'_>,
        asked: Vec<(usize, Asked)>,
    ) -> Result<Vec<Answer>, BackendError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let numbers: Vec<usize> = asked.iter().map(|(at, _)| *at).collect();
        let shapes = asked.iter().map(|(_, it)| (it.positions.len(), it.width));
        let shapes: Vec<(usize, usize)> = shapes.collect();
        let parts = asked.into_iter().map(|(_, it)| (it.datum, it.positions));
        let (datums, positions) = parts.unzip();
        let request = ForwardRequest {
            session_id: question.run.clone(),
            datums,
            adapter: question.adapter,
            positions: Some(positions),
            top_k: question.top_k,
        };
        let reply = self.backend.forward(request).await;
        let reply = reply.map_err(|error| renumbered(error, &numbers))?;
        answers(reply, &shapes, question.top_k as usize)
    }
}

fn answers(
    reply: ForwardReply,
    shapes: &[(usize, usize)],
    top_k: usize,
) -> Result<Vec<Answer>, BackendError> {
    let n = shapes.len();
    let (mut ids, mut likely) = (reply.topk_ids, reply.topk_logprobs);
    if top_k == 0 {
        ids = vec![Vec::new(); n];
        likely = vec![Vec::new(); n];
    }
    let fits = |(answer, (rows, width)): (&Answer, &(usize, usize))| {
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
    let answers = each.map(|((logprobs, ids), likely)| Answer {
        logprobs,
        ids,
        likely,
    });
    let answers: Vec<Answer> = answers.collect();
    if answers.len() == n && answers.iter().zip(shapes).all(fits) {
        return Ok(answers);
    }
    Err(unreadable(format!(
        "it is not of the shapes {shapes:?} with the {top_k} likeliest that were asked for"
    )))
}

/// The error by the numbers of the call, which may have more sequences than were asked about.
fn renumbered(mut error: BackendError, numbers: &[usize]) -> BackendError {
    let of_call = error.datum().and_then(|at| numbers.get(at));
    let of_call = of_call.map(|at| format!("datums[{at}]"));
    if let (Some(of_call), BackendError::Status { param, .. }) = (of_call, &mut error) {
        *param = Some(of_call);
    }
    error
}

pub(super) fn unreadable(why: String) -> BackendError {
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
