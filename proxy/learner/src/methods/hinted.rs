//! Code that opd and hybrid share: the student's most probable ids are compared with a teacher that was given a hint.

use std::sync::Arc;

use metaclaw_trainer_api::{BackendError, Datum};
use metaclaw_turns::Turn;

use super::{
    method::{
        Example, ExampleState, Group, LogprobAnswer, LogprobClient, LogprobQuestion, Method,
        NotAnExample, Objective, Want, sum,
    },
    surrogate::{Distil, Student, Surrogate, TOP_K},
};
use crate::{
    formulas::most_agreeing,
    sample::{Sample, Teaching},
};

pub(super) fn wants(turn: &Turn, teaching: Teaching<'_>) -> Option<Want> {
    match teaching.hints.told(turn) {
        None => Some(Want::Hint),
        Some(hinted) => (!hinted.is_empty()).then_some(Want::Own),
    }
}

pub(super) fn group<'a>(
    method: &'static dyn Method,
    samples: impl Iterator<Item = &'a Sample> + Clone,
    objective: &Objective,
    w_verdict: Option<f32>,
) -> Result<Group, NotAnExample> {
    let n = samples.clone().count().max(1) as f32;
    let examples = samples.filter_map(|sample| {
        let tokens = sample.turn.tokens.as_ref()?;
        let each = 1.0 / (n * tokens.ids.len().max(1) as f32);
        let advantage = sample.push.as_ref().map_or(0.0, |push| push.advantage);
        let push = w_verdict.map_or(0.0, |w| w * advantage);
        let distil = Distil {
            prompt: tokens.prompt_ids.clone(),
            reply: tokens.ids.clone(),
            hinted: Arc::clone(&sample.hinted),
            share: objective.w_opd * each,
            push: push * each,
            clip: objective.clip,
        };
        let example = Example::new(vec![sample.id()], distil.known());
        Some(example.map(|example| example.refreshed_by(ExampleState::Distil(distil.into()))))
    });
    Ok(Group::weighted(method, examples.collect::<Result<_, _>>()?))
}

/// Computes the advantages at the beginning of the step, and the weights from the current policy; returns the loss.
///
/// # Errors
/// Returns the server's errors.
pub(super) async fn refresh(
    examples: &mut [Example],
    policy: LogprobClient<'_>,
) -> Result<Option<f64>, BackendError> {
    let distils = examples.iter().filter_map(|example| match &example.state {
        Some(ExampleState::Distil(distil)) => Some(Arc::clone(distil)),
        Some(ExampleState::Surrogate(_) | ExampleState::Anchor(_)) | None => None,
    });
    let distils: Vec<Arc<Distil>> = distils.collect();
    let (loss, datums) = if distils.is_empty() {
        moved_on(examples, policy).await?
    } else {
        let surrogates = surrogates(&distils, policy).await?;
        let at_start = sum(surrogates.iter().map(Surrogate::at_start))?;
        for (example, surrogate) in examples.iter_mut().zip(surrogates) {
            example.state = Some(ExampleState::Surrogate(surrogate));
        }
        at_start
    };
    for (example, datum) in examples.iter_mut().zip(datums) {
        example.datum = datum;
    }
    Ok(Some(loss))
}

/// Computes the weights later in the step, when only the probabilities of the ids have changed.
async fn moved_on(
    examples: &[Example],
    policy: LogprobClient<'_>,
) -> Result<(f64, Vec<Datum>), BackendError> {
    let surrogates = examples.iter().filter_map(|example| match &example.state {
        Some(ExampleState::Surrogate(surrogate)) => Some(surrogate),
        Some(ExampleState::Distil(_) | ExampleState::Anchor(_)) | None => None,
    });
    let surrogates: Vec<&Surrogate> = surrogates.collect();
    let queries = surrogates.iter().map(|surrogate| surrogate.query());
    let now = policy.now(queries).await?;
    let each = surrogates.iter().zip(&now);
    sum(each.map(|(surrogate, now)| surrogate.at(&now.logprobs)))
}

async fn surrogates(
    distils: &[Arc<Distil>],
    policy: LogprobClient<'_>,
) -> Result<Vec<Surrogate>, BackendError> {
    let students = students(distils, policy).await?;
    let mut teachers: Vec<Vec<LogprobAnswer>> = vec![Vec::new(); distils.len()];
    let most = distils.iter().map(|distil| distil.hinted.len()).max();
    for hint in 0..most.unwrap_or(0) {
        for (at, answer) in hinted(distils, &students, hint, policy).await? {
            teachers[at].push(answer);
        }
    }
    let each = distils.iter().zip(&students).zip(&teachers);
    let surrogates = each.map(|((distil, student), teachers)| {
        let teacher = best(student, teachers).map(|best| rows(&best.logprobs));
        distil.surrogate(student, teacher.as_deref())
    });
    Ok(surrogates.collect())
}

async fn students(
    distils: &[Arc<Distil>],
    policy: LogprobClient<'_>,
) -> Result<Vec<Student>, BackendError> {
    let question = LogprobQuestion {
        adapter: true,
        top_k: TOP_K,
    };
    let queries = distils.iter().map(|d| d.asks_student()).enumerate();
    let answers = policy.ask(question, queries).await?;
    let students = answers.into_iter().map(|answer| Student {
        own: answer.logprobs,
        ids: answer.ids,
        logprobs: answer.likely,
    });
    Ok(students.collect())
}

async fn hinted(
    distils: &[Arc<Distil>],
    students: &[Student],
    hint: usize,
    policy: LogprobClient<'_>,
) -> Result<Vec<(usize, LogprobAnswer)>, BackendError> {
    let question = LogprobQuestion {
        adapter: policy.teacher_has_adapter,
        top_k: TOP_K,
    };
    let queries = distils.iter().zip(students).enumerate();
    let queries: Vec<_> = queries
        .filter_map(|(at, (distil, student))| Some((at, distil.asks_teacher(hint, student)?)))
        .collect();
    let numbers: Vec<usize> = queries.iter().map(|(at, _)| *at).collect();
    let answers = policy.ask(question, queries.into_iter()).await?;
    Ok(numbers.into_iter().zip(answers).collect())
}

fn best<'a>(student: &Student, teachers: &'a [LogprobAnswer]) -> Option<&'a LogprobAnswer> {
    let likely: Vec<Vec<Vec<u32>>> = teachers.iter().map(|teacher| teacher.ids.clone()).collect();
    teachers.get(most_agreeing(&student.ids, &likely)?)
}

fn rows(flat: &[f32]) -> Vec<Vec<f32>> {
    flat.chunks(TOP_K as usize).map(<[f32]>::to_vec).collect()
}
