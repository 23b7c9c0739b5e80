//! Repairs JSON with models' typical mistakes.
//!
//! Only unambiguous mistakes are repaired: a bracket that is missing at the end or there once too often, a comma before
//! a bracket, a line end inside a string, a code fence around everything. Values stay as they are written.

use serde_json::value::RawValue;

/// Returns the consecutive objects in `text`, or those in one list, or `None` if there is anything else.
pub(super) fn objects(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut object = Unfinished::default();
    for letter in unfenced(text.trim()).chars() {
        if object.is_begun() {
            object.push(letter)?;
            if !object.is_open() {
                found.push(std::mem::take(&mut object).text);
            }
            continue;
        }
        match letter {
            '{' | '[' => object.push(letter)?,
            // It is one bracket too many, or a separator between two.
            '}' | ']' | ',' if !found.is_empty() => {}
            blank if blank.is_whitespace() => {}
            _ => return None,
        }
    }
    if object.is_begun() {
        found.push(object.finish()?);
    }
    let lists = found.iter().map(|text| members(text));
    let found: Vec<String> = lists.collect::<Option<Vec<_>>>()?.concat();
    (!found.is_empty()).then_some(found)
}

/// Returns the members of a list. A value that is not a list is one member.
fn members(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') {
        return Some(vec![text.to_owned()]);
    }
    let members: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(members.iter().map(|it| it.get().to_owned()).collect())
}

fn unfenced(text: &str) -> &str {
    let Some((_, inside)) = text
        .strip_prefix("```")
        .and_then(|inside| inside.split_once('\n'))
    else {
        return text;
    };
    inside.trim_end().trim_end_matches('`')
}

#[derive(Debug, Default)]
struct Unfinished {
    text: String,
    closers: Vec<char>,
    in_string: bool,
    is_escaped: bool,
}

// === impl Unfinished ===

impl Unfinished {
    fn is_begun(&self) -> bool {
        !self.text.is_empty()
    }

    fn is_open(&self) -> bool {
        !self.closers.is_empty()
    }

    fn push(&mut self, letter: char) -> Option<()> {
        if self.in_string {
            self.push_in_string(letter);
            return Some(());
        }
        match letter {
            '"' => self.in_string = true,
            '{' => self.closers.push('}'),
            '[' => self.closers.push(']'),
            '}' | ']' => {
                if self.closers.pop() != Some(letter) {
                    return None;
                }
                self.drop_comma();
            }
            _ => {}
        }
        self.text.push(letter);
        Some(())
    }

    fn push_in_string(&mut self, letter: char) {
        let is_escaped = std::mem::take(&mut self.is_escaped);
        match letter {
            '\\' if !is_escaped => self.is_escaped = true,
            '"' if !is_escaped => self.in_string = false,
            _ => {}
        }
        match letter {
            '\n' => self.text.push_str("\\n"),
            '\r' => self.text.push_str("\\r"),
            '\t' => self.text.push_str("\\t"),
            letter => self.text.push(letter),
        }
    }

    /// Closes all open brackets, or returns `None` within a string, whose end is not known.
    fn finish(mut self) -> Option<String> {
        if self.in_string {
            return None;
        }
        while let Some(closer) = self.closers.pop() {
            self.drop_comma();
            self.text.push(closer);
        }
        Some(self.text)
    }

    fn drop_comma(&mut self) {
        let said = self.text.trim_end();
        if let Some(before) = said.strip_suffix(',') {
            self.text.truncate(before.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(text: &str) -> String {
        objects(text).map_or_else(|| "none".to_owned(), |found| found.join(" | "))
    }

    #[test]
    fn what_can_mean_one_thing_is_mended() {
        for (written, expected) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            (r#"{"a": {"b": [1, 2"#, r#"{"a": {"b": [1, 2]}}"#),
            (r#"{"a": {"b": 1}}}"#, r#"{"a": {"b": 1}}"#),
            (r#"{"a": [1, ], }"#, r#"{"a": [1]}"#),
            ("{\"a\": \"x\n\ty\"}", r#"{"a": "x\n\ty"}"#),
            (r#"{"a": "}, \"]"}"#, r#"{"a": "}, \"]"}"#),
            ("{\"a\": 1}\n{\"b\": 2}", r#"{"a": 1} | {"b": 2}"#),
            (r#"[{"a": 1}, {"b": 2}]"#, r#"{"a": 1} | {"b": 2}"#),
            ("```json\n{\"a\": 1}\n```", r#"{"a": 1}"#),
        ] {
            assert_eq!(mended(written), expected, "{written}");
        }
    }

    #[test]
    fn what_can_mean_several_things_is_not() {
        for written in [
            "",
            "text",
            r#"{"a": 1} text"#,
            r#"{"a": "never ends}"#,
            r#"{"a": [1}"#,
            r#"}{"a": 1}"#,
        ] {
            assert_eq!(mended(written), "none", "{written}");
        }
    }
}
