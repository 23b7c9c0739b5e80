//! Detects what an owner's message says about the manner of answers: a standing wish, a complaint, or that a wish is
//! withdrawn.
//!
//! Only the owner's own words are read. Quoted, pasted or forwarded text is covered first. If a model can be asked, it
//! detects wishes ([`Question`]). Otherwise rules do ([`hear`]): they look for the words of each cue in a language
//! (`lexicon`, and the tables in `data`) and add up the weights of the cues (`cue`). A model is asked only about messages
//! of which the rules are not sure ([`is_doubtful`]), about several at once. A missed wish is stated again, but a
//! wrong one affects every session. So an uncertain wish is proposed or ignored.

mod covered;
mod cue;
mod language;
mod lexicon;
mod own_sentence;
mod own_words;
mod question;

use std::sync::LazyLock;

use regex::Regex;

pub(crate) use self::own_sentence::{OwnSentence, own_sentences};
pub use self::{
    cue::{Certainty, Facet},
    own_sentence::{Remark, remark},
    question::{Question, is_doubtful},
};
use self::{language::Language, own_words::Sentence};
use crate::words::{WORD_LISTS, pattern};

static NAMES_A_LESSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:rule|wish|preference|lesson|learn(?:ed|t))|规则|规矩|要求|限制|偏好|习惯|愿望|那条|这条|学",
    )
});

/// The longest sentence that can be a wish, in characters.
const MAX_SENTENCE: usize = 300;
/// If a long message has more wishes than this, it is a pasted text with rules, and none is detected.
const MOST_IN_LONG: usize = 3;

/// What a message says about the manner of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Wish {
        said: String,
        /// The wish: that sentence, or a model's short form of it.
        wish: String,
        /// The subject of the wish. If it is not known, nothing is replaced.
        facet: Option<Facet>,
        certainty: Certainty,
    },
    /// A complaint that contains no wish. Two about the same subject make a wish.
    Complaint {
        facet: Facet,
        wish: &'static str,
        text: String,
    },
    /// A wish is withdrawn: the one about this subject, or the last one.
    TakenBack { facet: Option<Facet> },
}

/// Detects wishes in an owner's message. `answers` is true if the message follows a
/// reply. Only such a message can be a complaint.
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
    hear_sentences(own_words::sentences(text), answers)
}

fn sentences_and_wishes(text: &str) -> impl Iterator<Item = (Sentence<'_>, Option<Certainty>)> {
    let sentences = own_words::sentences(text);
    let heard = hear_sentences(sentences.clone(), true);
    sentences.into_iter().filter(is_short).map(move |sentence| {
        let wish = heard.iter().find_map(|heard| match heard {
            Heard::Wish {
                said, certainty, ..
            } if said == sentence.text => Some(*certainty),
            Heard::Wish { .. } | Heard::Complaint { .. } | Heard::TakenBack { .. } => None,
        });
        (sentence, wish)
    })
}

fn is_short(sentence: &Sentence<'_>) -> bool {
    sentence.text.chars().count() <= MAX_SENTENCE
}

fn hear_sentences(sentences: Vec<Sentence<'_>>, answers: bool) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut is_long = false;
    let mut sentences = sentences.into_iter().peekable();
    while let Some(mut sentence) = sentences.next() {
        // "Ask me first. Every time."
        let behind = sentences.next_if(|next| Language::detect(next).holds(next));
        sentence.holds = behind.is_some();
        is_long = sentence.is_in_long;
        if is_short(&sentence) {
            heard.extend(hear_sentence(&sentence, answers));
        }
    }
    let n_wishes = heard.iter().filter(|one| matches!(one, Heard::Wish { .. }));
    if is_long && n_wishes.count() > MOST_IN_LONG {
        return Vec::new();
    }
    // "Too long. One sentence, please." is one wish, and not a complaint in addition.
    let asks = |facet: &Facet| {
        heard
            .iter()
            .any(|one| matches!(one, Heard::Wish { facet: Some(of), .. } if of == facet))
    };
    let spoken_for: Vec<bool> = heard
        .iter()
        .map(|one| matches!(one, Heard::Complaint { facet, .. } if asks(facet)))
        .collect();
    let mut spoken_for = spoken_for.into_iter();
    heard.retain(|_| !spoken_for.next().unwrap_or(false));
    heard
}

fn hear_sentence(sentence: &Sentence<'_>, answers: bool) -> Option<Heard> {
    let language = Language::detect(sentence);
    let facet = Facet::find(&sentence.masked);
    if !sentence.is_in_long && language.takes_back(sentence) {
        // "Forget it" is said about anything.
        let names_one = facet.is_some() || NAMES_A_LESSON.is_match(&sentence.masked);
        return names_one.then_some(Heard::TakenBack { facet });
    }
    if let Some(certainty) = language.wish(sentence) {
        return Some(Heard::Wish {
            said: sentence.text.to_owned(),
            wish: without_opener(sentence.text).to_owned(),
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

/// Leaves out an "ok" before a wish, which only answers what was said before.
fn without_opener(sentence: &str) -> &str {
    let end = sentence.find(|c: char| !c.is_alphabetic());
    let (first, rest) = sentence.split_at(end.unwrap_or(sentence.len()));
    let wish = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_opener = WORD_LISTS.list("opener").contains(&&*first.to_lowercase());
    if is_opener && !wish.is_empty() {
        wish
    } else {
        sentence
    }
}

#[cfg(test)]
mod tests;
