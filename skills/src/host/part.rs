//! Finds the host's own part of a message: all of a system prompt, and the text before the owner's words.

use metaclaw_chat::{Role, head};

/// The longest part that is read, in bytes. A longer one is not searched.
const MAX_PART: usize = 1 << 20;
/// Elements that a host puts before the owner's words in the same text, by their first and last words. They are those
/// of Claude Code, OpenClaw (standing intents and context) and Codex (AGENTS.md).
const ELEMENTS: &[(&str, &str)] = &[
    ("<system-reminder>", "</system-reminder>"),
    ("<standing_intents>", "</standing_intents>"),
    (
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
        "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    ),
    ("# AGENTS.md instructions for ", "</INSTRUCTIONS>"),
];

/// Returns the part of a message that the host wrote. It contains nobody else's words, and no tool's.
pub fn host_part(role: Role, text: &str) -> &str {
    let text = head(text, MAX_PART);
    match role {
        Role::System => text,
        Role::User => elements(text),
        Role::Assistant | Role::Tool | Role::Other => "",
    }
}

/// Returns the host's complete elements at the beginning of a text.
fn elements(text: &str) -> &str {
    let mut rest = text.trim_start();
    let mut end = 0;
    while let Some((_, last)) = ELEMENTS.iter().find(|(first, _)| rest.starts_with(first))
        && let Some(at) = rest.find(last)
    {
        rest = &rest[at + last.len()..];
        end = text.len() - rest.len();
        rest = rest.trim_start();
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_host_puts_before_the_owners_words_is_its_own() {
        let reminder = "<system-reminder>\nA\n</system-reminder>";
        let text = format!("{reminder}\n<system-reminder>B</system-reminder>\nHello {reminder}");
        let own = format!("{reminder}\n<system-reminder>B</system-reminder>");
        assert_eq!(host_part(Role::User, &text), own);
        for not_its_own in [
            "Hello <system-reminder>A</system-reminder>",
            "<system-reminder>never ends",
            "<p>x</p>",
            "",
        ] {
            assert_eq!(host_part(Role::User, not_its_own), "");
        }
        assert_eq!(host_part(Role::System, &text), text);
        assert_eq!(host_part(Role::Tool, reminder), "");
        assert_eq!(host_part(Role::Assistant, reminder), "");
    }
}
