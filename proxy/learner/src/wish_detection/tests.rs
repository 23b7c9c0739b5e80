//! Measures what hearing costs in short chats, and what it finds there.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use metaclaw_skills::{SkillsConfig, WishesConfig, estimate_tokens};
use metaclaw_turns::{TurnLog, TurnsConfig};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    AskFailed, Listener, Parts,
    testing::{Running, World, append, parts, progress, said},
};

const CHATS: &str = include_str!("../../tests/sets/short_chats.tsv");
/// Tokens of each request beside its conversation: a system prompt of one sentence, and the skills in it. The program used
/// 65,000 tokens for these chats without a model that hears.
const AROUND: usize = 150;
/// Rules are certain about it, so all that waits is read before it.
const LAST: &str = "From now on answer in French.";

struct ShortTurn {
    kind: &'static str,
    text: String,
    reply: String,
}

fn short_chats() -> Vec<Vec<ShortTurn>> {
    let chats = CHATS.split("\n\n").map(|chat| {
        let turns = chat.lines().filter(|line| !line.starts_with('#'));
        let turns = turns.map(|line| {
            let mut parts = line.split('\t');
            let mut part = || parts.next().unwrap();
            ShortTurn {
                kind: part(),
                text: part().replace("\\n", "\n"),
                reply: part().replace("\\n", "\n"),
            }
        });
        turns.collect()
    });
    chats.collect()
}

/// A model that labels sentences as the set does.
#[derive(Debug)]
struct Labeller {
    wishes: Vec<String>,
    /// Tokens of each request and its answer.
    asked: Mutex<Vec<usize>>,
}

impl Ask for Labeller {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let sentences = messages[1].text().into_owned();
        let is_part = |said: &str| {
            let own = said.split("[quoted]").map(str::trim);
            let own: Vec<&str> = own.filter(|part| part.len() > 1).collect();
            let n: usize = own.iter().map(|part| part.len()).sum();
            let is_in = |wish: &String| own.iter().all(|part| wish.contains(part));
            // "movie time" alone is not "whenever I say movie time, dim the lights ..".
            let mut wishes = self.wishes.iter();
            wishes.any(|wish| is_in(wish) && n * 3 > wish.len())
        };
        let lines = sentences.lines().filter_map(|line| {
            let (n, said) = line.split_once(". ")?;
            is_part(said).then(|| format!("wish {n}: {said}\n"))
        });
        let answer: String = lines.chain(["none".to_owned()]).collect();
        let texts = messages.iter().map(|message| message.text().into_owned());
        let tokens = texts.map(|text| estimate_tokens(&text)).sum::<usize>();
        let mut asked = self.asked.lock().unwrap();
        asked.push(tokens + estimate_tokens(&answer));
        progress::made();
        Box::pin(async move { Ok(answer) })
    }
}

/// Hears the chats. Returns the messages in which something was heard, and the tokens of each request to the model.
async fn heard(chats: &[Vec<ShortTurn>], with_model: bool) -> (Vec<String>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let log = TurnLog::open(&dir.path().join("turns"), &TurnsConfig::default()).unwrap();
    let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
    let (library, _) = Library::open(dir.path().join("skills"), skills, wishes);
    let turns = || chats.iter().flatten();
    let wishes = turns().filter(|turn| turn.kind == "wish");
    let model = Arc::new(Labeller {
        wishes: wishes.map(|turn| turn.text.clone()).collect(),
        asked: Mutex::default(),
    });
    let listener = Listener::Model(Arc::<Labeller>::clone(&model));
    let parts = Parts {
        listener: Some(listener).filter(|_| with_model),
        library: Some(library.clone()),
        ..parts(
            serde_json::from_str(r#"{"mode": "skills_only"}"#).unwrap(),
            &log,
        )
    };
    let running = Running::start(parts, CancellationToken::new()).await;
    let world = World::default();
    for (n, chat) in chats.iter().enumerate() {
        let talk = chat.iter().zip(1..);
        let talk: Vec<_> = talk
            .map(|(turn, mark)| said(&turn.text, &turn.reply, mark))
            .collect();
        append(&log, &world, &format!("s-{n}"), &talk).await;
    }
    append(&log, &world, "last", &[said(LAST, "Oui.", 1)]).await;
    let lessons = progress::found_in_time(async || {
        let lessons = library.journal().unwrap();
        lessons
            .iter()
            .any(|lesson| lesson.heard == LAST)
            .then_some(lessons)
    });
    let lessons = lessons.await.expect("the last wish was never heard");
    running.stop().await;
    let is_heard = |text: &str| lessons.iter().any(|lesson| text.contains(&lesson.heard));
    let heard = turns().filter(|turn| is_heard(&turn.text));
    let heard = heard.map(|turn| turn.text.clone()).collect();
    (heard, model.asked.lock().unwrap().clone())
}

/// Before, a model was asked about almost each message: in 290 requests of 58,700 tokens.
#[tokio::test]
async fn hearing_costs_a_fifth_at_most_of_short_chats_and_misses_no_wish() {
    let chats = short_chats();
    let (mut n_turns, mut of_chats) = (0, 0);
    for chat in &chats {
        let mut before = 0;
        for turn in chat {
            n_turns += 1;
            before += estimate_tokens(&turn.text);
            let reply = estimate_tokens(&turn.reply);
            of_chats += AROUND + before + reply;
            before += reply;
        }
    }
    let wishes = chats.iter().flatten().filter(|turn| turn.kind == "wish");
    let wishes: Vec<&str> = wishes.map(|turn| &*turn.text).collect();
    // Rules alone note four complaints as well, and propose two of the other messages.
    for (with_model, most_missed, most_others) in [(true, 0, 0), (false, 22, 6)] {
        let (found, asked) = heard(&chats, with_model).await;
        let of_hearing: usize = asked.iter().sum();
        let missed = wishes
            .iter()
            .filter(|wish| !found.iter().any(|one| one == *wish));
        let missed: Vec<_> = missed.collect();
        let others = found.iter().filter(|one| !wishes.contains(&one.as_str()));
        let others: Vec<_> = others.collect();
        println!(
            "{n_turns} turns, {of_chats} tokens; {} requests to hear, {of_hearing} tokens; missed {missed:?}, others {others:?}",
            asked.len()
        );
        assert!(missed.len() <= most_missed, "{missed:?}");
        assert!(others.len() <= most_others, "{others:?}");
        assert!(asked.len() <= 35, "{} requests", asked.len());
        assert!(of_hearing * 5 <= of_chats, "{of_hearing} of {of_chats}");
    }
}
