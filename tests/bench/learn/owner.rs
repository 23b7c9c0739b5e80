//! The scripted owner: which questions the owner asks, how the owner reacts to a reply, and the reward function that
//! knows the present wishes of each agent's owner (docs/extending/reward-functions.md).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use metaclaw_test_kit::{Reply, Request, Server};
use metaclaw_tests::questions::split_mix;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rows::Wish;

pub const THANKS: &str = "Thanks.";

/// What an owner does after a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The reply follows the wish: the owner says so, and ends the session.
    Thanks,
    /// It does not: the owner says the wish, once in a session.
    Complaint(String),
    /// It does not, and the owner has said the wish: the owner leaves.
    Leaves,
}

/// An owner with all present wishes.
#[derive(Debug, Clone, Default)]
pub struct Owner {
    wishes: Vec<Arc<Wish>>,
}

/// It also determines the order of questions and every seed, which are the same for the same run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Questions {
    /// The number of questions.
    n: usize,
    state: u64,
    order: Vec<usize>,
}

/// The reward function, at `url`, and the owners by their agents.
pub struct Judge {
    pub url: String,
    owners: Arc<Mutex<BTreeMap<String, Owner>>>,
    _server: Server,
}

// === impl Owner ===

impl Owner {
    /// Adds a wish, which replaces the one that it undoes.
    pub fn add(&mut self, wish: Arc<Wish>) {
        self.wishes
            .retain(|other| Some(&other.name) != wish.undoes.as_ref());
        self.wishes.push(wish);
    }

    /// Returns the reaction to a reply to a question; `has_complained` says whether the owner did in this session.
    pub fn answer(&self, question: &str, reply: &str, has_complained: bool) -> Answer {
        let missed = self
            .wishes
            .iter()
            .rfind(|wish| !wish.is_obeyed(question, reply));
        match missed {
            None => Answer::Thanks,
            Some(_) if has_complained => Answer::Leaves,
            Some(newest) => Answer::Complaint(newest.complaint.clone()),
        }
    }
}

// === impl Questions ===

impl Questions {
    pub fn new(n: usize, seed: u64) -> Self {
        Self {
            n,
            state: seed.wrapping_mul(1_000_003),
            order: Vec::new(),
        }
    }

    /// Returns the next question's place in the list: all in one order, then all in another.
    pub fn next(&mut self) -> usize {
        if self.order.is_empty() {
            self.order = (0..self.n).collect();
            for i in (1..self.order.len()).rev() {
                let j = split_mix(&mut self.state) % (i as u64 + 1);
                self.order
                    .swap(i, usize::try_from(j).expect("below the length"));
            }
        }
        self.order.pop().expect("there are questions")
    }

    /// Returns the seed of the next draw.
    pub fn draw(&mut self) -> u64 {
        split_mix(&mut self.state) >> 33
    }
}

// === impl Judge ===

impl Judge {
    /// Starts it; it ends on drop.
    pub fn start() -> Self {
        let owners = Arc::<Mutex<BTreeMap<String, Owner>>>::default();
        let known = Arc::clone(&owners);
        let server = Server::new(move |request: &Request| {
            let (body, owners) = (
                request.json(),
                known.lock().unwrap_or_else(PoisonError::into_inner),
            );
            let turns = body["turns"].as_array().into_iter().flatten();
            let scores: Vec<Option<i8>> = turns.map(|turn| score(&owners, turn)).collect();
            Reply::json(json!({ "scores": scores }))
        });
        Self {
            url: format!("{}/scores", server.url()),
            owners,
            _server: server,
        }
    }

    /// Sets the wishes of this agent's owner from now on.
    pub fn set(&self, agent: &str, owner: &Owner) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.insert(agent.to_owned(), owner.clone());
    }
}

/// Returns whether a turn's reply does what its agent's owner wishes. A reply to thanks, which answers no question, and a
/// turn of an unknown agent get no score.
fn score(owners: &BTreeMap<String, Owner>, turn: &Value) -> Option<i8> {
    let owner = owners.get(turn["agent"].as_str()?)?;
    let messages = turn["request"]["messages"].as_array()?;
    let mut own = messages.iter().filter(|message| message["role"] == "user");
    // MetaClaw may have added lines below the owner's words.
    let first_line =
        |message: &Value| Some(message["content"].as_str()?.lines().next()?.to_owned());
    let question = first_line(own.next()?)?;
    let last = own.next_back().map_or(Some(question.clone()), first_line)?;
    let answer = owner.answer(&question, turn["reply"]["content"].as_str()?, false);
    (last != THANKS).then(|| if answer == Answer::Thanks { 1 } else { -1 })
}

#[cfg(test)]
mod tests {
    use metaclaw_tests::client::Client;

    use super::*;
    use crate::rows::Content;

    fn owner(names: &[&str]) -> Owner {
        let mut owner = Owner::default();
        for wish in Content::read(60, None).unwrap().wishes {
            if names.contains(&wish.name.as_str()) {
                owner.add(wish);
            }
        }
        owner
    }

    #[test]
    fn an_owner_complains_once_and_one_wish_undoes_another() {
        let long = "word ".repeat(60);
        let short = "Boil it.";
        let terse = owner(&["terse"]);
        let complaint = |owner: &Owner, reply: &str| {
            matches!(owner.answer("", reply, false), Answer::Complaint(_))
        };
        assert!(
            matches!(terse.answer("", &long, false), Answer::Complaint(said) if said.starts_with("Too long."))
        );
        assert_eq!(terse.answer("", &long, true), Answer::Leaves);
        assert_eq!(
            (
                terse.answer("", short, true),
                terse.answer("", short, false)
            ),
            (Answer::Thanks, Answer::Thanks)
        );
        let both = owner(&["terse", "hello"]);
        assert_eq!(both.answer("", "Hello! Boil it.", false), Answer::Thanks);
        assert!(complaint(&both, short) && complaint(&both, &format!("Hello! {long}")));
        let undone = owner(&["terse", "detail"]);
        assert!(complaint(&undone, short) && !complaint(&undone, &long));
    }

    #[test]
    fn every_question_is_asked_before_one_is_asked_again() {
        let asked = |seed: u64| {
            let mut questions = Questions::new(60, seed);
            (0..60).map(|_| questions.next()).collect::<Vec<_>>()
        };
        let mut sorted = asked(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..60).collect::<Vec<_>>());
        assert_eq!(asked(1), asked(1));
        assert_ne!(asked(1), asked(2));
    }

    #[tokio::test]
    async fn each_reply_is_judged_by_its_own_owner() {
        let judge = Judge::start();
        for wish in ["terse", "hello"] {
            judge.set(wish, &owner(&[wish]));
        }
        let turn = |agent: &str, said: &str| {
            json!({"agent": agent, "request": {"messages": [{"role": "user", "content": said}]},
                "reply": {"role": "assistant", "content": "Boil it."}})
        };
        let thanked = turn("terse", "Thanks.\n\nPlease answer in one short sentence.");
        let turns = [
            turn("terse", "How?"),
            turn("hello", "How?"),
            turn("nobody", "How?"),
            thanked,
        ];
        let request = Client::new(&judge.url).post("", &json!({ "turns": turns }));
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer, json!({"scores": [1, -1, null, null]}));
    }
}
