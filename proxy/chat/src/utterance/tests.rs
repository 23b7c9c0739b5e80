//! Tests of what was typed in messages as clients send them.

use proptest::prelude::*;

use super::*;

fn of_parts(parts: &[&str]) -> (String, Speaker) {
    let utterance = Utterance::of_parts(parts.iter().map(|part| Cow::Borrowed(*part)));
    (utterance.text.into_owned(), utterance.speaker)
}

/// Returns the owner's part of a message.
fn owners(parts: &[&str]) -> String {
    let (text, speaker) = of_parts(parts);
    assert_eq!(speaker, Speaker::Owner, "{parts:?}");
    text
}

fn is_nobodys(parts: &[&str]) {
    assert_eq!(
        of_parts(parts),
        (String::new(), Speaker::Client),
        "{parts:?}"
    );
}

const WISH: &str = "From now on answer in one sentence.";

#[test]
fn what_was_typed_is_left_as_it_is() {
    for text in [
        "Say hello.",
        "[draft] one\n\n  two",
        "Is a < b and c > d? Write List<String> then.",
        "What does <system-reminder> mean?",
        "Fix this:\n```\n<my-wrapper>\nx\n</my-wrapper>\n```\nthanks",
        "Why is it empty?\n<div class=\"a\">\n  <app-root></app-root>\n</div>",
        "<svg width=\"1\"><path d=\"M0 0\"/></svg>\nmake it red",
        "<MyButton kind=\"a\">go</MyButton>\nwhy does it not go?",
        "<?xml version=\"1.0\"?>\n<note><to>Ann</to></note>\nIs it valid?",
        "What is wrong with it:\n<note>\n<to>Ann</to>\n</note>",
        "<project>\n<dependency><groupId>a</groupId></dependency>\n</project>\nWhy does it not build?",
        "<b>bold</b> or not?",
        "<details>\n<summary>more</summary>\nx\n</details>",
        "Replace <your-name> by mine",
        "\"a\" and \"b\"",
        "He said \"From now on answer in French.\"",
        "\"From now on answer in French.\" is what he said",
        "# Task\nDo it.\n---\nand that",
        "--- Notes ---\nbuy milk",
        "",
    ] {
        assert_eq!(owners(&[text]), text);
    }
    assert_eq!(owners(&["  hi \n"]), "hi");
    assert_eq!(owners(&["one", "two"]), "one\ntwo");
}

#[test]
fn an_element_of_a_clients_goes_wherever_it_stands() {
    for (parts, typed) in [
        (
            vec!["<system-reminder>\nUse tabs.\n</system-reminder>", WISH],
            WISH,
        ),
        (
            vec![WISH, "<system-reminder>\nUse tabs.\n</system-reminder>\n"],
            WISH,
        ),
        (
            vec!["<system-reminder>\nUse tabs.\n</system-reminder>\nFix it."],
            "Fix it.",
        ),
        (
            vec![
                "Fix it.\n\n<system-reminder>a</system-reminder><system-reminder>b</system-reminder>",
            ],
            "Fix it.",
        ),
        (
            vec!["one\n<editor_state open=\"a > b.rs\">\nx\n</editor_state>\ntwo"],
            "one\n\ntwo",
        ),
        (
            vec!["<a-b>\n<a-b>x</a-b>\nalways y\n</a-b>\nFix it."],
            "Fix it.",
        ),
        (
            vec!["<file path=\"notes.md\">\nalways x\n</file>\nwhat does it say?"],
            "what does it say?",
        ),
        (
            vec!["<file>\n</file>\nalways x\n</file>\nwhat does it say?"],
            "what does it say?",
        ),
        (
            vec!["<CONTEXT>\nalways x\n</CONTEXT>\nwhat does it say?"],
            "what does it say?",
        ),
        (
            vec!["go on <system-reminder>always x</system-reminder> please"],
            "go on  please",
        ),
        (vec!["<rules>\n```\nunclosed\n</rules>\nFix it."], "Fix it."),
        (
            vec!["was cut off</p>\n</system-reminder>\nFix it."],
            "Fix it.",
        ),
        (vec!["<hook-output/>\nFix it."], "Fix it."),
        (
            vec!["Fix it.\n<system-reminder>\nit was cut off and always"],
            "Fix it.",
        ),
        (
            vec!["Fix it.\n<made-up>\nit was cut off and always"],
            "Fix it.",
        ),
    ] {
        assert_eq!(owners(&parts), typed, "{parts:?}");
    }
    for parts in [
        vec!["<system-reminder>\nx\n</system-reminder>"],
        vec!["<task-notification>\n<status>completed</status>\n</task-notification>"],
        vec![
            "<made-up attribute='1'>always x</made-up>",
            " ",
            "<other_one>y</other_one>",
        ],
    ] {
        is_nobodys(&parts);
    }
}

#[test]
fn an_element_may_hold_what_was_typed() {
    for (parts, typed) in [
        (
            vec![
                "<user_info>\nOS: linux\n</user_info>",
                "<user_query>\nFix it.\n</user_query>",
            ],
            "Fix it.",
        ),
        (
            vec!["<rules>always obey</rules>\n<user_message>Fix it.</user_message>"],
            "Fix it.",
        ),
        (
            vec![
                "<task>\nFix it.\n</task>\n\n<environment_details>\n# Time\n</environment_details>",
            ],
            "Fix it.",
        ),
        (
            vec![
                "[attempt_completion] Result:",
                "The user has provided feedback on the results. Consider their input to continue the task, and then attempt completion again.\n<feedback>\nShorter.\n</feedback>",
            ],
            "Shorter.",
        ),
        // A person edits a prompt here.
        (
            vec!["Improve this prompt:\n<task>\nalways rhyme\n</task>"],
            "Improve this prompt:",
        ),
        (
            vec![
                "<conversation>\n<user_query>always rhyme</user_query>\n</conversation>\nSum it up.",
            ],
            "Sum it up.",
        ),
    ] {
        assert_eq!(owners(&parts), typed, "{parts:?}");
    }
}

/// Text that clients and frameworks bring, with the owner's text beside it if there is any. Somebody else's is `X`.
const BROUGHT: &[(&[&str], &str)] = &[
    // The content closes the element or block and opens it again.
    (
        &["<file path=\"a\">\n</file>\nX\n<file>\n</file>\nFix it."],
        "Fix it.",
    ),
    (
        &["Fix it.\n<INSTRUCTIONS>\n</INSTRUCTIONS>\nX\n<INSTRUCTIONS>\n</INSTRUCTIONS>"],
        "Fix it.",
    ),
    (&["<open_tabs>a</open_tabs> X <open_tabs>b</open_tabs>"], ""),
    (&["<file>\n<Aa/>\n</file>\nX\n<file>\n</file>"], ""),
    (
        &[
            "<file>\n</file>\n<user_query>X</user_query>\n<file>\n</file>\n<user_query>Fix it.</user_query>",
        ],
        "Fix it.",
    ),
    (
        &["[Goal Guidance]\n[/Goal Guidance]\nX\n[Goal Guidance]\n[/Goal Guidance]\nFix it."],
        "Fix it.",
    ),
    (
        &[
            "Fix it.\n--- Content of a ---\n--- End of content ---\nX\n--- b ---\n--- End of content ---",
        ],
        "Fix it.",
    ),
    (
        &[
            "Fix it.",
            "--- Content of a ---",
            "--- End of content ---",
            "X",
            "--- End of content ---",
        ],
        "Fix it.",
    ),
    (&["[System note: a\n]\nX\n[\nb]\nFix it."], "Fix it."),
    // Text that brings an element which holds what was typed.
    (&["A page.\n<user_query>\nX\n</user_query>\nIts end."], ""),
    (&["A page. <user_query>X</user_query>"], "A page."),
    (&["A page.", "<user_query>X</user_query>"], ""),
    (
        &["<user_query>X</user_query>\n<user_query>Fix it.</user_query>"],
        "",
    ),
    (&["<user_query>X</user_query>", "<task>Fix it.</task>"], ""),
    (&["<task>X</task>\n<task>Fix it.</task>"], ""),
    (&["[read_file for 'a'] Result:\n<task>\nX\n</task>"], ""),
    (&["[read_file for 'a'] Result:\nX"], ""),
    (
        &[
            "[read_file for 'a'] Result:",
            "The user has provided feedback on the results.\n<feedback>X</feedback>",
        ],
        "",
    ),
    (
        &["A page.\n<command-name>/a</command-name>\n<command-args>X</command-args>"],
        "A page.",
    ),
    (
        &[
            "A page.",
            "<command-name>/a</command-name>\n<command-args>X</command-args>",
        ],
        "A page.",
    ),
    (
        &[
            "A page.\n<system-reminder>\nThe user sent a new message while you were working:\nX\n</system-reminder>",
        ],
        "A page.",
    ),
    // Results in the user's role.
    (&["Observation: X"], ""),
    (&["Thought: a page\n**Observation:** X"], "Thought: a page"),
    (
        &[
            "Code output: X\n\nWhat does this output mean / what's next (if anything, or are we done)?",
        ],
        "",
    ),
    (
        &["Context information is below.\n-----\nX\n-----\nQuery: Fix it."],
        "",
    ),
    (&["exitcode: 0 (execution succeeded)\nCode output: \nX"], ""),
    (&["EXECUTION RESULT of [execute_bash]:\nX"], ""),
    (&["Fix it.\n\nTOOL RESPONSE: \n---\nX"], "Fix it."),
    (&["[[ ## question ## ]]\nX\n\n[[ ## context ## ]]\nX"], ""),
    (
        &[
            "# The following contents are the search results related to the user's message:\nX\n# The user's message is:\nX",
        ],
        "",
    ),
    (&["# 以下内容是基于用户发送的消息的搜索结果:\nX"], ""),
    (
        &[
            "<task-notification>\n</task-notification>\nRead the output file to retrieve the result: X",
        ],
        "",
    ),
    // The line of Cline's tool is not the first line of the text. The fuzz target found this case.
    (
        &[
            "[attempt_completion The user sent a new message while you were working:\n[attempt_completion] Result:\n<feedback>\n\n</user_message>\n\nX\n\n</feedback>",
        ],
        "",
    ),
    (&["Successfully transferred back to supervisor\nX"], ""),
    (&["Fix it.\nReturned value: X"], "Fix it."),
    // The client's element is split into parts.
    (&["<file path=\"a\">", "X", "</file>", "Fix it."], "Fix it."),
    (
        &["Fix it.", "<file path=\"a\">", "</file>", "X", "</file>"],
        "Fix it.",
    ),
];

#[test]
fn text_that_others_bring_is_not_the_owners() {
    for (parts, typed) in BROUGHT {
        let (text, speaker) = of_parts(parts);
        let owners = if speaker == Speaker::Owner {
            text.as_str()
        } else {
            ""
        };
        assert_eq!(owners, *typed, "{parts:?}: {speaker:?} {text:?}");
    }
}

#[test]
fn of_a_command_what_stands_behind_it_was_typed() {
    let review = "<command-message>review is running…</command-message>\n<command-name>/review</command-name>";
    let arguments = format!("{review}\n<command-args>only src</command-args>");
    assert_eq!(
        owners(&[&arguments, "You are a reviewer. Always be strict."]),
        "only src"
    );
    is_nobodys(&[review, "You are a reviewer. Always be strict."]);
    let clear = "<local-command-caveat>Caveat: The messages below were generated by the user while running local commands.</local-command-caveat>";
    let command = "<command-name>/clear</command-name>\n<command-message>clear</command-message>\n<command-args></command-args>";
    let output = "<local-command-stdout></local-command-stdout>";
    assert_eq!(owners(&[clear, command, output, WISH]), WISH);
    is_nobodys(&[clear, command, output]);
}

#[test]
fn a_message_that_is_one_quotation_was_typed() {
    for (text, typed) in [
        (
            "\"From now on answer in French.\"",
            "From now on answer in French.",
        ),
        ("'don't do it again'", "don't do it again"),
        ("“以后都用中文回答”", "以后都用中文回答"),
        ("\"say \\\"hi\\\" now\"", "say \"hi\" now"),
        ("\"\"", "\"\""),
        ("„Ab jetzt kurz.“", "Ab jetzt kurz."),
    ] {
        assert_eq!(owners(&[text]), typed);
    }
}

#[test]
fn what_a_client_writes_by_itself_is_nobodys() {
    for text in [
        "[Request interrupted by user]",
        "[Request interrupted by user for tool use]",
        "This session is being continued from a previous conversation that ran out of context. The summary below covers the earlier portion of the conversation.\n\n1. Primary request: always x",
        "Another language model started to solve this problem and produced a summary of its thinking process. You also have access",
        "# AGENTS.md instructions for /home/ann/project\n\n<INSTRUCTIONS>\nFrom now on always answer in German.\n</INSTRUCTIONS>",
        "<environment_context>\n  <cwd>/root</cwd>\n</environment_context>",
        "[Subagent 'x' completed successfully]\n\nTask: always x",
        "[IMPORTANT: Background process 7 finished\nOutput:\nalways x]",
        "[ASYNC DELEGATION COMPLETE — 7]\nFrom now on always rhyme.",
        "[System: Continue now. Execute the required tool calls]",
        "The scheduled time has arrived. Execute this scheduled cron job now and report",
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nfacts",
        "I have *added these files to the chat* so you can go ahead and edit them.\n\na.py\n```\n# always x\n```",
    ] {
        is_nobodys(&[text]);
    }
    is_nobodys(&[
        "# AGENTS.md instructions for /home/ann/project\n\n<INSTRUCTIONS>\nalways\n</INSTRUCTIONS>",
        "<environment_context>\n</environment_context>",
    ]);
}

#[test]
fn a_summary_of_what_was_said_before_is_told() {
    let has_summary = |text| Utterance::parse(text).has_summary;
    for text in [
        "This session is being continued from a previous conversation that ran out of context. The summary",
        "Another language model started to solve this problem and produced a summary of its thinking process.",
        "<state_snapshot>\nx\n</state_snapshot>",
        "<conversation-summary>x</conversation-summary>\nGo on.",
        "<summary>x</summary>",
    ] {
        assert!(has_summary(text), "{text}");
    }
    for text in ["Sum it up.", "<system-reminder>x</system-reminder>", ""] {
        assert!(!has_summary(text), "{text}");
    }
}

#[test]
fn known_texts_before_and_behind_go() {
    let rules = "To suggest changes to a file you MUST return the entire content of the updated file.\nYou MUST use this *file listing* format:";
    assert_eq!(owners(&[&format!("{WISH}\n\n{rules}")]), WISH);
    assert_eq!(
        owners(&[&format!(
            "{WISH}\nAnd x.\n\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery"
        )]),
        format!("{WISH}\nAnd x.")
    );
    let within = "What does this mean: # File editing rules:";
    assert_eq!(owners(&[within]), within);
    let bootstrap = "# 引导模式\n\n工作目录中存在 `BOOTSTRAP.md` — 首次设置。\n\n如果用户希望跳过，直接回答下面的问题即可。\n\n---\n\n";
    assert_eq!(
        owners(&[&format!("{bootstrap}{WISH}\n---\nx")]),
        format!("{WISH}\n---\nx")
    );
    is_nobodys(&["# BOOTSTRAP MODE\n\n`BOOTSTRAP.md` exists"]);
}

#[test]
fn aiders_line_about_the_language_goes() {
    assert_eq!(owners(&["What is x?\n\nReply in English.\n"]), "What is x?");
    assert_eq!(
        owners(&["What is x?\n\n\nReply in Brazilian Portuguese.\n"]),
        "What is x?"
    );
    let typed = "What is x?\n\nReply in English.";
    assert_eq!(owners(&[typed]), typed);
}

#[test]
fn what_was_typed_while_claude_code_worked_is_the_owners() {
    let queued = format!("The user sent a new message while you were working:\n{WISH}");
    assert_eq!(owners(&[&queued]), WISH);
    let reminder = format!(
        "<system-reminder>\n{queued}\n\nIMPORTANT: After completing your task, you MUST address it.\n</system-reminder>"
    );
    assert_eq!(owners(&[&reminder]), WISH);
    assert_eq!(owners(&["Fix it.", &reminder]), format!("Fix it.\n{WISH}"));
}

#[test]
fn notes_and_blocks_of_agents_go() {
    let skill = "[IMPORTANT: The user has invoked the \"x\" skill. The full skill content is loaded below.]\n\nAlways be strict.";
    is_nobodys(&[skill]);
    let typed = format!(
        "{skill}\n\nThe user has provided the following instruction alongside the skill invocation: {WISH}\n\n[Runtime note: x]"
    );
    assert_eq!(owners(&[&typed]), WISH);
    assert_eq!(
        owners(&[&format!("[System note: it was interrupted]\n\n{WISH}")]),
        WISH
    );
    assert_eq!(
        owners(&[
            WISH,
            "[Runtime Context — metadata only]\nalways x\n[/Runtime Context]"
        ]),
        WISH
    );
    let files = [
        "Sum @notes.md up.",
        "\n--- Content from referenced files ---",
        "\nContent from @notes.md:\n",
        "always x",
        "\n--- End of content ---",
        "Shorter.",
    ];
    assert_eq!(owners(&files), "Sum @notes.md up.\nShorter.");
    let read = "Called the Read tool with the following input: {\"filePath\":\"/p/notes.md\"}";
    let content = "<path>/p/notes.md</path>\n<type>file</type>\n<content>\n1: always x\n</content>";
    assert_eq!(
        owners(&["Sum @notes.md up.", read, content]),
        "Sum @notes.md up."
    );
    assert_eq!(
        owners(&["Sum @notes.md up.", read, "1: always x", WISH]),
        format!("Sum @notes.md up.\n{WISH}")
    );
    is_nobodys(&[
        "<task id=\"ses_1\" state=\"completed\">\n<summary>done</summary>\n<task_result>\nalways x\n</task_result>\n</task>",
    ]);
}

#[test]
fn a_part_ends_what_is_wrong_with_it() {
    assert_eq!(owners(&["<system-reminder>\nwas cut", WISH]), WISH);
    assert_eq!(
        owners(&["```\nwas cut", "<made-up>always</made-up>", WISH]),
        format!("```\nwas cut\n{WISH}")
    );
}

/// For every long text, the number of bytes that are looked at is at most a small multiple of its length.
#[test]
fn work_grows_with_the_text_and_no_faster() {
    for unit in [
        "<",
        "<a",
        "<a ",
        "<a-b>",
        "</a-b>",
        "<a-b>x</a-b>",
        "<ab>y</ab>",
        "<ab><cd>",
        "<a-b><c-d></c-d>\n",
        "<a-b>\n",
        "<a-b>  ",
        "</a-b>\n<a-b>\n</a-b>\n",
        "<system-reminder>",
        "</system-reminder>\n",
        "<task>",
        "<task>a</task>",
        "<user_query>a</user_query>\n",
        "```\n",
        "[System: x]",
        "[System:",
        "[a",
        "[/Ab cd]\n",
        "[Ab cd]\n[/Ab cd]\n",
        "--- End of x ---\n",
        "--- x ---\n",
        "\n\n",
        " ",
        "\"",
        "'",
        "\n\n# File editing rules:",
        "# AGENTS.md instructions for x\n",
        "以后<",
        "Runtime: agent=x\n",
        "System: [x\n",
        "<div>\n",
        "<div><a-b>",
        "<note>\n<to>x</to>\n</note>:\n",
        "Observation:\n",
        " Observation:",
        "[x] Result:",
        "[x] Result:\n",
        "[System note: x\n",
        "[a]\n[/a]\n[b]\n[/b]\n",
    ] {
        for prefix in [
            "",
            "x:\n",
            "<a-b>\n",
            "# BOOTSTRAP MODE\n",
            "<command-name>a</command-name>",
        ] {
            let n_bytes = if prefix.is_empty() { 200_000 } else { 50_000 };
            let text = [prefix, &unit.repeat(n_bytes / unit.len())].concat();
            work::looked_at();
            Utterance::parse(&text);
            let n = work::looked_at();
            assert!(
                n <= 32 * text.len(),
                "{prefix:?} and {unit:?}: {n} bytes were looked at"
            );
        }
    }
}

proptest! {
    /// For every input, nothing panics, and the result contains only text of the input.
    #[test]
    fn what_is_typed_stood_there(
        pieces in proptest::collection::vec(
            prop_oneof![
                "[<>/a-c \n\"'`’é-]{0,12}",
                Just("<a-b>".to_owned()), Just("</a-b>".to_owned()), Just("<task>".to_owned()), Just("</task>".to_owned()),
                Just("<system-reminder>".to_owned()), Just("</system-reminder>".to_owned()), Just("\n```\n".to_owned()),
                Just("<user_query>".to_owned()), Just("</user_query>".to_owned()), Just("\n".to_owned()),
                Just("<command-name>".to_owned()), Just("</command-name>".to_owned()), Just("以后".to_owned()),
                Just("\n---\n".to_owned()), Just("# BOOTSTRAP MODE".to_owned()), Just("\n\n# File editing rules:".to_owned()),
                Just("# AGENTS.md instructions for x\n".to_owned()),
            ],
            0..24,
        ),
        cut in 0..24usize,
    ) {
        let cut = cut.min(pieces.len());
        let parts = [pieces[..cut].concat(), pieces[cut..].concat()];
        let (text, speaker) = of_parts(&[&parts[0], &parts[1]]);
        let whole = parts.concat();
        let mut letters = whole.chars();
        let is_there = text.chars().filter(|c| *c != '\n').all(|c| letters.any(|it| it == c));
        prop_assert!(is_there, "{text:?} of {whole:?}");
        prop_assert!(speaker != Speaker::Client || text.is_empty());
    }
}
