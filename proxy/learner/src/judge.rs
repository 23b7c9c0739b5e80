//! Who judges: rules, a model, or a reward function; and how each is asked.

mod ask;
mod function;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, JudgedBy, Message, Score, Verdict};
use metaclaw_reward::{Evidence, Policy, Questions, Rules};
use metaclaw_turns::Turn;

use self::ask::Voters;
pub(crate) use self::ask::{Case, Price};
pub use self::{
    ask::{Ask, AskFailed},
    function::{Post, PostFailed, RewardFunction},
};

/// Model judges are asked about so many turns at once: each takes seconds.
const MODELS_AT_ONCE: usize = 4;
/// Turns that may be put to a reward function in one call, and wait for the next.
const FUNCTIONS_AT_ONCE: usize = 2 * function::MOST_TURNS;

#[derive(Debug, Clone)]
pub enum Judge {
    Rules(Rules),
    /// Rules first; where none fits, a model, by majority.
    Model {
        rules: Rules,
        model: Arc<dyn Ask>,
        others: Vec<Arc<dyn Ask>>,
        /// Votes for one verdict, at least 1. Each model has one at least.
        votes: usize,
        /// The share of the votes below which a verdict is unclear; 0 leaves it to the majority.
        consensus: f64,
        policy: Policy,
        /// Whether it is the policy model's own base: good enough to judge, and asked nothing else.
        is_base: bool,
    },
    /// Rules first; where none fits, the owner's reward function.
    Function {
        rules: Rules,
        function: Arc<RewardFunction>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoVerdict {
    /// No rule fits, and no model was asked.
    NotAsked,
    /// The model's answers were no votes.
    NoVote,
    /// The reward function gave none.
    NoScore,
}

// === impl Judge ===

impl Judge {
    pub fn nobody() -> Self {
        Self::Rules(Rules::default())
    }

    pub(crate) fn listener(&self) -> Option<&dyn Ask> {
        match self {
            Self::Model { model, is_base, .. } if !is_base => Some(&**model),
            Self::Rules(_) | Self::Model { .. } | Self::Function { .. } => None,
        }
    }

    /// Whether its model is asked what a message wishes.
    pub fn hears(&self) -> bool {
        self.listener().is_some()
    }

    pub(crate) fn praises_replies(&self) -> bool {
        self.rules().praise_replies()
    }

    /// Whether anybody judges at this price: where nobody does turns wait, and are judged once somebody does.
    pub(crate) fn judges(&self, price: Price) -> bool {
        match self {
            Self::Rules(rules) => !rules.is_empty(),
            Self::Model { rules, .. } => !rules.is_empty() || price != Price::Nothing,
            Self::Function { .. } => true,
        }
    }

    pub(crate) fn at_once(&self) -> usize {
        match self {
            Self::Rules(_) | Self::Model { .. } => MODELS_AT_ONCE,
            Self::Function { .. } => FUNCTIONS_AT_ONCE,
        }
    }

    /// Whether another reply to a turn's request does its job and is as its owner wishes: rules on replies first, then
    /// the reward function, or one vote of the model. `Ok(None)`: nobody can say, by a reply alone.
    ///
    /// The request's messages must be there as they were read from the log. Nothing is written down.
    ///
    /// # Errors
    /// [`AskFailed`]: the judge is away, and may be asked again.
    pub fn of_reply<'a>(
        &'a self,
        turn: &'a Turn,
        reply: &'a Message,
        wishes: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Score>, AskFailed>> {
        Box::pin(async move {
            let case = Case::of_reply(turn, reply, wishes);
            let verdict = self.verdict(&case, Price::OneVote).await?;
            Ok(verdict.ok().map(|verdict| verdict.score))
        })
    }

    /// Whether a reply to a question of ours is as one wish says, by one vote of the model. `Ok(None)`: nobody can say. Rules
    /// and reward functions say whether a reply is good, and not by which of the wishes.
    ///
    /// # Errors
    /// [`AskFailed`].
    pub(crate) async fn keeps_wish(
        &self,
        question: &str,
        reply: &str,
        wish: &str,
    ) -> Result<Option<Score>, AskFailed> {
        let Self::Model {
            model,
            others,
            policy,
            is_base: false,
            ..
        } = self
        else {
            return Ok(None);
        };
        let voters = Voters {
            first: &**model,
            others,
        };
        let evidence = Evidence::new(&[Message::user(question)], Message::assistant(reply), &[]);
        let questions = policy.questions(&evidence, &[wish.to_owned()]);
        let verdict = voters.verdict(&questions, 1).await?;
        Ok(verdict.map(|verdict| verdict.score))
    }

    /// Whether a reply to a question of ours is good and as all of these wishes say: rules on replies first, then the reward
    /// function, or one vote of the model. `Ok(None)`: nobody can say. The small base is not asked about wishes.
    ///
    /// # Errors
    /// [`AskFailed`].
    pub(crate) async fn of_probe(
        &self,
        agent: &AgentId,
        question: &str,
        reply: &str,
        wishes: &[String],
    ) -> Result<Option<Score>, AskFailed> {
        let case = Case::of_probe(agent, question, reply, wishes);
        let verdict = match self {
            Self::Model {
                rules,
                is_base: true,
                ..
            } => rules.judge(&case.evidence),
            Self::Rules(_) | Self::Model { .. } | Self::Function { .. } => {
                self.verdict(&case, Price::OneVote).await?.ok()
            }
        };
        Ok(verdict.map(|verdict| verdict.score))
    }

    pub(crate) fn judges_probes(&self) -> bool {
        self.tells_wishes_apart() || matches!(self, Self::Function { .. }) || self.praises_replies()
    }

    pub(crate) fn tells_wishes_apart(&self) -> bool {
        matches!(self, Self::Model { is_base: false, .. })
    }

    pub(crate) async fn verdict(
        &self,
        case: &Case<'_>,
        price: Price,
    ) -> Result<Result<Verdict, NoVerdict>, AskFailed> {
        if let Some(verdict) = self.rules().judge(&case.evidence) {
            return Ok(Ok(verdict));
        }
        match self {
            Self::Rules(_) => Ok(Err(NoVerdict::NotAsked)),
            Self::Model {
                model,
                others,
                votes,
                consensus,
                policy,
                is_base,
                ..
            } => {
                let voters = Voters {
                    first: &**model,
                    others,
                };
                let Some(m) = price.votes((*votes).max(voters.count())) else {
                    return Ok(Err(NoVerdict::NotAsked));
                };
                let questions = Questions {
                    consensus: *consensus,
                    ..policy.questions(&case.evidence, &case.wishes)
                };
                let verdict = voters.verdict(&questions, m).await?;
                let by = if *is_base {
                    JudgedBy::Base
                } else {
                    JudgedBy::Llm
                };
                let verdict = verdict.map(|verdict| Verdict { by, ..verdict });
                Ok(verdict.ok_or(NoVerdict::NoVote))
            }
            Self::Function { function, .. } => {
                let grade = function.grade(case.to_json()).await?;
                Ok(grade
                    .map(metaclaw_reward::grade::Grade::verdict)
                    .ok_or(NoVerdict::NoScore))
            }
        }
    }

    fn rules(&self) -> &Rules {
        match self {
            Self::Rules(rules) | Self::Model { rules, .. } | Self::Function { rules, .. } => rules,
        }
    }
}

#[cfg(test)]
mod tests;
