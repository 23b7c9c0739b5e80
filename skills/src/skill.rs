//! One SKILL.md: its front matter and its text.

use std::{str::FromStr, sync::Arc};

use metaclaw_chat::{excerpt, one_line, text_name};
use serde::Deserialize;

const MAX_NAME: usize = 64;
const GENERAL: &str = "general";

/// A skill's name, which is also the name of its folder.
///
/// A name has 1 to 64 letters, digits, spaces, `_`, `-` or `.`, begins with a letter, a digit or `_` and does not end
/// in a space. So it contains no path separator and is never `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkillName(Arc<str>);

/// A text is not a valid skill name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "skill name {value:?} is not allowed: 1 to {MAX_NAME} letters, digits, spaces, _ - or ., beginning with a letter, a digit or _"
)]
pub struct SkillNameError {
    /// The beginning of the text.
    pub value: String,
}

/// Why a text is not a valid skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillError {
    /// It does not begin with a `---` line, or that block never ends.
    #[error(
        "no front matter: the file must begin with a line ---, then name and description, then a line ---"
    )]
    NoFrontMatter,
    /// A key that every skill needs is missing or empty.
    #[error("the front matter has no {key}")]
    Missing { key: &'static str },
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] SkillNameError),
}

/// Instructions for one kind of task, which are retrieved and added to the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name, unique for one agent.
    pub name: SkillName,
    /// When it applies, in one sentence.
    pub description: String,
    /// `general` unless the file gives another one.
    pub category: String,
    /// Words of requests that need it. They are searched, and not added to the prompt.
    pub keywords: Vec<String>,
    /// The text after the front matter, trimmed.
    pub content: String,
    /// The first 16 hex digits of the BLAKE3 hash of its text in a prompt, so equal texts have equal versions.
    pub version: String,
    /// The line of the file that is no YAML, if there is one. Then the front matter was read line by line.
    pub no_yaml: Option<u64>,
}

/// The keys of a front matter that are read. All others are the author's own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FrontMatter {
    name: Option<String>,
    description: Option<String>,
    category: Option<String>,
    keywords: Option<KeywordList>,
}

/// A list, or words separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum KeywordList {
    List(Vec<String>),
    Text(String),
}

// === impl SkillName ===

impl SkillName {
    pub(crate) fn forgotten(n: u64) -> Self {
        Self(Arc::from(format!("forgotten-{n}")))
    }
}

impl FromStr for SkillName {
    type Err = SkillNameError;

    fn from_str(value: &str) -> Result<Self, SkillNameError> {
        let value = value.trim();
        let starts = value.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
        if starts && value.chars().count() <= MAX_NAME && value.chars().all(legal) {
            Ok(Self(Arc::from(value)))
        } else {
            Err(SkillNameError {
                value: excerpt(value).into_owned(),
            })
        }
    }
}

text_name!(SkillName);

// === impl Skill ===

impl Skill {
    pub(crate) fn is_general(&self) -> bool {
        self.category == GENERAL
    }

    /// Parses the text of a SKILL.md.
    ///
    /// # Errors
    ///
    /// Returns [`SkillError`] if there is no front matter, no name, no description, or an invalid name.
    pub fn parse(text: &str) -> Result<Self, SkillError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (front, body) = split(text).ok_or(SkillError::NoFrontMatter)?;
        let (front, no_yaml) = FrontMatter::read(front);
        let name: SkillName = required(front.name, "name")?.parse()?;
        let description = required(front.description, "description")?;
        let content = body.trim().replace("\r\n", "\n");
        let category = front.category.map(|text| one_line(&text));
        let category = category.filter(|text| !text.is_empty());
        let hash = blake3::hash(format!("{name}\n{description}\n{content}").as_bytes());
        Ok(Self {
            version: hash.to_hex()[..16].to_owned(),
            category: category.unwrap_or_else(|| GENERAL.to_owned()),
            keywords: front.keywords.map(KeywordList::words).unwrap_or_default(),
            name,
            description,
            content,
            no_yaml,
        })
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        // YAML's own mark of an end is `...`.
        if matches!(line.trim_end(), "---" | "...") {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

fn required(value: Option<String>, key: &'static str) -> Result<String, SkillError> {
    // YAML's folded and literal blocks have several lines, and a heading is one line.
    let value = value.map(|text| one_line(&text));
    value
        .filter(|text| !text.is_empty())
        .ok_or(SkillError::Missing { key })
}

// === impl Keywords ===

impl KeywordList {
    pub(crate) fn words(self) -> Vec<String> {
        let words = match self {
            Self::List(words) => words,
            Self::Text(text) => text.split([',', '，', '、']).map(str::to_owned).collect(),
        };
        let words = words.into_iter().map(|word| one_line(&word));
        words.filter(|word| !word.is_empty()).collect()
    }
}

// === impl FrontMatter ===

impl FrontMatter {
    /// Parses YAML. If one line is no YAML, as in `description: Use when: asked`, reads the lines, as other programs do,
    /// and returns the number of that line in the file.
    fn read(text: &str) -> (Self, Option<u64>) {
        match serde_saphyr::from_str(text) {
            Ok(front) => (front, None),
            Err(error) => {
                let line = error.location().map_or(1, |place| place.line());
                (Self::from_lines(text), Some(line + 1))
            }
        }
    }

    /// Reads a value for each key at the beginning of a line. The indented lines after it belong to the value, and so
    /// do those of a list.
    fn from_lines(text: &str) -> Self {
        let mut front = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (key, first) = line.split_once(':').unwrap_or_default();
            let (first, is_block) = (first.trim(), is_block_mark(first.trim()));
            let mut value = Vec::from_iter(Some(first).filter(|_| !is_block));
            let is_item = |line: &str| line == "-" || line.starts_with("- ");
            let is_more = |line: &&str| {
                line.trim().is_empty() || line.starts_with([' ', '\t']) || is_item(line)
            };
            while let Some(more) = lines.next_if(is_more) {
                value.push(more.trim());
            }
            let text = || {
                if is_block {
                    return value.join(" ");
                }
                let whole = value.join("\n");
                let items = whole
                    .split("\n- ")
                    .map(|item| unquoted(&item.replace('\n', " ")));
                let items: Vec<_> = items.filter(|item| !item.is_empty()).collect();
                items.join("; ")
            };
            match key {
                "name" => front.name = Some(text()),
                "description" => front.description = Some(text()),
                "category" => front.category = Some(text()),
                "keywords" => {
                    let words = value.iter().flat_map(|line| line.split(','));
                    let words = words.map(|word| word.trim().trim_start_matches(['-', '[']));
                    let words = words.map(|word| unquoted(word.trim_end_matches(']')));
                    front.keywords = Some(KeywordList::List(words.collect()));
                }
                _ => {}
            }
        }
        front
    }
}

/// Returns whether a text is YAML's mark of a block: `>`, `|-`, `>2`.
fn is_block_mark(text: &str) -> bool {
    let rest = text.strip_prefix(['>', '|']);
    rest.is_some_and(|rest| {
        rest.trim_end_matches(['+', '-']).parse::<u8>().is_ok()
            || rest.trim_matches(['+', '-']).is_empty()
    })
}

/// Returns a value as YAML reads it: without quotation marks, escapes and the comment after it. What is no value of YAML
/// stays as it is, without a comment. The items of a list become one text.
fn unquoted(text: &str) -> String {
    match serde_saphyr::from_str(text.trim()) {
        Ok(KeywordList::Text(text)) => text,
        Ok(KeywordList::List(items)) => items.join("; "),
        Err(_) => {
            let comment = text.find(" #").unwrap_or(text.len());
            text[..comment].trim().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_yaml_front_matter_with_quotes_and_folded_lines() {
        let text = "---\r\nname: \"pdf tools\"\r\ndescription: >\r\n  Use when a PDF\r\n  is given.\r\nmetadata:\r\n  a: [1, 2]\r\n---\r\n\r\n# PDF\r\nRead it.\r\n";
        let skill = Skill::parse(text).unwrap();
        assert_eq!(skill.name.as_str(), "pdf tools");
        assert_eq!(skill.description, "Use when a PDF is given.");
        assert_eq!(skill.category, "general");
        assert_eq!(skill.content, "# PDF\nRead it.");
    }

    #[test]
    fn reads_the_originals_lines_that_are_no_yaml() {
        let text = "---\nname: a-b\ndescription: Use when: \"x\" is [asked: for\ncategory: coding\n---\n\nBody: one\n---\nstill body\n";
        let skill = Skill::parse(text).unwrap();
        assert_eq!(skill.description, "Use when: \"x\" is [asked: for");
        assert_eq!(skill.category, "coding");
        assert_eq!(skill.content, "Body: one\n---\nstill body");
    }

    /// Front matters of which one line is no YAML, with the name, description, keywords, and the line's number.
    const NO_YAML: [(&str, &str, &str, &str, u64); 21] = [
        ("name: a # note\ndescription: d: e", "a", "d: e", "", 3),
        (
            "name: a\ndescription: d: C# # note\nhint: f",
            "a",
            "d: C#",
            "",
            3,
        ),
        (
            "name: 'a' # it's\ndescription: \"Use\\nwhen\\t\\u00fc\"\nhint: a: b",
            "a",
            "Use when ü",
            "",
            4,
        ),
        (
            "name: a\ndescription: \"Use when\n  parcels are \\\"late\\\".\" # so\nhint: a: b",
            "a",
            "Use when parcels are \"late\".",
            "",
            5,
        ),
        (
            "name: a\ndescription:\n  - Use when late - or so\n  - or 'lost'\n    abroad",
            "a",
            "Use when late - or so; or 'lost' abroad",
            "",
            4,
        ),
        (
            "name: a\ndescription:\n- Use when: late\n- \"lost\"\nkeywords: x",
            "a",
            "Use when: late; lost",
            "x",
            4,
        ),
        (
            "name: a\ndescription: [late, \"or lost\"]",
            "a",
            "late; or lost",
            "",
            3,
        ),
        (
            "name: a\ndescription: >\n  Use when parcels\n  are late.\nargument-hint: [a] [b]",
            "a",
            LATE,
            "",
            6,
        ),
        (
            "name: a\ndescription: |-\n  Use when parcels\n\n  are late.\nargument-hint: [a] [b]",
            "a",
            LATE,
            "",
            7,
        ),
        (
            "name: a\ndescription: >2+\n  Use when parcels\n  are late.\nhint: a: b",
            "a",
            LATE,
            "",
            6,
        ),
        (
            "name: \"a\" # mine\ndescription: 'Use when parcels are late.'\nhint: [a] [b]",
            "a",
            LATE,
            "",
            4,
        ),
        (
            "name: a\ndescription: \"It\\\"s late\"\nhint: [a] [b]",
            "a",
            "It\"s late",
            "",
            4,
        ),
        (
            "name: a\ndescription: 'It''s late'\nhint: [a] [b]",
            "a",
            "It's late",
            "",
            4,
        ),
        (
            "name: a\ndescription: Use when: late\nmetadata:\n  author:\n    name: b\n  description: c",
            "a",
            "Use when: late",
            "",
            3,
        ),
        (
            "name: a\ndescription: d: e\nmetadata:\n\tname: b\n\tcategory: c",
            "a",
            "d: e",
            "",
            3,
        ),
        (
            "name: a\ndescription:\n  Use when parcels: late\n  or lost.",
            "a",
            "Use when parcels: late or lost.",
            "",
            4,
        ),
        (
            "name: a\ndescription: Use when: parcels\n  are late.",
            "a",
            "Use when: parcels are late.",
            "",
            3,
        ),
        (
            "name: a\ndescription: d: e\nkeywords: [late, \"lost\"]",
            "a",
            "d: e",
            "late lost",
            3,
        ),
        (
            "name: a\ndescription: d: e\nkeywords:\n  - late\n  - 'lost'",
            "a",
            "d: e",
            "late lost",
            3,
        ),
        (
            "# name: b\nname: a\ndescription: \"quoted\" words: late",
            "a",
            "\"quoted\" words: late",
            "",
            4,
        ),
        (
            "name: a\r\ndescription: >\r\n  Use when parcels\r\n  are late.\r\nhint: a: b",
            "a",
            LATE,
            "",
            6,
        ),
    ];
    const LATE: &str = "Use when parcels are late.";

    #[test]
    fn front_matter_that_is_no_yaml_is_read_as_its_author_meant_it() {
        for (front, name, description, keywords, line) in NO_YAML {
            let skill = Skill::parse(&format!("---\n{front}\n---\nbody")).unwrap();
            assert_eq!(skill.name.as_str(), name, "{front}");
            assert_eq!(skill.description, description, "{front}");
            assert_eq!(skill.keywords.join(" "), keywords, "{front}");
            assert_eq!(
                (&*skill.category, &*skill.content),
                ("general", "body"),
                "{front}"
            );
            assert_eq!(skill.no_yaml, Some(line), "{front}");
        }
        for end in ["---", "...", "...\r", "--- "] {
            let text = format!("---\nname: a\ndescription: >\n  d\n  ...\n{end}\nbody\n...\nx");
            let whole = Skill::parse(&text).unwrap();
            assert_eq!(
                (&*whole.description, &*whole.content),
                ("d ...", "body\n...\nx")
            );
            assert_eq!(whole.no_yaml, None);
        }
    }

    #[test]
    fn what_is_no_skill_is_refused_in_words() {
        let error = |text: &str| Skill::parse(text).unwrap_err().to_string();
        assert!(error("# hi").contains("no front matter"));
        assert!(error("---\nname: a\n").contains("no front matter"));
        assert_eq!(
            error("---\nname: a\ndescription: ''\n---\nx"),
            "the front matter has no description"
        );
        assert!(
            error("---\nname: ../evil\ndescription: d\n---\nx")
                .contains("skill name \"../evil\" is not allowed")
        );
    }

    #[test]
    fn a_name_can_never_leave_its_folder() {
        for bad in [
            "", ".", "..", "a/b", "a\\b", ".x", "-x", "a\0", "a:b", "a\nb",
        ] {
            assert!(bad.parse::<SkillName>().is_err(), "{bad:?}");
        }
        for good in ["debug-systematically", "PDF tools", "数据分析", "a.b_c"] {
            assert_eq!(good.parse::<SkillName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn the_version_changes_with_what_is_served_and_with_nothing_else() {
        let version = |text: &str| Skill::parse(text).unwrap().version;
        let base = version("---\nname: a\ndescription: d\n---\nx");
        assert_eq!(
            base,
            version("---\ndescription: d\nauthor: me\nname: a\n---\n\n\nx\n")
        );
        assert_ne!(base, version("---\nname: a\ndescription: d\n---\ny"));
    }
}
