//! What is kept of whom: nothing while the switch is off, and nothing of what is said off the record.
//!
//! A request repeats what was said before it. So a conversation of which one turn may not be kept stays unkept
//! from there on, until its client begins it anew: else the next turn would bring that one into the log.

mod off_record;
mod phrases;
mod switch;

use std::sync::Arc;

use metaclaw_chat::ChainHash;
use metaclaw_dialects::request::ChatRequest;
use metaclaw_turns::TurnKind;

pub use self::{
    off_record::{Mark, OffRecord},
    switch::{RelayOnly, Switch},
};
use crate::{
    config::ConfigError,
    identity::{Identity, Naming},
    metrics::Metrics,
};
use phrases::Phrases;

/// What outlives the gateway's requests: the switch, and what is off the record.
#[derive(Debug, Default)]
pub struct Privacy {
    /// Who is only relayed.
    pub switch: Switch,
    /// What is not to be kept, though all else is.
    pub off_record: OffRecord,
}

/// What becomes of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is recorded and learned from.
    Kept,
    /// It has its lessons, and nothing of it is kept.
    OffRecord,
    /// Its bytes pass, and that is all.
    RelayOnly,
}

/// Decides what becomes of each turn.
#[derive(Debug)]
pub(crate) struct Keeper {
    privacy: Arc<Privacy>,
    phrases: Phrases,
    metrics: Arc<Metrics>,
}

/// A turn as it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub who: &'a Identity,
    pub chat: &'a ChatRequest,
    /// The hash of the conversation before the request's first message.
    pub start: ChainHash,
    /// Its header says that it is not to be learned from.
    pub says_no: bool,
}

// === impl Keeper ===

impl Keeper {
    pub(crate) fn new(
        privacy: Arc<Privacy>,
        phrases: &[String],
        metrics: Arc<Metrics>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            privacy,
            phrases: Phrases::new(phrases)?,
            metrics,
        })
    }

    /// What becomes of a turn of a rollout: nobody speaks in it who could take it off the record.
    pub(crate) fn keeping_of_rollout(&self, who: &Identity) -> Keeping {
        if self.privacy.switch.is_off(&who.agent) {
            self.metrics.relayed_only.inc();
            return Keeping::RelayOnly;
        }
        Keeping::Kept
    }

    /// What becomes of a turn. One that is not kept leaves a mark, by which its conversation is known later.
    pub(crate) fn keeping(&self, asked: Asked<'_>) -> Keeping {
        let Asked {
            who, chat, start, ..
        } = asked;
        let off_record = &self.privacy.off_record;
        let is_off = self.privacy.switch.is_off(&who.agent);
        let says_no = asked.says_no || self.phrases.are_in(chat, who.kind);
        if !says_no && !is_off && off_record.is_empty() {
            return Keeping::Kept;
        }
        // A session that its client names is known by that; any other by what was said in it.
        let is_named = who.naming != Naming::Unnamed;
        let chains = if is_named && who.kind == TurnKind::Main {
            Vec::new()
        } else {
            chat.chains(start)
        };
        // Under a name that is one conversation's a history that begins again was summed up.
        let may_begin_anew = who.kind == TurnKind::Main && who.naming == Naming::Reused;
        if !says_no && !is_off && may_begin_anew && begins_anew(chat) {
            off_record.lift(who);
        }
        let was_marked = off_record.has(who, &chains);
        if !says_no && !is_off && !was_marked {
            return Keeping::Kept;
        }
        // What an errand says may be anybody's words: it takes itself off the record, and not the owner's session.
        let is_errands = who.kind == TurnKind::Side && !asked.says_no && !is_off;
        if is_errands && !off_record.has(who, &[]) {
            off_record.mark_said(who, &chains);
        } else {
            off_record.mark(who, &chains);
        }
        if is_off {
            self.metrics.relayed_only.inc();
            return Keeping::RelayOnly;
        }
        self.metrics.off_record.inc();
        if !was_marked {
            tracing::info!("off the record: from here on nothing of this session is kept");
        }
        Keeping::OffRecord
    }
}

/// Whether nothing was said in a conversation but what its owner says now: OpenClaw's `/new` empties the history and
/// may keep the name. A history that was summed up has the summary before it. Behind it the agent itself may add
/// something that is nobody's words, as OpenClaw does with each message.
fn begins_anew(chat: &ChatRequest) -> bool {
    use metaclaw_chat::{Role, Speaker};
    let goes_on = |name| chat.field_json(name).is_some_and(|json| json != "null");
    if chat.has_reply() || goes_on("previous_response_id") || goes_on("conversation") {
        return false;
    }
    let mut n_typed = 0;
    for message in chat.messages().filter(|it| it.role() != Role::System) {
        match message.utterance() {
            Some(utterance) if utterance.has_summary => return false,
            // What the client puts before it and behind it.
            Some(utterance) if utterance.speaker == Speaker::Client => {}
            Some(_) => n_typed += 1,
            // What a tool returned.
            None if n_typed == 0 => return false,
            None => {}
        }
    }
    n_typed == 1
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::begins_anew;
    use crate::identity::testing::request;

    #[test]
    fn a_session_begins_anew_with_one_message_and_no_summary() {
        let user = Message::user;
        let environment = "<environment_context>\n</environment_context>";
        let summary = "Another language model started to solve this problem and produced a summary of its thinking process.";
        let internal = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>";
        for messages in [
            vec![user("hi")],
            vec![Message::system("x"), user(environment), user("hi")],
            vec![user("hi"), user(internal)],
        ] {
            assert!(begins_anew(&request(&messages)), "{messages:?}");
        }
        for messages in [
            vec![user(environment)],
            vec![user("hi"), user("again")],
            vec![user("hi"), user(summary)],
            vec![
                user(
                    "This session is being continued from a previous conversation that ran out of context.",
                ),
                user("hi"),
            ],
            vec![user("hi"), Message::assistant("x"), user("again")],
        ] {
            assert!(!begins_anew(&request(&messages)), "{messages:?}");
        }
    }
}
