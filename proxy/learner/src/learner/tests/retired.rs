//! Wishes whose lines need not be said any more.

use futures_util::future::BoxFuture;
use metaclaw_chat::Message;
use metaclaw_reward::Policy;
use metaclaw_skills::Wish;

use super::*;
use crate::{
    judge::{Ask, AskFailed},
    testing::Habit,
};

/// Neither is about what is complained of in the talks, which would take its place.
const WISHES: [&str; 2] = ["Sign with Max.", "Always answer in French."];

/// Finds that replies are as they should be, but for what concerns one wish.
#[derive(Debug)]
struct Listener {
    misses: &'static str,
}

impl Ask for Listener {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let is_missed = messages.iter().any(|m| m.text().contains(self.misses));
        let vote = if is_missed { "-1" } else { "+1" };
        Box::pin(async move { Ok(format!("verdict: {vote}")) })
    }
}

fn judge(config: &LearnerConfig, misses: &'static str, is_base: bool) -> Judge {
    Judge::Model {
        rules: Rules::compile(&config.judge.rules).unwrap(),
        model: Arc::new(Listener { misses }),
        others: Vec::new(),
        votes: 1,
        consensus: 0.0,
        policy: Policy::default(),
        is_base,
    }
}

/// The lines that the adapter which serves is told, of two wishes; and that of a library which was opened anew.
async fn told(misses: &'static str, is_base: bool) -> [Vec<String>; 2] {
    told_by(Habit::Fine, |config| judge(config, misses, is_base)).await
}

/// The same of adapters that do this, with this judge.
async fn told_by(habit: Habit, judge: impl Fn(&LearnerConfig) -> Judge) -> [Vec<String>; 2] {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], habit);
    let (agent, config) = (AgentId::default_agent(), again(1));
    let open = || library(dir.path());
    let library = open();
    for wish in WISHES {
        library.add_wish(&agent, wish).unwrap();
    }
    let ids = library.wishes(&agent);
    let lines = |library: &Library, adapter: &str| {
        let lessons = library.lessons_for(&agent, "", Some(adapter));
        let is_told = |wish: &&Wish| {
            let told = &lessons.where_answers(Some(adapter)).wish_ids;
            told.contains(&wish.id())
        };
        let told = ids.iter().filter(is_told);
        told.map(|wish| wish.text.clone()).collect::<Vec<String>>()
    };
    let (told, judged) = (Some(library.clone()), judge(&config));
    let log = dir.path().join("log");
    let rig = Rig::start_judged(&log, &world, config.clone(), told, judged).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    let serving = rig.log.serving().await.unwrap();
    let adapter = serving[0].1.clone();
    let now = lines(&library, &adapter);
    assert_eq!(lines(&library, "another").len(), 2);
    rig.stop().await;
    let anew = open();
    let (told, judged) = (Some(anew.clone()), judge(&config));
    let rig = Rig::start_judged(&log, &world, config, told, judged).await;
    let later = lines(&anew, &adapter);
    rig.stop().await;
    [now, later]
}

#[tokio::test]
async fn the_line_of_a_wish_that_the_weights_do_untold_is_left_out_where_they_answer() {
    let french = || vec![WISHES[1].to_owned()];
    assert_eq!(told("French", false).await, [french(), french()]);
}

fn rules(words: &str) -> Judge {
    let rules = json!([
        {"on": "next", "pattern": "too long", "score": -1},
        {"on": "reply", "pattern": words, "score": 1},
        {"on": "reply", "min_words": 0, "score": -1},
    ]);
    let rules: Vec<metaclaw_reward::Rule> = serde_json::from_value(rules).unwrap();
    Judge::Rules(Rules::compile(&rules).unwrap())
}

/// The adapter signs, which the base model does only when it is told to; by the rules it need not answer in French. `short` and
/// `answered` are what the teacher says.
#[tokio::test]
async fn rules_on_replies_find_that_a_line_need_not_be_said() {
    let told = told_by(Habit::Signs, |_| rules("max|short|answered")).await;
    let french = || vec![WISHES[1].to_owned()];
    assert_eq!(told, [french(), french()]);
}

#[tokio::test]
async fn the_line_stays_where_the_adapter_does_not_do_it() {
    let [now, later] = told_by(Habit::Fine, |_| rules("max|short|answered")).await;
    assert_eq!((now.len(), later.len()), (2, 2));
}

/// They find the base model's replies good as well: they do not look at these wishes.
#[tokio::test]
async fn rules_that_look_at_something_else_retire_no_line() {
    let [now, later] = told_by(Habit::Signs, |_| rules("max|short|answer")).await;
    assert_eq!((now.len(), later.len()), (2, 2));
}

/// A small model is not asked about wishes, and the rules find the base model's replies good as well.
#[tokio::test]
async fn where_nobody_tells_wishes_apart_every_line_stays() {
    let [now, later] = told("nothing of this", true).await;
    assert_eq!((now.len(), later.len()), (2, 2));
}
