//! Computes figures from replies. The functions are pure: ids were scored before.

use std::collections::BTreeMap;

use metaclaw_reward::count_words;
use serde::{Deserialize, Serialize};

use crate::content::Wish;

/// A reply of fewer words counts as empty.
const SHORT: usize = 3;

/// A reply with the base model's scores of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored {
    pub question: String,
    pub text: String,
    pub ended: bool,
    /// Its mean log-probability per token after its own question, minus that after two others, in nats.
    pub relevance: f64,
    /// Its mean negative log-probability per token after its question with the wish, in nats.
    pub nll: f64,
}

/// Figures of some replies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub n: usize,
    /// The number of replies that follow each wish.
    pub right: BTreeMap<String, usize>,
    /// The median of their words.
    pub words: f64,
    pub relevance: f64,
    pub nll: f64,
    /// The number of replies with under 3 words.
    pub n_short: usize,
    /// The number of replies that ended by themselves.
    pub n_ended: usize,
}

/// The number of right answers to the probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The right answers to probes that the gate asks.
    pub known: usize,
    /// The right answers to probes that the gate never uses.
    pub hidden: usize,
}

// === impl Figures ===

impl Figures {
    pub fn of<'w>(replies: &[Scored], wishes: impl IntoIterator<Item = &'w Wish>) -> Self {
        let count = |what: &dyn Fn(&Scored) -> bool| replies.iter().filter(|it| what(it)).count();
        let words = |it: &Scored| count_words(&it.text);
        let right = wishes.into_iter().map(|wish| {
            let n = count(&|it: &Scored| wish.is_obeyed(&it.text));
            (wish.name.clone(), n)
        });
        Self {
            n: replies.len(),
            right: right.collect(),
            words: median(replies.iter().map(|it| words(it) as f64)),
            relevance: mean(replies.iter().map(|it| it.relevance)),
            nll: mean(replies.iter().map(|it| it.nll)),
            n_short: count(&|it: &Scored| words(it) < SHORT),
            n_ended: count(&|it: &Scored| it.ended),
        }
    }

    /// Returns the share of replies that follow a wish.
    pub fn rate(&self, wish: &str) -> f64 {
        self.right.get(wish).map_or(f64::NAN, |n| share(*n, self.n))
    }

    /// Returns the relevance as a fraction of the reference's.
    pub fn relevance_of(&self, reference: &Self) -> f64 {
        self.relevance / reference.relevance
    }

    /// Returns the words as a fraction of the reference's.
    pub fn words_of(&self, reference: &Self) -> f64 {
        self.words / reference.words
    }

    /// Returns the negative log-likelihood as a multiple of the reference's own.
    pub fn fluency_of(&self, reference: &Self) -> f64 {
        self.nll / reference.nll
    }
}

/// Returns the first session, from 1, of three in a row that were right.
pub fn three_in_a_row(right: &[bool]) -> Option<usize> {
    let first = right
        .windows(3)
        .position(|three| three.iter().all(|it| *it))?;
    Some(first + 3)
}

/// Returns the median, or NaN of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0);
    for value in values {
        (sum, n) = (sum + value, n + 1);
    }
    sum / f64::from(n)
}

pub fn share(n: usize, of: usize) -> f64 {
    n as f64 / of as f64
}

/// Returns the seed for a test question, which is the same for every adapter.
pub fn test_seed(index: usize) -> u64 {
    7_000 + index as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    fn scored(text: &str, relevance: f64) -> Scored {
        Scored {
            question: String::new(),
            text: text.to_owned(),
            ended: true,
            relevance,
            nll: 1.0,
        }
    }

    #[test]
    fn figures_are_of_all_replies() {
        let content = Content::read(60).unwrap();
        let replies = [
            scored("Hello!", 0.5),
            scored("Boil it.", 1.0),
            scored(&"word ".repeat(50), 1.5),
        ];
        let wishes = ["terse", "hello"].map(|name| &**content.wish(name).unwrap());
        let figures = Figures::of(&replies, wishes);
        assert_eq!((figures.n, figures.n_short, figures.n_ended), (3, 2, 3));
        assert_eq!((figures.right["terse"], figures.right["hello"]), (2, 1));
        assert!((figures.rate("terse") - 2.0 / 3.0).abs() < 1e-9);
        assert!(figures.rate("magic").is_nan());
        assert!((figures.words - 2.0).abs() < 1e-9 && (figures.relevance - 1.0).abs() < 1e-9);
        let reference = Figures {
            relevance: 2.0,
            nll: 0.5,
            words: 4.0,
            ..figures.clone()
        };
        assert!((figures.relevance_of(&reference) - 0.5).abs() < 1e-9);
        assert!((figures.fluency_of(&reference) - 2.0).abs() < 1e-9);
        assert!((figures.words_of(&reference) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn three_in_a_row_are_three() {
        let row = |text: &str| three_in_a_row(&text.chars().map(|c| c == 'x').collect::<Vec<_>>());
        assert_eq!(row("xxx"), Some(3));
        assert_eq!(row("xx.x.xxxx"), Some(8));
        assert_eq!(row("xx.xx"), None);
        assert_eq!(row(""), None);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert!((median([3.0, 1.0, 2.0, 10.0]) - 2.5).abs() < 1e-9);
        assert!(median([]).is_nan());
    }
}
