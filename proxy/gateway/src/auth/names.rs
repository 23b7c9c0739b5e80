//! The names of agents that callers without a key may use.
//!
//! Without a key, any program of this machine can name as many agents as it likes, and each would have its own line in
//! every list, and its own lessons. So there is a limit, and the requests of all further agents count as those of one
//! agent. They are relayed and recorded as all others are.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arc_swap::ArcSwap;
use metaclaw_capture::Counter;
use metaclaw_chat::AgentId;

/// The most names, besides those that the settings contain.
const MAX_NAMES: usize = 256;
const OTHERS: &str = "_others";

#[derive(Debug, Clone, Default)]
pub(crate) struct AgentNames(Arc<Names>);

#[derive(Debug, Default)]
struct Names {
    /// Every request reads it, and few add to it.
    known: ArcSwap<BTreeSet<AgentId>>,
    limit: usize,
    n_others: Arc<Counter>,
}

// === impl AgentNames ===

impl AgentNames {
    /// Starts with all that the settings name, and with as many of `used` as are allowed, the first ones.
    pub(crate) fn new(
        settings: impl Iterator<Item = AgentId>,
        used: impl Iterator<Item = AgentId>,
        n_others: Arc<Counter>,
    ) -> Self {
        let mut known: BTreeSet<AgentId> = settings.collect();
        known.extend([AgentId::default_agent()]);
        let limit = known.len() + MAX_NAMES;
        for agent in used {
            if known.len() < limit {
                known.insert(agent);
            }
        }
        Self(Arc::new(Names {
            known: ArcSwap::from_pointee(known),
            limit,
            n_others,
        }))
    }

    pub(crate) fn counted(&self, agent: AgentId) -> AgentId {
        let Names {
            known,
            limit,
            n_others,
        } = &*self.0;
        let may_add = |known: &BTreeSet<_>| known.len() < *limit && !known.contains(&agent);
        if may_add(&known.load()) {
            known.rcu(|known| {
                let added = may_add(known).then(|| agent.clone());
                known.iter().cloned().chain(added).collect::<BTreeSet<_>>()
            });
        }
        if !known.load().contains(&agent)
            && let Ok(others) = OTHERS.parse()
        {
            if n_others.get() == 0 {
                tracing::warn!(
                    %agent,
                    "requests without a key have named {MAX_NAMES} agents, so this agent and further ones count as agent {OTHERS}: to tell them apart, name them in the settings (agents.NAME), or set a key (proxy.api_key)"
                );
            }
            n_others.inc();
            return others;
        }
        agent
    }
}

/// All callers without a key are one caller.
impl PartialEq for AgentNames {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AgentNames {}

impl Hash for AgentNames {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(n: usize) -> AgentId {
        format!("agent-{n}").parse().unwrap()
    }

    #[test]
    fn names_are_limited_and_the_settings_and_what_was_used_come_first() {
        let n_others = Arc::new(Counter::default());
        let settings = (0..300).map(agent);
        let used = (290..20_000).map(agent);
        let names = AgentNames::new(settings, used, Arc::clone(&n_others));
        for known in [0, 299, 300, 300 + MAX_NAMES - 1] {
            assert_eq!(names.counted(agent(known)), agent(known));
        }
        let found = names.counted(AgentId::default_agent());
        assert_eq!(found, AgentId::default_agent());
        assert_eq!(n_others.get(), 0);
        for other in [300 + MAX_NAMES, 19_999, 30_000] {
            assert_eq!(names.counted(agent(other)).as_str(), OTHERS);
        }
        assert_eq!(n_others.get(), 3);
        let fresh = AgentNames::new([].into_iter(), [].into_iter(), Arc::clone(&n_others));
        let counted: BTreeSet<_> = (0..1_000).map(|n| fresh.counted(agent(n))).collect();
        assert_eq!(counted.len(), MAX_NAMES + 1);
        assert_eq!(fresh.counted(agent(0)), agent(0));
    }

    #[test]
    fn requests_at_the_same_time_use_no_more_names_than_one_after_the_other() {
        let names = AgentNames::new([].into_iter(), [].into_iter(), Arc::default());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let names = &names;
                scope.spawn(move || {
                    for n in 0..200 {
                        names.counted(agent(thread * 100 + n));
                    }
                });
            }
        });
        let counted: BTreeSet<_> = (0..500).map(|n| names.counted(agent(n))).collect();
        assert_eq!(counted.len(), MAX_NAMES + 1);
    }
}
