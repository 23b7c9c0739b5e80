//! What an owner's message says about how to answer: a wish that stands, a complaint, or that one is taken back.
//!
//! It reads the owner's own words alone: what is quoted, pasted or passed on is covered up first. Where a model can be
//! asked it hears ([`Question`]); else rules do ([`hear`]): they look for a language's words of each cue (`lexicon`,
//! `english`, `chinese`) and add up what the cues weigh (`cue`). A wish that is missed is said again; one that was never
//! meant stands in every session: what is not certain is proposed or not heard.

mod chinese;
mod cue;
mod english;
mod facet;
mod language;
mod lexicon;
mod own_words;
mod question;

use std::sync::LazyLock;

use regex::Regex;

use self::{chinese::CHINESE, english::ENGLISH, language::Language, own_words::Sentence};
pub use self::{cue::Certainty, facet::Facet, question::Question};
use crate::patterns::pattern;

/// Says that it is about something that was learned.
static NAMES_A_LESSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:rule|wish|preference|lesson|learn(?:ed|t))|规则|规矩|要求|限制|偏好|习惯|愿望|那条|这条|学",
    )
});

/// The longest sentence that can be a wish, in characters.
const MAX_SENTENCE: usize = 300;
/// A long message with more wishes than this is a text with rules in it that was pasted: none is heard.
const MOST_IN_LONG: usize = 3;

/// What a message says about the manner of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Wish {
        /// The sentence that asks.
        said: String,
        /// What is wished for: that sentence, or a model's short form of it.
        wish: String,
        /// What it is about; of one that cannot be told, nothing is replaced.
        facet: Option<Facet>,
        /// How sure it is.
        certainty: Certainty,
    },
    /// A complaint that asks for nothing: two about one thing make a wish.
    Complaint {
        /// What it is about.
        facet: Facet,
        /// What is wished for by it, in the owner's language.
        wish: &'static str,
        text: String,
    },
    /// A wish is taken back: the one about this, or the last.
    TakenBack {
        /// What it was about.
        facet: Option<Facet>,
    },
}

/// Hears an owner's message. `answers` says whether it follows a reply: a complaint needs one.
///
/// # Examples
/// ```
/// use metaclaw_skills::{Heard, hear};
///
/// let heard = hear("From now on, please answer in French.", false);
/// assert!(matches!(&heard[..], [Heard::Wish { .. }]));
/// assert!(hear("What is the capital of France?", false).is_empty());
/// ```
pub fn hear(text: &str, answers: bool) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut is_long = false;
    let mut sentences = own_words::sentences(text).into_iter().peekable();
    while let Some(mut sentence) = sentences.next() {
        // "Ask me first. Every time."
        let behind = sentences.next_if(|next| language(next).holds(next));
        sentence.holds = behind.is_some();
        is_long = sentence.is_in_long;
        if sentence.text.chars().count() <= MAX_SENTENCE {
            heard.extend(hear_sentence(&sentence, answers));
        }
    }
    let n_wishes = heard.iter().filter(|it| matches!(it, Heard::Wish { .. }));
    if is_long && n_wishes.count() > MOST_IN_LONG {
        return Vec::new();
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

fn language(sentence: &Sentence<'_>) -> &'static Language {
    if own_words::is_chinese(sentence.text) {
        &CHINESE
    } else {
        &ENGLISH
    }
}

fn hear_sentence(sentence: &Sentence<'_>, answers: bool) -> Option<Heard> {
    let language = language(sentence);
    let facet = Facet::of(&sentence.masked);
    if !sentence.is_in_long && language.takes_back(sentence) {
        // "Forget it" is said of anything.
        let names_one = facet.is_some() || NAMES_A_LESSON.is_match(&sentence.masked);
        return names_one.then_some(Heard::TakenBack { facet });
    }
    if let Some(certainty) = language.wish(sentence) {
        return Some(Heard::Wish {
            said: sentence.text.to_owned(),
            wish: sentence.text.to_owned(),
            facet,
            certainty,
        });
    }
    let (facet, wish) = language.complaint(sentence).filter(|_| answers)?;
    Some(Heard::Complaint {
        facet,
        wish,
        text: sentence.text.to_owned(),
    })
}

#[cfg(test)]
mod tests;
