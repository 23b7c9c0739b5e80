//! Measures of a set of replies that need no model.

use metaclaw_reward::count_words;

use crate::{calls::mentions_call, policy::DrawnReply};

/// A reply with fewer words is no answer.
const FEW_WORDS: usize = 3;

/// Returns the median; for an even count the mean of the two in the middle, and 0 for no numbers.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.get(middle) {
        None => 0.0,
        Some(upper) if values.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(values[middle - 1], *upper),
    }
}

/// Returns the mean, or 0 for no numbers.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard error of the mean, or 0 for fewer than two numbers.
pub(super) fn standard_error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if values.len() < 2 {
        return 0.0;
    }
    let middle = mean(values);
    let squares = values.iter().map(|value| (value - middle).powi(2));
    (squares.sum::<f64>() / (n - 1.0) / n).sqrt()
}

/// Returns the median length, in words.
pub(super) fn median_words(replies: &[&DrawnReply]) -> f64 {
    let words = replies.iter().map(|reply| count_words(&reply.text) as f64);
    median(words.collect())
}

/// Returns the share of replies that have under 3 words.
pub(super) fn short_share(replies: &[&DrawnReply]) -> f64 {
    let short = replies
        .iter()
        .filter(|reply| count_words(&reply.text) < FEW_WORDS);
    short.count() as f64 / replies.len().max(1) as f64
}

/// Returns the share of replies that ask a question instead of answering.
pub(super) fn asking_share(replies: &[&DrawnReply]) -> f64 {
    let asking = replies.iter().filter(|reply| asks_back(&reply.text));
    asking.count() as f64 / replies.len().max(1) as f64
}

/// Returns whether a reply has twice as many words in questions as in statements. An exclamation ("Sure!") counts as
/// neither.
fn asks_back(reply: &str) -> bool {
    let (mut asked, mut said) = (0, 0);
    for sentence in reply.split_inclusive(['.', '!', '?', '\n', '。', '！', '？']) {
        let n_words = count_words(sentence);
        if sentence.ends_with(['?', '？']) {
            asked += n_words;
        } else if !sentence.ends_with(['!', '！']) {
            said += n_words;
        }
    }
    asked > 2 * said
}

/// Returns the share of replies to plain questions that call a tool although the request offered none.
pub(super) fn calling_share(replies: &[&DrawnReply]) -> f64 {
    let calling = replies.iter().filter(|reply| mentions_call(&reply.text));
    calling.count() as f64 / replies.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str, ids: &[u32]) -> DrawnReply {
        DrawnReply {
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
    fn the_error_of_a_mean_is_less_of_more_numbers() {
        // Computed by hand: the variance of 4 numbers is 1.
        is(
            standard_error(&[1.0, 2.0, 3.0, 2.0]),
            (2.0_f64 / 3.0 / 4.0).sqrt(),
        );
        is(standard_error(&[0.5; 16]), 0.0);
        is(standard_error(&[3.0]), 0.0);
        is(standard_error(&[]), 0.0);
    }

    #[test]
    fn a_question_back_is_told_from_an_answer() {
        for asks in [
            "What would you like to know about eggs?",
            "Sure! Which kettle do you have? Is it made of steel?",
            "你想知道什么？",
        ] {
            assert!(asks_back(asks), "{asks}");
        }
        for answers in [
            "Boil it for six minutes.",
            "Boil it for six minutes. Would you like to know more?",
            "How do I boil an egg? You put it into boiling water for six minutes.",
            "Boil it for six",
            "",
        ] {
            assert!(!asks_back(answers), "{answers}");
        }
        let replies = [reply("Why?", &[]), reply("It is so.", &[])];
        is(asking_share(&replies.each_ref()), 0.5);
        is(asking_share(&[]), 0.0);
    }

    #[test]
    fn a_call_where_no_tool_is_offered_is_counted() {
        let replies = [
            reply("<tool_call>{\"name\": \"x\"}</tool_call>", &[]),
            reply("Boil it.", &[]),
        ];
        is(calling_share(&replies.each_ref()), 0.5);
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
