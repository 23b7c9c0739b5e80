//! Turns of the owner's that are asked again.

use metaclaw_chat::{AgentId, TurnId, owners_words};
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::{LogError, MAX_LIST, StateKind, Turn, TurnFilter};

use super::report::{EvalError, EvalTurns, EvalWanted};
use crate::{
    gate::Posed,
    policy::PolicyModel,
    shared::Shared,
    teacher::{TeacherConversation, max_tokens, others, seed},
};

/// The longest reply that is drawn: it is read, and scored by its beginning.
const MOST_TOKENS: u32 = 128;

/// A turn that can be asked again.
#[derive(Debug, Clone)]
pub(super) struct OwnersQuestion {
    turn: Turn,
    conversation: TeacherConversation,
    text: String,
}

/// The turns that are wanted.
pub(super) async fn of(
    shared: &Shared,
    wanted: &EvalWanted,
) -> Result<Vec<OwnersQuestion>, EvalError> {
    let agent = &wanted.agent;
    match &wanted.turns {
        EvalTurns::These(ids) => these(shared, agent, ids).await,
        EvalTurns::Last(n) => Ok(last(shared, agent, *n).await?),
        EvalTurns::HeldOutOrLast(n) => {
            let held_out = shared.persist(|| shared.log.in_state(agent, StateKind::HeldOut));
            let mut questions = Vec::new();
            for id in held_out.await?.into_iter().rev() {
                let turn = shared.persist(|| shared.log.get(id)).await?;
                questions.extend(turn.and_then(OwnersQuestion::of));
                if questions.len() >= *n {
                    break;
                }
            }
            if questions.is_empty() {
                questions = last(shared, agent, *n).await?;
            }
            Ok(questions)
        }
    }
}

async fn these(
    shared: &Shared,
    agent: &AgentId,
    ids: &[TurnId],
) -> Result<Vec<OwnersQuestion>, EvalError> {
    let mut questions = Vec::with_capacity(ids.len());
    for &id in ids {
        let refused = |why| EvalError::NoQuestion { id, why };
        let turn = shared.persist(|| shared.log.get(id)).await?;
        let turn = turn.ok_or_else(|| refused("the log has no such turn"))?;
        if turn.agent != *agent {
            return Err(refused("it is another agent's: say --agent"));
        }
        let question = OwnersQuestion::of(turn);
        questions.push(question.ok_or_else(|| refused("its owner asks nothing in it"))?);
    }
    Ok(questions)
}

/// The last questions that sessions began with, each once: what followed them was said to a reply.
async fn last(shared: &Shared, agent: &AgentId, n: usize) -> Result<Vec<OwnersQuestion>, LogError> {
    let filter = TurnFilter {
        agent: Some(agent.clone()),
        limit: MAX_LIST,
        ..TurnFilter::default()
    };
    let listed = shared.persist(|| shared.log.list(filter.clone())).await?;
    let mut questions: Vec<OwnersQuestion> = Vec::new();
    for summary in listed.into_iter().filter(|it| it.id.seq == 0) {
        if questions.len() >= n {
            break;
        }
        let turn = shared.persist(|| shared.log.get(summary.id)).await?;
        let Some(question) = turn.and_then(OwnersQuestion::of) else {
            continue;
        };
        if questions.iter().all(|it| it.text != question.text) {
            questions.push(question);
        }
    }
    Ok(questions)
}

// === impl OwnersQuestion ===

impl OwnersQuestion {
    /// None of a turn in which its owner asks nothing, or that is an agent's errand.
    fn of(turn: Turn) -> Option<Self> {
        let (_, said) = owners_words(&turn.request.messages).next()?;
        let text = said.text.into_owned();
        let conversation = TeacherConversation::of(&turn)?;
        let is_main = turn.meta.kind == metaclaw_turns::TurnKind::Main;
        (is_main && !text.is_empty()).then_some(Self {
            turn,
            conversation,
            text,
        })
    }

    /// Its turn, and what is asked in it.
    pub(super) fn told(&self) -> (TurnId, String) {
        (self.turn.id, self.text.clone())
    }

    /// As it is asked: its conversation without what was put into it, with wishes, and with other questions at its end.
    pub(super) async fn posed(
        &self,
        policy: &PolicyModel,
        wishes: &[String],
    ) -> Result<Posed, BackendError> {
        let render = |messages| policy.render_for(&self.turn, messages);
        let id = self.turn.id;
        let mut other_prompts = Vec::new();
        for other in others(id, &self.text) {
            other_prompts.push(render(self.conversation.asking(other)).await?);
        }
        let told = if wishes.is_empty() {
            None
        } else {
            let told = self.conversation.told(&wishes.join(" "));
            Some(render(told).await?)
        };
        Ok(Posed {
            plain: render(self.conversation.plain()).await?,
            told,
            others: other_prompts,
            seed: seed(id),
            max_tokens: max_tokens(&self.turn).min(MOST_TOKENS),
        })
    }
}
