//! The limits of an adapter that serves. They lie between the base model's figures and the reference's, and depend on how
//! much of the wish it keeps (docs/training/gate.md, "The price of a wish"). The gate takes them from sixteen questions of its
//! own, this from the test questions.

use crate::{
    content::{Content, Wish},
    measure::{Figures, Scored, mean},
    record::Served,
    reference::References,
};

/// One-sided 95 %.
const NOISE: f64 = 1.645;
/// Replies of one test of the gate: so well it knows what the base model comes to.
const GATE_QUESTIONS: f64 = 16.0;
/// Of the reference's relevance (`gate.min_relevance`), and of its surprise.
const MIN_RELEVANCE: f64 = 0.8;
const MAX_SURPRISE: f64 = 1.6;
/// How far the reference must be from the base model, so that the place between them says something: in the share of replies
/// that obey, and in nat a token.
const LEAST_SPAN: (f64, f64) = (0.25, 0.05);

/// A figure of an adapter (`own`) and its limit (`asked`), with the figures of the base model and of the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    pub own: f64,
    pub asked: f64,
    pub base: f64,
    pub told: f64,
}

/// An adapter that served, beside the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnLine {
    /// How much of the wish it keeps, from 0 to 1.
    pub kept: f64,
    /// Whether that is told by the rules, and not by likelihood.
    pub by_rules: bool,
    pub relevance: Held,
    pub surprise: Held,
}

/// A mean, and the standard error that it has of as many replies as the gate asks for.
#[derive(Debug, Clone, Copy)]
struct Wavering {
    mean: f64,
    error: f64,
}

// === impl OnLine ===

impl OnLine {
    /// None where the base model was not asked.
    pub fn of(served: &Served, references: &References, content: &Content) -> Option<Self> {
        let wish = content.wish(&served.wish).ok()?;
        let plain = references.plain.as_slice();
        let told = references.told.get(&served.wish)?;
        if plain.is_empty() || told.is_empty() || served.replies.is_empty() {
            return None;
        }
        let gain = references.gains.get(&served.wish).copied();
        let (kept, by_rules) = kept(wish, &served.replies, plain, told, gain);
        let at = |base: f64, told: f64| base * (1.0 - kept) + told * kept;
        let (base, reference) = (
            Wavering::of(plain, relevance),
            Wavering::of(told, relevance),
        );
        let most_lost = if reference.mean > 0.0 {
            MIN_RELEVANCE
        } else {
            1.0
        };
        let relevance = Held {
            own: mean(served.replies.iter().map(relevance)),
            asked: at(base.mean - NOISE * base.error, reference.mean * most_lost),
            base: base.mean,
            told: reference.mean,
        };
        let (base, reference) = (Wavering::of(plain, untold), Wavering::of(told, surprise));
        let surprise = Held {
            // With the wish or without, whichever is less.
            own: mean(served.replies.iter().map(surprise))
                .min(mean(served.replies.iter().map(untold))),
            asked: at(
                base.mean + NOISE * base.error,
                reference.mean * MAX_SURPRISE,
            ),
            base: base.mean,
            told: reference.mean,
        };
        Some(Self {
            kept,
            by_rules,
            relevance,
            surprise,
        })
    }

    /// By how much it is more relevant than is asked.
    pub fn relevance_to_spare(&self) -> f64 {
        self.relevance.own - self.relevance.asked
    }

    /// By how much it surprises less than it may.
    pub fn surprise_to_spare(&self) -> f64 {
        self.surprise.asked - self.surprise.own
    }
}

// === impl Wavering ===

impl Wavering {
    fn of(replies: &[Scored], figure: fn(&Scored) -> f64) -> Self {
        let middle = mean(replies.iter().map(figure));
        let squares = replies.iter().map(|it| (figure(it) - middle).powi(2));
        let variance = squares.sum::<f64>() / (replies.len() as f64 - 1.0).max(1.0);
        Self {
            mean: middle,
            error: (variance / GATE_QUESTIONS).sqrt(),
        }
    }
}

/// How much of a wish is kept; whether the rules tell. Nothing where neither they nor likelihood tell the reference from the base.
fn kept(
    wish: &Wish,
    own: &[Scored],
    plain: &[Scored],
    told: &[Scored],
    plain_gain: Option<f64>,
) -> (f64, bool) {
    let place = |own: f64, base: f64, told: f64| ((own - base) / (told - base)).clamp(0.0, 1.0);
    let [own_rate, base, reference] =
        [own, plain, told].map(|replies| Figures::of(replies, [wish]).rate(&wish.name));
    if reference - base >= LEAST_SPAN.0 {
        return (place(own_rate, base, reference), true);
    }
    let gain = |replies: &[Scored]| mean(replies.iter().map(|it| it.gain));
    let share = match plain_gain {
        Some(base) if gain(told) - base >= LEAST_SPAN.1 => place(gain(own), base, gain(told)),
        Some(_) | None => 0.0,
    };
    (share, false)
}

fn relevance(reply: &Scored) -> f64 {
    reply.relevance
}

/// With the wish in the prompt.
fn surprise(reply: &Scored) -> f64 {
    reply.nll
}

fn untold(reply: &Scored) -> f64 {
    reply.nll + reply.gain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::testing::served, reference::testing::references};

    /// The base has 0.9, and obeys in 3 of 60; the reference 0.4 here, and obeys in 54.
    #[test]
    fn a_loss_is_held_against_what_of_the_wish_is_kept() {
        let content = Content::read(60).unwrap();
        let mut references = references(&["hello"], &content);
        for reply in references.told.get_mut("hello").unwrap() {
            reply.relevance = 0.4;
        }
        let line = |text: &str, relevance: f64| {
            let served = served(text, relevance, &content);
            OnLine::of(&served, &references, &content).unwrap()
        };
        let lost = line("It is so.", 0.5);
        assert!(lost.kept.abs() < 1e-9 && lost.by_rules, "{lost:?}");
        assert!((lost.relevance.asked - 0.9).abs() < 1e-9, "{lost:?}");
        assert!(lost.relevance_to_spare() < 0.0);
        let paid = line("Hello! It is so.", 0.5);
        assert!((paid.kept - 1.0).abs() < 1e-9);
        assert!((paid.relevance.asked - 0.32).abs() < 1e-9, "{paid:?}");
        assert!(paid.relevance_to_spare() > 0.0 && paid.surprise_to_spare() > 0.0);
    }

    #[test]
    fn what_the_rules_cannot_tell_likelihood_does() {
        let content = Content::read(60).unwrap();
        let mut references = references(&["hello"], &content);
        for reply in references.told.get_mut("hello").unwrap() {
            (reply.text, reply.gain) = ("It is so.".to_owned(), 0.3);
        }
        let mut half = served("It is so.", 0.5, &content);
        for reply in &mut half.replies {
            reply.gain = 0.1;
        }
        let kept = |references: &References| OnLine::of(&half, references, &content).unwrap().kept;
        assert!(kept(&references).abs() < 1e-9, "the base was not asked");
        references.gains.insert("hello".to_owned(), -0.1);
        assert!((kept(&references) - 0.5).abs() < 1e-9);
    }
}
