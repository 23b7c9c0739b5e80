//! The picture: what is learned, as far as it fits the window.

use metaclaw_control::lesson_line::lesson_line;
use metaclaw_skills::{Lesson, LessonState};
use metaclaw_turns::TurnSummary;
use unicode_width::UnicodeWidthChar;

use super::{verdict_line::verdict_line, view::LearnView};
use crate::{
    commands::status::{review, spend},
    out,
    terminal::WindowSize,
};

/// Reasons that are shown of those why turns are of no use.
const REASONS: usize = 3;

/// The picture for a window of so many columns and rows: each line fits, and is safe for a terminal.
pub(super) fn lines(view: &LearnView, window: WindowSize, now_ms: u64) -> Vec<String> {
    let WindowSize { columns, rows } = window;
    let mut lines = head(view);
    // Two headings, two blank lines and the last line.
    let left = rows.saturating_sub(lines.len() + 5);
    let n_lessons = left.div_ceil(2).min(view.lessons.len().max(1));
    let n_verdicts = left.saturating_sub(n_lessons);
    lines.push(String::new());
    lines.push("lessons".to_owned());
    lines.extend(lessons(view, n_lessons, now_ms));
    lines.push(String::new());
    lines.push("verdicts".to_owned());
    lines.extend(verdicts(view, n_verdicts, now_ms));
    let room = rows.saturating_sub(1);
    lines.truncate(room);
    lines.resize(room, String::new());
    lines.push("q leaves".to_owned());
    lines.truncate(rows);
    lines.iter().map(|line| fitted(line, columns)).collect()
}

/// Who serves, how far turns came, what waits, what it costs.
fn head(view: &LearnView) -> Vec<String> {
    let status = &view.status;
    let mut lines = vec![
        format!("MetaClaw  {} at {}", status.about.mode, status.proxy),
        format!("learns    {}", status.about.learns),
        format!("turns     {}", view.funnel()),
    ];
    let mut reasons: Vec<(&String, &u64)> = status.funnel.spent.iter().collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let reasons: Vec<String> = reasons
        .iter()
        .take(REASONS)
        .map(|(why, n)| format!("{n} {why}"))
        .collect();
    if !reasons.is_empty() {
        lines.push(format!("not used  {}", reasons.join("; ")));
    }
    let judging = status.learner.as_ref().map(|it| &it.judging);
    let waiting = judging.map_or(0, |it| it.waiting);
    lines.push(match judging.and_then(|it| it.failing.as_ref()) {
        Some(why) => {
            format!("waiting   {waiting} for a verdict; the judge does not answer: {why}")
        }
        None => format!("waiting   {waiting} for a verdict"),
    });
    lines.push(format!("today     {}", spend(&status.spend)));
    lines.extend(review(status).map(|it| format!("review    {it}")));
    lines
}

fn lessons(view: &LearnView, n: usize, now_ms: u64) -> Vec<String> {
    let told = |it: &&Lesson| it.state != LessonState::Forgotten;
    let line = |it: &Lesson| format!("{:>6}  {}", age(it.origin.at_ms, now_ms), lesson_line(it));
    let lines: Vec<String> = view
        .lessons
        .iter()
        .rev()
        .filter(told)
        .take(n)
        .map(line)
        .collect();
    or_none(
        lines,
        "  none yet: say what you wish, as in \"please always answer in one sentence\"",
    )
}

fn verdicts(view: &LearnView, n: usize, now_ms: u64) -> Vec<String> {
    let line = |it: &TurnSummary| format!("{:>6}  {}", age(it.ended_ms, now_ms), verdict_line(it));
    or_none(view.judged().take(n).map(line).collect(), "  none yet")
}

fn or_none(lines: Vec<String>, none: &str) -> Vec<String> {
    if lines.is_empty() {
        vec![none.to_owned()]
    } else {
        lines
    }
}

fn age(at_ms: u64, now_ms: u64) -> String {
    out::span(now_ms.saturating_sub(at_ms))
}

/// A line that a terminal shows in one row: escaped, and cut where it is too wide.
fn fitted(line: &str, columns: usize) -> String {
    let safe = out::safe_line(line);
    let mut width = 0;
    for (at, c) in safe.char_indices() {
        width += c.width().unwrap_or(0);
        if width > columns {
            let kept: String = safe[..at].to_owned();
            return without_last(kept, columns);
        }
    }
    safe
}

/// The cut is shown, in the last column or, behind a wide character, in the one before.
fn without_last(mut kept: String, columns: usize) -> String {
    let width = |text: &str| text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
    while width(&kept) >= columns && kept.pop().is_some() {}
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
pub(super) mod testing {
    use metaclaw_skills::{Lesson, Origin};
    use serde_json::json;

    use super::*;
    use crate::commands::status::testing::status;

    /// A moment with two lessons and two verdicts, one of them with an escape sequence.
    pub(in super::super) fn view() -> LearnView {
        let lesson = |n: u64, heard: &str, wish: &str, state| Lesson {
            n,
            origin: Origin {
                agent: "main".parse().unwrap(),
                session: None,
                turn: None,
                sender: None,
                at_ms: 1_000 * n,
            },
            heard: heard.to_owned(),
            wish: wish.to_owned(),
            facet: None,
            replaced: Vec::new(),
            since_ms: None,
            state,
            unfinished: false,
        };
        let turn = |id: &str, asked: &str, score: i8| {
            json!({
                "id": id, "agent": "main", "session": "s", "kind": "main", "end": {"how": "complete"},
                "started_ms": 0, "ended_ms": 30_000, "upstream": "llm", "model": "m", "adapter": null,
                "n_messages": 1, "asked": asked, "answered": "a", "state": {"is": "judged"},
                "score": score, "is_hinted": score < 0, "has_ids": false, "usage": null, "skills": [],
            })
        };
        let turns = json!([
            turn("1-2", "\u{1b}[2J雨是什么？", -1),
            turn("1-1", "What is rain?", 1)
        ]);
        LearnView {
            status: status(json!({
                "about": {"mode": "skills_only", "learns": "wishes from what you say"},
                "funnel": {"turns": 3, "main": 2, "complete": 2, "with_ids": 0, "judged": 2, "trained": 0, "spent": {"side turn": 1}},
                "spend": {"chat": 9000, "learning": 300, "n_answered": 2, "n_failed": 0, "limit": 50000},
                "waiting": {"skills": 1, "wishes": {}},
                "learner": {"phase": {"is": "off"}, "judging": {"waiting": 1, "failing": "timeout"}, "agents": []},
            })),
            lessons: vec![
                lesson(
                    11,
                    "too long",
                    "Answer in one sentence.",
                    LessonState::Noted,
                ),
                lesson(
                    12,
                    "still too long",
                    "Answer in one sentence.",
                    LessonState::InForce,
                ),
            ],
            turns: serde_json::from_value(turns).unwrap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(columns: usize, rows: usize) -> WindowSize {
        WindowSize { columns, rows }
    }

    #[test]
    fn the_picture_fits_the_window_and_is_safe() {
        let shown = lines(&testing::view(), window(72, 18), 60_000);
        assert_eq!(shown.len(), 18);
        insta::assert_snapshot!(shown.join("\n"), @r#"
        MetaClaw  skills_only at 127.0.0.1:30000
        learns    wishes from what you say
        turns     recorded 3 -> main 2 -> complete 2 -> judged 2  (no weights a…
        not used  1 side turn
        waiting   1 for a verdict; the judge does not answer: timeout
        today     9000 tokens of chat; 300 of learning (2 questions; 49700 left)
        review    1 skill that a model wrote waits for your look  (metaclaw ski…

        lessons
          48 s  heard "still too long" -> wish: Answer in one sentence.  (undo …
          49 s  heard "too long" -> said once more, it is a wish: Answer in one…

        verdicts
          30 s  -1  1-2 of main: "\u001b[2J雨是什么？"  (with a hint)
          30 s  +1  1-1 of main: "What is rain?"


        q leaves
        "#);
    }

    #[test]
    fn however_small_the_window_is_no_line_is_wider_and_there_are_no_more_than_rows() {
        let view = testing::view();
        for (columns, rows) in [(0, 0), (1, 1), (5, 3), (20, 8), (300, 100)] {
            let shown = lines(&view, window(columns, rows), 60_000);
            assert_eq!(shown.len(), rows);
            for line in shown {
                let width: usize = line.chars().map(|c| c.width().unwrap_or(0)).sum();
                assert!(width <= columns, "{line:?} in {columns}");
            }
        }
    }

    #[test]
    fn a_wide_character_is_not_cut_in_two() {
        assert_eq!(fitted("雨是什么", 8), "雨是什么");
        assert_eq!(fitted("雨是什么", 7), "雨是什…");
        assert_eq!(fitted("雨是什么", 6), "雨是…");
        assert_eq!(fitted("a\u{1b}b", 20), "a\\u001bb");
    }
}
