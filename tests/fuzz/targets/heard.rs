//! The owner's words: a text that a client or a framework brings is never a wish, a memory, in a prompt of a model that
//! hears, or in a judge's prompt as what the user says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_chat::{Message, utterance_at};
use metaclaw_fuzz::{
    Input,
    wrap::{MARKER, conversation},
};
use metaclaw_reward::{Evidence, prompt::judge_messages};
use metaclaw_skills::{FactQuestion, Question, hear, plain_facts};

/// What a judge's prompt puts above the user's words.
const OWNERS: &str = "<<< what happened next: the user says\n";

fuzz_target!(|data: &[u8]| {
    let messages = conversation(&mut Input::new(data)).into_iter();
    let messages: Vec<Message> = messages
        .map(|it| it.try_into().expect("a message"))
        .collect();
    let (before, reply, last) = (&messages[..1], messages[1].clone(), &messages[2..]);
    let judged = judge_messages(&Evidence::new(before, reply, last));
    let judged = judged[1].text();
    for said in judged.split(OWNERS).skip(1) {
        let said = said.split("\n>>>\n").next().unwrap_or_default();
        assert!(!said.contains(MARKER), "the user says {said:?} in {last:?}");
    }
    let Some(said) = utterance_at(&messages, 2).filter(|it| it.is_owners() || it.sender.is_some())
    else {
        return;
    };
    let heard = format!(
        "{:?} {:?}",
        hear(&said.text, true),
        plain_facts([&*said.text])
    );
    let wishes = Question::new([&*said.text]).map(|it| it.messages()[1].text().into_owned());
    let facts = FactQuestion::new([&*said.text]).map(|it| it.messages()[1].text().into_owned());
    for heard in [Some(heard), wishes, facts].into_iter().flatten() {
        assert!(!heard.contains(MARKER), "{heard:?} in {last:?}");
    }
});
