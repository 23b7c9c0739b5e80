//! Prints the table in the terminal, and ten replies of each run beside the base model's.

use std::fmt::Write as _;

use crate::{
    content::Content,
    measure::{Figures, share, three_in_a_row},
    record::Record,
    reference::References,
};

/// The number of replies of each run that are shown.
const SHOWN: usize = 10;
/// The number of a reply's characters that are shown.
const LINE: usize = 240;

/// Prints all runs, one on each line.
pub fn table(records: &[Record], references: &References, content: &Content) -> String {
    let mut text = String::from(
        "Test questions are asked of the weights, without a word about the wish. told: the base model with the wish in its\n\
         prompt, the reference. rel and len: relevance and median length as fractions of the reference's; flu: the replies'\n\
         likelihood by it; probes: right of 64 that the gate knows, and of 64 that it does not; bad: requests held or failed.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<14} {:<12} {:>4} {:>8} {:>6} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>7} {:>3} {:>7} {:>7} {:>5} {:>6}",
        "row",
        "wish",
        "seed",
        "sessions",
        "3 in a",
        "rate",
        "base",
        "end",
        "told",
        "rel",
        "len",
        "flu",
        "probes",
        "<3",
        "bad",
        "adapt.",
        "gate",
        "min"
    );
    for record in records {
        text.push_str(&line(record, references, content));
    }
    text
}

fn line(record: &Record, references: &References, content: &Content) -> String {
    let mut text = String::new();
    let base = references.base(content);
    for (i, measured) in record.measured.iter().enumerate() {
        let sessions = &record.sessions[..measured.after.min(record.sessions.len())];
        let right: Vec<bool> = sessions.iter().map(|it| it.right).collect();
        let n_right = right.iter().filter(|it| **it).count();
        let told = references.of(&measured.wish, content);
        let fraction =
            |of: &dyn Fn() -> Option<f64>| of().map_or("-".to_owned(), |it| format!("{it:.2}"));
        let figures = &measured.figures;
        let is_last = i + 1 == record.measured.len();
        let at_end = |it: String| if is_last { it } else { String::new() };
        let _ = writeln!(
            text,
            "{:<14} {:<12} {:>4} {:>8} {:>6} {:>5.2} {:>5.2} {:>5.2} {:>5} {:>5} {:>5} {:>5} {:>7} {:>3} {:>7} {:>7} {:>5} {:>6}",
            record.id.row,
            measured.wish,
            record.id.seed,
            measured.after,
            three_in_a_row(&right).map_or("-".to_owned(), |n| n.to_string()),
            share(n_right, right.len()),
            base.rate(&measured.wish),
            figures.rate(&measured.wish),
            fraction(&|| Some(told.as_ref()?.rate(&measured.wish))),
            fraction(&|| Some(figures.relevance_of(told.as_ref()?))),
            fraction(&|| Some(figures.words_of(told.as_ref()?))),
            // The base model's replies without the wish have no reference.
            fraction(&|| measured
                .adapter
                .as_ref()
                .and(Some(figures.fluency_of(told.as_ref()?)))),
            format!("{}+{}", measured.probed.known, measured.probed.hidden),
            figures.n_short,
            at_end(format!("{}/{}", record.n_held(), record.n_requests())),
            at_end(format!("{}/{}", record.served.len(), record.made.len())),
            at_end(
                record
                    .gate_share()
                    .map_or("-".to_owned(), |it| format!("{:.0}%", it * 100.0))
            ),
            at_end(format!("{:.1}", record.seconds / 60.0)),
        );
    }
    text
}

/// Prints each adapter that served: its figures beside those of the base model and the reference, and the gate's own.
pub fn served(records: &[Record], references: &References, content: &Content) -> String {
    let mut text = String::from(
        "\nWhat served, on the test questions, beside the base model and the base model with the wish in its prompt:\n",
    );
    let base = references.base(content);
    for record in records {
        for served in &record.adapters {
            let (Some(told), Ok(wish)) = (
                references.of(&served.wish, content),
                content.wish(&served.wish),
            ) else {
                continue;
            };
            let own = Figures::of(&served.replies, [&**wish]);
            let beside = |of: &dyn Fn(&Figures) -> f64| {
                format!("{:.2} ({:.2}, {:.2})", of(&own), of(&base), of(&told))
            };
            let _ = writeln!(
                text,
                "  {} after {}, {}: rate {}; relevance {}; nll {:.2} (told {:.2})",
                record.id,
                served.after,
                served.adapter,
                beside(&|figures| figures.rate(&served.wish)),
                beside(&|figures| figures.relevance),
                own.nll,
                told.nll,
            );
            for test in ["relevance", "fluency"] {
                if let Some(said) = record.gate_said(&served.adapter, test) {
                    let _ = writeln!(text, "    the gate: {said}");
                }
            }
        }
    }
    text
}

/// Prints ten replies of each run, with the base model's above.
pub fn replies(records: &[Record], references: &References) -> String {
    let mut text = String::new();
    for record in records {
        let Some(end) = record.end().filter(|it| it.adapter.is_some()) else {
            continue;
        };
        let _ = writeln!(
            text,
            "\n{} after {} sessions, {}",
            record.id,
            end.after,
            end.adapter.as_deref().unwrap_or_default()
        );
        let step = (end.replies.len() / SHOWN).max(1);
        for reply in end.replies.iter().step_by(step).take(SHOWN) {
            let plain = references
                .plain
                .iter()
                .find(|it| it.question == reply.question);
            let plain = plain.map_or("", |it| &it.text);
            let _ = writeln!(
                text,
                "  {}\n    base     {}\n    learned  {}",
                reply.question,
                one_line(plain),
                one_line(&reply.text)
            );
        }
    }
    text
}

fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LINE) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::Scored, record::testing::record};

    fn scored(question: &str, text: &str) -> Scored {
        Scored {
            question: question.into(),
            text: text.into(),
            ended: true,
            relevance: 1.0,
            nll: 1.0,
        }
    }

    #[test]
    fn a_line_has_every_figure_of_its_run() {
        let content = Content::read(60).unwrap();
        let mut references = References {
            plain: vec![scored("q", &"word ".repeat(50))],
            ..References::default()
        };
        references.told.insert(
            "terse".to_owned(),
            vec![scored("q", "words that say what is to be done with it")],
        );
        let text = table(&[record("default", "terse", 3)], &references, &content);
        let line = text.lines().last().unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let expected = [
            "default", "terse", "3", "40", "-", "NaN", "0.00", "0.90", "1.00", "1.40", "2.00",
            "1.10", "57+58", "0", "0/0", "1/1", "40%", "1.7",
        ];
        assert_eq!(cells, expected, "{line}");
    }

    #[test]
    fn replies_stand_beside_the_bases() {
        let mut run = record("default", "terse", 1);
        run.measured[0].replies = (0..60)
            .map(|i| scored(&format!("q{i}"), "Boil\nit."))
            .collect();
        let references = References {
            plain: vec![scored("q6", &"long ".repeat(100))],
            ..References::default()
        };
        let text = replies(&[run], &references);
        assert_eq!(text.matches("learned  Boil it.").count(), 10);
        assert!(text.contains("  q6\n    base     long long"), "{text}");
        assert!(text.contains(" .."), "long replies are cut");
    }
}
