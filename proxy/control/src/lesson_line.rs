//! Describes a lesson for a person.

use metaclaw_chat::one_line;
use metaclaw_skills::{Lesson, LessonState, Suspicion};

/// Returns a lesson on one line: what was heard, what it became, and how to take it back.
pub fn lesson_line(lesson: &Lesson) -> String {
    let Lesson { n, state, .. } = lesson;
    let (heard, wish) = (one_line(&lesson.heard), one_line(&lesson.wish));
    let heard = if heard == wish {
        String::new()
    } else {
        format!("heard \"{heard}\" -> ")
    };
    match state {
        LessonState::InForce => format!("{heard}wish: {wish}  (undo {n})"),
        LessonState::Replaced { by } => format!("{heard}replaced by lesson {by}: {wish}  ({n})"),
        LessonState::Noted => format!("{heard}said once more, it is a wish: {wish}  (undo {n})"),
        LessonState::Review { why } if why[..] == [Suspicion::Unsure] => {
            format!("{heard}a wish? {wish}  (wishes review --accept {n}, or --dismiss {n})")
        }
        LessonState::Review { why } => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            let why = why.join(", ");
            format!(
                "{heard}waits for your review, because {why}: {wish}  (wishes review --accept {n})"
            )
        }
        LessonState::Undone => format!("{heard}taken back: {wish}  ({n})"),
        LessonState::Forgotten => format!("forgotten  ({n})"),
    }
}
