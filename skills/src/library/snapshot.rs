//! What a scan of the files has found, as readers look it up, and what it has found that no agent gets.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, SenderId};

use crate::{
    hearing::Facet,
    render,
    retrieve::{Index, Visible},
    scan::{AgentFiles, Scan, SkillFault, SkillWarning},
    skill::{Skill, SkillName},
    wishes::Wish,
};

#[derive(Debug)]
pub(super) struct Snapshot {
    /// The shared skills, then each agent's own.
    pub(super) skills: Vec<Arc<Skill>>,
    pub(super) index: Index,
    /// The view of agents without their own folder.
    pub(super) shared: AgentView,
    pub(super) agents: BTreeMap<AgentId, AgentView>,
}

#[derive(Debug, Default)]
pub(super) struct AgentView {
    pub(super) skills: Visible,
    /// The wishes in force: the shared ones, then its own.
    pub(super) wishes: Arc<[Wish]>,
    pub(super) own_wishes: Arc<[Wish]>,
    pub(super) people: Arc<BTreeMap<SenderId, Arc<[Wish]>>>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(scan: &Scan) -> Self {
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

/// The agent of clients that name none, and OpenClaw's default agent.
const USUAL_AGENTS: [&str; 2] = ["_default", "main"];

/// Warns about folders of unknown agents, which may be meant as something else. `met` is `None` if nobody reports
/// agents.
pub(super) fn of_unknown_agents(
    dir: &Path,
    scan: &Scan,
    met: Option<&BTreeSet<AgentId>>,
) -> Vec<SkillWarning> {
    let fault = |agent: &AgentId, files: &AgentFiles| {
        let is_met = met.is_some_and(|met| met.contains(agent));
        if is_met || USUAL_AGENTS.contains(&agent.as_str()) {
            None
        } else if files.has_no_lesson {
            Some(SkillFault::NoLesson)
        } else {
            let is_group = !files.skills.is_empty() && files.wishes.is_empty();
            let agent = agent.clone();
            (is_group && met.is_some()).then_some(SkillFault::UnknownAgent { agent })
        }
    };
    let warn = |(agent, files): (&AgentId, &AgentFiles)| {
        Some(SkillWarning {
            path: dir.join(agent.as_str()),
            fault: fault(agent, files)?,
        })
    };
    scan.agents.iter().filter_map(warn).collect()
}

/// Warns about skills that never fit within this many tokens. They stay in the library, for a larger budget.
pub(super) fn over_budget(scan: &Scan, budget: usize) -> Vec<SkillWarning> {
    let warn = |skill: &Arc<Skill>| SkillWarning {
        path: PathBuf::from(skill.name.as_str()),
        fault: SkillFault::OverBudget {
            tokens: render::cost(skill),
            budget,
        },
    };
    let own = scan.agents.values().flat_map(|files| &files.skills);
    let all = scan.shared.iter().chain(own);
    all.filter(|skill| render::cost(skill) > budget)
        .map(warn)
        .collect()
}
