//! Draws the days: a bar for the turns of each, and a line for the share of good verdicts.

use std::fmt::Write as _;

use super::{DayRow, percent};

/// The sizes are in pixels, as all numbers below.
const WIDTH: u64 = 640;
const HEIGHT: u64 = 180;
const LEFT: u64 = 40;
const TOP: u64 = 24;
/// The space for bars and line.
const PLOT_WIDTH: u64 = 580;
const PLOT_HEIGHT: u64 = 120;
const BOTTOM: u64 = TOP + PLOT_HEIGHT;

/// Returns a complete SVG file.
pub(super) fn svg(days: &[DayRow]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>Turns a day, and the share of good ones among the judged</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let most = days.iter().map(|it| it.turns).max().unwrap_or(0).max(1);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"14\" fill=\"#467\">turns a day (most: {most})</text>\
         <text x=\"{}\" y=\"14\" fill=\"#b40\" text-anchor=\"end\">good, % of the judged</text>",
        LEFT + PLOT_WIDTH
    );
    let step = PLOT_WIDTH / (days.len() as u64).max(1);
    let mut line = Vec::new();
    for (at, day) in (0..).zip(days) {
        let x = LEFT + at * step;
        let height = day.turns * PLOT_HEIGHT / most;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{height}\" fill=\"#9bc\"/>",
            BOTTOM - height,
            (step * 7 / 10).max(1)
        );
        let middle = x + step * 7 / 20;
        if let Some(share) = percent(day.good, day.judged) {
            line.push((middle, BOTTOM - share * PLOT_HEIGHT / 100));
        }
        if at == 0 || at + 1 == days.len() as u64 {
            let _ = writeln!(
                svg,
                "<text x=\"{middle}\" y=\"{}\" fill=\"#555\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 16,
                day.day.strftime("%m-%d")
            );
        }
    }
    let points: Vec<String> = line.iter().map(|(x, y)| format!("{x},{y}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#b40\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    for (x, y) in line {
        let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"#b40\"/>");
    }
    svg + "</svg>\n"
}
