//! The answers of the world's base model.

/// Returns the base model's `k`th reply to a text of the owner, and whether it ends by itself.
pub(crate) type Answers = fn(&str, usize) -> (String, bool);

pub(crate) fn usual_answers(said: &str, k: usize) -> (String, bool) {
    let topic: Vec<&str> = said.split_whitespace().take(2).collect();
    let topic = topic.join(" ");
    match k % 6 {
        0 => ("Hello!".to_owned(), true),
        1 => ("and ".repeat(60), false),
        2 => ("That may well be so.".to_owned(), true),
        3 => (format!("{topic} is answered."), true),
        4 => (format!("{topic} {}", "word ".repeat(60)), true),
        _ => (format!("{topic} has a short answer here."), true),
    }
}
