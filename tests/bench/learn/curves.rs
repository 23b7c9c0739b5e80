//! Draws the curves: a line for each run, in three panels.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    content::Content,
    record::{Record, Window},
    reference::References,
};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const GAP: f64 = 50.0;
/// The space beside the panels, for names.
const LEGEND: f64 = 240.0;
const COLOURS: [&str; 10] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf",
];

/// A figure of a window, or `None` without a reference.
type Value<'a> = Box<dyn Fn(&Window) -> Option<f64> + 'a>;

/// A panel: its quantity, the value at its top, and the value of a window.
struct Panel<'a> {
    title: &'static str,
    most: f64,
    value: Value<'a>,
}

/// Returns an SVG with one line for each run, and all seeds of a row and wish in one colour.
pub fn picture(records: &[Record], references: &References, content: &Content) -> String {
    let told: BTreeMap<&str, _> = references
        .told
        .keys()
        .filter_map(|wish| Some((wish.as_str(), references.of(wish, content)?)))
        .collect();
    let fluency = |it: &Window| Some(it.fluency_of(told.get(it.wish.as_str())?));
    let panels = [
        Panel {
            title: "first replies that obey, of ten sessions",
            most: 1.0,
            value: Box::new(|it: &Window| Some(it.rate())),
        },
        Panel {
            title: "median words of the first replies",
            most: 120.0,
            value: Box::new(|it: &Window| Some(it.words)),
        },
        Panel {
            title: "negative log-likelihood, as a multiple of the reference's",
            most: 2.0,
            value: Box::new(fluency),
        },
    ];
    let most_sessions = records.iter().map(|it| it.id.sessions).max().unwrap_or(1);
    let mut names: Vec<String> = records.iter().map(name).collect();
    names.sort();
    names.dedup();
    let height = 3.0 * (HEIGHT + GAP) + GAP;
    let width = LEFT + WIDTH + LEGEND;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, panel) in panels.iter().enumerate() {
        let top = GAP + i as f64 * (HEIGHT + GAP);
        axes(&mut svg, top, panel, most_sessions);
        for record in records {
            let colour = colour(&names, &name(record));
            let points = record.windows.iter().filter_map(|window| {
                let y = (panel.value)(window)?.clamp(0.0, panel.most);
                let x = LEFT + WIDTH * window.until as f64 / most_sessions as f64;
                Some(format!(
                    "{x:.1},{:.1}",
                    top + HEIGHT * (1.0 - y / panel.most)
                ))
            });
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            );
        }
    }
    for (i, name) in names.iter().enumerate() {
        let (x, y) = (LEFT + WIDTH + 15.0, GAP + 10.0 + 18.0 * i as f64);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{}\">{name}</text>",
            colour(&names, name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn name(record: &Record) -> String {
    format!("{} {}", record.id.row, record.id.wish)
}

fn colour(names: &[String], name: &str) -> &'static str {
    let at = names.iter().position(|it| it == name).unwrap_or_default();
    COLOURS[at % COLOURS.len()]
}

fn axes(svg: &mut String, top: f64, panel: &Panel<'_>, most_sessions: usize) {
    let bottom = top + HEIGHT;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most_sessions} sessions</text>",
        top - 8.0,
        panel.title,
        LEFT - 6.0,
        top + 10.0,
        panel.most,
        LEFT - 6.0,
        LEFT + WIDTH,
        bottom + 15.0,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::record;

    #[test]
    fn every_run_has_a_line_in_every_panel_and_every_row_a_name() {
        let content = Content::read(60).unwrap();
        let mut runs = [
            record("default", "terse", 1),
            record("default", "terse", 2),
            record("both", "terse", 1),
        ];
        for run in &mut runs {
            run.windows = vec![Window {
                until: 10,
                n: 10,
                n_right: 3,
                words: 20.0,
                nll: 1.1,
                wish: "terse".into(),
            }];
        }
        let svg = picture(&runs, &References::default(), &content);
        assert_eq!(svg.matches("<polyline").count(), 9);
        assert_eq!(svg.matches(">default terse</text>").count(), 1);
        // The line is at 10 of 40 sessions, with 3 of 10 right, in the highest panel.
        assert!(svg.contains("points=\"275.0,204.0\""), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
