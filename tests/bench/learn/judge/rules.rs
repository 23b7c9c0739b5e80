//! Judges by rules. With one wish, they are the wish's own rules about the reply, and also judge the teacher's draws.
//! With several wishes one after the other, no rule about replies holds all the time, so the owner's next words decide.

use serde_json::{Value, json};

use crate::{owner::THANKS, rows::Phase};

/// Returns `judge.*` for a product whose agents have these wishes.
pub fn config(phases: &[Phase]) -> Value {
    let rules = match phases {
        [one] => json!(one.wish.rules),
        several => {
            let complaint = |phase: &Phase| {
                let pattern = format!("^{}$", escaped(&phase.wish.complaint));
                json!({"on": "next", "pattern": pattern, "score": -1})
            };
            let mut rules: Vec<Value> = several.iter().map(complaint).collect();
            let thanks = format!("^{}$", escaped(THANKS));
            rules.push(json!({"on": "next", "pattern": thanks, "score": 1}));
            json!(rules)
        }
    };
    json!({"kind": "rules", "rules": rules})
}

/// Returns a regular expression that matches a text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metaclaw_chat::{Message, Score};
    use metaclaw_reward::{Evidence, Rule, Rules};

    use super::*;
    use crate::content::Content;

    fn score(wishes: &[&str], reply: &str, next: Option<&str>) -> Option<Score> {
        let content = Content::read(60).unwrap();
        let phase = |name: &&str| Phase {
            wish: Arc::clone(content.wish(name).unwrap()),
            sessions: 1,
        };
        let phases: Vec<Phase> = wishes.iter().map(phase).collect();
        let rules: Vec<Rule> = serde_json::from_value(config(&phases)["rules"].clone()).unwrap();
        let next: Vec<Message> = next.map(Message::user).into_iter().collect();
        let evidence = Evidence::new(&[Message::user("q")], Message::assistant(reply), &next);
        let verdict = Rules::compile(&rules).unwrap().judge(&evidence);
        verdict.map(|verdict| verdict.score)
    }

    #[test]
    fn one_wish_is_judged_by_the_reply() {
        assert_eq!(score(&["terse"], "Boil it.", None), Some(Score::Good));
        assert_eq!(score(&["hello"], "Boil it.", None), Some(Score::Bad));
    }

    #[test]
    fn several_are_judged_by_what_the_owner_says_next() {
        let wishes = ["terse", "hello"];
        let says = |next: &str| score(&wishes, "Boil it.", Some(next));
        assert_eq!(says(THANKS), Some(Score::Good));
        let complaint = "That sounds cold. Please start your answer with \"Hello!\"";
        assert_eq!(says(complaint), Some(Score::Bad));
        assert_eq!(says("How do I boil it?"), None);
        assert_eq!(score(&wishes, "Boil it.", None), None);
    }
}
