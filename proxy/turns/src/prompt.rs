//! Texts of two prompts side by side.

use serde_json::Value;

use crate::list::cut;

const EXCERPT: usize = 80;
/// Characters before the first difference that an excerpt may begin with, if no space is nearer.
const CONTEXT: usize = 24;

/// Returns a message or a list of tools without what no model reads: marks of the prompt cache, and whether a text alone
/// is a string or a list of one part.
pub(crate) fn comparable(mut value: Value) -> Value {
    drop_marks(&mut value);
    if let Some(content) = value.get_mut("content")
        && let Value::Array(parts) = content
        && let [part] = parts.as_mut_slice()
        && let Some(Value::String(text)) = part.get_mut("text")
    {
        *content = Value::String(std::mem::take(text));
    }
    value
}

fn drop_marks(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(drop_marks),
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(drop_marks);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(crate) fn first_change(old: &str, new: &str) -> (String, String) {
    let mut pairs = old.char_indices().zip(new.chars());
    let differs = pairs.find(|((_, old), new)| old != new);
    let same = differs.map_or_else(|| old.len().min(new.len()), |((at, _), _)| at);
    let before = old[..same].char_indices().rev().take(CONTEXT);
    let mut start = same;
    for (at, c) in before {
        if c.is_whitespace() {
            break;
        }
        start = at;
    }
    (excerpt(&old[start..]), excerpt(&new[start..]))
}

fn excerpt(text: &str) -> String {
    let beginning: String = text.chars().take(4 * EXCERPT).collect();
    cut(&beginning, EXCERPT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marks_of_the_cache_and_one_part_in_a_list_make_no_difference() {
        let plain = json!({"role": "user", "content": "hi"});
        let mark = json!({"type": "ephemeral"});
        let marked = json!({"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]});
        assert_eq!(comparable(marked), comparable(plain.clone()));
        let two = json!({"role": "user", "content": [{"text": "hi"}, {"text": "ho"}]});
        assert_ne!(comparable(two), comparable(plain));
    }

    #[test]
    fn the_first_change_begins_with_its_word() {
        let (old, new) = first_change("Time: 12:31 UTC\nBe brief.", "Time: 12:32 UTC\nBe brief.");
        assert_eq!(
            (&*old, &*new),
            ("12:31 UTC Be brief.", "12:32 UTC Be brief.")
        );
        let (old, new) = first_change("Be brief.", "Be brief.\n\nAnswer in German.");
        assert_eq!((&*old, &*new), ("brief.", "brief. Answer in German."));
        let (old, new) = first_change("größe é", "größe è");
        assert_eq!((&*old, &*new), ("é", "è"));
        let long = "x".repeat(1_000);
        let longer = format!("{long}y");
        let (old, new) = first_change(&long, &longer);
        assert_eq!((old.len(), new.len()), (CONTEXT, CONTEXT + 1));
        assert_eq!(first_change("", &long).1.chars().count(), EXCERPT + 1);
    }
}
