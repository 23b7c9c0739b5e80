//! Measures what hearing costs in short chats, and what it finds there.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use metaclaw_skills::{SkillsConfig, WishesConfig, estimate_tokens};
use metaclaw_turns::{TurnLog, TurnsConfig};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    AskFailed, Listener, Parts,
    testing::{Running, World, append, append_for, parts, progress, said},
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

/// A learner that only hears.
struct HearingLearner {
    _dir: tempfile::TempDir,
    log: TurnLog,
    library: Library,
    running: Running,
}

impl HearingLearner {
    async fn start(model: Option<Arc<dyn Ask>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(&dir.path().join("turns"), &TurnsConfig::default()).unwrap();
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        let (library, _) = Library::open(dir.path().join("skills"), skills, wishes);
        let config = serde_json::from_str(r#"{"mode": "skills_only"}"#).unwrap();
        let parts = Parts {
            listener: model.map(Listener::Model),
            library: Some(library.clone()),
            ..parts(config, &log)
        };
        Self {
            running: Running::start(parts, CancellationToken::new()).await,
            _dir: dir,
            log,
            library,
        }
    }

    /// Has all that waits read, and ends. Returns the lessons.
    async fn end(self, world: &World) -> Vec<Lesson> {
        append(&self.log, world, "last", &[said(LAST, "Oui.", 1)]).await;
        let lessons = progress::found_in_time(async || {
            let lessons = self.library.journal().unwrap();
            let is_last = |lesson: &Lesson| lesson.heard == LAST;
            lessons.iter().any(is_last).then_some(lessons)
        });
        let lessons = lessons.await.expect("the last wish was never heard");
        self.running.stop().await;
        lessons
    }
}

/// Hears the chats. Returns the messages in which something was heard, and the tokens of each request to the model.
async fn heard(chats: &[Vec<ShortTurn>], with_model: bool) -> (Vec<String>, Vec<usize>) {
    let turns = || chats.iter().flatten();
    let wishes = turns().filter(|turn| turn.kind == "wish");
    let model = Arc::new(Labeller {
        wishes: wishes.map(|turn| turn.text.clone()).collect(),
        asked: Mutex::default(),
    });
    let listener: Arc<dyn Ask> = Arc::<Labeller>::clone(&model);
    let learner = HearingLearner::start(Some(listener).filter(|_| with_model)).await;
    let world = World::default();
    for (n, chat) in chats.iter().enumerate() {
        let talk = chat.iter().zip(1..);
        let talk: Vec<_> = talk
            .map(|(turn, mark)| said(&turn.text, &turn.reply, mark))
            .collect();
        append(&learner.log, &world, &format!("s-{n}"), &talk).await;
    }
    let lessons = learner.end(&world).await;
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

/// A model that keeps what it is shown.
#[derive(Debug, Default)]
struct Shown(Mutex<Vec<String>>);

impl Ask for Shown {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let sentences = messages[1].text().into_owned();
        self.0.lock().unwrap().push(sentences);
        Box::pin(async { Ok("none".to_owned()) })
    }
}

/// What one person said to one agent is read in one request, without the words of another member of a group, or those of
/// another agent's owner.
#[tokio::test]
async fn what_two_people_say_or_what_is_said_to_two_agents_never_shares_a_request() {
    let group = |sender: &str, text: &str| {
        let sender = format!("{{\"is_group_chat\": true, \"sender\": {{\"id\": \"{sender}\"}}}}");
        format!("Conversation info: ⟦openclaw:ctx⟧\n```json\n{sender}\n```\n\n{text}")
    };
    let model = Arc::new(Shown::default());
    let listener: Arc<dyn Ask> = Arc::<Shown>::clone(&model);
    let learner = HearingLearner::start(Some(listener)).await;
    let world = World::default();
    let mut expected = Vec::new();
    let said_by = [
        ("default", None),
        ("kim", None),
        ("default", Some("100")),
        ("default", Some("200")),
        ("kim", Some("100")),
    ];
    // Twice around, so that each person's messages are between those of others.
    for round in ["watch", "phone"] {
        for (agent, sender) in said_by {
            let text = format!(
                "I read these on my {round} {agent}{}.",
                sender.unwrap_or_default()
            );
            let typed = sender.map_or(text.clone(), |sender| group(sender, &text));
            let (agent, session) = (agent.parse().unwrap(), text.replace(' ', "-"));
            let talk = [said(&typed, "All right.", 1)];
            append_for(&agent, &learner.log, &world, &session, &talk).await;
            expected.push(text);
        }
    }
    learner.end(&world).await;
    let (first, second) = expected.split_at(said_by.len());
    let pairs = first.iter().zip(second);
    let requests = pairs.map(|(first, second)| format!("1. {first}\n2. {second}\n"));
    assert_eq!(*model.0.lock().unwrap(), requests.collect::<Vec<_>>());
}
