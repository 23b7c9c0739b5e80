//! Carries out subcommands about lessons, in the running process or on the files if none runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, SenderId, SessionId, now_ms};
use metaclaw_memory::{MEMORY_HEADING, Memory, MemoryStore};
use metaclaw_skills::{
    Holder, LearnError, Lesson, Library, Proposal, ProposalState, SharedOrigin, Skill, SkillName,
    TakenBack, Wish,
};
use metaclaw_turns::{DailyCounts, LessonCounts, LogError, StepOutcome, TurnFilter, TurnLog, WISH};
use serde::{Deserialize, Serialize};

use crate::{home::Home, report};

/// A time server may set the clock back by less than this.
const HOUR_MS: u64 = 3_600_000;
/// The headings above lessons in the text that is added to prompts.
const LESSON_HEADINGS: [&str; 3] = ["## Active Skills", "## Standing wishes", MEMORY_HEADING];

/// What is to change about wishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WishChange {
    Add {
        agent: AgentId,
        /// The person who has it, or `None` for the owner.
        #[serde(default)]
        sender: Option<SenderId>,
        wish: String,
    },
    Remove {
        agent: AgentId,
        /// The person who has it, or `None` for the owner.
        #[serde(default)]
        sender: Option<SenderId>,
        wish: String,
    },
    Edit {
        agent: AgentId,
        wish: String,
        to: String,
    },
    /// Takes a lesson back: without a number the newest in force, be it a wish or a skill that was learned.
    Undo { n: Option<u64> },
    /// Lets one stand that waits for review.
    Accept { n: u64 },
    /// Dismisses one that waits for review: it is not proposed again.
    Dismiss { n: u64 },
}

/// What is to become of a skill that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum SkillChange {
    /// A waiting one, by number or name.
    Accept {
        which: String,
    },
    Reject {
        which: String,
    },
    /// One that was accepted.
    Revert {
        agent: Option<AgentId>,
        name: SkillName,
    },
}

/// Which sessions are to be forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    /// Those that were spoken in since then, in Unix milliseconds.
    pub since_ms: Option<u64>,
}

/// The wishes of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonsView {
    /// Those in force, the newest last.
    pub wishes: Vec<String>,
    #[serde(default)]
    pub shared: Vec<String>,
    /// All that was learned, and what became of it.
    pub lessons: Vec<Lesson>,
    /// Where people edit them.
    pub file: PathBuf,
    /// How turns went with each and without, in the order of `wishes`.
    #[serde(default)]
    pub counts: Vec<LessonCounts>,
    /// Those that the serving adapter does without being told: their lines are left out where it answers.
    #[serde(default)]
    pub untold: Vec<String>,
    /// The wishes of other people, which apply to their own messages.
    #[serde(default)]
    pub people: BTreeMap<SenderId, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillView {
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The same text, the same version.
    pub version: String,
    pub content: String,
    /// The home that shares it, where it came from another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedOrigin>,
    /// How turns went with it and without.
    #[serde(default)]
    pub counts: LessonCounts,
}

/// Where what was learned in words is kept.
#[derive(Debug)]
pub(crate) struct KeptLessons {
    pub library: Library,
    pub memory: MemoryStore,
}

#[derive(Debug)]
pub(crate) struct LessonChanged {
    pub told: String,
    /// The agent whose lesson came into force, if one did.
    pub learned: Option<AgentId>,
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

/// Returns the lessons of an agent. `adapter` is the one that serves it, and may follow some wishes untold.
pub(crate) fn view(
    library: &Library,
    agent: &AgentId,
    adapter: Option<&str>,
    counts: &BTreeMap<String, LessonCounts>,
) -> anyhow::Result<LessonsView> {
    let mut lessons = library.journal()?;
    lessons.retain(|lesson| lesson.origin.agent == *agent);
    let texts = |wishes: Vec<Wish>| wishes.into_iter().map(|wish| wish.text);
    let own: BTreeSet<String> = texts(library.own_wishes(agent)).collect();
    let all = library.wishes(agent);
    let of = |wish: &Wish| counts.get(&format!("{WISH}{}", wish.id())).copied();
    let counts = all.iter().map(|it| of(it).unwrap_or_default()).collect();
    let known = adapter.map(|it| library.untold(it)).unwrap_or_default();
    let untold = all.iter().filter(|wish| known.contains(&wish.id()));
    let untold = texts(untold.cloned().collect()).collect();
    let wishes: Vec<String> = texts(all).collect();
    let shared = wishes.iter().filter(|wish| !own.contains(*wish));
    let people = library.people(agent).into_iter().map(|sender| {
        let wishes = texts(library.own_wishes(holder(agent, Some(&sender)))).collect();
        (sender, wishes)
    });
    Ok(LessonsView {
        people: people.collect(),
        shared: shared.cloned().collect(),
        counts,
        untold,
        wishes,
        lessons,
        file: library.wishes_file(agent),
    })
}

/// The skills that an agent sees; without one, those of everybody.
pub(crate) fn skills(
    library: &Library,
    agent: Option<&AgentId>,
    counts: &BTreeMap<String, LessonCounts>,
) -> anyhow::Result<Vec<SkillView>> {
    let nobody = AgentId::default_agent();
    let agent = agent.unwrap_or(&nobody);
    let skills = library.skills(agent);
    let proposals = library.proposals()?;
    let origin = |skill: &Skill| {
        let is_it = |it: &&Proposal| {
            it.state == ProposalState::Accepted
                && it.name == skill.name
                && (it.source.agent == *agent || it.source.agent.is_shared())
                && Skill::parse(&it.text).is_ok_and(|it| it.version == skill.version)
        };
        proposals.iter().rev().find(is_it)?.shared.clone()
    };
    let view = |skill: &Arc<Skill>| SkillView {
        name: skill.name.to_string(),
        description: skill.description.clone(),
        version: skill.version.clone(),
        content: skill.content.clone(),
        shared: origin(skill),
        counts: counts.get(skill.name.as_str()).copied().unwrap_or_default(),
    };
    Ok(skills.iter().map(view).collect())
}

/// Changes what is in force.
pub(crate) fn apply(library: &Library, change: WishChange) -> anyhow::Result<LessonChanged> {
    Ok(match change {
        WishChange::Add {
            agent,
            sender,
            wish,
        } => added(library, holder(&agent, sender.as_ref()), &wish)?,
        WishChange::Remove {
            agent,
            sender,
            wish,
        } => removed(library, holder(&agent, sender.as_ref()), &wish)?.into(),
        WishChange::Edit { agent, wish, to } => {
            let known = library.own_wishes(&agent);
            anyhow::ensure!(
                known.iter().any(|it| it.text == wish),
                no_such(library, (&agent).into(), &wish)
            );
            let added = added(library, (&agent).into(), &to)?;
            // Another change may already have replaced it, if both are about the same.
            library.take_out(&agent, &wish)?;
            added
        }
        WishChange::Undo { n: Some(n) } => format!("undone: {}", library.undo(n)?.wish).into(),
        WishChange::Undo { n: None } => match library.undo_newest()? {
            TakenBack::Wish(lesson) => format!("undone: {}", lesson.wish).into(),
            TakenBack::Skill(skill) => format!("undone: the skill {}", reverted(&skill)).into(),
        },
        WishChange::Accept { n } => {
            let lesson = library.accept(n, now_ms())?;
            LessonChanged {
                told: format!("in force from the next session on: {}", lesson.wish),
                learned: Some(lesson.origin.agent),
            }
        }
        WishChange::Dismiss { n } => format!(
            "dismissed: {}; what says the same is not proposed again",
            library.dismiss(n)?.wish
        )
        .into(),
    })
}

/// Does with a skill that a model wrote what was asked.
pub(crate) fn settle(library: &Library, change: SkillChange) -> anyhow::Result<LessonChanged> {
    Ok(match change {
        SkillChange::Accept { which } => {
            let Proposal { name, source, .. } = library.accept_skill(&which, now_ms())?;
            LessonChanged {
                told: format!(
                    "in force from the next session on: {name}  (metaclaw skills revert {name})"
                ),
                learned: Some(source.agent),
            }
        }
        SkillChange::Reject { which } => {
            let rejected = library.reject_skill(&which)?;
            format!(
                "rejected: {}; what says the same is not proposed again",
                rejected.name
            )
            .into()
        }
        SkillChange::Revert { agent, name } => {
            reverted(&library.revert_skill(agent.as_ref(), &name)?).into()
        }
    })
}

/// Counts a lesson that came into force in today's statistics.
pub(crate) async fn count(log: &TurnLog, agent: &AgentId) -> Result<(), LogError> {
    let lesson = DailyCounts {
        lessons: 1,
        ..DailyCounts::default()
    };
    log.count(agent, now_ms(), lesson).await
}

/// Returns the outcome for a skill that was taken back.
fn reverted(Proposal { name, former, .. }: &Proposal) -> String {
    match former {
        Some(_) => format!("{name} is as it was before, from the next session on"),
        None => format!("{name} is gone, from the next session on"),
    }
}

fn holder<'a>(agent: &'a AgentId, sender: Option<&'a SenderId>) -> Holder<'a> {
    Holder { agent, sender }
}

fn added(library: &Library, holder: Holder<'_>, wish: &str) -> Result<LessonChanged, LearnError> {
    Ok(match library.write_down(holder, wish, now_ms())? {
        Some(lesson) => LessonChanged {
            told: format!(
                "in force from the next session on: {}  (metaclaw undo {})",
                lesson.wish, lesson.n
            ),
            learned: Some(lesson.origin.agent),
        },
        None => format!("it stands already: {wish}").into(),
    })
}

fn removed(library: &Library, holder: Holder<'_>, wish: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        library.take_out(holder, wish)?,
        no_such(library, holder, wish)
    );
    Ok(format!("taken out: {wish}"))
}

fn no_such(library: &Library, holder: Holder<'_>, wish: &str) -> String {
    let Holder { agent, sender } = holder;
    if let Some(sender) = sender {
        return format!(
            "{sender} has no such wish about {agent}: `metaclaw wishes list --agent {agent}` shows those there are"
        );
    }
    if library.wishes(agent).iter().any(|it| it.text == wish) {
        return format!(
            "that is everyone's wish, not {agent}'s: `metaclaw wishes --agent _shared` edits those"
        );
    }
    format!(
        "{agent} has no such wish: `metaclaw wishes list --agent {agent}` shows those there are"
    )
}

impl From<String> for LessonChanged {
    /// No lesson came into force.
    fn from(told: String) -> Self {
        Self {
            told,
            learned: None,
        }
    }
}

/// Deletes sessions with everything that only they contain, what was learned from them, and their bytes on the disk.
pub(crate) async fn forget(
    log: &TurnLog,
    kept: KeptLessons,
    home: &Home,
    what: &Forget,
) -> anyhow::Result<Forgotten> {
    let since_ms = what.since_ms;
    // With a clock that is behind, turns of the future did not end since then.
    let until_ms = since_ms.map_or(u64::MAX, |_| now_ms().saturating_add(HOUR_MS));
    let mut sessions = log.ended(since_ms.unwrap_or(0)..until_ms).await?;
    sessions.retain(|(agent, session)| {
        what.agent.as_ref().is_none_or(|wanted| wanted == agent)
            && what.session.as_ref().is_none_or(|wanted| wanted == session)
    });
    if let Some(session) = &what.session {
        anyhow::ensure!(
            !sessions.is_empty(),
            "there is no session {session}: `metaclaw turns list` shows those there are"
        );
    }
    let mut forgotten = Forgotten {
        n_sessions: sessions.len(),
        adapters: trained_on(log, &sessions).await?,
        ..Forgotten::default()
    };
    for (agent, session) in &sessions {
        forgotten.n_turns += log.forget(agent, session).await?;
    }
    let (reports, gone) = (home.reports(), sessions);
    // The journals and the digests are files.
    let lessons = tokio::task::spawn_blocking(move || forget_lessons(&kept, &reports, &gone));
    let (n_lessons, words) = lessons.await??;
    forgotten.n_lessons = n_lessons;
    for (agent, session) in log.ended(0..u64::MAX).await? {
        if let Some(words) = words.get(&agent).cloned() {
            log.mask(
                &agent,
                &session,
                Box::new(move |text| without(text, &words)),
            )
            .await?;
        }
    }
    log.compact().await?;
    Ok(forgotten)
}

/// Takes back what was learned from some sessions, and removes its words from the digests. Returns the number of these
/// lessons, and their words, by agent.
fn forget_lessons(
    kept: &KeptLessons,
    reports: &Path,
    gone: &[(AgentId, SessionId)],
) -> anyhow::Result<(usize, BTreeMap<AgentId, Vec<String>>)> {
    let is_gone = |agent: &AgentId, session: &SessionId| {
        gone.iter().any(|it| it.0 == *agent && it.1 == *session)
    };
    let KeptLessons { library, memory } = kept;
    let mut words = words_of(library, is_gone)?;
    let memories = memory.forget_sessions(is_gone)?;
    for Memory {
        origin,
        content,
        said,
        ..
    } in &memories
    {
        let words = words.entry(origin.agent.clone()).or_default();
        words.push(content.clone());
        words.extend(said.clone());
    }
    let all: Vec<String> = words.values().flatten().cloned().collect();
    report::forget(reports, &all)?;
    library.forget_hosts(is_gone)?;
    let n_wishes = library.forget_lessons(is_gone)?;
    let n_skills = library.forget_skills(is_gone)?;
    Ok((n_wishes + n_skills + memories.len(), words))
}

/// Returns the words of the lessons that came from some sessions, by agent.
fn words_of(
    library: &Library,
    is_gone: impl Fn(&AgentId, &SessionId) -> bool,
) -> anyhow::Result<BTreeMap<AgentId, Vec<String>>> {
    let mut words: BTreeMap<AgentId, Vec<String>> = BTreeMap::new();
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
    sessions: &[(AgentId, SessionId)],
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
