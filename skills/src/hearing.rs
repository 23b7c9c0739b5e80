//! What an owner's message says about how to answer: a wish that stands, a complaint, or that one is taken back.
//!
//! On the owner's own words alone: what is quoted, pasted or passed on is covered up first. Where a model can be asked
//! it hears ([`Question`]); else rules do ([`hear`]), and a sentence counts only if it speaks to the assistant about its
//! manner. A wish that is missed is said again; one that was never meant stands in every session: in doubt nothing
//! is heard.

mod chinese;
mod english;
mod facet;
mod own_words;
mod question;
mod rules;

use std::sync::LazyLock;

use regex::Regex;

pub use self::{facet::Facet, question::Question};
use self::{own_words::Sentence, rules::Rules};
use crate::patterns::pattern;

/// Says that it is about something that was learned.
static NAMES_A_LESSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\b(?:rule|wish|preference|lesson|learn(?:ed|t))|规则|要求|偏好|习惯|愿望|学")
});

/// The longest sentence that can be a wish, in characters.
const MAX_SENTENCE: usize = 300;

/// What a message says about the manner of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A wish.
    Wish {
        /// The sentence that asks.
        said: String,
        /// What is wished for: that sentence, or a model's short form of it.
        wish: String,
        /// What it is about; of one that cannot be told, nothing is replaced.
        facet: Option<Facet>,
    },
    /// A complaint that asks for nothing: two about one thing make a wish.
    Complaint {
        /// What it is about.
        facet: Facet,
        /// What is wished for by it, in the owner's language.
        wish: &'static str,
        /// The sentence.
        text: String,
    },
    /// A wish is taken back: the one about this, or the last.
    TakenBack {
        /// What it was about.
        facet: Option<Facet>,
    },
}

/// Hears an owner's message. `answers` says whether it follows a reply: a complaint needs one.
pub fn hear(text: &str, answers: bool) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut sentences = own_words::sentences(text).into_iter().peekable();
    while let Some(mut sentence) = sentences.next() {
        // "Ask me first. Every time."
        let behind = sentences.next_if(|next| {
            if own_words::is_chinese(next.text) {
                chinese::Chinese::holds(next)
            } else {
                english::English::holds(next)
            }
        });
        sentence.holds = behind.is_some();
        if sentence.text.chars().count() > MAX_SENTENCE {
            continue;
        }
        let new = if own_words::is_chinese(sentence.text) {
            hear_sentence::<chinese::Chinese>(&sentence, answers)
        } else {
            hear_sentence::<english::English>(&sentence, answers)
        };
        heard.extend(new);
    }
    // "Too long. One sentence, please." is one wish and no complaint beside it.
    let asks = |facet: &Facet| {
        heard
            .iter()
            .any(|it| matches!(it, Heard::Wish { facet: Some(of), .. } if of == facet))
    };
    let spoken_for: Vec<bool> = heard
        .iter()
        .map(|it| matches!(it, Heard::Complaint { facet, .. } if asks(facet)))
        .collect();
    let mut spoken_for = spoken_for.into_iter();
    heard.retain(|_| !spoken_for.next().unwrap_or(false));
    heard
}

fn hear_sentence<R: Rules>(sentence: &Sentence<'_>, answers: bool) -> Option<Heard> {
    let facet = Facet::of(&sentence.masked);
    // "Forget it" is said of anything.
    if R::takes_back(sentence) && (facet.is_some() || NAMES_A_LESSON.is_match(&sentence.masked)) {
        return Some(Heard::TakenBack { facet });
    }
    if R::wish(sentence) {
        return Some(Heard::Wish {
            said: sentence.text.to_owned(),
            wish: sentence.text.to_owned(),
            facet,
        });
    }
    let (facet, wish) = R::complaint(sentence).filter(|_| answers)?;
    Some(Heard::Complaint {
        facet,
        wish,
        text: sentence.text.to_owned(),
    })
}

#[cfg(test)]
mod tests;
