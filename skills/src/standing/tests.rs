//! Kills at each step of writing, edits by hand, and replaced wishes.

use std::path::Path;

use super::*;
use crate::{
    config::{SkillsConfig, WishesConfig},
    file::{killed, remove_drafts},
    hearing::hear,
};

const SHORT: &str = "Please always answer in one sentence.";
const LONG: &str = "From now on explain everything in detail.";
const FRENCH: &str = "From now on, please answer in French.";

fn open(dir: &Path) -> Library {
    Library::open(dir, SkillsConfig::default(), WishesConfig::default()).0
}

fn main() -> AgentId {
    "main".parse().unwrap()
}

fn says(library: &Library, sender: Option<&str>, text: &str) -> Result<(), LearnError> {
    let origin = Origin {
        agent: main(),
        session: Some("s".parse().unwrap()),
        turn: None,
        sender: sender.map(|sender| sender.parse().unwrap()),
        at_ms: 1_000,
    };
    for heard in hear(text, true) {
        library.learn(&heard, origin.clone())?;
    }
    Ok(())
}

fn states(library: &Library) -> Vec<(u64, LessonState)> {
    let lessons = library.journal().unwrap().into_iter();
    lessons.map(|lesson| (lesson.n, lesson.state)).collect()
}

/// Returns all lines of wishes, with whose they are.
fn lines(library: &Library) -> Vec<String> {
    let mut lines = Vec::new();
    for agent in [main(), AgentId::shared()] {
        let people = library.people(&agent).into_iter().map(Some);
        for sender in std::iter::once(None).chain(people) {
            let holder = Holder {
                agent: &agent,
                sender: sender.as_ref(),
            };
            let own = library.own_wishes(holder).into_iter();
            lines.extend(own.map(|wish| format!("{agent} {sender:?} {}", wish.text)));
        }
    }
    lines
}

fn agree(library: &Library) {
    let lessons = library.journal().unwrap().into_iter();
    let in_force = lessons.filter(|lesson| lesson.state == LessonState::InForce);
    let mut known: Vec<String> = in_force
        .map(|it| format!("{} {:?} {}", it.origin.agent, it.origin.sender, it.wish))
        .collect();
    let mut lines = lines(library);
    known.sort();
    lines.sort();
    assert_eq!(known, lines);
}

type Action = fn(&Library) -> Result<(), LearnError>;

const ACTIONS: [(&str, Action); 14] = [
    ("a wish", |home| says(home, None, FRENCH)),
    ("another wish about the same", |home| says(home, None, LONG)),
    ("another person's wish", |it| says(it, Some("ann"), LONG)),
    ("a complaint", |it| says(it, None, "That is far too long.")),
    ("a wish is withdrawn", |home| {
        says(home, None, "You can use long sentences again.")
    }),
    ("undo", |home| home.undo(1).map(|_| ())),
    ("undo of one that replaced another", |home| {
        home.undo(3).map(|_| ())
    }),
    ("a wish by hand", |home| {
        home.write_down(&main(), FRENCH, 9).map(|_| ())
    }),
    ("one for all agents", |home| {
        home.write_down(&AgentId::shared(), FRENCH, 9).map(|_| ())
    }),
    ("taken out", |h| h.take_out(&main(), SHORT).map(|_| ())),
    ("reworded", |home| {
        home.reword(&main(), SHORT, FRENCH, 9).map(|_| ())
    }),
    ("reworded about the same", |home| {
        home.reword(&main(), SHORT, LONG, 9).map(|_| ())
    }),
    ("a person's reworded", |home| {
        let (agent, sender) = (main(), "bob".parse().unwrap());
        let bob = Holder {
            agent: &agent,
            sender: Some(&sender),
        };
        home.reword(bob, LONG, FRENCH, 9).map(|_| ())
    }),
    ("forgotten", |it| {
        it.forget_lessons(|it| it.session == "s".parse().ok())
            .map(|_| ())
    }),
];

fn begin(dir: &Path) -> Library {
    let library = open(dir);
    says(&library, None, SHORT).unwrap();
    says(
        &library,
        Some("bob"),
        "Please always answer in two sentences.",
    )
    .unwrap();
    says(&library, Some("bob"), LONG).unwrap();
    library
}

#[test]
fn a_change_is_finished_after_a_kill_at_any_step() {
    for (what, act) in ACTIONS {
        let whole = tempfile::tempdir().unwrap();
        let library = begin(whole.path());
        let before = lines(&library);
        act(&library).unwrap();
        let after = lines(&library);
        for n_steps in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let library = begin(dir.path());
            killed::after(n_steps);
            let ended = act(&library);
            killed::after(usize::MAX);
            let library = open(dir.path());
            library.settle_lessons().unwrap();
            let now = lines(&library);
            assert!(now == before || now == after, "{what}, {n_steps}: {now:?}");
            agree(&library);
            assert_eq!(library.settle_lessons().unwrap(), SettledLessons::default());
            if ended.is_ok() {
                assert_eq!(now, after, "{what}");
                break;
            }
            // The action is tried again, and succeeds or is already done. A second complaint would become a wish.
            if what == "a complaint" {
                continue;
            }
            let again = act(&library);
            let is_so = again.is_ok() || now == after;
            assert!(is_so, "{what}, {n_steps}: {again:?}");
            assert_eq!(lines(&library), after, "{what}, {n_steps}");
        }
    }
}

#[test]
fn what_a_kill_left_is_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let library = begin(dir.path());
    let skill = dir.path().join("main/notes");
    fs::create_dir_all(&skill).unwrap();
    let drafts = [
        "lessons.jsonl.new",
        "main/WISHES.md.new",
        "main/_people/bob.md.new",
    ];
    let kept = ["main/notes/new.md", "main/notes/x.new", "notes.md"];
    for name in drafts.iter().chain(&kept) {
        fs::write(dir.path().join(name), "From now on").unwrap();
    }
    assert_eq!(remove_drafts(library.dir(), 3).unwrap(), 3);
    let exists = |name: &&&str| dir.path().join(name).exists();
    assert_eq!(drafts.iter().filter(exists).count(), 0);
    assert_eq!(kept.iter().filter(exists).count(), 3);
}

#[test]
fn wishes_that_people_edit_by_hand_are_lessons_too() {
    let dir = tempfile::tempdir().unwrap();
    let library = begin(dir.path());
    let file = library.wishes_file(&main());
    let text = format!("- Be kind.\n- {SHORT}\n* Use  tabs.\nnot a wish\n");
    fs::write(&file, text).unwrap();
    fs::write(library.wishes_file(&AgentId::shared()), "- Be kind.\n").unwrap_err();
    fs::create_dir(dir.path().join("_shared")).unwrap();
    fs::write(library.wishes_file(&AgentId::shared()), "- Be kind.\n").unwrap();
    let found = library.settle_lessons().unwrap().found;
    let found: Vec<_> = found.iter().map(|le| (le.n, le.wish.as_str())).collect();
    assert_eq!(found, [(4, "Be kind."), (5, "Use tabs."), (6, "Be kind.")]);
    agree(&library);
    // A line above one that was said is older than it.
    let lessons = library.journal().unwrap();
    assert!(lessons[3].origin.at_ms < lessons[0].origin.at_ms);
    library.undo(4).unwrap();
    assert_eq!(library.settle_lessons().unwrap(), SettledLessons::default());
    // A line that somebody removed is not in force, and one that comes back is.
    fs::write(&file, "- Use tabs.\n").unwrap();
    library.rescan();
    assert_eq!(states(&library)[0].1, LessonState::Undone);
    let refused = library.undo(1).unwrap_err().to_string();
    assert_eq!(refused, "lesson 1 is undone already");
    fs::write(&file, format!("- Use tabs.\n- {SHORT}\n")).unwrap();
    library.rescan();
    assert_eq!(states(&library)[0].1, LessonState::InForce);
    agree(&library);
}

#[test]
fn a_replaced_wish_is_not_in_force_and_its_undo_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    says(&library, None, SHORT).unwrap();
    says(&library, None, LONG).unwrap();
    says(&library, None, "Please always answer in two sentences.").unwrap();
    let replaced = |by, wish: &str| LessonState::Replaced {
        by,
        by_wish: wish.to_owned(),
    };
    let third = "Please always answer in two sentences.";
    let expected = [
        (1, replaced(2, LONG)),
        (2, replaced(3, third)),
        (3, LessonState::InForce),
    ];
    assert_eq!(states(&library), expected);
    let files = lines(&library);
    let refused = library.undo(1).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "lesson 1 was replaced by lesson 2 ({LONG}), so nothing changed: `metaclaw undo 2` brings it back"
        )
    );
    assert_eq!(
        (lines(&library), states(&library)),
        (files, expected.to_vec())
    );
    for n in [1, 2] {
        assert!(library.accept(n, 1).is_err() && library.dismiss(n).is_err());
    }
    library.undo(3).unwrap();
    let expected = [
        (1, replaced(2, LONG)),
        (2, LessonState::InForce),
        (3, LessonState::Undone),
    ];
    assert_eq!(states(&library), expected);
    // "Take that back" means the one in force.
    says(&library, None, "Forget that rule.").unwrap();
    assert_eq!(
        states(&library)[..2],
        [(1, LessonState::InForce), (2, LessonState::Undone)]
    );
}

#[test]
fn other_words_take_the_place_of_a_wish() {
    for (wish, to, told, now) in [
        (SHORT, FRENCH, Some(4), vec![FRENCH]),
        // One about the same subject is replaced.
        (SHORT, LONG, Some(4), vec![LONG]),
        (SHORT, SHORT, None, vec![SHORT]),
        (
            SHORT,
            "Please  always answer in one sentence.",
            None,
            vec![SHORT],
        ),
        // It is gone meanwhile.
        (FRENCH, "Be kind.", Some(4), vec![SHORT, "Be kind."]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let library = begin(dir.path());
        let lesson = library.reword(&main(), wish, to, 9).unwrap();
        assert_eq!(lesson.map(|lesson| lesson.n), told, "{to}");
        let wishes = library.own_wishes(&main()).into_iter();
        let wishes: Vec<String> = wishes.map(|wish| wish.text).collect();
        assert_eq!(wishes, now, "{to}");
        agree(&library);
    }
    // The new words are there already.
    let dir = tempfile::tempdir().unwrap();
    let library = begin(dir.path());
    library.write_down(&main(), FRENCH, 9).unwrap();
    assert!(library.reword(&main(), SHORT, FRENCH, 9).unwrap().is_none());
    assert_eq!(library.own_wishes(&main()).len(), 1);
    agree(&library);
    let long = "x".repeat(301);
    library.reword(&main(), FRENCH, &long, 9).unwrap_err();
    assert_eq!(library.own_wishes(&main()).len(), 1);
}

#[test]
fn a_message_that_is_heard_again_changes_nothing() {
    let undone = |library: &Library| {
        let states = states(library).into_iter();
        states.filter(|s| s.1 == LessonState::Undone).count()
    };
    for (text, n_undone) in [
        (FRENCH, 0),
        ("Too long. Please call me Max.", 0),
        ("That is far too long.", 0),
        ("Forget that rule.", 1),
        ("You can use long sentences again.", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let library = open(dir.path());
        for wish in [
            "Please always call me Ann.",
            "Please always use tabs.",
            SHORT,
        ] {
            says(&library, None, wish).unwrap();
        }
        let origin = |at_ms| Origin {
            agent: main(),
            session: Some("s".parse().unwrap()),
            turn: Some("1-7".parse().unwrap()),
            sender: None,
            at_ms,
        };
        let heard = hear(text, true);
        library.learn_new(&heard, &origin(2_000)).unwrap();
        let (files, before) = (lines(&library), states(&library));
        assert_eq!(undone(&library), n_undone, "{text}");
        let again = library.learn_new(&heard, &origin(2_000)).unwrap();
        assert_eq!(again, [], "{text}");
        assert_eq!(
            (lines(&library), states(&library)),
            (files, before),
            "{text}"
        );
        // Undone since, it does not come back.
        for (n, state) in states(&library) {
            if n > 3 && state == LessonState::InForce {
                library.undo(n).unwrap();
            }
        }
        let before = states(&library);
        library.learn_new(&heard, &origin(2_000)).unwrap();
        assert_eq!(states(&library), before, "{text}");
        // A later message that says the same is another one.
        let later = library.learn_new(&heard, &origin(3_000)).unwrap();
        let is_nothing_left = text.starts_with("You can");
        assert_eq!(later.is_empty(), is_nothing_left, "{text}");
    }
}
