//! Deletes sessions with everything that only they contain, and what was learned from them.
//!
//! The deletion has several steps. It is noted in a file of the home before the first one, and the note is removed after
//! the last one. After a kill or an error in between, the next start or the next deletion makes the steps that are not
//! noted as made. A step may be made twice. The note has the words of what was learned, because the step that deletes
//! them comes before the step that masks them in prompts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, iter,
};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, SessionId, if_there, now_ms};
use metaclaw_skills::{
    LessonState, Library, MEMORY_HEADING, MemoryStore, ProposalState, Skill, read_text,
    remove_drafts as remove_drafts_in,
};
use metaclaw_turns::{StepOutcome, TurnFilter, TurnLog};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::home::{Home, write_private};

/// A time server may set the clock back by less than this.
const HOUR_MS: u64 = 3_600_000;
/// The headings above lessons in the text that is added to prompts.
const LESSON_HEADINGS: [&str; 3] = ["## Active Skills", "## Standing wishes", MEMORY_HEADING];

/// Folders in the library's folder: agents, and in these people and skills.
const LESSON_DEPTH: usize = 3;
const MAX_NOTE: u64 = 64 << 20;

/// One deletion at a time, because all have one note.
static FORGETTING: Mutex<()> = Mutex::const_new(());

/// Which sessions are to be forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    /// Those that were spoken in since then, in Unix milliseconds.
    pub since_ms: Option<u64>,
}

/// Where what was learned in words is kept.
#[derive(Debug, Clone)]
pub struct KeptLessons {
    pub library: Library,
    pub memory: MemoryStore,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    pub n_sessions: usize,
    pub n_turns: u64,
    /// Lessons that came from these sessions.
    pub n_lessons: usize,
    /// Adapters that were trained on some of them, and still exist.
    pub adapters: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ForgetNote {
    sessions: BTreeSet<(AgentId, SessionId)>,
    /// The words of what was learned from these sessions, by agent.
    words: BTreeMap<AgentId, Vec<String>>,
    /// The number of steps that are made. They are not made again, because a session may go on under its name.
    n_made: usize,
}

struct LearnedItem {
    agent: AgentId,
    sessions: Vec<SessionId>,
    at_ms: u64,
    words: Vec<String>,
}

const STEPS: usize = 4;

// === impl ForgetNote ===

impl ForgetNote {
    fn read(home: &Home) -> anyhow::Result<Option<Self>> {
        let path = home.forgetting();
        let text = if_there(read_text(&path, MAX_NOTE));
        let note = text.and_then(|it| Ok(it.map(|one| serde_json::from_str(&one)).transpose()?));
        note.with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, home: &Home) -> anyhow::Result<()> {
        Ok(write_private(
            &home.forgetting(),
            &serde_json::to_vec(self)?,
        )?)
    }

    fn has(&self, agent: &AgentId, session: &SessionId) -> bool {
        self.sessions.contains(&(agent.clone(), session.clone()))
    }
}

/// Deletes sessions with everything that only they contain, what was learned from them, and their bytes on the disk.
pub(crate) async fn forget(
    log: &TurnLog,
    kept: KeptLessons,
    home: &Home,
    what: &Forget,
) -> anyhow::Result<Forgotten> {
    let _one = FORGETTING.lock().await;
    remove_drafts(&kept, home).await?;
    let interrupted = match ForgetNote::read(home)? {
        Some(note) => Some(finish(log, &kept, home, note, STEPS).await?),
        None => None,
    };
    match (noted(log, &kept, home, what).await?, interrupted) {
        (Some(note), _) => finish(log, &kept, home, note, STEPS).await,
        // Its deletion was interrupted, and is finished now.
        (None, Some(forgotten)) => Ok(forgotten),
        (None, None) => anyhow::bail!(
            "there is no session {}: `metaclaw turns list` shows those there are",
            what.session
                .as_ref()
                .map(SessionId::as_str)
                .unwrap_or_default()
        ),
    }
}

/// Removes unfinished files of killed processes, because they may contain words that are to be forgotten. Returns the
/// number of files.
///
/// # Errors
/// Returns the error of a file.
pub async fn remove_drafts(kept: &KeptLessons, home: &Home) -> anyhow::Result<usize> {
    let (KeptLessons { library, memory }, folders) = (kept.clone(), home.folders());
    let removed = move || -> io::Result<usize> {
        let in_home: io::Result<usize> = folders.iter().map(|one| remove_drafts_in(one, 0)).sum();
        Ok(in_home?
            + remove_drafts_in(memory.dir(), 0)?
            + remove_drafts_in(library.dir(), LESSON_DEPTH)?)
    };
    Ok(tokio::task::spawn_blocking(removed).await??)
}

/// Finishes a deletion that a kill interrupted. Returns `None` if there is none.
///
/// # Errors
/// Returns the error of a file, or of the log. The note stays, so that the next start tries again.
pub async fn finish_forgetting(
    log: &TurnLog,
    kept: KeptLessons,
    home: &Home,
) -> anyhow::Result<Option<Forgotten>> {
    let _one = FORGETTING.lock().await;
    match ForgetNote::read(home)? {
        Some(note) => finish(log, &kept, home, note, STEPS).await.map(Some),
        None => Ok(None),
    }
}

/// Writes down what is to be deleted. Returns `None` if there is no session of a given name.
async fn noted(
    log: &TurnLog,
    kept: &KeptLessons,
    home: &Home,
    what: &Forget,
) -> anyhow::Result<Option<ForgetNote>> {
    // With a clock that is behind, what is dated later did not happen since then.
    let within = what.since_ms.map_or(0..u64::MAX, |since_ms| {
        since_ms..now_ms().saturating_add(HOUR_MS)
    });
    let mut sessions = log.ended(within.clone()).await?;
    let agents = log.agents().await?;
    let kept = kept.clone();
    // The journals are files.
    let learned = tokio::task::spawn_blocking(move || learned(&kept, agents)).await??;
    for item in learned.iter().filter(|item| within.contains(&item.at_ms)) {
        let of_item = item.sessions.iter().cloned();
        sessions.extend(of_item.map(|session| (item.agent.clone(), session)));
    }
    sessions.retain(|(agent, session)| {
        what.agent.as_ref().is_none_or(|wanted| wanted == agent)
            && what.session.as_ref().is_none_or(|wanted| wanted == session)
    });
    if what.session.is_some() && sessions.is_empty() {
        return Ok(None);
    }
    let mut note = ForgetNote {
        sessions: sessions.into_iter().collect(),
        ..ForgetNote::default()
    };
    for item in learned.into_iter().filter(|item| !item.words.is_empty()) {
        if item.sessions.iter().any(|one| note.has(&item.agent, one)) {
            note.words.entry(item.agent).or_default().extend(item.words);
        }
    }
    note.write(home)?;
    Ok(Some(note))
}

/// Makes the steps of a deletion up to the `n_steps`th. With the last one, its note is removed.
async fn finish(
    log: &TurnLog,
    kept: &KeptLessons,
    home: &Home,
    mut note: ForgetNote,
    n_steps: usize,
) -> anyhow::Result<Forgotten> {
    let mut forgotten = Forgotten {
        n_sessions: note.sessions.len(),
        adapters: trained_on(log, &note.sessions).await?,
        ..Forgotten::default()
    };
    while note.n_made < n_steps {
        match note.n_made {
            // The turns.
            0 => {
                for (agent, session) in &note.sessions {
                    forgotten.n_turns += log.forget(agent, session).await?;
                }
            }
            // Wishes, skills, memories, and reports that earlier versions wrote.
            1 => {
                let (kept, home) = (kept.clone(), home.clone());
                let lessons = move || {
                    let n_lessons = forget_lessons(&kept, &home, &note)?;
                    anyhow::Ok((n_lessons, note))
                };
                (forgotten.n_lessons, note) = tokio::task::spawn_blocking(lessons).await??;
            }
            // The words of lessons in the prompts of other sessions.
            2 => mask(log, &note.words).await?,
            // The bytes on the disk.
            _ => log.compact().await?,
        }
        note.n_made += 1;
        note.write(home)?;
    }
    if note.n_made >= STEPS {
        fs::remove_file(home.forgetting())?;
    }
    Ok(forgotten)
}

async fn mask(log: &TurnLog, words: &BTreeMap<AgentId, Vec<String>>) -> anyhow::Result<()> {
    for (agent, session) in log.ended(0..u64::MAX).await? {
        if let Some(words) = words.get(&agent).cloned() {
            let mask = Box::new(move |text: &str| without(text, &words));
            log.mask(&agent, &session, mask).await?;
        }
    }
    Ok(())
}

fn forget_lessons(kept: &KeptLessons, home: &Home, note: &ForgetNote) -> anyhow::Result<usize> {
    let is_gone = |agent: &AgentId, session: &SessionId| note.has(agent, session);
    let KeptLessons { library, memory } = kept;
    delete_old_reports(home)?;
    let n_memories = memory.forget_sessions(is_gone)?.len();
    library.forget_hosts(is_gone)?;
    let n_wishes = library.forget_lessons(|origin| {
        let mut session = origin.session.iter();
        session.any(|session| is_gone(&origin.agent, session))
    })?;
    let n_skills = library.forget_skills(is_gone)?;
    Ok(n_wishes + n_skills + n_memories)
}

/// Deletes the daily reports that earlier versions wrote into the home. They contain words of lessons, and nothing else
/// deletes them.
fn delete_old_reports(home: &Home) -> std::io::Result<()> {
    if_there(fs::remove_dir_all(home.reports())).map(Option::unwrap_or_default)
}

fn learned(kept: &KeptLessons, agents: Vec<AgentId>) -> anyhow::Result<Vec<LearnedItem>> {
    let KeptLessons { library, memory } = kept;
    let mut found = Vec::new();
    let mut add = |agent, sessions: Vec<SessionId>, at_ms, words| {
        found.push(LearnedItem {
            agent,
            sessions,
            at_ms,
            words,
        });
    };
    let one = |session: Option<SessionId>| session.into_iter().collect();
    for it in memory.list(None, None)? {
        let words = iter::once(it.content).chain(it.said).collect();
        let origin = it.origin;
        add(origin.agent, one(origin.session), origin.at_ms, words);
    }
    for it in library.journal()? {
        if it.state != LessonState::Forgotten {
            let (origin, words) = (it.origin, vec![it.heard, it.wish]);
            add(origin.agent, one(origin.session), origin.at_ms, words);
        }
    }
    for it in library.proposals()? {
        if it.state != ProposalState::Forgotten {
            let (skill, source) = (Skill::parse(&it.text), it.source);
            let words = skill.map(|one| vec![one.content, one.description, one.name.to_string()]);
            let words = words.unwrap_or_default();
            add(source.agent, source.sessions, source.at_ms, words);
        }
    }
    for it in memory.buffered(|_| true)? {
        let at_ms = it.last_ms();
        add(it.agent, vec![it.session], at_ms, vec![]);
    }
    for agent in agents {
        if let Some(it) = library.host(&agent) {
            add(agent, vec![it.session], it.at_ms, vec![]);
        }
    }
    Ok(found)
}

/// Returns what was added to a prompt without the words of deleted lessons, or `None` for any other text.
fn without(text: &str, words: &[String]) -> Option<String> {
    let is_lessons = LESSON_HEADINGS.iter().any(|one| text.starts_with(one));
    let words = words.iter().filter(|word| !word.is_empty());
    if !is_lessons || !words.clone().any(|word| text.contains(word)) {
        return None;
    }
    let first = text.to_owned();
    Some(words.fold(first, |text, it| text.replace(it, "[forgotten]")))
}

async fn trained_on(
    log: &TurnLog,
    sessions: &BTreeSet<(AgentId, SessionId)>,
) -> anyhow::Result<Vec<String>> {
    let mut numbers = BTreeSet::new();
    for (agent, session) in sessions {
        let filter = TurnFilter {
            agent: Some(agent.clone()),
            session: Some(session.clone()),
            limit: 1,
            ..TurnFilter::default()
        };
        let turns = log.list(filter).await?;
        numbers.extend(turns.iter().map(|turn| turn.id.session));
    }
    let mut adapters = BTreeSet::new();
    for step in log.all_steps().await? {
        let mut turns = step.begun.turns.iter();
        let is_of = turns.any(|id| numbers.contains(&id.session));
        if let Some(StepOutcome::Trained { adapter, .. } | StepOutcome::Declined { adapter, .. }) =
            step.outcome.filter(|_| is_of)
        {
            adapters.insert(adapter);
        }
    }
    Ok(adapters.into_iter().collect())
}

#[cfg(test)]
mod tests;
