//! The time between two sessions: a real owner is away for minutes, in which the learner does what is due. The scripted
//! owner waits exactly until then. The owner also waits for the learner's work for other agents, because until the
//! learner checks again, the status of this agent is outdated, and the count would include delays that a learner of one
//! agent would not have.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::product::Product;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// If nothing changes although something waits (a learner that rests), it is assumed that nothing will.
const STUCK_AFTER: Duration = Duration::from_secs(20);
/// The same, if the learner waits a minute (`scheduler.idle_minutes`) before the owner counts as away.
const STUCK_AT_NIGHT_AFTER: Duration = Duration::from_secs(100);
/// The longest absence of the owner, also for a night, because the learner of a row has to make and test the steps of
/// all its agents.
const AWAY: Duration = Duration::from_secs(1_800);

/// What the bench has seen of an agent's learning.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Watch {
    /// The serving adapter; `None` is the base model.
    pub adapter: Option<String>,
    /// Every adapter that began to serve.
    pub served: BTreeSet<String>,
    /// Every step, by adapter, as the status reported it.
    pub steps: BTreeMap<String, Value>,
    /// How often the owner came back although something waited.
    pub n_stuck: usize,
    /// The state at that time, because waiting again in the same state is of no use.
    #[serde(skip)]
    stuck_at: Option<Value>,
    /// Whether the owner comes back the next day.
    by_days: bool,
}

// === impl Watch ===

impl Watch {
    pub fn new(by_days: bool) -> Self {
        Self {
            by_days,
            ..Self::default()
        }
    }

    /// Waits until the learner has done what is due for an agent that has sent `n_turns`; returns the product's status
    /// then.
    pub async fn until_quiet(
        &mut self,
        product: &Product,
        agent: &str,
        n_turns: u64,
    ) -> Result<Option<Value>> {
        let stuck_after = if self.by_days {
            STUCK_AT_NIGHT_AFTER
        } else {
            STUCK_AFTER
        };
        let began = Instant::now();
        let (mut last, mut since) = (None, Instant::now());
        loop {
            let status = product.status().await?;
            let own = own(&status, agent).cloned();
            self.note(own.as_ref());
            let quiet = is_quiet(&status, agent, n_turns, product.batch_size);
            let same = own == last;
            if quiet && same {
                self.stuck_at = None;
                return Ok(own);
            }
            let moves = !same || is_busy(&status);
            if moves {
                since = Instant::now();
            }
            let known = own.is_some() && own == self.stuck_at;
            if began.elapsed() > AWAY || since.elapsed() > stuck_after || (known && !moves) {
                self.n_stuck += 1;
                self.stuck_at.clone_from(&own);
                return Ok(own);
            }
            last = own;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn note(&mut self, own: Option<&Value>) {
        let Some(own) = own else { return };
        self.adapter = own["adapter"].as_str().map(str::to_owned);
        self.served.extend(self.adapter.clone());
        let step = &own["last_step"];
        if let Some(adapter) = step["adapter"].as_str() {
            self.steps.insert(adapter.to_owned(), step.clone());
        }
    }
}

/// Returns the product's status of an agent.
pub fn own<'a>(status: &'a Value, agent: &str) -> Option<&'a Value> {
    let agents = status["learner"]["agents"].as_array()?;
    agents.iter().find(|it| it["agent"] == agent)
}

/// Returns whether the learner is working, for any agent.
fn is_busy(status: &Value) -> bool {
    let phase = status["learner"]["phase"]["is"].as_str();
    phase.is_some_and(|it| ["teaching", "stepping", "testing"].contains(&it))
}

/// Returns whether nothing is in progress or due for an agent.
fn is_quiet(status: &Value, agent: &str, n_turns: u64, batch_size: u64) -> bool {
    let Some(own) = own(status, agent) else {
        return false;
    };
    let learner = &status["learner"];
    let count = |key: &str| own[key].as_u64().unwrap_or_default();
    let funnel = |key: &str| own["funnel"][key].as_u64().unwrap_or_default();
    // The teacher answers turns as soon as there are enough for a batch.
    let n_redo = count("n_redo") + count("n_unanswered");
    let due = n_redo >= batch_size || count("n_binary_rl") >= batch_size;
    // If weights are trained, ids arrive by themselves a moment after the reply.
    let ids = learner["phase"]["is"] == "off" || funnel("with_ids") >= funnel("complete");
    let judged = learner["judging"]["waiting"].as_u64() == Some(0);
    funnel("turns") >= n_turns && ids && judged && !is_busy(status) && !due
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        json!({"learner": {
            "judging": {"waiting": 0},
            "phase": {"is": "collecting"},
            "agents": [{"agent": "a", "adapter": "a-1", "n_redo": 1, "n_unanswered": 0, "n_binary_rl": 0, "last_step": null,
                "funnel": {"turns": 4, "complete": 4, "with_ids": 4}}],
        }})
    }

    #[test]
    fn it_is_quiet_when_nothing_is_due() {
        assert!(is_quiet(&status(), "a", 4, 4));
        assert!(
            !is_quiet(&status(), "a", 5, 4),
            "a turn is on its way to the log"
        );
        assert!(
            !is_quiet(&status(), "b", 0, 4),
            "nothing of it was seen yet"
        );
        assert!(!is_quiet(&status(), "a", 4, 1), "a batch is due");
        let changes: [(&str, Value); 6] = [
            ("/learner/judging/waiting", json!(1)),
            ("/learner/phase", json!({"is": "stepping", "agent": "a"})),
            ("/learner/phase", json!({"is": "teaching", "agent": "a"})),
            ("/learner/phase", json!({"is": "testing", "agent": "a"})),
            ("/learner/agents/0/n_unanswered", json!(3)),
            ("/learner/agents/0/funnel/with_ids", json!(3)),
        ];
        for (place, value) in changes {
            let mut busy = status();
            *busy.pointer_mut(place).unwrap() = value;
            assert!(!is_quiet(&busy, "a", 4, 4), "{place}");
        }
        let mut other = status();
        other["learner"]["phase"] = json!({"is": "stepping", "agent": "b"});
        assert!(!is_quiet(&other, "a", 4, 4), "another agent's step");
    }

    #[test]
    fn what_served_and_what_was_made_is_remembered() {
        let mut watch = Watch::default();
        watch.note(own(&status(), "a"));
        let mut later = status();
        later["learner"]["agents"][0]["last_step"] = json!({"adapter": "a-2", "seconds": 3.0});
        watch.note(own(&later, "a"));
        assert_eq!(watch.served.len(), 1);
        assert_eq!(watch.steps["a-2"]["seconds"], 3.0);
    }
}
