//! What is measured of a set of replies, without asking anybody.

use metaclaw_reward::count_words;

use crate::policy::Draw;

/// Fewer words than this are no answer.
const FEW_WORDS: usize = 3;

/// The middle of some numbers; of an even count, between the two in the middle; 0 of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.get(middle) {
        None => 0.0,
        Some(upper) if values.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(values[middle - 1], *upper),
    }
}

/// The mean of some numbers; 0 of none.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The median length, in words.
pub(super) fn median_words(replies: &[&Draw]) -> f64 {
    let words = replies.iter().map(|reply| count_words(&reply.text) as f64);
    median(words.collect())
}

/// The share of replies that have under 3 words.
pub(super) fn short_share(replies: &[&Draw]) -> f64 {
    let short = replies
        .iter()
        .filter(|reply| count_words(&reply.text) < FEW_WORDS);
    short.count() as f64 / replies.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str, ids: &[u32]) -> Draw {
        Draw {
            ids: ids.to_vec(),
            text: text.to_owned(),
            ended: true,
        }
    }

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        is(median(vec![]), 0.0);
        is(median(vec![7.0]), 7.0);
        is(median(vec![9.0, 1.0, 3.0]), 3.0);
        is(median(vec![9.0, 1.0, 3.0, 4.0]), 3.5);
    }

    #[test]
    fn words_are_counted_whatever_the_spaces() {
        let replies = [
            reply("Yes.", &[]),
            reply("  two words\n", &[]),
            reply("here are three", &[]),
            reply("", &[]),
        ];
        is(median_words(&replies.each_ref()), 1.5);
        is(short_share(&replies.each_ref()), 0.75);
        is(short_share(&[]), 0.0);
    }
}
