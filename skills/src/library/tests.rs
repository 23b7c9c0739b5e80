use std::fs;

use tempfile::TempDir;

use super::*;
use crate::config::WishPlace;

fn write(dir: &TempDir, path: &str, text: &str) {
    let path = dir.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn skill(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
}

fn open(dir: &TempDir) -> (Library, Vec<SkillWarning>) {
    Library::open(dir.path(), SkillsConfig::default(), WishesConfig::default())
}

fn names(library: &Library, agent: &str) -> Vec<String> {
    let skills = library.skills(&agent.parse().unwrap());
    skills.iter().map(|skill| skill.name.to_string()).collect()
}

#[test]
fn an_agent_has_its_own_skills_and_everyones_in_either_layout() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "flat/SKILL.md", &skill("flat", "d"));
    write(
        &dir,
        "_shared/common/SKILL.md",
        &skill("common", "everyone's"),
    );
    write(&dir, "main/common/SKILL.md", &skill("common", "main's"));
    write(&dir, "main/own/SKILL.md", &skill("own", "d"));
    write(&dir, "main/own/references/notes.md", "not a skill");
    write(&dir, ".git/x/SKILL.md", "nothing");
    let (library, warnings) = open(&dir);
    assert_eq!(warnings, []);
    assert_eq!(names(&library, "main"), ["common", "flat", "own"]);
    assert_eq!(names(&library, "other"), ["common", "flat"]);
    let common = library
        .skill(&"main".parse().unwrap(), &"common".parse().unwrap())
        .unwrap();
    assert_eq!(common.description, "main's");
}

#[test]
fn what_cannot_be_used_is_named_and_the_rest_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "good/SKILL.md", &skill("good", "d"));
    write(&dir, "bad/SKILL.md", "---\nname: bad\n---\nx");
    write(&dir, "binary/SKILL.md", "x");
    fs::write(dir.path().join("binary/SKILL.md"), [0xFF, 0xFE]).unwrap();
    write(&dir, "twin/SKILL.md", &skill("good", "d"));
    write(&dir, "not an agent/x/SKILL.md", &skill("x", "d"));
    write(&dir, "huge/SKILL.md", &"x".repeat(300 * 1024));
    let (library, warnings) = open(&dir);
    let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let root = dir.path().to_string_lossy().into_owned();
    insta::assert_snapshot!(said.join("\n").replace(&root, "SKILLS"), @r#"
    SKILLS/not an agent: agent name "not an agent" is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _; skipped
    SKILLS/bad/SKILL.md: the front matter has no description; skipped
    SKILLS/binary/SKILL.md: cannot be read: stream did not contain valid UTF-8; skipped
    SKILLS/huge/SKILL.md: has 307200 bytes, at most 262144 are read; skipped
    SKILLS/twin/SKILL.md: has the same name "good" as SKILLS/good/SKILL.md; skipped
    "#);
    assert_eq!(names(&library, "main"), ["good"]);
    assert_eq!(library.rescan(), [], "a warning is given once");
}

/// In a test of the first hour, nothing was reported about these files.
#[test]
fn what_is_likely_to_be_meant_for_us_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "lower/skill.md", &skill("lower", "d"));
    write(&dir, "_shared/below/Skill.md", &skill("below", "d"));
    write(&dir, "main/wishes.md", "- Be brief.\n");
    write(&dir, "WISHES.md", "- Be brief.\n");
    write(&dir, "SKILL.md", &skill("top", "d"));
    write(&dir, "plain/WISHES.md", "# Mine\n\nBe brief.\n");
    write(&dir, "notes/today.txt", "x");
    write(&dir, "main/own/SKILL.md", &skill("own", "d"));
    write(&dir, "empty/WISHES.md", "# Wishes\n\n");
    write(&dir, "_default/draft.txt", "x");
    let (library, warnings) = open(&dir);
    let mut said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    said.sort();
    let root = dir.path().to_string_lossy().into_owned();
    insta::assert_snapshot!(said.join("\n").replace(&root, "SKILLS"), @r#"
    SKILLS/SKILL.md: is not read: a skill has a folder of its own, as _shared/NAME/SKILL.md
    SKILLS/WISHES.md: is nobody's: put everyone's wishes into _shared/WISHES.md, and those of one agent into its folder, as main/WISHES.md
    SKILLS/_shared/below/Skill.md: is not read: it must be called SKILL.md
    SKILLS/lower/skill.md: is not read: it must be called SKILL.md
    SKILLS/main/wishes.md: is not read: it must be called WISHES.md
    SKILLS/notes: is no skill, as it has no SKILL.md, and no agent's, as it has no WISHES.md and no skill in it
    SKILLS/plain/WISHES.md: has no wish in it: a wish is a line that begins with "- "
    "#);
    assert_eq!(names(&library, "lower"), [""; 0]);
}

#[test]
fn a_folder_of_skills_is_an_agents_only_if_somebody_has_met_that_agent() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "coding/debug/SKILL.md", &skill("debug", "d"));
    write(&dir, "work/mail/SKILL.md", &skill("mail", "d"));
    write(&dir, "main/own/SKILL.md", &skill("own", "d"));
    let (library, warnings) = open(&dir);
    assert_eq!(warnings, [], "nobody knows which agents there are");
    library.meet(["work".parse().unwrap()]);
    let said: Vec<String> = library.rescan().iter().map(ToString::to_string).collect();
    let root = dir.path().to_string_lossy().into_owned();
    insta::assert_snapshot!(said.join("\n").replace(&root, "SKILLS"), @"SKILLS/coding: is taken for the folder of an agent called coding, whom nobody has met: only such an agent gets its skills; put those for all agents into _shared/");
    library.lessons(&"coding".parse().unwrap(), "hi");
    fs::remove_dir_all(dir.path().join("work")).unwrap();
    assert_eq!(library.rescan(), [], "it has spoken");
    assert_eq!(names(&library, "coding"), ["debug"]);
}

#[test]
fn everyones_wishes_stand_for_all_until_an_agents_own_stand_against_them() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir,
        "_shared/WISHES.md",
        "- Please answer in German.\n- Call me Max.\n",
    );
    write(&dir, "main/WISHES.md", "- Please answer in French.\n");
    let (library, warnings) = open(&dir);
    assert_eq!(warnings, []);
    let wishes = |agent: &str| -> Vec<String> {
        let wishes = library.wishes(&agent.parse().unwrap()).into_iter();
        wishes.map(|wish| wish.text).collect()
    };
    assert_eq!(
        wishes("other"),
        ["Please answer in German.", "Call me Max."]
    );
    assert_eq!(wishes("main"), ["Call me Max.", "Please answer in French."]);
    let block = library
        .lessons(&"other".parse().unwrap(), "hi")
        .system_block;
    assert!(
        block
            .unwrap()
            .ends_with("- Please answer in German.\n- Call me Max.")
    );
    let own = |agent: &str| library.own_wishes(&agent.parse().unwrap()).len();
    assert_eq!((own("other"), own("main"), own("_shared")), (0, 1, 2));
    // The same commands work for `_shared`.
    let shared = "_shared".parse().unwrap();
    library.write_down(&shared, "Be brief.", 1).unwrap();
    assert_eq!(wishes("other").last().unwrap(), "Be brief.");
    assert!(library.take_out(&shared, "Be brief.").unwrap());
    assert_eq!(wishes("other").len(), 2);
}

#[test]
fn a_rescan_sees_new_changed_and_removed_files() {
    let dir = tempfile::tempdir().unwrap();
    let (library, _) = open(&dir);
    let query = |text: &str| library.lessons(&AgentId::default_agent(), text).skills;
    assert!(query("draft an email").is_empty());
    write(&dir, "mail/SKILL.md", &skill("mail", "Drafting an email"));
    library.rescan();
    let first = query("draft an email");
    assert_eq!(first.len(), 1);
    write(
        &dir,
        "mail/SKILL.md",
        &skill("mail", "Drafting an email or a letter"),
    );
    library.rescan();
    assert_ne!(query("draft an email"), first);
    fs::remove_dir_all(dir.path().join("mail")).unwrap();
    library.rescan();
    assert!(query("draft an email").is_empty());
}

#[test]
fn wishes_are_in_force_at_once_where_the_configuration_puts_them() {
    let dir = tempfile::tempdir().unwrap();
    let agent = AgentId::default_agent();
    let (library, _) = open(&dir);
    assert_eq!(library.lessons(&agent, "hi"), Lessons::default());
    assert!(library.add_wish(&agent, "Be brief.").unwrap());
    let lessons = library.lessons(&agent, "hi");
    assert_eq!(
        lessons.system_block.as_deref(),
        Some("## Standing wishes of the user\n\n- Be brief.")
    );
    assert_eq!(lessons.user_line, None);
    assert_eq!(
        library.lessons(&"other".parse().unwrap(), "hi"),
        Lessons::default()
    );

    let place = WishesConfig {
        place: WishPlace::User,
        ..WishesConfig::default()
    };
    let (in_user, _) = Library::open(dir.path(), SkillsConfig::default(), place);
    let moved = in_user.lessons(&agent, "hi");
    assert_eq!(
        (moved.system_block, moved.user_line.as_deref()),
        (None, Some("Be brief."))
    );
    assert_eq!(moved.wishes_version, lessons.wishes_version);

    assert!(library.remove_wish(&agent, "Be brief.").unwrap());
    assert_eq!(library.lessons(&agent, "hi"), Lessons::default());
}

#[test]
fn what_is_switched_off_stays_out() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "mail/SKILL.md", &skill("mail", "Drafting an email"));
    write(&dir, "_default/WISHES.md", "- Be brief.\n");
    let off = SkillsConfig {
        enabled: false,
        ..SkillsConfig::default()
    };
    let none = WishesConfig {
        enabled: false,
        ..WishesConfig::default()
    };
    let (library, _) = Library::open(dir.path(), off, none);
    assert_eq!(
        library.lessons(&AgentId::default_agent(), "draft an email"),
        Lessons::default()
    );
}

#[test]
fn what_the_settings_allow_is_given_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["letter", "mail", "memo", "note"] {
        let text = skill(name, "Drafting an email");
        write(&dir, &format!("{name}/SKILL.md"), &text);
    }
    // A word that most skills contain would select none.
    for name in ["bread", "chess", "garden", "piano"] {
        write(&dir, &format!("{name}/SKILL.md"), &skill(name, name));
    }
    write(&dir, "_default/WISHES.md", "- Be brief.\n- No lists.\n");
    let given = |skills: &str, wishes: &str| {
        let skills: SkillsConfig = serde_json::from_str(skills).unwrap();
        let wishes: WishesConfig = serde_json::from_str(wishes).unwrap();
        let (library, _) = Library::open(dir.path(), skills, wishes);
        let lessons = library.lessons(&AgentId::default_agent(), "draft an email");
        let block = lessons.system_block.unwrap_or_default();
        let n_wishes = ["- Be brief.", "- No lists."].map(|line| block.contains(line));
        (lessons.skills.len(), n_wishes)
    };
    assert_eq!(given("{}", "{}"), (3, [true, true]));
    assert_eq!(given(r#"{"top_k": 1}"#, "{}").0, 1);
    assert_eq!(given(r#"{"top_k": 4}"#, "{}").0, 4);
    let coding = "---\nname: note\ndescription: Drafting an email\ncategory: coding\n---\nDo it.\n";
    write(&dir, "note/SKILL.md", coding);
    let bound = |most: u64| format!(r#"{{"top_k": 4, "task_specific_top_k": {most}}}"#);
    assert_eq!(given(&bound(1), "{}").0, 4);
    assert_eq!(given(&bound(0), "{}").0, 3, "the general ones");
    assert!((1..3).contains(&given(r#"{"budget_tokens": 25}"#, "{}").0));
    assert_eq!(given("{}", r#"{"max_tokens": 6}"#).1, [false, true]);
    assert_eq!(given("{}", r#"{"max_tokens": 0}"#).1, [false, false]);
}

#[test]
fn a_skill_over_the_budget_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir,
        "long/SKILL.md",
        &format!("{}{}", skill("long", "d"), "word ".repeat(2_000)),
    );
    let (_, warnings) = open(&dir);
    assert!(
        warnings[0]
            .to_string()
            .contains("skills.budget_tokens is 1500"),
        "{warnings:?}"
    );
}

#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "good/SKILL.md", &skill("good", "d"));
    for name in ["pipe", "endless", "_default"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let pipe = dir.path().join("pipe/SKILL.md");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for link in ["endless/SKILL.md", "_default/WISHES.md"] {
        std::os::unix::fs::symlink("/dev/zero", dir.path().join(link)).unwrap();
    }
    let (library, warnings) = open(&dir);
    let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let root = dir.path().to_string_lossy().into_owned();
    insta::assert_snapshot!(said.join("\n").replace(&root, "SKILLS"), @r#"
    SKILLS/_default/WISHES.md: cannot be read: it is no regular file; skipped
    SKILLS/endless/SKILL.md: cannot be read: it is no regular file; skipped
    SKILLS/pipe/SKILL.md: cannot be read: it is no regular file; skipped
    "#);
    assert_eq!(names(&library, "main"), ["good"]);
    assert!(library.add_wish(&AgentId::default_agent(), "x").is_err());
}

#[test]
fn agents_see_their_own_and_everyones_in_one_index() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "mail/SKILL.md", &skill("mail", "Drafting an email"));
    write(
        &dir,
        "a/mail/SKILL.md",
        &skill("mail", "Drafting an email for a"),
    );
    write(
        &dir,
        "a/secret/SKILL.md",
        &skill("secret", "Drafting an email in cipher"),
    );
    write(&dir, "b/WISHES.md", "- Be brief.\n");
    let (library, _) = open(&dir);
    let found = |agent: &str| {
        let lessons = library.lessons(&agent.parse().unwrap(), "draft an email");
        let mut found: Vec<(String, String)> = lessons
            .skills
            .into_iter()
            .map(|skill| (skill.name.to_string(), skill.version))
            .collect();
        found.sort();
        found
    };
    let names = |found: &[(String, String)]| {
        found
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&found("a")), ["mail", "secret"]);
    assert_eq!(names(&found("b")), ["mail"]);
    assert_ne!(
        found("a")[0],
        found("b")[0],
        "its own stands in for everyone's"
    );
    assert_eq!(found("b"), found("c"));
}

#[test]
fn what_weights_do_untold_is_left_out_where_they_answer() {
    let dir = tempfile::tempdir().unwrap();
    let agent = AgentId::default_agent();
    let (library, _) = open(&dir);
    for wish in ["Be brief.", "In French."] {
        library.add_wish(&agent, wish).unwrap();
    }
    let all = library.lessons(&agent, "hi");
    let ids = all.wish_ids.clone();
    assert_eq!(library.lessons_for(&agent, "hi", Some("a1")), all);
    library.set_untold("a1", ids[..1].iter().cloned());
    let lessons = library.lessons_for(&agent, "hi", Some("a1"));
    assert_eq!(lessons.where_answers(Some("a1")).wish_ids, ids[1..]);
    for other in [None, Some("a2")] {
        assert_eq!(lessons.where_answers(other).wish_ids, ids);
        let lessons = library.lessons_for(&agent, "hi", other);
        assert_eq!(lessons.where_answers(other), &all);
    }
    library.set_untold("a1", ids);
    let lessons = library.lessons_for(&agent, "hi", Some("a1"));
    let of_a1 = lessons.where_answers(Some("a1"));
    assert_eq!(*of_a1, Lessons::default(), "nothing is left to be said");
}

const WRITES: u64 = 25;

/// Two libraries know no more of each other than two processes do.
#[test]
fn two_writers_lose_nothing_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let agent: AgentId = "main".parse().unwrap();
    let write = |who: &str| {
        let (library, _) = open(&dir);
        for n in 0..WRITES {
            let wish = format!("Mention {who}{n}.");
            let lesson = library.write_down(&agent, &wish, n).unwrap();
            assert!(lesson.is_some());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write("a"));
        scope.spawn(|| write("b"));
    });
    let (library, _) = open(&dir);
    let lessons = library.journal().unwrap();
    let numbers: Vec<u64> = lessons.iter().map(|lesson| lesson.n).collect();
    assert_eq!(numbers, (1..=2 * WRITES).collect::<Vec<_>>());
    let mut learned: Vec<_> = lessons.into_iter().map(|lesson| lesson.wish).collect();
    let standing = library.own_wishes(&agent).into_iter();
    let mut standing: Vec<_> = standing.map(|standing| standing.text).collect();
    learned.sort();
    standing.sort();
    assert_eq!(standing, learned);
}

#[test]
fn who_asks_what_was_learned_is_told_how_to_look() {
    let dir = tempfile::tempdir().unwrap();
    crate::bank::install(dir.path()).unwrap();
    let (library, _) = open(&dir);
    let finds = |text: &str| {
        let lessons = library.lessons(&AgentId::default_agent(), text);
        lessons
            .skills
            .iter()
            .any(|skill| skill.name.as_str() == "metaclaw")
    };
    for text in [
        "What have you learned about me?",
        "so what did you learn from me this week",
        "Forget that.",
        "undo that last lesson please",
        "which of my wishes are in force?",
        "delete that wish about emojis",
        "你从我这里学到了什么？",
        "你都记住了我什么偏好",
        "忘掉刚才那条",
        "把这条撤销：撤销这条要求",
    ] {
        assert!(finds(text), "{text}");
    }
    for text in [
        "Hello!",
        "I forgot my password",
        "I want to learn about lifetimes in Rust",
        "What is the capital of France?",
        "写一首关于雨的诗",
        "我忘了带伞",
    ] {
        assert!(!finds(text), "{text}");
    }
}

/// Whose wishes a message may express, by who sent it and by who counts as the owner.
#[test]
fn the_owner_is_who_has_the_agents_own_chat_or_is_named_as_owner() {
    let agent = AgentId::default_agent();
    let holder = |owners: &[&str], message: &str| {
        let dir = tempfile::tempdir().unwrap();
        let wishes = WishesConfig {
            owners: owners.iter().map(|owner| (*owner).to_owned()).collect(),
            ..WishesConfig::default()
        };
        let (library, _) = Library::open(dir.path(), SkillsConfig::default(), wishes);
        let said = metaclaw_chat::Utterance::parse(message);
        let holder = library.holder(&agent, &said);
        holder.map(|holder| holder.sender.map(ToString::to_string))
    };
    let message = |group: bool, sender: &str| {
        let group = if group {
            "\"is_group_chat\": true, "
        } else {
            ""
        };
        format!(
            "Conversation info: ⟦openclaw:ctx⟧\n```json\n{{{group}\"sender\": {{{sender}}}}}\n```\n\nBe brief."
        )
    };
    let (mine, anns) = (r#""id": "1""#, r#""id": "100""#);
    let (owner, ann) = (Some(None), Some(Some("100".to_owned())));
    for (owners, text, expected) in [
        (&[][..], "Be brief.".to_owned(), owner.clone()),
        (&[][..], message(false, anns), owner.clone()),
        (&[][..], message(true, anns), ann.clone()),
        (&[][..], message(true, ""), None),
        (&["1"][..], "Be brief.".to_owned(), owner.clone()),
        (&["1"][..], message(false, anns), ann.clone()),
        (&["1"][..], message(true, mine), owner.clone()),
        (&["1"][..], message(false, mine), owner),
        (&["1"][..], message(true, anns), ann),
    ] {
        assert_eq!(holder(owners, &text), expected, "{owners:?} {text}");
    }
}
