//! Extracts the sentences that are the owner's own. Quoted, pasted or forwarded text is covered.

use std::{collections::HashSet, sync::LazyLock};

use regex::{Match, Regex};

use super::{
    covered::{COVER, is_end, is_wide, mask_with, middle, plain},
    lexicon::{VOICES, voice},
};
use crate::words::pattern;

/// A message that is wider than this, or has more lines, may contain unmarked pasted text.
const TYPED_WIDTH: usize = 240;
const TYPED_LINES: usize = 2;
/// Number of sentences at each end of a message that are read. The middle of a longer one is treated as material.
const AT_EACH_END: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentence<'t> {
    pub(super) text: &'t str,
    pub(super) covered: String,
    pub(super) masked: String,
    /// Position in `covered` at which a text to be processed begins: "Translate this: ..".
    pub(super) hands_over: Option<usize>,
    pub(super) voice: Voice,
    /// Whether the message asks for a text or an action, to which other sentences then usually refer.
    pub(super) task: Task,
    /// Whether the next sentence says that it applies from now on.
    pub(super) holds: bool,
    pub(super) is_in_long: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    Owner,
    /// The owner's request about a text, and this text: "Translate this: ..".
    ForWork,
    /// Somebody else's words, which the owner reports.
    Reported,
    /// A part of a text that is to be processed.
    HandedOver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Nowhere,
    Beside,
    Here,
}

/// Words that introduce a text to be processed. The text after the colon is the subject of the request. "This note: .."
/// introduces one, and "Note: .." is a remark of the owner.
static HANDED_OVER: LazyLock<Regex> = LazyLock::new(|| {
    let words = VOICES.list("hands_over").join("|");
    pattern(&format!(r"(?i)(?:{words})[^\n:：]{{0,60}}(?:：|:(?:\s|$))"))
});
/// Matches a request about a text, up to this text.
static FOR_WORK: LazyLock<Regex> = LazyLock::new(|| voice("for_work"));
/// Matches such a request that announces the owner's own wish: "Remember this: ..".
static OWN_WISH: LazyLock<Regex> = LazyLock::new(|| voice("own_wish"));
/// A line that ends with a colon introduces a text to be processed, unless it mentions the owner's own rules.
static ANNOUNCES_OWN: LazyLock<Regex> = LazyLock::new(|| voice("announces_own"));
/// Matches words of somebody else, or of a requested text.
static REPORTED: LazyLock<Regex> = LazyLock::new(|| voice("reported"));
/// Matches a remark that the following text is somebody else's.
static PASTED: LazyLock<Regex> = LazyLock::new(|| voice("pasted"));
static TASK: LazyLock<Regex> = LazyLock::new(|| voice("task"));

/// Labels that are a person's own. Each other one names somebody who speaks.
static OWN_LABELS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let lines = include_str!("../../data/own_labels.txt").lines();
    let words = lines.filter(|line| !line.starts_with('#'));
    words.flat_map(str::split_whitespace).collect()
});

/// Returns whether a sentence begins with the name of somebody who speaks: a capitalised word or two before a colon.
fn names_a_speaker(sentence: &str) -> bool {
    let is_marked = sentence.starts_with(['*', '_']);
    let sentence = sentence.replace(['*', '_'], "");
    let Some((label, _)) = sentence.split_once(": ") else {
        return false;
    };
    let is_name = |word: &str| {
        let is_capitalised = is_marked || word.starts_with(char::is_uppercase);
        let is_plural = word.ends_with('s');
        is_capitalised && !is_plural && word.chars().skip(1).all(char::is_lowercase)
    };
    // "Ann (+100): .."
    let name = label.split(['(', '[', '<']).next().unwrap_or(label);
    let words: Vec<&str> = name.trim_end().split(' ').collect();
    words.len() <= 2
        && name.chars().count() > 2
        && words.iter().all(|word| is_name(word))
        && !words
            .iter()
            .any(|word| OWN_LABELS.contains(&*word.to_lowercase()))
}

pub(super) fn sentences(text: &str) -> Vec<Sentence<'_>> {
    let plain = plain(text);
    let n_lines = plain.lines().filter(|line| !line.trim().is_empty()).count();
    // Text after a blank line is often pasted.
    let has_gap = plain.trim().lines().any(|line| line.trim().is_empty());
    let is_in_long = width(text) > TYPED_WIDTH || n_lines > TYPED_LINES || has_gap;
    let masked = mask_with(&plain, |_| true);
    debug_assert_eq!(masked.len(), text.len());
    let mut found = Vec::new();
    let (head_end, tail_start) = middle(&plain);
    let mut is_handed_over =
        PASTED.is_match(&plain[..head_end]) || PASTED.is_match(&plain[tail_start..]);
    for (from, to) in spans(&masked) {
        let original = text[from..to].trim();
        let covered = masked[from..to].trim();
        let said = covered.trim_matches(|c: char| c == COVER || c.is_whitespace());
        if said.is_empty() {
            continue;
        }
        is_handed_over |= names_a_speaker(covered);
        let was_handed_over = is_handed_over;
        let line = masked[from..to].trim_start();
        let is_for_work = |found: &Match<'_>| !OWN_WISH.is_match(&line[..found.end()]);
        let for_work = FOR_WORK.find(line).filter(is_for_work);
        let voice = if was_handed_over {
            Voice::HandedOver
        } else if for_work.is_some() {
            Voice::ForWork
        } else if REPORTED.is_match(covered) {
            Voice::Reported
        } else {
            Voice::Owner
        };
        let text_after = for_work.or_else(|| HANDED_OVER.find(covered));
        let hands_over = text_after.map(|found| found.end().min(covered.len()));
        let announces = masked[from..to].ends_with('\n')
            && covered.ends_with([':', '：'])
            && !ANNOUNCES_OWN.is_match(covered);
        is_handed_over |= hands_over.is_some() || announces;
        found.push(Sentence {
            text: original,
            covered: covered.to_owned(),
            masked: covered.to_lowercase(),
            hands_over,
            voice,
            task: if TASK.is_match(covered) {
                Task::Here
            } else {
                Task::Nowhere
            },
            holds: false,
            is_in_long,
        });
    }
    if found.iter().any(|sentence| sentence.task == Task::Here) {
        let others = found.iter_mut().filter(|s| s.task == Task::Nowhere);
        others.for_each(|other| other.task = Task::Beside);
    }
    if found.len() > 2 * AT_EACH_END {
        found.drain(AT_EACH_END..found.len() - AT_EACH_END);
    }
    found
}

pub(super) fn is_chinese(text: &str) -> bool {
    text.chars().any(is_wide)
}

/// Returns the approximate length of a text for its reader: a Chinese character counts as two letters.
fn width(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

fn spans(masked: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut from = 0;
    let mut chars = masked.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|next| next.1);
        let ends = match c {
            '\n' => true,
            c if is_end(c) && c != '.' => !next.is_some_and(|next| {
                matches!(next, '!' | '?' | '！' | '？' | '。' | '…' | ')' | '）')
            }),
            '.' => {
                next.is_none_or(|next| next.is_whitespace() || next == '.')
                    && !is_abbreviation(&masked[from..at])
            }
            _ => false,
        };
        if ends {
            let to = at + c.len_utf8();
            spans.push((from, to));
            from = to;
        }
    }
    spans.push((from, masked.len()));
    spans
}

/// Returns whether a full stop belongs to an abbreviation: "e.g.", "Mr.", "1.".
fn is_abbreviation(before: &str) -> bool {
    let word = before
        .rsplit(|c: char| c.is_whitespace() || c == '(')
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let numbers_a_line = !word.is_empty()
        && word.len() <= 2
        && word.chars().all(|c| c.is_ascii_digit())
        && before
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .lines()
            .last()
            .is_none_or(|line| line.trim().is_empty());
    numbers_a_line
        || matches!(
            word.as_str(),
            "e.g" | "i.e" | "mr" | "mrs" | "ms" | "dr" | "vs" | "approx"
        )
}

#[cfg(test)]
mod tests {
    use super::{
        super::covered::{MOST_READ, code, quotations},
        *,
    };

    fn texts(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|s| s.text).collect()
    }

    #[test]
    fn sentences_end_where_they_end() {
        assert_eq!(
            texts("Too long! Keep it short, e.g. one line. Thanks\n太长了。简短点！"),
            [
                "Too long!",
                "Keep it short, e.g. one line.",
                "Thanks",
                "太长了。",
                "简短点！"
            ]
        );
    }

    #[test]
    fn foreign_words_are_covered_and_places_stay() {
        let text = "Start with \"Hello!\" please. Or not";
        let sentence = &sentences(text)[0];
        assert_eq!(sentence.text, "Start with \"Hello!\" please.");
        assert!(sentence.masked.contains("hello"), "{}", sentence.masked);
        for text in [
            "```\nalways answer in one sentence\n```",
            "> always answer in one sentence",
            "“always answer in one sentence”",
            "Fwd: news\nalways answer in one sentence",
            "From: a@example.com\nAlways answer in one sentence",
            // Labels of sources, as DeepSeek's prompts and others have them.
            "[webpage 1 begin]\nalways rhyme\n[webpage 1 end]",
            "What is it?\n[file content begin]\nalways rhyme",
            "[END CONTEXT 0]\nalways rhyme",
            "[passage 3]\nalways rhyme",
            "【网页 2】\nalways rhyme",
            "[来源: a.md]\nalways rhyme",
            // Chats, as they are copied from Slack, Discord, QQ, Telegram, Teams, DingTalk and Google Chat.
            "#general\nbob [8:41 AM]\nalways rhyme",
            "kim — Today at 08:13\nalways rhyme\n^ what is this",
            "Ann Lee • Yesterday at 8:13 PM\nalways rhyme",
            "小王 2026/11/28 08:01:12\nalways rhyme",
            "Bob, [28.11.2026 08:01]\nalways rhyme",
            "Bob Hill 11/28/2026 8:01 AM\nalways rhyme",
            "张三 11月28日 08:01\nalways rhyme",
            "Bob, 8:01 AM\nalways rhyme",
            "Ann 8:01 AM\nalways rhyme",
            "小王(12345) 2026-11-28 08:01:12\nalways rhyme",
            "张三 今天 08:01\nalways rhyme",
            "[Yesterday 8:01 AM] Bob Hill\nalways rhyme",
            "Bob Hill, Yesterday 8:01 AM, Edited\nalways rhyme",
            "[Bob] [오전 8:01] always rhyme",
            "[1] always rhyme",
            "(source: a.md) always rhyme",
            "Source 1 (a.md): always rhyme",
            "参考资料1：always rhyme",
            // Code without a fence.
            "print(f'always rhyme')",
            "MSG=always rhyme",
            "-- always rhyme",
            "INSERT INTO msgs VALUES (1,'always rhyme'),(2,'always sing');\nwhy?",
            "insert into msgs values\n(1, null, 'a'), always rhyme",
            "SELECT wish FROM msgs -- always rhyme",
            "what is f(a,'always rhyme, please')?",
            "text='always rhyme, please' fails",
            "is ['always rhyme, please','b'] a list?",
            "# always use bun instead of node\nalias n=bun",
        ] {
            let masked: Vec<String> = sentences(text).into_iter().map(|s| s.masked).collect();
            assert!(!masked.concat().contains("always"), "{text}: {masked:?}");
        }
    }

    #[test]
    fn what_is_handed_over_or_reported_is_told() {
        let reported = |text: &str| {
            let sentence = sentences(text).pop();
            sentence.is_none_or(|s| s.voice != Voice::Owner || s.task == Task::Here)
        };
        assert!(reported("Translate this into German:\nAlways be brief."));
        assert!(reported("My boss wrote always be brief."));
        assert!(reported("老师说以后都要用钢笔写。"));
        assert!(reported("帮我写一条规定：上班时间不要玩手机"));
        for text in [
            // Somebody who speaks.
            "Mum (+49170): from now on write in German.",
            "Ann (HR): always be brief.",
            "Bob Hill (bob@example.org): always be brief.",
            "Bob Hill [+49170]: always be brief.",
            "Bob Hill <bob@example.org>: always be brief.",
            // Texts for work.
            "Is this a good rule?\nAlways be brief.",
            "Is this message fine?\nAlways be brief.",
            "Translate to French\nAlways be brief.",
            "1) Always be brief.\n2) Always rhyme.\nWhich of these is better?",
            // Texts to choose from.
            "Which of these is the better prompt?\nA) Always be brief.\nB) Always rhyme.",
            "What do you think of this pair?\n1. Always be brief.\n2. Always rhyme.",
            "What is the difference?\n(a) Always be brief.\n(b) Always rhyme.",
            "哪个更好？\nA、以后回答简短点\nB、以后都用中文回答",
        ] {
            assert!(reported(text), "{text}");
        }
        for own in [
            "Style (important): always be brief.",
            "Note (for later): always be brief.",
            "Could you do this from now on?\n1. Be brief.\n2. Do not rhyme.",
            "I like the call at 8:30 better.\nAlways be brief.",
            "Remind me at 9:15\nAlways be brief.",
            "Wake me 7:30 am\nAlways be brief.",
            "提醒我 9:15\n以后回答简短点",
            "Call on Wednesday at 9:00\nAlways be brief.",
            "Monday standup 9:00\nAlways be brief.",
            "Use `x = ''` from now on.",
            "Always wrap names in <b>bold</b>.",
            "Use ``a`` and ``b``, always.",
            "Can you fix it?\nAlways be brief.",
            "What is this?\nAlways be brief.",
            "ok, then fix it\nalso, always be brief.",
            "See a.md:12 and fix it. Always be brief.",
            "Can you rewrite this paragraph? Always be brief.",
            "Could you check this sentence? Always be brief.",
            "Meet Ann on 2026-11-28 at 8:30.\nAlways be brief.",
        ] {
            assert!(!reported(own), "{own}");
        }
        assert!(!reported("Always be brief."));
        assert!(!reported("以后回答简短点"));
    }

    /// Each of these once cost the square of its length, or may tempt a rule to.
    #[test]
    fn the_work_grows_with_the_length_whatever_repeats() {
        let patterns = [
            "{\"a\":",
            "\"a\" ",
            "“",
            "“”",
            "' ",
            ",'a",
            "a — 1:00\n",
            "a [1:00 ",
            " 'a",
            "「『《",
            "\"a\n\n",
            "`",
            "> a\n`b` ",
            "```\n",
            "~~~\n`\n",
            "1. ",
            "e.g. ",
            "a.",
            "a:\n",
            "\n",
            "Re: ",
            "说：",
            "write a ",
            "<a>[x](y)",
            "[x](<!---->",
            " /* a",
            "``a''",
            "„“»",
            "’‚",
            "&lt;a&gt;",
            "\u{2028}",
            "a_b(",
            "a=",
            "**a:** ",
        ];
        for pattern in patterns {
            let text = pattern.repeat((1 << 18) / pattern.len());
            assert!(sentences(&text).len() <= 2 * AT_EACH_END, "{pattern:?}");
            assert!(quotations(&text).len() <= text.len(), "{pattern:?}");
            assert!(code(&text).len() <= text.len(), "{pattern:?}");
        }
    }

    #[test]
    fn of_a_long_text_its_ends_are_read() {
        let line = "the quick brown fox jumps over the lazy dog\n";
        let long = |middle: &str| {
            let half = line.repeat(MOST_READ / line.len());
            format!("Always be brief.\n{half}{middle}{half}Always be kind.")
        };
        for (middle, kept) in [
            ("Always be rude.\n", [true, true]),
            ("", [true, true]),
            // What begins in the middle goes on to the end.
            ("```\n", [true, false]),
            ("From: somebody\n", [true, false]),
        ] {
            let text = long(middle);
            let found = texts(&text);
            let has = ["Always be brief.", "Always be kind."].map(|text| found.contains(&text));
            assert_eq!(has, kept, "{middle:?}");
            assert!(!found.contains(&"Always be rude."));
        }
        // A line that is cut is left out.
        let one = "Always be brief. ".repeat(MOST_READ);
        assert!(texts(&one).is_empty());
    }
}
