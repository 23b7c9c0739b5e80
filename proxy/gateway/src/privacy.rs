//! Decides what is kept: nothing while `metaclaw off` is in force, and nothing that is off the record.
//!
//! A request repeats the earlier conversation. So once a turn is off the record, its conversation stays off the record
//! until its client begins it again. Otherwise the next turn would bring that turn into the log.

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
    identity::{Identity, Naming, begins},
    metrics::Metrics,
};
use phrases::Phrases;

/// The state of privacy: the switch, and the conversations that are off the record.
#[derive(Debug, Default)]
pub struct Privacy {
    /// The agents that are only relayed.
    pub switch: Switch,
    /// The conversations of which nothing is kept.
    pub off_record: OffRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is recorded, and MetaClaw learns from it.
    Kept,
    /// It gets lessons, and nothing of it is kept.
    OffRecord,
    /// It is relayed without lessons, and nothing of it is kept.
    RelayOnly,
}

#[derive(Debug)]
pub(crate) struct Keeper {
    privacy: Arc<Privacy>,
    phrases: Phrases,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub who: &'a Identity,
    pub chat: &'a ChatRequest,
    /// The hash of the conversation before the request's first message.
    pub start: ChainHash,
    /// Whether its header forbids learning from it.
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

    /// Decides on a turn of a rollout. No owner speaks in a rollout, so phrases do not count. If the header of one turn
    /// forbids learning from it, the whole rollout is off the record from there on.
    pub(crate) fn keeping_of_rollout(&self, who: &Identity, says_no: bool) -> Keeping {
        if self.privacy.switch.is_off(&who.agent) {
            self.metrics.relayed_only.inc();
            return Keeping::RelayOnly;
        }
        let off_record = &self.privacy.off_record;
        if says_no {
            off_record.mark(who, &[]);
        }
        if off_record.is_empty() || !off_record.has(who, &[]) {
            return Keeping::Kept;
        }
        self.metrics.off_record.inc();
        Keeping::OffRecord
    }

    /// Decides on a turn. A turn that is not kept leaves a mark, by which its conversation is recognised later.
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
        // A session is recognised by its name if its client names it, and otherwise by its messages.
        let is_named = who.naming != Naming::Unnamed;
        let chains = if is_named && who.kind == TurnKind::Main {
            Vec::new()
        } else {
            chat.chains(start)
        };
        // If the name stands for one conversation only, a history that begins again was summarised.
        let may_begin_anew = who.kind == TurnKind::Main && who.naming == Naming::Reused;
        if !says_no && !is_off && may_begin_anew && begins_anew(chat) {
            off_record.lift(who);
        }
        let was_marked = off_record.has(who, &chains);
        if !says_no && !is_off && !was_marked {
            return Keeping::Kept;
        }
        // The text of a side turn may be anybody's, so it puts itself off the record, and not the owner's session.
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
            tracing::info!("off the record: nothing of this session is kept from now on");
        }
        Keeping::OffRecord
    }
}

/// Returns whether a conversation has only one message of its owner: OpenClaw's `/new` empties the history and may keep
/// the name. In a summarised history, the summary comes first. After the message, the agent itself may add text that is
/// nobody's, as OpenClaw does with each message.
fn begins_anew(chat: &ChatRequest) -> bool {
    use metaclaw_chat::{Role, Speaker};
    if !begins(chat) {
        return false;
    }
    let mut n_typed = 0;
    let said = chat.messages();
    for message in said.filter(|message| message.role() != Role::System) {
        match message.utterance() {
            Some(utterance) if utterance.has_summary => return false,
            // A text that the client adds before or after it.
            Some(utterance) if utterance.speaker == Speaker::Client => {}
            Some(_) => n_typed += 1,
            // A result of a tool.
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
        let continued =
            "This session is being continued from a previous conversation that ran out of context.";
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
            vec![user(continued), user("hi")],
            vec![user("hi"), Message::assistant("x"), user("again")],
        ] {
            assert!(!begins_anew(&request(&messages)), "{messages:?}");
        }
    }
}
