//! Writes a comment line above a key that says what the key is for.

/// Returns the text with `words` above the key at a dotted path, or `None` if the key has no line of its own, or
/// already has a comment above it.
pub(super) fn above(text: &str, path: &str, words: &str) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = line_of(&lines, path)?;
    let is_told = at > 0 && lines[at - 1].trim_start().starts_with('#');
    if words.is_empty() || is_told {
        return None;
    }
    let indent = &lines[at][..indent_of(lines[at])];
    let comment = format!("{indent}# {words}");
    lines.insert(at, &comment);
    Some(lines.join("\n") + "\n")
}

/// Returns the line of a key, in a file with one key on each line.
fn line_of(lines: &[&str], path: &str) -> Option<usize> {
    let mut parts = path.split('.');
    let mut wanted = parts.next()?;
    // The current section: its first line and its indentation.
    let mut open: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = indent_of(line);
        if open.is_some_and(|section| indent <= section) || open.is_none() && indent > 0 {
            if open.is_some() {
                return None;
            }
            continue;
        }
        let name = content.split(':').next().unwrap_or_default();
        if name.trim_matches(['"', '\'']) == wanted {
            match parts.next() {
                None => return Some(at),
                Some(next) => (wanted, open) = (next, Some(indent)),
            }
        }
    }
    None
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::above;

    #[test]
    fn a_comment_stands_above_its_key() {
        let text = "mode: auto\nllm:\n  model_id: m\n  api_key: k\nproxy:\n  port: 1\n";
        let commented = above(text, "llm.api_key", "whose").unwrap();
        assert_eq!(
            commented,
            "mode: auto\nllm:\n  model_id: m\n  # whose\n  api_key: k\nproxy:\n  port: 1\n"
        );
        assert_eq!(above(&commented, "llm.api_key", "again"), None);
        assert!(
            above(text, "mode", "how")
                .unwrap()
                .starts_with("# how\nmode")
        );
    }

    #[test]
    fn a_key_without_a_line_of_its_own_has_none() {
        let text = "llm: {api_key: k}\nproxy:\n  port: 1\n";
        assert_eq!(above(text, "llm.api_key", "whose"), None);
        assert_eq!(above(text, "llm.port", "no such"), None);
        assert_eq!(above(text, "proxy.host", "no such"), None);
    }
}
