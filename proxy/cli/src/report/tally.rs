//! Counts turns, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_chat::Score;
use metaclaw_turns::TurnSummary;

use super::{
    DayRow, Report, Tokens, UpstreamDay, Verdicts,
    funnel::{Funnel, failure},
};

/// What a period's turns come to.
#[derive(Debug)]
pub(super) struct Tally {
    funnel: Funnel,
    sessions: BTreeSet<u64>,
    agents: BTreeMap<String, u64>,
    verdicts: Verdicts,
    chat: Tokens,
    upstreams: BTreeMap<String, UpstreamDay>,
    /// The skills that each agent was given.
    pub(super) skills: BTreeMap<String, BTreeMap<String, u64>>,
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(weights: bool) -> Self {
        Self {
            funnel: Funnel::new(weights),
            sessions: BTreeSet::new(),
            agents: BTreeMap::new(),
            verdicts: Verdicts::default(),
            chat: Tokens::default(),
            upstreams: BTreeMap::new(),
            skills: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, turn: &TurnSummary) {
        self.funnel.add(turn);
        self.sessions.insert(turn.id.session);
        *self.agents.entry(turn.agent.to_string()).or_default() += 1;
        match turn.score {
            Some(Score::Good) => self.verdicts.good += 1,
            Some(Score::Unclear) => self.verdicts.unclear += 1,
            Some(Score::Bad) => self.verdicts.bad += 1,
            None => {}
        }
        self.verdicts.hinted += u64::from(turn.is_hinted);
        match (&turn.usage, failure(turn.end)) {
            (Some(usage), _) => {
                self.chat.prompt += usage.prompt_tokens;
                self.chat.cached += usage.cached_tokens;
                self.chat.completion += usage.completion_tokens;
            }
            // An error costs nothing.
            (None, None) => self.chat.n_uncounted += 1,
            (None, Some(_)) => {}
        }
        let upstream = self.upstreams.entry(turn.upstream.clone()).or_default();
        upstream.turns += 1;
        if let Some(why) = failure(turn.end) {
            *upstream.errors.entry(why).or_default() += 1;
        }
        let skills = self.skills.entry(turn.agent.to_string()).or_default();
        for name in &turn.skills {
            *skills.entry(name.clone()).or_default() += 1;
        }
    }

    /// What was counted, in a report that knows the rest.
    pub(super) fn report(self, rest: Report) -> Report {
        Report {
            turns: self.agents.values().sum(),
            sessions: self.sessions.len() as u64,
            agents: self.agents,
            verdicts: self.verdicts,
            funnel: self.funnel.stages(),
            chat: self.chat,
            upstreams: self.upstreams,
            ..rest
        }
    }
}

// === impl DayRow ===

impl DayRow {
    pub(super) fn add(&mut self, turn: &TurnSummary) {
        self.turns += 1;
        self.judged += u64::from(turn.score.is_some());
        self.good += u64::from(turn.score == Some(Score::Good));
        let usage = turn.usage.unwrap_or_default();
        self.tokens += usage.prompt_tokens + usage.completion_tokens;
    }
}
