//! What subcommands do with lessons, in the running process or on the files where nothing runs.

use std::{collections::BTreeSet, path::Path};

use metaclaw_chat::{AgentId, SessionId, now_ms};
use metaclaw_skills::{LearnError, Library, Wish};
use metaclaw_turns::{StepOutcome, TurnFilter, TurnLog};
use serde::{Deserialize, Serialize};

use crate::{
    control::{Forget, LessonsView, WishChange},
    home::Home,
    report,
};

/// What went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forgotten {
    pub n_sessions: usize,
    pub n_turns: u64,
    /// Lessons that came from them.
    pub n_lessons: usize,
    /// Weights that were trained on some of them, and are there still.
    pub adapters: Vec<String>,
}

/// The wishes of an agent, and where each comes from.
pub(crate) fn view(library: &Library, agent: &AgentId) -> anyhow::Result<LessonsView> {
    let mut lessons = library.journal()?;
    lessons.retain(|lesson| lesson.origin.agent == *agent);
    let texts = |wishes: Vec<Wish>| wishes.into_iter().map(|wish| wish.text);
    let own: BTreeSet<String> = texts(library.own_wishes(agent)).collect();
    let wishes: Vec<String> = texts(library.wishes(agent)).collect();
    let shared = wishes.iter().filter(|wish| !own.contains(*wish));
    Ok(LessonsView {
        shared: shared.cloned().collect(),
        wishes,
        lessons,
        file: library.wishes_file(agent),
    })
}

/// Changes what is in force; what was done, in words.
pub(crate) fn apply(library: &Library, change: WishChange) -> anyhow::Result<String> {
    Ok(match change {
        WishChange::Add { agent, wish } => added(library, &agent, &wish)?,
        WishChange::Remove { agent, wish } => removed(library, &agent, &wish)?,
        WishChange::Edit { agent, wish, to } => {
            let known = library.own_wishes(&agent);
            anyhow::ensure!(
                known.iter().any(|it| it.text == wish),
                no_such(library, &agent, &wish)
            );
            let added = added(library, &agent, &to)?;
            // It may have given way already: both are about the same.
            library.take_out(&agent, &wish)?;
            added
        }
        WishChange::Undo { n } => format!("undone: {}", library.undo(n)?.wish),
        WishChange::Accept { n } => {
            format!(
                "in force from the next session on: {}",
                library.accept(n)?.wish
            )
        }
    })
}

fn added(library: &Library, agent: &AgentId, wish: &str) -> Result<String, LearnError> {
    Ok(match library.write_down(agent, wish, now_ms())? {
        Some(lesson) => format!(
            "in force from the next session on: {}  (metaclaw undo {})",
            lesson.wish, lesson.n
        ),
        None => format!("it stands already: {wish}"),
    })
}

fn removed(library: &Library, agent: &AgentId, wish: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        library.take_out(agent, wish)?,
        no_such(library, agent, wish)
    );
    Ok(format!("taken out: {wish}"))
}

fn no_such(library: &Library, agent: &AgentId, wish: &str) -> String {
    if library.wishes(agent).iter().any(|it| it.text == wish) {
        return format!(
            "that is everyone's wish, not {agent}'s: `metaclaw wishes --agent _shared` edits those"
        );
    }
    format!(
        "{agent} has no such wish: `metaclaw wishes list --agent {agent}` shows those there are"
    )
}

/// Forgets sessions with all that they alone hold, what was learned from them, and their bytes on the disk.
pub(crate) async fn forget(
    log: &TurnLog,
    (library, home): (&Library, &Home),
    what: &Forget,
) -> anyhow::Result<Forgotten> {
    let since_ms = what.since_ms;
    let mut sessions = log
        .ended(|ended_ms| since_ms.is_none_or(|since_ms| ended_ms >= since_ms))
        .await?;
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
    let (library, reports, gone) = (library.clone(), home.reports(), sessions);
    // The journal is a file, and so are the digests.
    let lessons = tokio::task::spawn_blocking(move || forget_lessons(&library, &reports, &gone));
    forgotten.n_lessons = lessons.await??;
    log.compact().await?;
    Ok(forgotten)
}

/// Takes what was learned from some sessions back, and its words out of the digests. How many lessons that were.
fn forget_lessons(
    library: &Library,
    reports: &Path,
    gone: &[(AgentId, SessionId)],
) -> anyhow::Result<usize> {
    let is_gone = |agent: &AgentId, session: &SessionId| {
        gone.iter().any(|it| it.0 == *agent && it.1 == *session)
    };
    let learned = library.journal()?.into_iter().filter(|lesson| {
        let session = lesson.origin.session.as_ref();
        session.is_some_and(|session| is_gone(&lesson.origin.agent, session))
    });
    let words: Vec<String> = learned.flat_map(|it| [it.heard, it.wish]).collect();
    report::forget(reports, &words)?;
    Ok(library.forget_lessons(is_gone)?)
}

/// The adapters that steps with turns of these sessions made.
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
            if let Some(StepOutcome::Trained { adapter, .. }) = step.outcome.filter(|_| is_of) {
                adapters.insert(adapter);
            }
        }
    }
    Ok(adapters.into_iter().collect())
}
