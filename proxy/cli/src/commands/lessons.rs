//! `metaclaw lessons`: what was learned here, beside what the agent has learned by itself.

use std::fmt::Write as _;

use clap::Args;
use metaclaw_chat::{AgentId, excerpt, now_ms};
use metaclaw_control::{
    lesson_list::{LessonList, ListedLesson},
    operations::lessons::ListLessons,
};

use super::{
    calling::{agent, call},
    context::Context,
};
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct LessonsArgs {
    /// The agent: `main` for OpenClaw's. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl LessonsArgs ===

impl LessonsArgs {
    /// Shows them.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let agent = agent(context, self.agent.as_ref()).await?;
        let list = call(context, "lessons", ListLessons(agent)).await?;
        Ok(out::answer(&list, self.json, |it| text(it, now_ms()))?)
    }
}

fn text(list: &LessonList, now_ms: u64) -> String {
    let agent = &list.agent;
    if list.lessons.is_empty() {
        return format!("{agent} has no lessons yet, neither ours nor its own");
    }
    let rows: Vec<Vec<String>> = list.lessons.iter().map(row).collect();
    let head = ["source", "kind", "lesson", "held back", "for"];
    let mut text = out::table(&head, &rows);
    if let Some(seen_ms) = list.host_seen_ms {
        let ago = out::span(now_ms.saturating_sub(seen_ms));
        let _ = write!(
            text,
            "\nhost: what {agent} has learned by itself, noted {ago} ago"
        );
    }
    text
}

fn row(lesson: &ListedLesson) -> Vec<String> {
    let about = lesson.about.as_deref().unwrap_or_default();
    vec![
        lesson.source.to_string(),
        lesson.kind.to_string(),
        out::safe_line(&excerpt(&lesson.lesson)),
        out::safe_line(lesson.held_back.as_deref().unwrap_or_default()),
        out::safe_line(&excerpt(about)),
    ]
}

#[cfg(test)]
mod tests {
    use metaclaw_skills::{HostLessons, HostReading, Library, SkillsConfig, WishesConfig};

    use super::*;

    const HOST: &str = "<available_skills>\n<skill>\n<name>weather</name>\n<description>Forecasts.</description>\n</skill>\n</available_skills>\n<standing_intents>\nStanding intent (created 2026-11-01): Confirm the rollback owner.\n</standing_intents>\n## USER.md\n- Prefer answers in one sentence.\n## Group chats\n- Be witty.\n";

    #[test]
    fn what_the_host_has_learned_stands_beside_ours() {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("_shared/weather");
        std::fs::create_dir_all(&skill).unwrap();
        let weather = "---\nname: weather\ndescription: The weather\n---\nLook it up.\n";
        std::fs::write(skill.join("SKILL.md"), weather).unwrap();
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        let (library, _) = Library::open(dir.path(), skills, wishes);
        let main: AgentId = "main".parse().unwrap();
        let none = LessonList::new(&library, &AgentId::default_agent());
        assert_eq!(none.lessons.len(), 1);
        for wish in ["Please always answer in one sentence.", "Call me Max."] {
            library.add_wish(&main, wish).unwrap();
        }
        let reading = HostReading {
            session: "s".parse().unwrap(),
            at_ms: 1_000,
            lessons: HostLessons::read([HOST]),
        };
        library.note_host(&main, reading).unwrap();
        let list = LessonList::new(&library, &main);
        insta::assert_snapshot!(text(&list, 61_000), @r"
        source  kind    lesson                                 held back                                       for
        ours    wish    Please always answer in one sentence.  the host says: Prefer answers in one sentence.
        ours    wish    Call me Max.
        ours    skill   weather                                the host has one of this name                   The weather
        host    note    Prefer answers in one sentence.
        host    note    Be witty.                                                                              Group chats
        host    intent  Confirm the rollback owner.
        host    skill   weather                                                                                Forecasts.
        host: what main has learned by itself, noted 1 min ago
        ");
        insta::assert_snapshot!(serde_json::to_string_pretty(&list).unwrap(), @r#"
        {
          "agent": "main",
          "host_seen_ms": 1000,
          "lessons": [
            {
              "source": "ours",
              "kind": "wish",
              "lesson": "Please always answer in one sentence.",
              "held_back": "the host says: Prefer answers in one sentence."
            },
            {
              "source": "ours",
              "kind": "wish",
              "lesson": "Call me Max."
            },
            {
              "source": "ours",
              "kind": "skill",
              "lesson": "weather",
              "about": "The weather",
              "held_back": "the host has one of this name"
            },
            {
              "source": "host",
              "kind": "note",
              "lesson": "Prefer answers in one sentence."
            },
            {
              "source": "host",
              "kind": "note",
              "lesson": "Be witty.",
              "about": "Group chats"
            },
            {
              "source": "host",
              "kind": "intent",
              "lesson": "Confirm the rollback owner."
            },
            {
              "source": "host",
              "kind": "skill",
              "lesson": "weather",
              "about": "Forecasts."
            }
          ]
        }
        "#);
    }

    #[test]
    fn where_there_is_none_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        let (library, _) = Library::open(dir.path(), skills, wishes);
        let list = LessonList::new(&library, &AgentId::default_agent());
        let said = "_default has no lessons yet, neither ours nor its own";
        assert_eq!(text(&list, 0), said);
    }
}
