//! Thinking that a model writes into its answer.

/// The tags around thinking: of DeepSeek, Qwen and most others; of gpt-oss; of Mistral, Cohere, Seed, Kimi, Gemma.
const TAGS: [(&str, &str); 10] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("[think]", "[/think]"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>", "<channel|>"),
];

/// Returns an answer without its thinking, or `None` if it ends within thinking, which says nothing for certain.
///
/// Thinking begins a line. If it is only closed, the prompt has opened it.
///
/// # Examples
/// ```
/// use metaclaw_chat::without_thinking;
///
/// assert_eq!(without_thinking("<think>hm</think>Yes.").as_deref(), Some("Yes."));
/// assert_eq!(without_thinking("<think>hm, perhaps"), None);
/// ```
pub fn without_thinking(answer: &str) -> Option<String> {
    let mut said = answer.to_owned();
    for (open, close) in TAGS {
        // Only ASCII letters change, so that places are the same.
        let lower = said.to_ascii_lowercase();
        let (mut kept, mut at) = (String::new(), 0);
        while let Some(length) = lower[at..].find(close) {
            match lower[at..at + length].find(open) {
                Some(begin) => kept.push_str(&said[at..at + begin]),
                // This also ends what gpt-oss says.
                None if close == "<|end|>" => kept.push_str(&said[at..at + length]),
                None => kept.clear(),
            }
            at += length + close.len();
        }
        kept.push_str(&said[at..]);
        said = kept;
        let lower = said.to_ascii_lowercase();
        let mut opened = lower.match_indices(open);
        if opened.any(|(at, _)| {
            lower[..at].trim_end_matches([' ', '\t']).ends_with('\n')
                || lower[..at].trim().is_empty()
        }) {
            return None;
        }
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_only_thought_is_not_said() {
        for (answer, expected) in [
            ("Yes.", Some("Yes.")),
            ("<think>no</think>Yes.", Some("Yes.")),
            ("<THINK>no</Think>Yes.", Some("Yes.")),
            ("no</think>Yes.", Some("Yes.")),
            ("<think>a</think>Y<think>b</think>es.", Some("Yes.")),
            ("[THINK]no[/THINK]Yes.", Some("Yes.")),
            ("<|channel|>analysis<|message|>no<|end|>Yes.", Some("Yes.")),
            ("Yes.<|end|>", Some("Yes.")),
            ("◁think▷no◁/think▷Yes.", Some("Yes.")),
            ("<seed:think>no</seed:think>Yes.", Some("Yes.")),
            ("<|channel>thought\nno<channel|>Yes.", Some("Yes.")),
            ("<think>no, or", None),
            ("Let me see.\n  <thinking>no", None),
            ("Its <think> is long.", Some("Its <think> is long.")),
            ("", Some("")),
        ] {
            assert_eq!(without_thinking(answer).as_deref(), expected, "{answer:?}");
        }
    }
}
