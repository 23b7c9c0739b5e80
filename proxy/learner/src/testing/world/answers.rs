//! What the base model of the world says.

/// What the base model says to a text of the owner: its `k`th reply, and whether that ends by itself.
pub(crate) type Answers = fn(&str, usize) -> (String, bool);

/// A model that may greet, go on without end, be vague, be right in a sentence, or be long.
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
