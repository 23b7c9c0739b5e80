//! Finds the texts in an agent's package that look like a program's messages to a model: titles, compactions, reviews,
//! sub-agents, system texts.
//!
//! A text counts if it begins as instructions do ("You are ..", "Your task ..") or with a verb or a phrase of such
//! errands ("Summarize ..", "The messages above ..") and then mentions a conversation, a reply or a memory. Some of
//! these texts are shown to people, or describe a tool; a list says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::LazyLock,
};

use regex::bytes::Regex;

/// Shorter texts contain too little to decide.
const SHORTEST: usize = 30;
/// The number of a text's characters that are examined.
const LONGEST: usize = 600;
/// The first part of them, which must mention what errands are about.
const HEAD: usize = 300;

/// How a file contains texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In quotation marks: JavaScript, also inside a program that contains its scripts.
    Script,
    /// In quotation marks, and in three of them for documentation.
    Python,
    /// One after the other, without a separator: a compiled program.
    Compiled,
}

/// The class of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// An errand that its words in a user's message identify.
    SideUser,
    /// An errand that its system text identifies.
    SideSystem,
    /// An errand or a sub-agent's text that other marks identify: headers, the form of its request.
    SideMark,
    /// The system text of a conversation with the owner.
    Owner,
    /// Not the beginning of a request: a part of a longer text, a tool's description, a text for people.
    Other,
}

/// One line of a list of known texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub class: Class,
    pub words: String,
}

/// A beginning that is an instruction whatever follows it.
static TOLD: LazyLock<Regex> = LazyLock::new(|| {
    let verbs = "choose|classify|compare|condense|decide|extract|generate|have been|judge|label|maintain|review|rewrite|run|select|summarize|write";
    regex(&format!(
        r"^(?:You(?:'re writing| are| will be given| (?:{verbs})) |Your (?:\w+ )?(?:task|job|role|goal)\b|Act as )"
    ))
});
/// The places at which an instruction may begin.
static BEGINNING: LazyLock<Regex> = LazyLock::new(|| {
    let verbs = "Analy[sz]e|Answer|Classify|Compress|Consolidate|Continue|Create|Decide|Describe|Determine|Distill|Evaluate|Extract|Follow|Generate|Given|Judge|Merge|Name|Output|Please|Produce|Provide|Rate|Reply|Respond|Return|Review|Rewrite|Suggest|Summari[sz]e|Update|Write";
    let phrases = r"Another language model|Based on|CRITICAL|Here is the|Pre-compaction|Read HEARTBEAT|Run the following|Session was|Skill review|The (?:conversation|following is|messages|previous|transcript|user stepped)|This is the (?:PREFIX|conversation)|An? (?:async|background|completed|new session|scheduled)|\[[A-Z]+ MODE|Act as|Your?";
    regex(&format!(r"(?:{verbs}|{phrases})\b"))
});
/// What errands are about.
static ERRAND: LazyLock<Regex> = LazyLock::new(|| {
    let subjects = [
        r"(?:this|the|above|previous|your own|agent) (?:\w+ ){0,3}(?:conversation|transcript|chat|dialogue|rollout|trajectory|session)\b",
        r"(?:conversation|transcript|messages|session|diff|input|context|turns?)s? (?:above|below|so far|history)",
        r"conversation (?:between|turns)",
        r"(?:session|thread|conversation|chat|descriptive|short|concise|brief|issue) (?:title|name|summary|label|\w+ label)",
        r"(?:structured|detailed|anchored|concise|handoff|cohesive) summary",
        r"summari[sz](?:e|ing) (?:the|this|what)",
        r"(?:reply|respond|answer|output|return)s?,? (?:only|with|exactly|strict|json|valid|text)",
        r"NO_REPLY|do not (?:call|use) (?:any )?tools?|memory|user-visible|periodic tasks|triggered|heartbeat",
        r"the reply|the user might|in under \d+ words|Claude Code usage|in \d+-\d+ (?:words|sentences)",
    ];
    regex(&format!("(?i){}", subjects.join("|")))
});
/// The beginnings with a verb for compiled programs, because without quotation marks most of the others would be the
/// ends of other texts.
static OF_COMPILED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        "^(?:Analyze|Another language model|Generate|Review the|Summarize|The following is the|Write)\\b",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// Returns the texts of a file that look like prompts, with single blanks between their words.
pub fn prompts(content: &[u8], form: Form) -> BTreeSet<String> {
    let begins = BEGINNING.find_iter(content).map(|found| found.start());
    begins
        .filter_map(|at| prompt_at(content, at, form))
        .collect()
}

/// Returns those of a file, or of all files of a folder whose path `is_meant` accepts.
pub fn prompts_in(place: &Path, form: Form, is_meant: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut places = vec![place.to_owned()];
    while let Some(place) = places.pop() {
        if place.is_dir() {
            let entries = std::fs::read_dir(&place).expect("a readable package");
            places.extend(entries.map(|entry| entry.expect("readable").path()));
        } else if is_meant(&place) {
            let content = std::fs::read(&place).expect("a readable package");
            found.extend(prompts(&content, form));
        }
    }
    found
}

/// Returns the longest text of each that is not in the list, by its first words.
pub fn unknown<'t>(found: &'t BTreeSet<String>, known: &[Known]) -> BTreeMap<String, &'t str> {
    let is_known = |text: &str| known.iter().any(|it| text.starts_with(&it.words));
    let new = found.iter().filter(|text| !is_known(text));
    new.map(|text| (first_words(text), text.as_str())).collect()
}

/// Returns as many words as a line of a list has.
pub fn first_words(text: &str) -> String {
    const WIDTH: usize = 60;
    let mut words = String::new();
    for word in text.split(' ') {
        if !words.is_empty() {
            if words.chars().count() + word.chars().count() >= WIDTH {
                break;
            }
            words.push(' ');
        }
        words.push_str(word);
    }
    words
}

fn prompt_at(content: &[u8], at: usize, form: Form) -> Option<String> {
    let end = match form {
        Form::Script => End::of_quote(content, opening(content, at)?),
        Form::Python => End::of_python(content, opening(content, at)?)?,
        // In the middle of a sentence, a blank comes before it.
        Form::Compiled if at == 0 || content[at - 1] == b' ' => return None,
        Form::Compiled => End::Nowhere,
    };
    let text = text(&content[at..], end);
    let head = &text.as_bytes()[..text.len().min(HEAD)];
    // Other texts that begin with "You" address people, or are a part of a longer text.
    let is_errand = !head.starts_with(b"You")
        && ERRAND.is_match(head)
        && (form != Form::Compiled || OF_COMPILED.is_match(head));
    let reads_like_one = text.len() >= SHORTEST && (TOLD.is_match(head) || is_errand);
    reads_like_one.then_some(text)
}

/// Returns where a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Quote(u8),
    /// It ends at a quotation mark, and not at the end of a line.
    LongQuote(u8),
    Nowhere,
}

// === impl End ===

impl End {
    fn of_quote(content: &[u8], opening: usize) -> Self {
        match content[opening] {
            b'`' => Self::LongQuote(b'`'),
            quote => Self::Quote(quote),
        }
    }

    /// Returns `None` if the text is the documentation of its file.
    fn of_python(content: &[u8], opening: usize) -> Option<Self> {
        let quote = content[opening];
        let before = &content[..opening];
        let Some(before) = before.strip_suffix(&[quote, quote]) else {
            return Some(Self::Quote(quote));
        };
        let before =
            String::from_utf8_lossy(&before[before.len().saturating_sub(200)..]).into_owned();
        let before = before.trim_end_matches(['r', 'f', 'b', 'u']);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let last = before.trim_end().chars().last();
        let documents = line.trim().is_empty() && matches!(last, None | Some(':' | '"' | '\''));
        (!documents).then_some(Self::LongQuote(quote))
    }
}

/// Returns the quotation mark before a text, with only blanks and line ends between.
fn opening(content: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = at.checked_sub(1)?;
        match content[at] {
            b'"' | b'\'' | b'`' => return Some(at),
            b' ' | b'\n' | b'\t' | b'\r' => {}
            b'n' | b't' if at > 0 && content[at - 1] == b'\\' => at -= 1,
            _ => return None,
        }
    }
}

/// Returns a text up to its end, or to a value that the program inserts.
fn text(content: &[u8], end: End) -> String {
    let mut said = Vec::new();
    let mut rest = &content[..content.len().min(LONGEST)];
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, end) {
            (b'\\', End::Quote(_) | End::LongQuote(_)) => {
                let Some((&escaped, behind)) = rest.split_first() else {
                    break;
                };
                rest = behind;
                match escaped {
                    b'n' | b't' | b'r' => said.push(b' '),
                    // Returns a character by its number, which no list needs to distinguish texts.
                    b'u' => {
                        rest = rest.get(4..).unwrap_or_default();
                        said.push(b'?');
                    }
                    escaped => said.push(escaped),
                }
            }
            (b'\n', End::Quote(_)) | (0..=8, _) => break,
            (byte, End::Quote(quote) | End::LongQuote(quote)) if byte == quote => {
                // Python joins adjacent strings.
                match (end, next_of_python(rest, quote)) {
                    (End::Quote(_), Some(next)) => rest = next,
                    _ => break,
                }
            }
            (b'$', End::Quote(_) | End::LongQuote(_)) if rest.first() == Some(&b'{') => break,
            (byte, _) => said.push(byte),
        }
    }
    let said = String::from_utf8_lossy(&said);
    let said = said.trim_end_matches(char::REPLACEMENT_CHARACTER);
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the position after the quotation mark of a text on the next line, with no comma between.
fn next_of_python(rest: &[u8], quote: u8) -> Option<&[u8]> {
    let next = rest.trim_ascii_start();
    let next = next.strip_prefix(b"f").unwrap_or(next);
    let is_apart = rest.first() == Some(&b'\n');
    next.strip_prefix(&[quote]).filter(|_| is_apart)
}

// === impl Known ===

impl Known {
    /// Parses the lines of a list: a class of one or two words, a bar, the first words of a text.
    ///
    /// # Panics
    /// Panics if a line is invalid.
    pub fn parse(list: &str) -> Vec<Self> {
        let lines = list
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let known = |line: &str| {
            let (class, words) = line.split_once(" | ").unwrap_or_else(|| panic!("{line}"));
            let class = match class.trim() {
                "side user" => Class::SideUser,
                "side system" => Class::SideSystem,
                "side mark" => Class::SideMark,
                "owner" => Class::Owner,
                "other" => Class::Other,
                class => panic!("{class} is no class: {line}"),
            };
            Self {
                class,
                words: words.to_owned(),
            }
        };
        lines.map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content: &str, form: Form) -> Vec<String> {
        prompts(content.as_bytes(), form).into_iter().collect()
    }

    #[test]
    fn a_script_says_its_prompts_in_quotation_marks() {
        let script = r#"
            const A = "You are a poet who names conversations.\nReply with one line.";
            const B = `
              Summarize the conversation above for ${reader} in a line`;
            const C = "Summarize command output lines to stderr";
            const D = "the message says: You are a poet who names conversations";
            const E = 'You are late';
        "#;
        let expected = [
            "Summarize the conversation above for",
            "You are a poet who names conversations. Reply with one line.",
        ];
        assert_eq!(found(script, Form::Script), expected);
    }

    #[test]
    fn an_instruction_is_known_by_its_verb() {
        let script = r#"ask("You judge poems by their length alone."); say("You judged poems by their length alone.")"#;
        let expected = ["You judge poems by their length alone."];
        assert_eq!(found(script, Form::Script), expected);
    }

    #[test]
    fn what_documents_python_is_no_prompt() {
        let python = r#"
def summary():
    """Summarize the conversation above in a line."""
    prompt = """You are a poet.
Summarize the conversation above in a line."""
    return ask("Review the conversation above "
        "and save to memory.", f"Session {name}")
"#;
        let expected = [
            "Review the conversation above and save to memory.",
            "You are a poet. Summarize the conversation above in a line.",
        ];
        assert_eq!(found(python, Form::Python), expected);
    }

    #[test]
    fn a_compiled_program_has_them_side_by_side() {
        let program =
            "no such fileYou are performing a handoff for another model.\nWrite. You are in it\0";
        let expected = ["You are performing a handoff for another model. Write. You are in it"];
        assert_eq!(found(program, Form::Compiled), expected);
    }

    #[test]
    fn a_made_up_prompt_is_not_known() {
        let known =
            Known::parse("# Theirs.\nside user | You are a poet who\nother | Write to memory\n");
        let script = r#"say("You are a poet who names conversations."); say("You are a critic who judges this conversation.")"#;
        let found = prompts(script.as_bytes(), Form::Script);
        let unknown: Vec<_> = unknown(&found, &known).into_keys().collect();
        assert_eq!(unknown, ["You are a critic who judges this conversation."]);
    }
}
