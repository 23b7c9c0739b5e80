//! Carries out subcommands about lessons, in the running process or on the files if none runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use metaclaw_chat::{AgentId, SenderId, now_ms};
use metaclaw_skills::{
    Holder, Lesson, Library, Proposal, ProposalState, SharedOrigin, Skill, SkillName, TakenBack,
    Wish,
};
use metaclaw_turns::{DailyCounts, LessonCounts, LogError, TurnLog, WISH};
use serde::{Deserialize, Serialize};

/// What is to change about wishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WishChange {
    Add {
        agent: AgentId,
        /// The person who has it, or `None` for the owner.
        sender: Option<SenderId>,
        wish: String,
    },
    Remove {
        agent: AgentId,
        /// The person who has it, or `None` for the owner.
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

/// The wishes of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonsView {
    /// Those in force, the newest last.
    pub wishes: Vec<String>,
    pub shared: Vec<String>,
    /// All that was learned, and what became of it.
    pub lessons: Vec<Lesson>,
    /// Where people edit them.
    pub file: PathBuf,
    /// How turns went with each and without, in the order of `wishes`.
    pub counts: Vec<LessonCounts>,
    /// Those that the serving adapter does without being told: their lines are left out where it answers.
    pub untold: Vec<String>,
    /// The wishes of other people, which apply to their own messages.
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
    pub counts: LessonCounts,
}

#[derive(Debug)]
pub(crate) struct LessonChanged {
    pub told: String,
    /// The agent whose lesson came into force, if one did.
    pub learned: Option<AgentId>,
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
    let counts = all.iter().map(|all| of(all).unwrap_or_default()).collect();
    let known = adapter.map(|one| library.untold(one)).unwrap_or_default();
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
        let is_it = |one: &&Proposal| {
            one.state == ProposalState::Accepted
                && one.name == skill.name
                && (one.source.agent == *agent || one.source.agent.is_shared())
                && Skill::parse(&one.text).is_ok_and(|one| one.version == skill.version)
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

pub(crate) fn apply(library: &Library, change: WishChange) -> anyhow::Result<LessonChanged> {
    Ok(match change {
        WishChange::Add {
            agent,
            sender,
            wish,
        } => {
            let holder = holder(&agent, sender.as_ref());
            added(library.write_down(holder, &wish, now_ms())?, &wish)
        }
        WishChange::Remove {
            agent,
            sender,
            wish,
        } => removed(library, holder(&agent, sender.as_ref()), &wish)?.into(),
        WishChange::Edit { agent, wish, to } => {
            let known = library.own_wishes(&agent);
            anyhow::ensure!(
                known.iter().any(|known| known.text == wish),
                no_such(library, (&agent).into(), &wish)
            );
            added(library.reword(&agent, &wish, &to, now_ms())?, &to)
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

pub(crate) async fn count(log: &TurnLog, agent: &AgentId) -> Result<(), LogError> {
    let lesson = DailyCounts {
        lessons: 1,
        ..DailyCounts::default()
    };
    log.count(agent, now_ms(), lesson).await
}

fn reverted(Proposal { name, former, .. }: &Proposal) -> String {
    match former {
        Some(_) => format!("{name} is as it was before, from the next session on"),
        None => format!("{name} is gone, from the next session on"),
    }
}

fn holder<'a>(agent: &'a AgentId, sender: Option<&'a SenderId>) -> Holder<'a> {
    Holder { agent, sender }
}

/// Returns the outcome of adding a wish by hand. `lesson` is `None` if the wish was there already.
fn added(lesson: Option<Lesson>, wish: &str) -> LessonChanged {
    match lesson {
        Some(lesson) => LessonChanged {
            told: format!(
                "in force from the next session on: {}  (metaclaw undo {})",
                lesson.wish, lesson.n
            ),
            learned: Some(lesson.origin.agent),
        },
        None => format!("it stands already: {wish}").into(),
    }
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
    if library.wishes(agent).iter().any(|one| one.text == wish) {
        return format!(
            "that is everyone's wish, not {agent}'s: `metaclaw wishes --agent _shared` edits those"
        );
    }
    format!(
        "{agent} has no such wish: `metaclaw wishes list --agent {agent}` shows those there are"
    )
}

impl From<String> for LessonChanged {
    fn from(told: String) -> Self {
        Self {
            told,
            learned: None,
        }
    }
}
