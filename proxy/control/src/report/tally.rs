//! Counts turns, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_turns::{BreakCounts, DailyCounts, TurnSummary};

use super::{
    ChatTokens, DayRow, PeriodReport, PrefixReport, UpstreamDay, Verdicts,
    funnel::{FunnelTally, failure},
};

/// The number of broken prompts that a report shows with their words.
const SHOWN_BREAKS: usize = 20;

/// The counts of a period's turns.
#[derive(Debug)]
pub(super) struct TurnTally {
    funnel: FunnelTally,
    sessions: BTreeSet<u64>,
    agents: BTreeMap<String, u64>,
    verdicts: Verdicts,
    chat: ChatTokens,
    gone: u64,
    learning: u64,
    breaks: BreakCounts,
    /// The newest turns whose prompts broke, the newest first.
    broken: Vec<TurnId>,
    upstreams: BTreeMap<String, UpstreamDay>,
    /// The skills that each agent got.
    pub(super) skills: BTreeMap<String, BTreeMap<String, u64>>,
}

// === impl TurnTally ===

impl TurnTally {
    pub(super) fn new(weights: bool) -> Self {
        Self {
            funnel: FunnelTally::new(weights),
            sessions: BTreeSet::new(),
            agents: BTreeMap::new(),
            verdicts: Verdicts::default(),
            chat: ChatTokens::default(),
            gone: 0,
            learning: 0,
            breaks: BreakCounts::default(),
            broken: Vec::new(),
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
            // A failed reply has no cost.
            (None, None) => self.chat.n_uncounted += 1,
            (None, Some(_)) => {}
        }
        if let Some(cause) = turn.broken {
            self.breaks.add(cause);
            if self.broken.len() < SHOWN_BREAKS {
                self.broken.push(turn.id);
            }
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

    /// Adds counts of an agent in addition to existing turns.
    pub(super) fn add_counted(&mut self, agent: &AgentId, counts: &DailyCounts) {
        let gone = counts.turns + counts.side_turns;
        if gone > 0 {
            *self.agents.entry(agent.to_string()).or_default() += gone;
        }
        self.gone += gone;
        self.funnel.add_gone(counts.turns, counts.side_turns);
        self.verdicts.good += counts.good;
        self.verdicts.unclear += counts.unclear;
        self.verdicts.bad += counts.bad;
        self.chat.prompt += counts.tokens_in;
        self.chat.cached += counts.tokens_cached;
        self.chat.completion += counts.tokens_out;
        self.learning += counts.learning_tokens;
        self.breaks += counts.breaks;
    }

    /// Returns the turns whose broken prompts are shown with their words.
    pub(super) fn take_broken(&mut self) -> Vec<TurnId> {
        std::mem::take(&mut self.broken)
    }

    /// Writes the counts into a report that has the other fields.
    pub(super) fn report(self, rest: PeriodReport) -> PeriodReport {
        PeriodReport {
            turns: self.agents.values().sum(),
            gone: self.gone,
            sessions: self.sessions.len() as u64,
            agents: self.agents,
            verdicts: self.verdicts,
            funnel: self.funnel.stages(),
            chat: self.chat,
            learning: self.learning,
            prefix: PrefixReport {
                counts: self.breaks,
                latest: rest.prefix.latest,
            },
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
        self.prompt += usage.prompt_tokens;
        self.cached += usage.cached_tokens;
        self.breaks += turn.broken.map(BreakCounts::from).unwrap_or_default();
    }

    /// Adds counts of an agent in addition to existing turns.
    pub(super) fn add_counted(&mut self, counts: &DailyCounts) {
        self.turns += counts.turns + counts.side_turns;
        self.judged += counts.good + counts.unclear + counts.bad;
        self.good += counts.good;
        self.lessons += counts.lessons;
        self.tokens += counts.tokens_in + counts.tokens_out;
        self.prompt += counts.tokens_in;
        self.cached += counts.tokens_cached;
        self.breaks += counts.breaks;
        self.learning += counts.learning_tokens;
    }
}
