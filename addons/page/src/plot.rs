//! Draws a curve as SVG inside the page, with the same numbers in a table. The value of a point is shown by the style sheet
//! while the mouse is there, or where the arrow keys have gone (live.js). Colours come from the style sheet too, so that
//! they follow the light and the dark scheme.

use maud::{Markup, html};
use metaclaw_chat::head;
use metaclaw_control::curves::{Curve, CurveLine, CurveMark, CurvePoint};

mod scale;
mod table;
#[cfg(test)]
mod tests;
mod words;

use self::{
    scale::{AxisRange, AxisTick, ranges},
    table::table,
    words::{caption, identifier, position_named, value},
};

/// The sizes are in the units of the drawing, about one pixel on a phone.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 336.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 160.0;
/// The most lines in one drawing, which is the number of colours in the style sheet. The table has all lines.
const MOST_LINES: usize = 6;
const MARK: f64 = 3.0;
const MOST_MARKS: usize = 60;

/// Returns the curve as an HTML figure, or `None` if it has no point to draw.
pub(crate) fn figure(curve: &Curve) -> Option<Markup> {
    let id = identifier(&curve.id);
    let drawing = CurveDrawing::of(curve)?;
    Some(html! {
        figure.curve id={ "curve-" (id) } {
            figcaption { h3 { (curve.title) } p { (curve.about) } }
            (drawing.draw(&id)) (drawing.legend()) (table(curve))
        }
    })
}

struct CurveDrawing<'a> {
    curve: &'a Curve,
    lines: Vec<DrawnLine<'a>>,
    x: AxisRange,
    y: AxisRange,
}

struct DrawnLine<'a> {
    name: &'a str,
    points: Vec<CurvePoint>,
}

// === impl CurveDrawing ===

impl<'a> CurveDrawing<'a> {
    fn of(curve: &'a Curve) -> Option<Self> {
        let lines = curve.lines.iter().map(DrawnLine::of);
        let lines: Vec<DrawnLine<'a>> = lines.filter(|it| !it.points.is_empty()).collect();
        let shown = lines.iter().take(MOST_LINES).flat_map(|it| &it.points);
        let (x, y) = ranges(curve, shown)?;
        Some(Self { curve, lines, x, y })
    }

    fn shown(&self) -> impl Iterator<Item = (usize, &DrawnLine<'a>)> {
        (1..).zip(self.lines.iter().take(MOST_LINES))
    }

    fn draw(&self, id: &str) -> Markup {
        let label = format!(
            "{}, drawn: the table below has the numbers",
            self.curve.title
        );
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" tabindex="0" aria-label=(label) aria-details={ "numbers-" (id) } {
                (self.axes())
                @for mark in &self.curve.marks { (self.lesson(mark)) }
                @for (n, line) in self.shown() { (self.line(n, line)) }
            }
        }
    }

    fn axes(&self) -> Markup {
        let across = |it: &AxisTick| {
            let y = rounded(self.y_of(it.at));
            html! {
                path.grid d={ "M" (LEFT) " " (y) "H" (RIGHT) } {}
                text x=(LEFT - 5.0) y=(y) dy="3.5" text-anchor="end" { (it.label) }
            }
        };
        let along = |it: &AxisTick| {
            let x = rounded(self.x_of(it.at));
            html! {
                path.grid d={ "M" (x) " " (BOTTOM) "v4" } {}
                text x=(x) y=(BOTTOM + 15.0) text-anchor="middle" { (it.label) }
            }
        };
        html! {
            text x=(RIGHT) y=(HEIGHT) dy="-3" text-anchor="end" { (caption(self.curve.unit, self.curve.axis)) }
            @for tick in &self.y.ticks { (across(tick)) }
            @for tick in &self.x.ticks { (along(tick)) }
        }
    }

    fn line(&self, n: usize, line: &DrawnLine<'_>) -> Markup {
        let limits = line.points.iter().filter_map(|it| Some((it.at, it.limit?)));
        let limits = limits.filter(|(_, limit)| limit.is_finite());
        let limits: Vec<String> = limits.map(|(at, it)| self.place(at, it)).collect();
        // The step after a declined adapter does not begin with it.
        let passed = line.points.iter().filter(|point| !point.is_declined);
        let places: Vec<String> = passed.map(|it| self.place(it.at, it.value)).collect();
        let is_marked = line.points.len() <= MOST_MARKS;
        html! {
            @if !limits.is_empty() { polyline.limit.{ "s" (n) } points=(limits.join(" ")) {} }
            @for point in &line.points { (self.interval(n, point)) }
            polyline.line.{ "s" (n) } points=(places.join(" ")) {}
            @for point in &line.points {
                (told(&self.words(line, point), &html! {
                    circle cx=(rounded(self.x_of(point.at as f64))) cy=(rounded(self.y_of(point.value))) r="8" {}
                    @if is_marked || point.is_declined {
                        path.mark.{ "s" (n) }.declined[point.is_declined] d=(mark(n, self.x_of(point.at as f64), self.y_of(point.value))) {}
                    }
                }))
            }
        }
    }

    fn words(&self, line: &DrawnLine<'_>, point: &CurvePoint) -> String {
        let Curve { unit, axis, .. } = self.curve;
        let mut words = format!(
            "{}: {}",
            position_named(*axis, point.at),
            value(*unit, point.value)
        );
        if self.lines.len() > 1 {
            words = format!("{}, {words}", line.name);
        }
        if let Some(adapter) = &point.adapter {
            words.push_str(if point.is_declined {
                ", declined: "
            } else {
                ", "
            });
            words.push_str(adapter);
        }
        match point.n {
            Some(n) => format!("{words} (of {n})"),
            None => words,
        }
    }

    fn lesson(&self, lesson: &CurveMark) -> Markup {
        let x = rounded(self.x_of(lesson.at as f64));
        let at = position_named(self.curve.axis, lesson.at);
        let name = head(&lesson.name, 38);
        let cut = if name.len() < lesson.name.len() {
            "…"
        } else {
            ""
        };
        let words = format!("{at}: {name}{cut}");
        told(
            &words,
            &html! {
                circle cx=(x) cy=(TOP + 10.0) r="8" {}
                path.lesson d={ "M" (x) " " (TOP + 8.0) "V" (BOTTOM) } {}
            },
        )
    }

    fn interval(&self, n: usize, point: &CurvePoint) -> Markup {
        let interval = point.interval;
        let interval = interval.filter(|it| it.low.is_finite() && it.high.is_finite());
        html! {
            @if let Some(it) = interval {
                path.interval.{ "s" (n) } d={
                    "M" (rounded(self.x_of(point.at as f64))) " " (rounded(self.y_of(it.low))) "V" (rounded(self.y_of(it.high)))
                } {}
            }
        }
    }

    fn legend(&self) -> Markup {
        let mut points = self.lines.iter().flat_map(|it| &it.points);
        let (has_limits, has_declined) = (
            points.clone().any(|it| it.limit.is_some()),
            points.any(|point| point.is_declined),
        );
        let has_lessons = !self.curve.marks.is_empty();
        if self.lines.len() < 2 && !has_limits && !has_declined && !has_lessons {
            return html! {};
        }
        let left_out = self.lines.len().saturating_sub(MOST_LINES);
        html! {
            ul.legend {
                @if self.lines.len() > 1 { @for (n, line) in self.shown() {
                    li {
                        svg viewBox="0 0 24 10" aria-hidden="true" {
                            path.line.{ "s" (n) } d="M0 5H24" {}
                            path.mark.{ "s" (n) } d=(mark(n, 12.0, 5.0)) {}
                        }
                        (line.name)
                    }
                } }
                @if has_lessons {
                    li { svg viewBox="0 0 24 10" aria-hidden="true" { path.lesson d="M12 0V10" {} } "a new lesson" }
                }
                @if has_declined {
                    li { svg viewBox="0 0 24 10" aria-hidden="true" { path.mark.s1.declined d=(mark(1, 12.0, 5.0)) {} } "declined by its tests" }
                }
                @if has_limits {
                    li { svg viewBox="0 0 24 10" aria-hidden="true" { path.limit.s1 d="M0 5H24" {} } "the limit of the test" }
                }
                @if left_out > 0 { li { (left_out) " more in the table" } }
            }
        }
    }

    fn place(&self, at: u64, value: f64) -> String {
        format!("{:.1},{:.1}", self.x_of(at as f64), self.y_of(value))
    }

    fn x_of(&self, at: f64) -> f64 {
        LEFT + self.x.share(at) * (RIGHT - LEFT)
    }

    fn y_of(&self, value: f64) -> f64 {
        BOTTOM - self.y.share(value) * (BOTTOM - TOP)
    }
}

// === impl DrawnLine ===

impl<'a> DrawnLine<'a> {
    fn of(line: &'a CurveLine) -> Self {
        let points = line.points.iter().filter(|it| it.value.is_finite());
        Self {
            name: &line.name,
            points: points.cloned().collect(),
        }
    }
}

/// Returns something of the drawing with words that are shown above it while the mouse or the arrow keys are there.
fn told(words: &str, drawn: &Markup) -> Markup {
    html! { g.point { (drawn) text x=(RIGHT) y=(TOP) text-anchor="end" { (words) } } }
}

/// Returns the outline of a line's mark. Lines differ by its shape as well, for readers who do not see the colours.
fn mark(n: usize, x: f64, y: f64) -> String {
    let (left, right, top, bottom) = (x - MARK, x + MARK, y - MARK, y + MARK);
    match n % 3 {
        1 => format!(
            "M{left:.1} {y:.1}a{MARK} {MARK} 0 1 0 {0} 0a{MARK} {MARK} 0 1 0 -{0} 0z",
            2.0 * MARK
        ),
        2 => format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z"),
        _ => format!("M{x:.1} {top:.1}L{right:.1} {bottom:.1}H{left:.1}z"),
    }
}

fn rounded(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}
