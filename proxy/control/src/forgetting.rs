//! Deletes sessions with everything that only they contain, and what was learned from them.
//!
//! The deletion has several steps. It is noted in a file of the home before the first one, and the note is removed after
//! the last one. After a kill or an error in between, the next start or the next deletion makes the steps that are not
//! noted as made. A step may be made twice. The note has the words of what was learned, because the step that deletes
//! them comes before the step that masks them in prompts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    ops::Range,
};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, SessionId, now_ms};
use metaclaw_memory::{MEMORY_HEADING, Memory, MemoryStore};
use metaclaw_skills::{Lesson, LessonState, Library, Proposal, ProposalState, Skill, read_text};
use metaclaw_turns::{StepOutcome, TurnFilter, TurnLog};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{
    home::{Home, write_private},
    report,
};

/// A time server may set the clock back by less than this.
const HOUR_MS: u64 = 3_600_000;
/// The headings above lessons in the text that is added to prompts.
const LESSON_HEADINGS: [&str; 3] = ["## Active Skills", "## Standing wishes", MEMORY_HEADING];

/// The largest note that is read.
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

/// What a deletion deletes, as its note has it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ForgetNote {
    sessions: BTreeSet<(AgentId, SessionId)>,
    /// The words of what was learned from these sessions, by agent.
    words: BTreeMap<AgentId, Vec<String>>,
    /// The number of steps that are made. They are not made again, because a session may go on under its name.
    n_made: usize,
}

/// A step of a deletion. They are made in this order.
#[derive(Debug, Clone, Copy)]
enum ForgetStep {
    Turns,
    /// Wishes, skills, memories, and their words in digests.
    Lessons,
    /// The words of lessons in the prompts of other sessions.
    Prompts,
    /// The bytes on the disk.
    Disk,
}

const STEPS: [ForgetStep; 4] = [
    ForgetStep::Turns,
    ForgetStep::Lessons,
    ForgetStep::Prompts,
    ForgetStep::Disk,
];

// === impl ForgetNote ===

impl ForgetNote {
    fn read(home: &Home) -> anyhow::Result<Option<Self>> {
        let path = home.forgetting();
        let note = match read_text(&path, MAX_NOTE) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
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
    let interrupted = match ForgetNote::read(home)? {
        Some(note) => Some(finish(log, &kept, home, note, STEPS.len()).await?),
        None => None,
    };
    match (noted(log, &kept, home, what).await?, interrupted) {
        (Some(note), _) => finish(log, &kept, home, note, STEPS.len()).await,
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
        Some(note) => finish(log, &kept, home, note, STEPS.len()).await.map(Some),
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
    let at = kept.clone();
    // The journals are files.
    let learned = move || learned_from(&at, &agents, &within);
    sessions.extend(tokio::task::spawn_blocking(learned).await??);
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
    let (kept, home) = (kept.clone(), home.clone());
    let write = move || {
        note.words = words_of(&kept, |agent, session| note.has(agent, session))?;
        note.write(&home)?;
        Ok(Some(note))
    };
    tokio::task::spawn_blocking(write).await?
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
    for step in &STEPS[note.n_made.min(n_steps)..n_steps] {
        match step {
            ForgetStep::Turns => {
                for (agent, session) in &note.sessions {
                    forgotten.n_turns += log.forget(agent, session).await?;
                }
            }
            ForgetStep::Lessons => {
                let (kept, home) = (kept.clone(), home.clone());
                let lessons = move || {
                    let n_lessons = forget_lessons(&kept, &home, &note)?;
                    anyhow::Ok((n_lessons, note))
                };
                (forgotten.n_lessons, note) = tokio::task::spawn_blocking(lessons).await??;
            }
            ForgetStep::Prompts => mask(log, &note.words).await?,
            ForgetStep::Disk => log.compact().await?,
        }
        note.n_made += 1;
        note.write(home)?;
    }
    if note.n_made == STEPS.len() {
        fs::remove_file(home.forgetting())?;
    }
    Ok(forgotten)
}

/// Masks the words of deleted lessons in the prompts of all sessions.
async fn mask(log: &TurnLog, words: &BTreeMap<AgentId, Vec<String>>) -> anyhow::Result<()> {
    for (agent, session) in log.ended(0..u64::MAX).await? {
        if let Some(words) = words.get(&agent).cloned() {
            let mask = Box::new(move |text: &str| without(text, &words));
            log.mask(&agent, &session, mask).await?;
        }
    }
    Ok(())
}

/// Takes back what was learned from some sessions, and removes its words from the digests. Returns the number of these
/// lessons.
fn forget_lessons(kept: &KeptLessons, home: &Home, note: &ForgetNote) -> anyhow::Result<usize> {
    let is_gone = |agent: &AgentId, session: &SessionId| note.has(agent, session);
    let KeptLessons { library, memory } = kept;
    let all: Vec<String> = note.words.values().flatten().cloned().collect();
    report::forget(&home.reports(), &all)?;
    let n_memories = memory.forget_sessions(is_gone)?.len();
    library.forget_hosts(is_gone)?;
    let n_wishes = library.forget_lessons(is_gone)?;
    let n_skills = library.forget_skills(is_gone)?;
    Ok(n_wishes + n_skills + n_memories)
}

/// Returns the sessions from which something was learned in a span of time. Their turns may be gone already.
fn learned_from(
    kept: &KeptLessons,
    agents: &[AgentId],
    within: &Range<u64>,
) -> anyhow::Result<Vec<(AgentId, SessionId)>> {
    let KeptLessons { library, memory } = kept;
    let mut found = Vec::new();
    for Lesson { origin, state, .. } in library.journal()? {
        if let Some(session) = origin.session.filter(|_| state != LessonState::Forgotten) {
            found.push((origin.agent, session, origin.at_ms));
        }
    }
    for Proposal { source, state, .. } in library.proposals()? {
        if state != ProposalState::Forgotten {
            let sessions = source.sessions.into_iter();
            found.extend(sessions.map(|it| (source.agent.clone(), it, source.at_ms)));
        }
    }
    for origin in memory.list(None, None)?.into_iter().map(|it| it.origin) {
        found.extend(origin.session.map(|it| (origin.agent, it, origin.at_ms)));
    }
    for session in memory.buffered(|_| true)? {
        let last_ms = session.last_ms();
        found.push((session.agent, session.session, last_ms));
    }
    for agent in agents {
        let host = library.host(agent);
        found.extend(host.map(|it| (agent.clone(), it.session.clone(), it.at_ms)));
    }
    found.retain(|(.., at_ms)| within.contains(at_ms));
    Ok(found.into_iter().map(|it| (it.0, it.1)).collect())
}

/// Returns the words of the lessons that came from some sessions, by agent.
fn words_of(
    kept: &KeptLessons,
    is_gone: impl Fn(&AgentId, &SessionId) -> bool,
) -> anyhow::Result<BTreeMap<AgentId, Vec<String>>> {
    let KeptLessons { library, memory } = kept;
    let mut words: BTreeMap<AgentId, Vec<String>> = BTreeMap::new();
    for Memory {
        origin,
        content,
        said,
        ..
    } in memory.list(None, None)?
    {
        let session = origin.session.as_ref();
        if session.is_some_and(|session| is_gone(&origin.agent, session)) {
            let words = words.entry(origin.agent).or_default();
            words.push(content);
            words.extend(said);
        }
    }
    for lesson in library.journal()? {
        let Lesson {
            origin,
            heard,
            wish,
            ..
        } = lesson;
        let session = origin.session.as_ref();
        if session.is_some_and(|session| is_gone(&origin.agent, session)) {
            words.entry(origin.agent).or_default().extend([heard, wish]);
        }
    }
    for Proposal { source, text, .. } in library.proposals()? {
        let mut sessions = source.sessions.iter();
        let skill = Skill::parse(&text).ok();
        let skill = skill.filter(|_| sessions.any(|session| is_gone(&source.agent, session)));
        if let Some(skill) = skill {
            let words = words.entry(source.agent).or_default();
            words.extend([skill.content, skill.description, skill.name.to_string()]);
        }
    }
    Ok(words)
}

/// Returns what was added to a prompt without the words of deleted lessons, or `None` for any other text.
fn without(text: &str, words: &[String]) -> Option<String> {
    let is_lessons = LESSON_HEADINGS.iter().any(|it| text.starts_with(it));
    let words = words.iter().filter(|it| !it.is_empty());
    if !is_lessons || !words.clone().any(|it| text.contains(it)) {
        return None;
    }
    let first = text.to_owned();
    Some(words.fold(first, |text, it| text.replace(it, "[forgotten]")))
}

/// Returns the adapters of the steps with turns of these sessions.
async fn trained_on(
    log: &TurnLog,
    sessions: &BTreeSet<(AgentId, SessionId)>,
) -> anyhow::Result<Vec<String>> {
    let mut adapters = BTreeSet::new();
    for (agent, session) in sessions {
        let filter = TurnFilter {
            agent: Some(agent.clone()),
            session: Some(session.clone()),
            limit: 1,
            ..TurnFilter::default()
        };
        let numbers: BTreeSet<u64> = log
            .list(filter)
            .await?
            .iter()
            .map(|it| it.id.session)
            .collect();
        for step in log.steps(agent).await? {
            let is_of = step
                .begun
                .turns
                .iter()
                .any(|id| numbers.contains(&id.session));
            if let Some(
                StepOutcome::Trained { adapter, .. } | StepOutcome::Declined { adapter, .. },
            ) = step.outcome.filter(|_| is_of)
            {
                adapters.insert(adapter);
            }
        }
    }
    Ok(adapters.into_iter().collect())
}

#[cfg(test)]
mod tests;
