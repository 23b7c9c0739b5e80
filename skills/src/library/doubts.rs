//! Finds readable lessons that no agent will ever get.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::AgentId;

use crate::{
    render,
    scan::{AgentFiles, Scan},
    skill::Skill,
    warning::{SkillFault, SkillWarning},
};

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
