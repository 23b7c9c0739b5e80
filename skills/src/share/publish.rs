//! Collects this home's skills and copies them into the share.

use std::{
    collections::BTreeMap,
    fs::{self},
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, TurnId, if_there, unix_ms};

use super::index::{
    INDEX_FILE, MAX_SKILLS, MAX_TEXT, MAX_TURNS, Published, ShareFile, ShareIndex, ShareKey,
    ShareState, SharedSkill, digest, import_of, label, path_of,
};
use crate::{
    bank,
    evolve::{EvolveError, Proposal, ProposalStore},
    file::{MAX_FILE, SHARED, SKILL_FILE, WriterId, failed, read_text},
    guard::{Suspicion, suspicions},
    library::Library,
    skill::Skill,
};

const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME: u64 = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct PublishOptions {
    pub(super) person: String,
    /// Without any, all agents.
    pub(super) agents: Vec<AgentId>,
    pub(super) key: Option<ShareKey>,
}

#[derive(Debug)]
pub(super) struct Publication {
    pub(super) writer: WriterId,
    pub(super) index: String,
    pub(super) skills: BTreeMap<ShareFile, String>,
    pub(super) withheld: Vec<String>,
}

struct OwnSkill {
    agent: AgentId,
    skill: Skill,
    text: String,
    modified_ms: u64,
}

// === impl Library ===

impl Library {
    /// Collects what is shared now, and notes it in `share.json`.
    pub(super) fn publication(
        &self,
        options: &PublishOptions,
        now_ms: u64,
    ) -> Result<Publication, EvolveError> {
        let _lock = self.lock_lessons()?;
        let dir = self.dir();
        let before = ShareState::read(dir)?;
        let proposals = ProposalStore::read(dir)?.proposals;
        let machine = machine();
        let mut state = before.clone();
        let writer = state
            .writer
            .get_or_insert_with(|| WriterId::of_machine(&machine))
            .clone();
        let mut index = ShareIndex {
            writer: writer.clone(),
            person: label(&options.person),
            machine: label(&machine),
            serial: 0,
            skills: Vec::new(),
        };
        let (mut skills, mut withheld) = (BTreeMap::new(), Vec::new());
        let wanted = |agent: &AgentId| options.agents.is_empty() || options.agents.contains(agent);
        state.published.clear();
        for own in self.own_skills(&proposals)? {
            if !wanted(&own.agent) {
                continue;
            }
            let path = path_of(&own.agent, &own.skill.name);
            if let Some(why) = own.reason_to_withhold(index.skills.len()) {
                withheld.push(format!("{path}: {why}"));
                continue;
            }
            let entry = own.entry(before.published.get(&path), &proposals, now_ms);
            let published = Published {
                digest: entry.digest.clone(),
                at_ms: entry.at_ms,
            };
            if state.published.insert(path, published).is_none() {
                skills.insert(entry.file(), own.text);
                index.skills.push(entry);
            }
        }
        if before.serial == 0 || state.published != before.published {
            state.serial = now_ms.max(before.serial.saturating_add(1));
        }
        index.serial = state.serial;
        if state != before {
            state.write(dir)?;
        }
        let written = index.written(options.key.as_ref());
        Ok(Publication {
            index: written.map_err(|error| failed(dir.join(INDEX_FILE))(error.into()))?,
            writer,
            skills,
            withheld,
        })
    }

    /// Returns the skills that were written in this home, of all agents. Skills of the bank and of other homes are not
    /// among them, unless somebody has changed them here.
    fn own_skills(&self, proposals: &[Proposal]) -> Result<Vec<OwnSkill>, EvolveError> {
        let shared: Option<AgentId> = SHARED.parse().ok();
        let mut folders: Vec<(AgentId, PathBuf)> = Vec::new();
        for agent in self.agents().into_iter().chain(shared.clone()) {
            let folder = self.dir().join(agent.as_str());
            folders.push((agent, folder));
        }
        // The flat layout: skills of all agents beside the agents' folders.
        folders.extend(shared.map(|agent| (agent, self.dir().to_owned())));
        let mut found = Vec::new();
        for (agent, folder) in folders {
            for path in skill_files(&folder)? {
                // The library's scan has already warned about a file that cannot be used.
                let text = read_text(&path, MAX_FILE).ok();
                let parsed = text.and_then(|text| Some((Skill::parse(&text).ok()?, text)));
                let Some((skill, text)) = parsed else {
                    continue;
                };
                let served = self.skill(&agent, &skill.name);
                let is_served = served.is_some_and(|served| served.version == skill.version);
                let is_banks =
                    agent.is_shared() && bank::is_unchanged(self.dir(), skill.name.as_str(), &text);
                let import = import_of(proposals, &agent, &skill.name, &text);
                if is_served && !is_banks && import.is_none() {
                    found.push(OwnSkill {
                        modified_ms: modified_ms(&path),
                        agent: agent.clone(),
                        skill,
                        text,
                    });
                }
            }
        }
        Ok(found)
    }
}

// === impl OwnSkill ===

impl OwnSkill {
    fn reason_to_withhold(&self, n_before: usize) -> Option<String> {
        if self.text.len() as u64 > MAX_TEXT {
            let n = self.text.len();
            return Some(format!("it has {n} bytes, at most {MAX_TEXT} are shared"));
        }
        if n_before >= MAX_SKILLS {
            return Some(format!(
                "{MAX_SKILLS} skills are shared already, which is the limit"
            ));
        }
        let mut lines = self.text.lines();
        let secret = lines.find(|line| suspicions(line).contains(&Suspicion::Secret));
        secret.map(|_| format!("{}", Suspicion::Secret))
    }

    fn entry(
        &self,
        before: Option<&Published>,
        proposals: &[Proposal],
        now_ms: u64,
    ) -> SharedSkill {
        let digest = digest(&self.text);
        let at_ms = match before {
            Some(before) if before.digest == digest => before.at_ms,
            Some(before) => self
                .modified_ms
                .min(now_ms)
                .max(before.at_ms.saturating_add(1)),
            None => self.changed_ms(proposals, now_ms),
        };
        SharedSkill {
            agent: self.agent.clone(),
            name: self.skill.name.clone(),
            turns: self.turns(proposals),
            digest,
            at_ms,
        }
    }

    /// Returns when it was written. It is newer than the version of another home that it was made from.
    fn changed_ms(&self, proposals: &[Proposal], now_ms: u64) -> u64 {
        let of_it = proposals.iter().filter(|proposal| self.is_of(proposal));
        let imports = of_it.filter_map(|proposal| proposal.shared.as_ref());
        let after = imports
            .map(|import| import.at_ms.saturating_add(1))
            .max()
            .unwrap_or_default();
        self.modified_ms.min(now_ms).max(after)
    }

    fn turns(&self, proposals: &[Proposal]) -> Vec<TurnId> {
        let mut proposals = proposals.iter().rev();
        let from = proposals.find(|proposal| self.is_of(proposal) && proposal.text == self.text);
        let turns = from.map(|f| f.source.turns.clone()).unwrap_or_default();
        turns[turns.len().saturating_sub(MAX_TURNS)..].to_vec()
    }

    fn is_of(&self, proposal: &Proposal) -> bool {
        proposal.is_accepted_of(&self.agent, &self.skill.name)
    }
}

fn skill_files(folder: &Path) -> Result<Vec<PathBuf>, EvolveError> {
    let entries = if_there(fs::read_dir(folder)).map_err(failed(folder))?;
    let mut files = Vec::new();
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(failed(folder))?.path().join(SKILL_FILE);
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn modified_ms(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|file| file.modified());
    modified.map_or(0, unix_ms)
}

fn machine() -> String {
    let name = read_text(Path::new(HOSTNAME), MAX_HOSTNAME).unwrap_or_default();
    name.trim().to_owned()
}
