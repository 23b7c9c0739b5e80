//! A snapshot of the library for requests: skills and wishes of every agent, as the last scan found them.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{AgentId, SenderId};

use crate::{
    hearing::Facet,
    retrieve::{Index, Visible},
    scan::Scan,
    skill::{Skill, SkillName},
    wishes::Wish,
};

#[derive(Debug)]
pub(super) struct Snapshot {
    /// The shared skills, then each agent's own.
    pub(super) skills: Vec<Arc<Skill>>,
    /// The index of all of them.
    pub(super) index: Index,
    /// The view of agents without their own folder.
    pub(super) shared: AgentView,
    pub(super) agents: BTreeMap<AgentId, AgentView>,
}

/// The lessons of one agent.
#[derive(Debug, Default)]
pub(super) struct AgentView {
    pub(super) skills: Visible,
    /// The wishes in force: the shared ones, then its own.
    pub(super) wishes: Arc<[Wish]>,
    /// The wishes of its own file.
    pub(super) own_wishes: Arc<[Wish]>,
    /// The wishes of each person beside the owner.
    pub(super) people: Arc<BTreeMap<SenderId, Arc<[Wish]>>>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn of(scan: &Scan) -> Self {
        let mut skills = scan.shared.clone();
        let shared = 0..skills.len();
        let places = skills.iter().enumerate();
        let places: BTreeMap<SkillName, usize> =
            places.map(|(at, it)| (it.name.clone(), at)).collect();
        let mut agents = BTreeMap::new();
        for (agent, files) in &scan.agents {
            let begin = skills.len();
            skills.extend_from_slice(&files.skills);
            let hidden = files.skills.iter().filter_map(|own| places.get(&own.name));
            let visible = Visible {
                shared: shared.clone(),
                own: begin..skills.len(),
                hidden: hidden.copied().collect(),
            };
            let view = AgentView {
                skills: visible,
                wishes: in_force(&scan.shared_wishes, &files.wishes),
                own_wishes: Arc::clone(&files.wishes),
                people: Arc::clone(&files.people),
            };
            agents.insert(agent.clone(), view);
        }
        let shared = Visible {
            shared,
            ..Visible::default()
        };
        Self {
            index: Index::build(&skills),
            skills,
            shared: AgentView {
                skills: shared,
                wishes: Arc::clone(&scan.shared_wishes),
                own_wishes: Arc::default(),
                people: Arc::default(),
            },
            agents,
        }
    }

    pub(super) fn view(&self, agent: &AgentId) -> &AgentView {
        self.agents.get(agent).unwrap_or(&self.shared)
    }

    /// Returns an agent's skills by name.
    pub(super) fn of_agent(&self, agent: &AgentId) -> Vec<Arc<Skill>> {
        let mut skills: Vec<_> = self.numbered(self.view(agent).skills.numbers()).collect();
        skills.sort_by(|a, b| a.name.cmp(&b.name));
        skills
    }

    pub(super) fn numbered(
        &self,
        numbers: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = Arc<Skill>> {
        numbers.filter_map(|number| self.skills.get(number).cloned())
    }
}

/// Returns the shared wishes, without those that conflict with an agent's own, and then its own.
fn in_force(shared: &[Wish], own: &[Wish]) -> Arc<[Wish]> {
    let excludes = |wish: &Wish| Facet::of_wish(&wish.text).filter(|facet| facet.is_exclusive());
    let taken: Vec<Facet> = own.iter().filter_map(excludes).collect();
    let stands = |wish: &&Wish| {
        !own.contains(wish) && excludes(wish).is_none_or(|facet| !taken.contains(&facet))
    };
    let shared = shared.iter().filter(stands);
    shared.chain(own).cloned().collect()
}
