//! Draws shares by the number of the session: a curve for each arm of a bench, a band over its seeds, and dashed lines for
//! what no session changes.
//!
//! One SVG serves light and dark pages, wide and narrow ones: its style sheet follows `prefers-color-scheme`, which in an
//! `<img>` is the scheme of the page around it, and the width at which it is shown. Fonts and colours are those of the
//! page at /ui.

use std::{collections::BTreeMap, fmt::Write as _, iter::once};

use anyhow::{Context as _, Result};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::Deserialize;

/// The sessions of which a value is the mean; fewer at the start.
const WINDOW: usize = 5;
/// Two units are a pixel of a README's column: plotters rounds to whole units.
const WIDTH: i32 = 1660;
const HEIGHT: i32 = 960;
const EDGE: i32 = 24;
const BELOW: i32 = 130;
/// The size of all text where the drawing is narrow. The layout has room for it.
const NARROW: i32 = 42;
const PAGE: &str = concat!(
    include_str!("../../addons/page/assets/style.css"),
    include_str!("../../addons/page/assets/curves.css")
);
/// Variables of the page: the ground, text, axes, the grid, and curves.
const COLOURS: [&str; 10] = [
    "panel", "ink", "soft", "line", "s1", "s2", "s3", "s4", "s5", "s6",
];

/// A picture of shares, from 0 to 1.
#[derive(Debug, Clone, Deserialize)]
pub struct Chart {
    pub title: String,
    /// What the values are shares of.
    pub share: String,
    /// What is counted from left to right.
    pub session: String,
    pub curves: Vec<Curve>,
    /// Values that no session changes, with their names.
    pub references: Vec<(String, f64)>,
}

/// An arm: the seed of each run, and its values by session. The runs of a seed are about different things, and are
/// averaged; the curve ends with the shortest run.
#[derive(Debug, Clone, Deserialize)]
pub struct Curve {
    pub name: String,
    pub runs: Vec<(u64, Vec<f64>)>,
}

// === impl Chart ===

impl Chart {
    /// Returns the picture as SVG.
    ///
    /// # Errors
    /// Returns an error if a curve has no session, or the page lacks a colour.
    pub fn draw(&self) -> Result<String> {
        let (mut colours, mut dark) = ([BLACK; COLOURS.len()], String::new());
        for (colour, name) in colours.iter_mut().zip(COLOURS) {
            let hex = of_page(name, 1)?.to_uppercase();
            let [_, red, green, blue] =
                u32::from_str_radix(hex.trim_start_matches('#'), 16)?.to_be_bytes();
            *colour = RGBColor(red, green, blue);
            let other = of_page(name, 2)?;
            write!(
                dark,
                "[fill='{hex}']{{fill:{other}}}[stroke='{hex}']{{stroke:{other}}}"
            )?;
        }
        let mut svg = String::new();
        {
            let size = (WIDTH.unsigned_abs(), HEIGHT.unsigned_abs());
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            self.draw_on(&area, &colours)?;
            area.present()?;
        }
        let (_, drawn) = svg.split_once('>').context("plotters drew nothing")?;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n\
             <style>text{{font-family:{}}}polyline{{stroke-linejoin:round;stroke-linecap:round}}\n\
             @media(max-width:560px){{text{{font-size:{NARROW}px}}}}\n\
             @media(prefers-color-scheme:dark){{{dark}}}</style>{drawn}",
            WIDTH / 2,
            HEIGHT / 2,
            of_page("sans", 1)?,
        ))
    }

    fn draw_on(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        colours: &[RGBColor; COLOURS.len()],
    ) -> Result<()> {
        let &[ground, ink, soft, line, ref own @ ..] = colours;
        let curves: Vec<(&String, Vec<Vec<f64>>, RGBColor)> =
            (self.curves.iter().zip(own.iter().copied().cycle()))
                .map(|(curve, colour)| (&curve.name, curve.seeds(), colour))
                .collect();
        let lengths = curves
            .iter()
            .filter_map(|(_, seeds, _)| Some(seeds.first()?.len()));
        let last = lengths.max().unwrap_or_default().max(2) as f64;
        let names = curves.iter().map(|(name, ..)| *name);
        let names = names.chain(self.references.iter().map(|(name, _)| name));
        let longest = names.map(|name| name.chars().count()).max();
        let labels = NARROW / 2 * i32::try_from(longest.unwrap_or_default())? + 3 * EDGE;
        let n_seeds = curves.iter().map(|(_, seeds, _)| seeds.len()).max();
        let bands = match n_seeds.unwrap_or_default() {
            0 | 1 => String::new(),
            n => format!(" (bands: lowest to highest of {n} seeds)"),
        };
        area.fill(&ground)?;
        let share = format!("{} (mean of {WINDOW})", self.share);
        area.draw_text(&self.title, &style(40, ink, VPos::Top), (EDGE, EDGE))?;
        area.draw_text(&share, &style(30, soft, VPos::Top), (EDGE, 84))?;
        let mut chart = ChartBuilder::on(area)
            .margin_top(160)
            .margin_right(labels)
            .y_label_area_size(140)
            .x_label_area_size(BELOW)
            .build_cartesian_2d(1.0..last, 0.0..1.0)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(line.stroke_width(2))
            .axis_style(line.stroke_width(2))
            .label_style(style(30, soft, VPos::Top))
            .x_labels(8)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .x_desc(format!("{}{bands}", self.session))
            .y_labels(6)
            .y_label_formatter(&|y| format!("{:.0} %", y * 100.0))
            .draw()?;
        let mut ends = Vec::new();
        for (name, value) in &self.references {
            let points = [(1.0, *value), (last, *value)];
            ends.push((chart.backend_coord(&points[1]), name, soft));
            chart.draw_series(DashedLineSeries::new(points, 12, 10, soft.stroke_width(3)))?;
        }
        for (_, seeds, colour) in curves.iter().filter(|(_, seeds, _)| seeds.len() > 1) {
            let mut around = points(seeds, |values| values.fold(0.0, f64::max));
            let low = points(seeds, |values| values.fold(1.0, f64::min));
            around.extend(low.into_iter().rev());
            chart.draw_series(once(Polygon::new(around, colour.mix(0.15))))?;
        }
        for (name, seeds, colour) in &curves {
            let points = points(seeds, |values| mean(values));
            let end = points
                .last()
                .with_context(|| format!("{name} has no session"))?;
            ends.push((chart.backend_coord(end), name, *colour));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(6)))?;
        }
        ends.sort_by_key(|((_, y), ..)| *y);
        let mut heights: Vec<i32> = ends.iter().map(|((_, y), ..)| *y).collect();
        spread(&mut heights, HEIGHT - BELOW);
        for (((x, y), name, colour), height) in ends.into_iter().zip(heights) {
            let leader = vec![(x + 6, y), (x + EDGE, height)];
            area.draw(&PathElement::new(leader, colour.stroke_width(2)))?;
            area.draw_text(
                name,
                &style(32, colour, VPos::Center),
                (x + EDGE + 8, height),
            )?;
        }
        Ok(())
    }
}

// === impl Curve ===

impl Curve {
    /// Returns the values of each seed by session, all of the same number of sessions.
    fn seeds(&self) -> Vec<Vec<f64>> {
        let n = self.runs.iter().map(|(_, values)| values.len()).min();
        let mut seeds: BTreeMap<u64, Vec<&[f64]>> = BTreeMap::new();
        for (seed, values) in &self.runs {
            seeds.entry(*seed).or_default().push(values);
        }
        let of_seed = |runs: Vec<&[f64]>| {
            let recent = |i: usize| (i + 1).saturating_sub(WINDOW)..=i;
            let at = |i| mean(runs.iter().flat_map(|run| &run[recent(i)]).copied());
            (0..n.unwrap_or_default()).map(at).collect()
        };
        seeds.into_values().map(of_seed).collect()
    }
}

/// Returns a figure of all seeds for each session.
fn points(
    seeds: &[Vec<f64>],
    of: impl Fn(&mut dyn Iterator<Item = f64>) -> f64,
) -> Vec<(f64, f64)> {
    let n = seeds.first().map_or(0, Vec::len);
    let at = |i: usize| of(&mut seeds.iter().map(|values| values[i]));
    (0..n).map(|i| ((i + 1) as f64, at(i))).collect()
}

fn style(size: i32, colour: RGBColor, vertical: VPos) -> TextStyle<'static> {
    // plotters divides sizes by this.
    let font = ("sans-serif", f64::from(size) * 1.24).into_font();
    let style = TextStyle::from(font).pos(Pos::new(HPos::Left, vertical));
    TextStyle {
        color: colour.to_backend_color(),
        ..style
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0);
    for value in values {
        (sum, n) = (sum + value, n + 1);
    }
    sum / f64::from(n)
}

/// Returns a variable of the page: the first value is that of the light scheme, the second that of the dark one.
fn of_page(name: &str, nth: usize) -> Result<&'static str> {
    let rest = PAGE.split(&format!("--{name}: ")).nth(nth);
    let value = rest.and_then(|rest| rest.split_once(';'));
    Ok(value
        .with_context(|| format!("the page has no value {nth} of --{name}"))?
        .0)
}

/// Moves the heights of labels apart: downwards, and up where the lowest would be below `bottom`.
fn spread(heights: &mut [i32], bottom: i32) {
    let (mut least, mut most) = (i32::MIN, bottom);
    for height in heights.iter_mut() {
        *height = (*height).max(least);
        least = *height + NARROW + 4;
    }
    for height in heights.iter_mut().rev() {
        *height = (*height).min(most);
        most = *height - NARROW - 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, runs: &[(u64, &str)]) -> Curve {
        let values = |text: &str| text.bytes().map(|byte| f64::from(byte == b'x')).collect();
        let runs = runs.iter().map(|(seed, text)| (*seed, values(text)));
        Curve {
            name: name.to_owned(),
            runs: runs.collect(),
        }
    }

    #[test]
    fn a_value_is_of_the_last_five_sessions_and_of_all_runs_of_its_seed() {
        let seeds = curve("", &[(1, "..xxxxxx"), (1, "xxxxxxx"), (2, "......x")]).seeds();
        assert_eq!(seeds[0], [0.5, 0.5, 4.0 / 6.0, 0.75, 0.8, 0.9, 1.0]);
        assert_eq!(seeds[1], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2]);
        assert_eq!(points(&seeds, |values| mean(values))[6], (7.0, 0.6));
    }

    #[test]
    fn labels_stand_apart_beside_their_curves() {
        let mut heights = [160, 170, 500, 820, 830];
        spread(&mut heights, 830);
        assert_eq!(heights, [160, 206, 500, 784, 830]);
    }

    #[test]
    fn arms_and_references_are_named_and_follow_the_scheme() {
        let chart = Chart {
            title: "<Kept>".to_owned(),
            share: "replies".to_owned(),
            session: "talk".to_owned(),
            curves: COLOURS[4..]
                .iter()
                .map(|name| curve(name, &[(1, ".x"), (2, "..")]))
                .collect(),
            references: vec![("told".to_owned(), 0.9)],
        };
        let svg = chart.draw().unwrap();
        for text in [
            "&lt;Kept&gt;",
            "replies (mean of 5)",
            "talk (bands: lowest to highest of 2 seeds)",
            "told",
            "s6",
        ] {
            assert!(svg.contains(&format!(">\n{text}")), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<polygon").count(), 6);
        for name in COLOURS {
            let (light, dark) = (
                of_page(name, 1).unwrap().to_uppercase(),
                of_page(name, 2).unwrap(),
            );
            assert!(
                svg.contains(&format!("\"{light}\"")) && svg.contains(&format!("{{fill:{dark}}}")),
                "{name}"
            );
        }
        let empty = Chart {
            curves: vec![curve("none", &[])],
            ..chart
        };
        assert_eq!(empty.draw().unwrap_err().to_string(), "none has no session");
    }
}
