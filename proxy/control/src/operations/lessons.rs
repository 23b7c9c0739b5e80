//! Operations on what was learned in words.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use metaclaw_chat::AgentId;
use metaclaw_skills::{Lesson, Proposal};
use metaclaw_turns::LessonCounts;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tracing::warn;

use crate::{
    forgetting::{self, Forget, Forgotten, KeptLessons},
    instance::Instance,
    lesson_list::LessonList,
    lessons::{self, LessonChanged, LessonsView, SkillChange, SkillView, WishChange},
    operation::{Operation, OperationFailure},
};

/// The skills of one agent; without one, those of everybody.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListSkills(pub Option<AgentId>);

/// The skills that a model wrote, and what became of each.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ListProposals;

/// The wishes of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListWishes(pub AgentId);

/// All lessons of an agent, those of its host as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListLessons(pub AgentId);

/// What was learned, of all agents, the oldest first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetJournal;

#[async_trait]
impl Operation for ListSkills {
    const PATH: &'static str = "skills";
    type Reply = Vec<SkillView>;

    async fn perform(self, instance: &Instance) -> Result<Vec<SkillView>, OperationFailure> {
        let agent = self.0;
        let counts = lesson_counts(instance, agent.as_ref()).await?;
        let library = instance.library()?;
        on_files(move || lessons::skills(&library, agent.as_ref(), &counts)).await
    }
}

#[async_trait]
impl Operation for ListProposals {
    const PATH: &'static str = "proposals";
    type Reply = Vec<Proposal>;

    async fn perform(self, instance: &Instance) -> Result<Vec<Proposal>, OperationFailure> {
        let library = instance.library()?;
        on_files(move || Ok(library.proposals()?)).await
    }
}

#[async_trait]
impl Operation for SkillChange {
    const PATH: &'static str = "skill";
    const SHOWN_BY: Option<&'static str> = Some("metaclaw skills list");
    type Reply = String;

    async fn perform(self, instance: &Instance) -> Result<String, OperationFailure> {
        let library = instance.library()?;
        let changed = on_files(move || lessons::settle(&library, self)).await?;
        Ok(counted(instance, changed).await)
    }
}

#[async_trait]
impl Operation for ListWishes {
    const PATH: &'static str = "lessons";
    type Reply = LessonsView;

    async fn perform(self, instance: &Instance) -> Result<LessonsView, OperationFailure> {
        let agent = self.0;
        let rooms = instance.running();
        let adapter = rooms.and_then(|rooms| rooms.gateway.serving.current(&agent));
        let counts = lesson_counts(instance, Some(&agent)).await?;
        let library = instance.library()?;
        on_files(move || lessons::view(&library, &agent, adapter.as_deref(), &counts)).await
    }
}

#[async_trait]
impl Operation for ListLessons {
    const PATH: &'static str = "lesson_list";
    type Reply = LessonList;

    async fn perform(self, instance: &Instance) -> Result<LessonList, OperationFailure> {
        let library = instance.library()?;
        on_files(move || Ok(LessonList::new(&library, &self.0))).await
    }
}

#[async_trait]
impl Operation for GetJournal {
    const PATH: &'static str = "journal";
    type Reply = Vec<Lesson>;

    async fn perform(self, instance: &Instance) -> Result<Vec<Lesson>, OperationFailure> {
        let library = instance.library()?;
        on_files(move || Ok(library.journal()?)).await
    }
}

#[async_trait]
impl Operation for WishChange {
    const PATH: &'static str = "wish";
    const SHOWN_BY: Option<&'static str> = Some("metaclaw wishes list");
    type Reply = String;

    async fn perform(self, instance: &Instance) -> Result<String, OperationFailure> {
        let library = instance.library()?;
        let changed = on_files(move || lessons::apply(&library, self)).await?;
        Ok(counted(instance, changed).await)
    }
}

#[async_trait]
impl Operation for Forget {
    const PATH: &'static str = "forget";
    /// Every session is searched for the words, and then the whole log is written anew.
    const DEADLINE: Duration = Duration::from_secs(3_600);
    const SHOWN_BY: Option<&'static str> = Some("metaclaw turns list");
    type Reply = Forgotten;

    async fn perform(self, instance: &Instance) -> Result<Forgotten, OperationFailure> {
        let (log, home) = (instance.log().await?.clone(), instance.home().clone());
        let library = instance.library()?;
        let memory = instance.memory()?;
        let kept = KeptLessons { library, memory };
        let runtime = Handle::current();
        // A client that hangs up does not end it.
        let work = move || runtime.block_on(forgetting::forget(&log, kept, &home, &self));
        Ok(tokio::task::spawn_blocking(work).await??)
    }
}

async fn lesson_counts(
    instance: &Instance,
    agent: Option<&AgentId>,
) -> Result<BTreeMap<String, LessonCounts>, OperationFailure> {
    let Some(log) = instance.log_if_any().await? else {
        return Ok(BTreeMap::new());
    };
    Ok(log.lesson_counts(agent).await?)
}

async fn counted(instance: &Instance, changed: LessonChanged) -> String {
    let Some(agent) = &changed.learned else {
        return changed.told;
    };
    let counted = async {
        match instance.log_if_any().await? {
            Some(log) => Ok(lessons::count(log, agent).await?),
            None => anyhow::Ok(()),
        }
    };
    match counted.await {
        Ok(()) => changed.told,
        Err(error) => {
            warn!("a lesson is missing in the counts of its day: {error:#}");
            format!(
                "{}\nwarning: the lesson is missing in the counts of its day: {error:#}",
                changed.told
            )
        }
    }
}

pub(super) async fn on_files<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, OperationFailure> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
