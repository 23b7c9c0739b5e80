//! Reads the evolver's answer: a JSON array of skills, one such object, or the text of one SKILL.md.

use metaclaw_chat::excerpt;
use serde::Deserialize;
use serde_json::Value;

use crate::skill::{KeywordList, Skill};

/// The longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024;
/// The largest number of skills in one answer.
const MAX_SKILLS: usize = 3;

/// Why an answer is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the answer has {bytes} bytes, at most {MAX_ANSWER} are read")]
    TooLong { bytes: usize },
    #[error("the answer has {n} skills, at most {MAX_SKILLS} are asked for")]
    TooMany { n: usize },
    #[error("the answer is neither a JSON array of skills nor a SKILL.md: it begins {begin:?}")]
    Unreadable { begin: String },
}

/// A skill as the model wrote it. Nothing is checked yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct WrittenSkill {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) category: String,
    #[serde(default)]
    pub(crate) content: String,
    /// Words that requests for it contain.
    #[serde(default)]
    pub(crate) keywords: Option<KeywordList>,
}

impl From<Skill> for WrittenSkill {
    fn from(skill: Skill) -> Self {
        Self {
            name: skill.name.to_string(),
            description: skill.description,
            category: skill.category,
            content: skill.content,
            keywords: Some(KeywordList::List(skill.keywords)),
        }
    }
}

/// Returns the skills in an answer. Each is either a skill as written, or the reason why it is invalid.
pub(super) fn read(answer: &str) -> Result<Vec<Result<WrittenSkill, String>>, AnswerError> {
    if answer.len() > MAX_ANSWER {
        return Err(AnswerError::TooLong {
            bytes: answer.len(),
        });
    }
    let text = without_fence(without_thinking(answer).trim());
    if text.starts_with("---")
        && let Ok(skill) = Skill::parse(text)
    {
        return Ok(vec![Ok(skill.into())]);
    }
    let values = json(text).ok_or_else(|| AnswerError::Unreadable {
        begin: excerpt(text).into_owned(),
    })?;
    if values.len() > MAX_SKILLS {
        return Err(AnswerError::TooMany { n: values.len() });
    }
    let written = |value| {
        let failed = |error: serde_json::Error| excerpt(&error.to_string()).into_owned();
        serde_json::from_value(value).map_err(failed)
    };
    Ok(values.into_iter().map(written).collect())
}

/// Finds an array or one object, possibly between sentences. The first of both counts.
fn json(text: &str) -> Option<Vec<Value>> {
    let from = text.find(['[', '{'])?;
    if text[from..].starts_with('[') {
        serde_json::from_str(text.get(from..=text.rfind(']')?)?).ok()
    } else {
        let object = serde_json::from_str(text.get(from..=text.rfind('}')?)?);
        Some(vec![object.ok()?])
    }
}

/// Returns the text after a model's thinking.
fn without_thinking(text: &str) -> &str {
    text.rsplit_once("</think>").map_or(text, |(_, said)| said)
}

/// Returns the text between a fence of three backticks and the next.
fn without_fence(text: &str) -> &str {
    let fenced = text
        .strip_prefix("```")
        .and_then(|rest| rest.split_once('\n'))
        .and_then(|(_, rest)| rest.trim_end().strip_suffix("```"));
    fenced.unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"[{"name":"a","description":"d","content":"c [1]"}]"#;

    fn names(answer: &str) -> Result<Vec<String>, String> {
        let read = read(answer).map_err(|error| error.to_string())?;
        Ok(read
            .into_iter()
            .map(|it| it.map_or_else(|why| format!("! {why}"), |it| it.name))
            .collect())
    }

    #[test]
    fn skills_are_read_in_the_forms_that_models_write() {
        for answer in [
            GOOD.to_owned(),
            format!("```json\n{GOOD}\n```"),
            format!("<think>[hm]</think>\nHere they are:\n{GOOD}\nDone."),
            GOOD.trim_matches(['[', ']']).to_owned(),
            "---\nname: a\ndescription: d\n---\nc".to_owned(),
        ] {
            assert_eq!(names(&answer).unwrap(), ["a"], "{answer}");
        }
        assert_eq!(names("[]").unwrap(), [""; 0]);
        assert_eq!(names("[{}]").unwrap(), [""]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        let refused = |answer: &str| names(answer).unwrap_err();
        for broken in [
            "",
            "I would rather not.",
            "[{\"name\": \"a\"",
            "---\nname: a\n",
        ] {
            assert!(
                refused(broken).starts_with("the answer is neither"),
                "{broken}"
            );
        }
        let megabyte = format!("[{{\"name\":\"{}\"}}]", "a".repeat(1 << 20));
        assert!(refused(&megabyte).contains("at most 65536 are read"));
        assert!(refused("[1,2,3,4]").contains("has 4 skills"));
        let wrong = names("[1, {\"name\": 5}]").unwrap();
        assert!(
            wrong.iter().all(|it| it.starts_with("! invalid type")),
            "{wrong:?}"
        );
    }
}
