//! The scripted owner: which questions the owner asks, and how the owner reacts to a reply.

use std::sync::Arc;

use metaclaw_tests::questions::split_mix;
use serde::{Deserialize, Serialize};

use crate::content::Wish;

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
    standing: Vec<Arc<Wish>>,
}

/// It also determines the order of questions and every seed, which are the same for the same run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Questions {
    /// The number of questions.
    n: usize,
    state: u64,
    order: Vec<usize>,
}

// === impl Owner ===

impl Owner {
    /// Adds a wish, which replaces the one that it undoes.
    pub fn wishes(&mut self, wish: Arc<Wish>) {
        self.standing
            .retain(|it| Some(&it.name) != wish.undoes.as_ref());
        self.standing.push(wish);
    }

    /// Returns whether a reply does what is wished.
    pub fn is_content(&self, reply: &str) -> bool {
        self.misses(reply).is_none()
    }

    /// Returns the reaction to a reply; `said` is whether the owner has complained in this session.
    pub fn answer(&self, reply: &str, said: bool) -> Answer {
        match self.misses(reply) {
            None => Answer::Thanks,
            Some(_) if said => Answer::Leaves,
            Some(wish) => Answer::Complaint(wish.complaint.clone()),
        }
    }

    /// Returns the newest wish that a reply does not follow.
    fn misses(&self, reply: &str) -> Option<&Arc<Wish>> {
        let mut newest_first = self.standing.iter().rev();
        newest_first.find(|wish| !wish.is_obeyed(reply))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    fn owner(names: &[&str]) -> Owner {
        let content = Content::read(60).unwrap();
        let mut owner = Owner::default();
        for wish in content.wishes {
            if names.contains(&wish.name.as_str()) {
                owner.wishes(wish);
            }
        }
        owner
    }

    #[test]
    fn she_complains_once_and_then_takes_what_comes() {
        let owner = owner(&["terse"]);
        let long = "word ".repeat(60);
        let Answer::Complaint(said) = owner.answer(&long, false) else {
            panic!("a long reply is complained about");
        };
        assert!(said.starts_with("Too long."));
        assert_eq!(owner.answer(&long, true), Answer::Leaves);
        assert_eq!(owner.answer("Boil it.", true), Answer::Thanks);
        assert_eq!(owner.answer("Boil it.", false), Answer::Thanks);
    }

    #[test]
    fn wishes_add_up_and_one_undoes_another() {
        let both = owner(&["terse", "hello"]);
        assert!(both.is_content("Hello! Boil it."));
        assert!(!both.is_content("Boil it."));
        assert!(!both.is_content(&format!("Hello! {}", "word ".repeat(60))));
        let undone = owner(&["terse", "detail"]);
        assert!(undone.is_content(&"word ".repeat(60)));
        assert!(!undone.is_content("Boil it."));
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
}
