//! Finds a host's lessons in its text: which lines open and close a section, and how notes in one are read.

use std::path::Path;

use crate::words::WORD_LISTS;

/// A list of skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Catalog {
    /// Whether it is in `<available_skills>`. Otherwise it is below a heading.
    is_enclosed: bool,
    /// Whether each skill is a separate element. Otherwise it is an item of a list.
    pub(super) has_elements: bool,
}

/// The section that a line belongs to.
#[derive(Debug)]
pub(super) enum HostSection {
    Elsewhere,
    Catalog(Catalog),
    Notes(HostNotes),
    Intents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the heading of the next file, a horizontal rule, or a mark of the host: `## USER.md`.
    File,
    /// At the closing element: Claude Code's `Contents of`, Codex' `<INSTRUCTIONS>`.
    Element,
    /// At the first blank line: Hermes' blocks.
    Blank,
}

/// A text about the owner that is being read.
#[derive(Debug)]
pub(super) struct HostNotes {
    end: End,
    /// Whether a part of it was read.
    is_begun: bool,
    /// Inside a front matter, a code fence, or a comment, no line is a note.
    skips: Option<Skipped>,
    /// The present heading at each level, if it limits the lines below.
    headings: [Option<String>; 6],
    /// A line that introduces others ("When writing code:"), and its indentation.
    intro: Option<(String, usize)>,
    /// Whether OpenClaw's comment above the lines says that they do not apply: they were replaced, or are an example.
    is_superseded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipped {
    FrontMatter,
    Fence,
    Comment,
}

/// Returns the section that a line opens.
pub(super) fn opens(section: &HostSection, line: &str) -> Option<HostSection> {
    let line = line.trim();
    // A file within an element has its own headings.
    let is_enclosed = matches!(section, HostSection::Notes(notes) if notes.end == End::Element);
    if let Some(heading) = line.strip_prefix('#').filter(|_| !is_enclosed) {
        let heading = heading.trim_start_matches('#');
        return of_heading(
            line.len() - heading.len(),
            heading.strip_prefix(' ')?.trim(),
        );
    }
    if line == "<available_skills>" {
        return Some(catalog(true));
    }
    if line.ends_with("skills are available for use with the Skill tool:") {
        return Some(catalog(false));
    }
    if line == "<standing_intents>" {
        return Some(HostSection::Intents);
    }
    let of_claude = line.starts_with("Contents of ") && line.ends_with("):");
    if of_claude || line == "<INSTRUCTIONS>" || line.starts_with("Instructions from: ") {
        return Some(HostSection::Notes(HostNotes::new(End::Element)));
    }
    let of_hermes = ["USER PROFILE (", "MEMORY (your personal notes)"];
    let is_hermes = of_hermes.iter().any(|it| line.starts_with(it));
    is_hermes.then(|| HostSection::Notes(HostNotes::new(End::Blank)))
}

fn catalog(is_enclosed: bool) -> HostSection {
    HostSection::Catalog(Catalog {
        is_enclosed,
        has_elements: false,
    })
}

/// Returns the section below a heading, or `None` if it belongs to a file that we do not use.
fn of_heading(level: usize, heading: &str) -> Option<HostSection> {
    let lower = heading.to_lowercase();
    let catalogs = [
        "available skills",
        "workspace skills (",
        "agent plugin skills (",
        "built-in skills (",
    ];
    if lower == catalogs[0] || catalogs[1..].iter().any(|it| lower.starts_with(it)) {
        return Some(catalog(false));
    }
    let file = lower.rsplit(['/', '\\']).next()?;
    if level > 2 || !is_file(file) {
        return None;
    }
    Some(match file {
        "user.md" | "profile.md" => HostSection::Notes(HostNotes::new(End::File)),
        _ => HostSection::Elsewhere,
    })
}

/// Returns whether a heading is only the name of a file: `SOUL.md`, and not `USER.md - User Model`.
fn is_file(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|it| it == "md") && !name.contains(char::is_whitespace)
}

/// Returns whether a line ends its section.
pub(super) fn closes(section: &HostSection, line: &str) -> bool {
    let line = line.trim();
    match section {
        HostSection::Elsewhere => false,
        HostSection::Intents => line == "</standing_intents>",
        HostSection::Catalog(catalog) if catalog.is_enclosed => line == "</available_skills>",
        HostSection::Catalog(_) => line.starts_with('#') || line.starts_with("</") || line == "---",
        HostSection::Notes(notes) => notes.closes(line),
    }
}

// === impl Notes ===

impl HostNotes {
    fn new(end: End) -> Self {
        Self {
            end,
            is_begun: false,
            skips: None,
            headings: Default::default(),
            intro: None,
            is_superseded: false,
        }
    }

    fn closes(&self, line: &str) -> bool {
        let is_mark = line.starts_with("<!--") && line.to_lowercase().contains("openclaw");
        is_mark
            || match self.end {
                End::File => line == "---" && self.is_begun && self.skips.is_none(),
                End::Element => line.starts_with("</system-reminder>") || line == "</INSTRUCTIONS>",
                End::Blank => line.is_empty() || (line.starts_with('═') && self.is_begun),
            }
    }

    /// Returns what limits the lines that are read now.
    pub(super) fn within(&self) -> Option<&str> {
        let intro = self.intro.as_ref().map(|(intro, _)| intro);
        intro
            .or_else(|| self.headings.iter().flatten().next())
            .map(String::as_str)
    }

    /// Returns the note on a line, if it is one.
    pub(super) fn line<'t>(&mut self, line: &'t str) -> Option<&'t str> {
        let text = line.trim();
        if text.is_empty() || self.is_skipped(text) {
            return None;
        }
        self.is_begun |= !text.starts_with('═');
        let is_drawn = |c: char| matches!(c, '═' | '-' | '*' | '_' | '§' | '=');
        // These are a table, a quotation (Claude Code's, of a file that it does not vouch for), and a horizontal rule.
        let is_none = ["|", ">", "---"].iter().any(|it| text.starts_with(it));
        if is_none || text.chars().all(is_drawn) {
            return None;
        }
        if text.starts_with('#') {
            self.heading(text);
            return None;
        }
        let indent = line.len() - line.trim_start().len();
        let (text, is_item) = without_bullet(text)?;
        let is_over =
            |intro: &mut (String, usize)| indent < intro.1 || (indent == intro.1 && !is_item);
        self.intro.take_if(is_over);
        if text.ends_with([':', '：']) {
            let indent = indent + usize::from(is_item);
            self.intro = limits(text).then(|| (text.to_owned(), indent));
            return None;
        }
        let says_something = text
            .chars()
            .filter(|c| c.is_alphanumeric())
            .nth(1)
            .is_some();
        (says_something && !self.is_superseded).then_some(text)
    }

    /// Front matter, code and comments say nothing about the owner. OpenClaw's comments say whether the following lines
    /// apply.
    fn is_skipped(&mut self, text: &str) -> bool {
        match self.skips {
            Some(Skipped::FrontMatter) => self.skips.take_if(|_| text == "---"),
            Some(Skipped::Fence) => self.skips.take_if(|_| text.starts_with("```")),
            Some(Skipped::Comment) => self.skips.take_if(|_| text.contains("-->")),
            None if text.starts_with("<!--") => {
                // A date that nobody filled in belongs to the template's example.
                let marks = ["status: superseded", "YYYY"];
                self.is_superseded = marks.iter().any(|mark| text.contains(mark));
                self.skips = (!text.contains("-->")).then_some(Skipped::Comment);
                return true;
            }
            None if text.starts_with("```") => self.skips.replace(Skipped::Fence),
            None if text == "---" && !self.is_begun => self.skips.replace(Skipped::FrontMatter),
            None => return false,
        };
        true
    }

    fn heading(&mut self, text: &str) {
        let heading = text.trim_start_matches('#');
        let level = (text.len() - heading.len()).min(self.headings.len());
        for below in &mut self.headings[level - 1..] {
            *below = None;
        }
        let heading = heading.trim();
        self.headings[level - 1] = limits(heading).then(|| heading.to_owned());
        self.intro = None;
        self.is_superseded = false;
    }
}

/// Returns whether the lines below a heading, or after an introducing line, apply only to some subject.
fn limits(heading: &str) -> bool {
    let lower = heading.to_lowercase();
    let words = || lower.split(|c: char| !c.is_alphanumeric());
    let narrow = WORD_LISTS.list("narrow");
    let is_limiting = words().any(|word| narrow.contains(&word));
    // Chinese has no spaces between its words.
    let has = |general: &&str| {
        let is_word = words().any(|word| word == *general);
        is_word || (!general.is_ascii() && lower.contains(*general))
    };
    is_limiting || !WORD_LISTS.list("general").iter().any(has)
}

/// Returns a line without its bullet and its ticked box, and whether it had a bullet. Returns `None` for a box that is
/// not ticked.
fn without_bullet(text: &str) -> Option<(&str, bool)> {
    let bullets = ["- ", "* ", "+ "];
    let item = bullets.iter().find_map(|it| text.strip_prefix(it));
    let Some(item) = item.map(str::trim_start) else {
        return Some((text, false));
    };
    if item.starts_with("[ ]") {
        return None;
    }
    let ticked = ["[x]", "[X]"].iter().find_map(|it| item.strip_prefix(it));
    Some((ticked.unwrap_or(item).trim_start(), true))
}
