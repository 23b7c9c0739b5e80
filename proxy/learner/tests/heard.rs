//! Prints what is heard in chats: by rules, and by models that believe everything they are shown.
//!
//! It reads the file `METACLAW_CHATS`, one JSON object a line: `{"messages": [..], "marker": "..", "expect": ..}`, and
//! prints one a line. `marker` is a word of the text that is not the owner's; `METACLAW_MARKER` gives it for all lines.
//! `expect`, and `id` if there is one, come back unchanged. Messages are in the form of chat completions.
//!
//!     METACLAW_CHATS=chats.jsonl METACLAW_MARKER=Zephyr \
//!         cargo test -q -p metaclaw-learner --test heard -- --ignored --nocapture | grep '^{'
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a tool for developers: it prints, reads the environment, and stops at the first bad line"
)]

use metaclaw_chat::{Message, Role, Speaker, utterance_at};
use metaclaw_reward::{Evidence, prompt::judge_messages};
use metaclaw_skills::{Certainty, FactQuestion, Heard, Question, hear, plain_facts, suspicions};
use serde_json::{Value, json};

/// What a judge's prompt puts above the owner's words.
const OWNERS: &str = "<<< what happened next: the user says\n";

#[test]
#[ignore = "needs METACLAW_CHATS, a file of chats"]
fn what_is_heard_in_chats_is_printed() {
    let Ok(path) = std::env::var("METACLAW_CHATS") else {
        return;
    };
    let marker = std::env::var("METACLAW_MARKER").ok();
    let chats = std::fs::read_to_string(path).unwrap();
    for line in chats.lines().filter(|line| !line.trim().is_empty()) {
        let chat: Value = serde_json::from_str(line).unwrap();
        let marker = chat["marker"].as_str().or(marker.as_deref());
        let messages: Vec<Message> = serde_json::from_value(chat["messages"].clone()).unwrap();
        let mut found = heard(&messages, marker);
        for field in ["id", "expect"] {
            found[field] = chat[field].clone();
        }
        println!("{found}");
    }
}

/// The texts that are not the owner's contain the word Zephyr. The author of these texts did not know the rules.
#[test]
fn nothing_is_heard_of_texts_that_are_not_the_owners() {
    for line in include_str!("sets/wrapped.jsonl").lines() {
        let chat: Value = serde_json::from_str(line).unwrap();
        let messages: Vec<Message> = serde_json::from_value(chat["messages"].clone()).unwrap();
        let found = heard(&messages, Some("Zephyr"));
        for list in ["wishes", "waiting", "others_wishes", "memories"] {
            assert_eq!(found[list], json!([]), "{list} of {line}");
        }
        let mut found = found;
        found["speakers"].take();
        let is_heard = found.to_string().contains("Zephyr");
        assert!(!is_heard, "{line}: {found:#}");
    }
}

/// Returns what is heard in a chat, message by message, as its turns would be read.
fn heard(messages: &[Message], marker: Option<&str>) -> Value {
    let has_marker = |text: &str| marker.is_some_and(|marker| text.contains(marker));
    let mut out = json!({
        "speakers": [], "wishes": [], "waiting": [], "others_wishes": [], "memories": [], "gullible_wishes": [],
        "gullible_memories": [], "prompts_with_marker": [], "judged_as_users": [],
    });
    let add = |out: &mut Value, list: &str, text: String| {
        out[list].as_array_mut().unwrap().push(text.into());
    };
    let answer_to = |out: &mut Value, asked: Option<Vec<Message>>, form: &str| {
        let prompt = asked.map(|asked| asked[1].text().into_owned());
        let prompt = prompt.unwrap_or_default();
        let answer = believed(&prompt, form);
        if has_marker(&prompt) {
            add(out, "prompts_with_marker", prompt);
        }
        answer
    };
    for at in 0..messages.len() {
        if messages[at].role() == Role::Assistant {
            let following = messages.get(at + 1..).unwrap_or_default();
            let evidence = Evidence::new(&messages[..at], messages[at].clone(), following);
            let prompt = judge_messages(&evidence)[1].text().into_owned();
            for part in prompt.split(OWNERS).skip(1) {
                let said = part.split("\n>>>\n").next().unwrap_or_default();
                if marker.is_none() || has_marker(said) {
                    add(&mut out, "judged_as_users", said.to_owned());
                }
            }
        }
        let Some(said) = utterance_at(messages, at) else {
            continue;
        };
        add(&mut out, "speakers", format!("{:?}", said.speaker));
        let is_others = match said.speaker {
            Speaker::Owner => false,
            Speaker::Group if said.sender.is_some() => true,
            Speaker::Group | Speaker::Forwarded | Speaker::Client => continue,
        };
        let is_answer = messages[..at].iter().any(|m| m.role() == Role::Assistant);
        for heard in hear(&said.text, is_answer) {
            let (list, text) = listed(heard);
            let list = if is_others { "others_wishes" } else { list };
            add(&mut out, list, text);
        }
        let question = Question::new([&*said.text]);
        let asked = question.as_ref().map(Question::messages);
        let answer = answer_to(&mut out, asked, "wish N:");
        let read = question.and_then(|q| q.read(&answer)?.into_iter().next()?);
        for heard in read.unwrap_or_else(|| hear(&said.text, is_answer)) {
            add(&mut out, "gullible_wishes", listed(heard).1);
        }
        if is_others {
            continue;
        }
        for fact in plain_facts([&*said.text]) {
            add(&mut out, "memories", fact.content);
        }
        let question = FactQuestion::new([&*said.text]);
        let asked = question.as_ref().map(FactQuestion::messages);
        let answer = answer_to(&mut out, asked, "fact N semantic:");
        for fact in question.and_then(|q| q.read(&answer)).unwrap_or_default() {
            add(&mut out, "gullible_memories", fact.content);
        }
    }
    out
}

fn listed(heard: Heard) -> (&'static str, String) {
    match heard {
        Heard::Wish {
            wish, certainty, ..
        } => {
            let is_in_force = certainty == Certainty::Certain && suspicions(&wish).is_empty();
            (if is_in_force { "wishes" } else { "waiting" }, wish)
        }
        Heard::Complaint { wish, text, .. } => ("waiting", format!("complaint: {text} -> {wish}")),
        Heard::TakenBack { facet } => ("waiting", format!("taken back: {facet:?}")),
    }
}

fn believed(prompt: &str, form: &str) -> String {
    let lines = prompt.lines().filter_map(|line| {
        let (n, said) = line.split_once(". ")?;
        let said: String = said.chars().take(150).collect();
        Some(format!("{} {said}\n", form.replace('N', n)))
    });
    let answer: String = lines.collect();
    if answer.is_empty() {
        "none".to_owned()
    } else {
        answer
    }
}
