//! What is printed and written of all records: the table, what served, replies to be read, and the curves.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    play::{Record, Window},
    rows::Content,
    score::{Figures, References},
};

/// The number of replies of each run that are shown, and the characters of each.
const SHOWN: usize = 10;
const LINE: usize = 240;
/// The sizes of a panel, and the space beside and below the panels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const GAP: f64 = 50.0;
const LEGEND: f64 = 240.0;
const COLOURS: [&str; 10] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf",
];
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
                "  {} after {}, {}: rate {rate}; relevance {relevance}; nll {:.2} (told {:.2})",
                record.id, served.after, served.adapter, own.nll, told.nll
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

/// Returns an SVG with three panels, one line for each run, and all seeds of a row and wish in one colour.
pub fn picture(records: &[Record], references: &References, content: &Content) -> String {
    type Panel<'a> = (&'a str, f64, &'a dyn Fn(&Window) -> Option<f64>);
    let told: BTreeMap<&str, Figures> = references
        .told
        .keys()
        .filter_map(|wish| Some((wish.as_str(), references.told(wish, content)?)))
        .collect();
    let fluency = |window: &Window| Some(window.nll / told.get(window.wish.as_str())?.nll);
    let panels: [Panel<'_>; 3] = [
        ("first replies that obey, of ten sessions", 1.0, &|window| {
            Some(window.n_right as f64 / window.n as f64)
        }),
        ("median words of the first replies", 120.0, &|window| {
            Some(window.words)
        }),
        (
            "negative log-likelihood, as a multiple of the reference's",
            2.0,
            &fluency,
        ),
    ];
    let n_sessions = records
        .iter()
        .map(|record| record.id.sessions)
        .max()
        .unwrap_or(1);
    let name = |record: &Record| format!("{} {}", record.id.row, record.id.wish);
    let mut names: Vec<String> = records.iter().map(name).collect();
    names.sort();
    names.dedup();
    let (right, middle) = (LEFT + WIDTH, LEFT - 6.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        right + LEGEND,
        3.0 * (HEIGHT + GAP) + GAP
    );
    for (i, (title, most, value)) in panels.into_iter().enumerate() {
        let top = GAP + i as f64 * (HEIGHT + GAP);
        let bottom = top + HEIGHT;
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\">{title}</text>\n\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"end\">{most}</text>\n\
             <text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{n_sessions} sessions</text>",
            top - 8.0,
            top + 10.0,
            bottom + 15.0,
        );
        for record in records {
            let at = names.binary_search(&name(record)).unwrap_or_default();
            let points = record.windows.iter().filter_map(|window| {
                let x = LEFT + WIDTH * window.until as f64 / n_sessions as f64;
                let y = bottom - HEIGHT * value(window)?.clamp(0.0, most) / most;
                Some(format!("{x:.1},{y:.1}"))
            });
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
                points.collect::<Vec<_>>().join(" "),
                COLOURS[at % COLOURS.len()]
            );
        }
    }
    for (i, name) in names.iter().enumerate() {
        let (x, y, colour) = (
            right + 15.0,
            GAP + 10.0 + 18.0 * i as f64,
            COLOURS[i % COLOURS.len()],
        );
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{name}</text>"
        );
    }
    svg + "</svg>\n"
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
        play::{Measured, Served},
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
    fn every_run_has_a_line_in_every_panel_and_every_row_a_name() {
        let mut runs = [
            record("default", 1),
            record("default", 2),
            record("both", 1),
        ];
        for run in &mut runs {
            let wish = "terse".to_owned();
            run.windows = vec![Window {
                until: 10,
                n: 10,
                n_right: 3,
                words: 20.0,
                nll: 1.1,
                wish,
            }];
        }
        let svg = picture(
            &runs,
            &References::default(),
            &Content::read(60, None).unwrap(),
        );
        assert_eq!(svg.matches("<polyline").count(), 9);
        assert_eq!(svg.matches(">default terse</text>").count(), 1);
        // The line is at 10 of 40 sessions, with 3 of 10 right, in the highest panel.
        assert!(svg.contains("points=\"275.0,204.0\""), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
