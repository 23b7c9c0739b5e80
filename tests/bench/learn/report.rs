//! What is printed and written of all records: the table, what served, replies to be read, and the curves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::Result;
use metaclaw_tests::chart::{Chart, Curve};

use crate::{
    play::Record,
    rows::Content,
    score::{Figures, References, mean},
};

/// The number of replies of each run that are shown, and the characters of each.
const SHOWN: usize = 10;
const LINE: usize = 240;
const HEAD: [&str; 18] = [
    "row", "wish", "seed", "sessions", "3 in a", "rate", "base", "end", "told", "rel", "len",
    "flu", "probes", "<3", "bad", "adapt.", "gate", "min",
];
const WIDTHS: [usize; 18] = [14, 12, 4, 8, 6, 5, 5, 5, 5, 5, 5, 5, 7, 3, 7, 7, 5, 6];

/// Returns all runs, one on each line.
pub fn table(records: &[Record], references: &References, content: &Content) -> String {
    let mut text = String::from(
        "Test questions are asked of the weights, without a word about the wish. told: the base model with the wish in its\n\
         prompt, the reference. rel and len: relevance and median length as fractions of the reference's; flu: the replies'\n\
         likelihood by it; probes: right of 64 that the gate knows, and of 64 that it does not; bad: requests held or failed.\n\n",
    );
    line(&mut text, &HEAD.map(str::to_owned));
    let base = references.base(content);
    for record in records {
        for (i, measured) in record.measured.iter().enumerate() {
            let (own, wish) = (&measured.figures, &measured.wish);
            let sessions = &record.sessions[..measured.after.min(record.sessions.len())];
            let right: Vec<bool> = sessions.iter().map(|session| session.right).collect();
            let n_right = right.iter().filter(|is_right| **is_right).count();
            let told = references.told(wish, content);
            let two = |value: f64| format!("{value:.2}");
            let fraction = |of: fn(&Figures) -> f64| {
                told.as_ref()
                    .map_or("-".to_owned(), |told| two(of(own) / of(told)))
            };
            let is_last = i + 1 == record.measured.len();
            let at_end = |cell: String| if is_last { cell } else { String::new() };
            let n_bad: u64 = record
                .sessions
                .iter()
                .map(|session| session.n_held + session.failures.len() as u64)
                .sum();
            let n_requests: u64 = record
                .sessions
                .iter()
                .map(|session| session.n_requests)
                .sum();
            let gate = record
                .gate_share()
                .map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
            line(
                &mut text,
                &[
                    record.id.row.clone(),
                    wish.clone(),
                    record.id.seed.to_string(),
                    measured.after.to_string(),
                    three_in_a_row(&right).map_or("-".to_owned(), |n| n.to_string()),
                    two(n_right as f64 / right.len() as f64),
                    two(base.rate(wish)),
                    two(own.rate(wish)),
                    told.as_ref()
                        .map_or("-".to_owned(), |told| two(told.rate(wish))),
                    fraction(|figures| figures.relevance),
                    fraction(|figures| figures.words),
                    // The base model's replies without the wish have no reference.
                    measured
                        .adapter
                        .as_ref()
                        .map_or("-".to_owned(), |_| fraction(|figures| figures.nll)),
                    format!("{}+{}", measured.probed.known, measured.probed.hidden),
                    own.n_short.to_string(),
                    at_end(format!("{n_bad}/{n_requests}")),
                    at_end(format!(
                        "{}/{}",
                        record.watch.served.len(),
                        record.made.len()
                    )),
                    at_end(gate),
                    at_end(format!("{:.1}", record.seconds / 60.0)),
                ],
            );
        }
    }
    text
}

fn line(text: &mut String, cells: &[String; 18]) {
    for (i, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let _ = if i < 2 {
            write!(text, "{cell:<width$} ")
        } else {
            write!(text, "{cell:>width$} ")
        };
    }
    text.pop();
    text.push('\n');
}

/// Returns the first session, from 1, of three in a row that were right.
fn three_in_a_row(right: &[bool]) -> Option<usize> {
    let first = right.windows(3).position(|three| three == [true; 3])?;
    Some(first + 3)
}

/// Returns each adapter that served: its figures beside those of the base model and the reference, and the gate's own.
pub fn served(records: &[Record], references: &References, content: &Content) -> String {
    let mut text = String::from(
        "\nWhat served, on the test questions, beside the base model and the base model with the wish in its prompt:\n",
    );
    let base = references.base(content);
    for record in records {
        for served in &record.adapters {
            let name = &served.wish;
            let (Some(told), Ok(wish)) = (references.told(name, content), content.wish(name))
            else {
                continue;
            };
            let own = Figures::of(&served.replies, [&**wish]);
            let [rate, relevance] = [
                |figures: &Figures, name: &str| figures.rate(name),
                |figures: &Figures, _: &str| figures.relevance,
            ]
            .map(|of| {
                format!(
                    "{:.2} ({:.2}, {:.2})",
                    of(&own, name),
                    of(&base, name),
                    of(&told, name)
                )
            });
            let _ = writeln!(
                text,
                "  {} after {}, {}: rate {rate}; relevance {relevance}; nll {:.2} (told {:.2}), median {:.2} (told {:.2})",
                record.id,
                served.after,
                served.adapter,
                own.nll,
                told.nll,
                own.nll_median,
                told.nll_median
            );
            let tests = record
                .watch
                .steps
                .get(&served.adapter)
                .and_then(|step| step["gate"]["tests"].as_array());
            for test in tests.into_iter().flatten() {
                let is_shown = test["name"] == "relevance" || test["name"] == "fluency";
                if let Some(why) = test["why"].as_str().filter(|_| is_shown) {
                    let _ = writeln!(text, "    the gate: {why}");
                }
            }
        }
    }
    text
}

/// Returns ten replies of each adapter that served, with the base model's above.
pub fn replies(records: &[Record], references: &References) -> String {
    let mut text = String::new();
    for record in records {
        for served in &record.adapters {
            let (after, adapter) = (served.after, &served.adapter);
            let _ = writeln!(text, "\n{} after {after} sessions, {adapter}", record.id);
            let step = (served.replies.len() / SHOWN).max(1);
            for reply in served.replies.iter().step_by(step).take(SHOWN) {
                let mut plain = references.plain.iter();
                let plain = plain.find(|plain| plain.question == reply.question);
                let base = one_line(plain.map_or("", |plain| &plain.text));
                let learned = one_line(&reply.text);
                let _ = writeln!(
                    text,
                    "  {}\n    base     {base}\n    learned  {learned}",
                    reply.question
                );
            }
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

/// Returns the share of right first replies by session as SVG, with a curve for each row. It is of the wishes that all rows
/// have, and of the seeds that have all of these. Rows without the most frequent wish are left out.
pub fn picture(records: &[&Record], references: &References, content: &Content) -> Result<String> {
    type Row<'a> = BTreeMap<(&'a str, u64), &'a Record>;
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    for record in records {
        let row = rows.entry(&record.id.row).or_default();
        row.insert((record.id.wish.as_str(), record.id.seed), record);
    }
    let has = |row: &Row<'_>, wish: &str| row.keys().any(|(own, _)| *own == wish);
    let mut wishes: BTreeSet<&str> = records.iter().map(|record| &*record.id.wish).collect();
    let n_rows = |wish: &str| rows.values().filter(|row| has(row, wish)).count();
    if let Some(usual) = wishes.iter().copied().max_by_key(|wish| n_rows(wish)) {
        rows.retain(|_, row| has(row, usual));
    }
    wishes.retain(|wish| rows.values().all(|row| has(row, wish)));
    let curve = |(name, row): (&&str, &Row<'_>)| {
        let is_whole = |seed: u64| wishes.iter().all(|wish| row.contains_key(&(*wish, seed)));
        let runs = row
            .iter()
            .filter(|((wish, seed), _)| wishes.contains(wish) && is_whole(*seed));
        let right = |record: &Record| {
            let sessions = record.sessions.iter();
            sessions.map(|session| f64::from(session.right)).collect()
        };
        let runs: Vec<_> = runs
            .map(|((_, seed), record)| (*seed, right(record)))
            .collect();
        let name = name.replace('-', " ");
        (!runs.is_empty()).then_some(Curve { name, runs })
    };
    let base = references.base(content);
    let told = |wish: &&str| Some(references.told(wish, content)?.rate(wish));
    let told: Option<Vec<f64>> = wishes.iter().map(told).collect();
    let references = [
        (
            "base model",
            mean(wishes.iter().map(|wish| base.rate(wish))),
        ),
        ("base model, told", mean(told.unwrap_or_default())),
    ];
    let chart = Chart {
        title: "How often the first reply is as its owner wishes".to_owned(),
        share: match *wishes.iter().copied().collect::<Vec<_>>().as_slice() {
            [wish] => format!(
                "first replies, wish: {}",
                content.wish(wish).map_or(wish, |wish| &wish.request)
            ),
            ref wishes => format!("first replies, {} wishes", wishes.len()),
        },
        session: "conversation".to_owned(),
        curves: rows.iter().filter_map(curve).collect(),
        references: references
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    };
    chart.draw()
}

// === impl Record ===

impl Record {
    /// Returns the share of steps' time that the gate took, or `None` if no step reports it.
    fn gate_share(&self) -> Option<f64> {
        let (mut gate, mut all) = (0.0, 0.0);
        for step in self.watch.steps.values() {
            if let (Some(own), Some(whole)) =
                (step["gate"]["seconds"].as_f64(), step["seconds"].as_f64())
            {
                (gate, all) = (gate + own, all + whole);
            }
        }
        (all > 0.0).then(|| gate / all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        play::{Measured, Served, Session},
        rows::RunId,
        score::{Probed, testing::scored},
    };

    /// Returns a run with only the final measurement.
    fn record(row: &str, seed: u64) -> Record {
        let (row, wish) = (row.to_owned(), "terse".to_owned());
        let id = RunId {
            row,
            wish: wish.clone(),
            seed,
            sessions: 40,
        };
        let mut record = Record::new(&id, 60);
        record.measured.push(Measured {
            after: 40,
            adapter: Some("a-1".to_owned()),
            figures: Figures {
                n: 60,
                right: [(wish.clone(), 54)].into(),
                words: 20.0,
                relevance: 1.4,
                nll: 1.1,
                nll_median: 0.6,
                n_short: 0,
                n_ended: 60,
            },
            wish,
            probed: Probed {
                known: 57,
                hidden: 58,
            },
            replies: Vec::new(),
            with_text: Vec::new(),
        });
        record.made.insert("a-1".to_owned());
        record.watch.served.insert("a-1".to_owned());
        let step = json!({"seconds": 10.0, "gate": {"seconds": 4.0}});
        record.watch.steps.insert("a-1".to_owned(), step);
        record
            .watch
            .steps
            .insert("a-0".to_owned(), json!({"seconds": 10.0}));
        record.seconds = 100.0;
        record
    }

    #[test]
    fn a_line_has_every_figure_of_its_run() {
        let mut references = References {
            plain: vec![scored("q", &"word ".repeat(50), 1.0)],
            ..References::default()
        };
        let told = scored("q", "words that say what is to be done with it", 1.0);
        references.told.insert("terse".to_owned(), vec![told]);
        let text = table(
            &[record("default", 3)],
            &references,
            &Content::read(60, None).unwrap(),
        );
        let line = text.lines().last().unwrap();
        let expected =
            "default terse 3 40 - NaN 0.00 0.90 1.00 1.40 2.00 1.10 57+58 0 0/0 1/1 40% 1.7";
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>().join(" "),
            expected
        );
        let row = |text: &str| three_in_a_row(&text.chars().map(|c| c == 'x').collect::<Vec<_>>());
        assert_eq!(
            [row("xxx"), row("xx.x.xxxx"), row("xx.xx"), row("")],
            [Some(3), Some(8), None, None]
        );
    }

    #[test]
    fn replies_stand_beside_the_bases() {
        let mut run = record("default", 1);
        let said = (0..60).map(|i| scored(&format!("q{i}"), "Boil\nit.", 1.0));
        run.adapters.push(Served {
            after: 40,
            adapter: "a-1".to_owned(),
            wish: "terse".to_owned(),
            replies: said.collect(),
        });
        let references = References {
            plain: vec![scored("q6", &"long ".repeat(100), 1.0)],
            ..References::default()
        };
        let text = replies(&[run], &references);
        assert_eq!(text.matches("learned  Boil it.").count(), 10);
        assert!(
            text.contains("  q6\n    base     long long") && text.contains(" .."),
            "{text}"
        );
    }

    #[test]
    fn curves_are_of_the_wishes_and_seeds_that_can_be_compared() {
        let run = |row: &str, wish: &str, seed, right: &str| {
            let mut run = record(row, seed);
            wish.clone_into(&mut run.id.wish);
            run.sessions = right
                .bytes()
                .map(|byte| Session {
                    right: byte == b'x',
                    ..Session::default()
                })
                .collect();
            run
        };
        let runs = [
            run("control", "terse", 1, ".."),
            run("default", "terse", 1, "xx"),
            run("default", "terse", 2, "x."),
            run("default", "hello", 1, ".."),
            run("quiet", "hello", 1, "xx"),
        ];
        let draw = |runs: &[&Record]| {
            picture(
                runs,
                &References::default(),
                &Content::read(60, None).unwrap(),
            )
            .unwrap()
        };
        let svg = draw(&runs.iter().collect::<Vec<_>>());
        for part in [
            "first replies, wish: Please answer in one short sentence. (mean of 5)",
            ">\ncontrol\n",
            ">\ndefault\n",
            "of 2 seeds)",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("quiet"), "{svg}");
        // Only the first seed has both wishes.
        let svg = draw(&runs[1..4].iter().collect::<Vec<_>>());
        assert!(
            svg.contains("first replies, 2 wishes (mean") && !svg.contains("seeds)"),
            "{svg}"
        );
        assert!(draw(&[]).contains("0 wishes"));
    }
}
