//! The teacher: the base model, told what is wished, answers the turns that are to be learned from.
//!
//! What it says is taught as the answer to the same conversation *without* that line, so that the weights do by themselves
//! what the prompt had to ask for. Of several draws those are taught that pass the rules or the judge and answer this
//! question and no other ([`crate::policy::relevance`]): one that only satisfies the rule would teach the model to say
//! nothing. The base model and not the adapter, because it is a fixed point: what was learned wrongly cannot teach itself.

mod choice;
mod conversation;
mod draws;
mod memory;

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_skills::user_line;
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::Turn;

use self::{
    choice::{NoChoice, choose},
    draws::{Draws, TOP_K, TeacherAnswers, TeacherReply},
    memory::at_fault,
};
pub(crate) use self::{
    conversation::{TeacherConversation, with_lessons},
    draws::{TeachError, after, max_tokens, others, seed},
    memory::{DrawnAnswers, TeacherMemory, hint},
};
use crate::{
    config::TargetForm,
    policy::{PolicyModel, ScoredPair},
    sample::{ExcludeReason, Form, Target, TargetReply, Taught, score},
    shared::Shared,
};

/// The standing wishes of an agent that redo is to put into its weights, in one line; none where it has none. What its
/// host says itself is not ours to teach.
pub(crate) fn wishes(shared: &Shared, agent: &AgentId) -> Option<String> {
    let library = shared.library.as_ref()?;
    user_line(&library.wishes_to_teach(agent))
}

/// What the teacher says to a turn, for [`teach`] to choose from. Where nothing is to be drawn, or it fails, [`teach`] says what
/// that means.
pub(crate) async fn draw_ahead(
    shared: &Shared,
    policy: &PolicyModel,
    id: TurnId,
    wishes: Option<String>,
) -> Option<DrawnAnswers> {
    let turn = shared.turn(id).await.ok()??;
    let wishes = wishes.as_deref();
    if obeys_untold(shared, &turn, wishes).await.ok()? {
        return None;
    }
    let draws = Draws { shared, policy };
    let answers = draws.answer(&turn, wishes).await.ok()?.ok()?;
    Some(DrawnAnswers::new(&turn, answers))
}

/// Has the teacher answer a turn, and remembers what came of it: a target, or why the turn is not redo's.
///
/// # Errors
/// [`TeachError`]: nothing came of it yet. A call about this turn alone that fails again and again is not made for ever.
pub(crate) async fn teach(
    shared: &Shared,
    policy: &PolicyModel,
    memory: &mut TeacherMemory,
    id: TurnId,
) -> Result<(), TeachError> {
    let Some(turn) = shared.turn(id).await? else {
        // It was forgotten meanwhile.
        memory.forget(id);
        return Ok(());
    };
    let came_to = match taught(shared, policy, memory, &turn).await {
        Err(TeachError::Server(error)) => {
            let rl = &shared.config.rl;
            Some(Taught::Declined(
                at_fault(policy, rl, memory, id, error).await?,
            ))
        }
        other => other?,
    };
    if let Some(came_to) = came_to {
        memory.settled(&turn, came_to);
    }
    Ok(())
}

async fn taught(
    shared: &Shared,
    policy: &PolicyModel,
    memory: &mut TeacherMemory,
    turn: &Turn,
) -> Result<Option<Taught>, TeachError> {
    let rl = &shared.config.rl;
    let draws = Draws { shared, policy };
    if memory.drawn(turn).is_none() {
        if obeys_untold(shared, turn, memory.wishes()).await? {
            return Ok(Some(Taught::Declined(ExcludeReason::Obeys)));
        }
        match draws.answer(turn, memory.wishes()).await? {
            Ok(answers) => memory.drew(DrawnAnswers::new(turn, answers)),
            Err(why) => return Ok(Some(Taught::Declined(why))),
        }
    }
    let least = memory.least_relevance(rl.min_relevance);
    let Some(answers) = memory.drawn(turn) else {
        return Ok(None);
    };
    let chosen = match choose(&shared.judge, turn, answers, least).await? {
        Ok(chosen) => chosen,
        Err(none) => {
            let why = match none {
                NoChoice::Unusable => ExcludeReason::NotUsable,
                NoChoice::Disobeyed => ExcludeReason::NoDraw,
                NoChoice::Irrelevant => ExcludeReason::NotRelevant,
            };
            tracing::info!(turn = %turn.id, %why, least, relevances = ?answers.relevances(), "not taught");
            return Ok(Some(Taught::Declined(why)));
        }
    };
    let mut replies = Vec::new();
    for TeacherReply { ids, .. } in chosen {
        let form = match rl.target {
            TargetForm::OneHot => Form::OneHot,
            TargetForm::TopK => Form::TopK(likely(policy, answers, ids).await?),
        };
        let ids = ids.clone();
        replies.push(TargetReply { ids, form });
    }
    let target = Target {
        prompt: answers.prompt.clone(),
        replies,
    };
    Ok(Some(Taught::Target(target.into())))
}

/// Whether an accepted reply does what is wished, as the judge finds, though its prompt did not say it: the weights know
/// it, and need not be taught it again. Where nobody can say, it is taught.
async fn obeys_untold(
    shared: &Shared,
    turn: &Turn,
    wishes: Option<&str>,
) -> Result<bool, TeachError> {
    let was_accepted = score(turn) == Some(Score::Good) && turn.served.wishes.is_none();
    let (Some(wishes), Some(reply), true) = (wishes, &turn.reply, was_accepted) else {
        return Ok(false);
    };
    let wishes = &[wishes.to_owned()];
    let obeys = shared.judge.of_reply(turn, reply, wishes);
    Ok(obeys.await? == Some(Score::Good))
}

async fn likely(
    policy: &PolicyModel,
    answers: &TeacherAnswers,
    reply: &[u32],
) -> Result<Vec<Vec<(u32, f32)>>, BackendError> {
    let pair = ScoredPair {
        prompt: &answers.told,
        reply,
    };
    let mut likely = policy.likeliest(pair, TOP_K).await?;
    for at in &mut likely {
        let sum: f32 = at.iter().map(|(_, p)| p).sum();
        for (_, p) in at {
            *p /= sum.max(f32::MIN_POSITIVE);
        }
    }
    Ok(likely)
}
