//! Drawings of curves that are hard to draw.

use metaclaw_control::curves::{CurveAxis, CurveUnit, ValueInterval};

use super::*;

const DAY_MS: u64 = 86_400_000;

fn curve(unit: CurveUnit, axis: CurveAxis, lines: Vec<(&str, Vec<CurvePoint>)>) -> Curve {
    let line = |(name, points): (&str, Vec<CurvePoint>)| CurveLine {
        name: name.to_owned(),
        points,
    };
    Curve {
        id: "pass_rate".to_owned(),
        title: "Pass rate".to_owned(),
        about: "The share of good verdicts.".to_owned(),
        empty: "No verdict yet.".to_owned(),
        unit,
        axis,
        lines: lines.into_iter().map(line).collect(),
        range: None,
        marks: Vec::new(),
    }
}

fn point(at: u64, value: f64) -> CurvePoint {
    CurvePoint {
        at,
        value,
        ..CurvePoint::default()
    }
}

fn drawn(curve: &Curve) -> String {
    figure(curve).expect("a point").into_string()
}

/// No coordinate is outside the drawing or is not a number, and every element that begins ends.
fn assert_is_sound(html: &str) {
    for wrong in ["NaN", "inf", "<script", "onload=x"] {
        assert!(!html.contains(wrong), "{wrong}: {html}");
    }
    for element in [
        "figure",
        "figcaption",
        "svg",
        "path",
        "polyline",
        "ul",
        "li",
        "table",
        "details",
        "text",
    ] {
        let begun = html.matches(&format!("<{element}>")).count()
            + html.matches(&format!("<{element} ")).count();
        let ended = html.matches(&format!("</{element}>")).count();
        assert_eq!(begun, ended, "{element}: {html}");
    }
    let points = html
        .split("points=\"")
        .skip(1)
        .filter_map(|it| it.split('"').next());
    for place in points.flat_map(str::split_whitespace) {
        let (x, y) = place.split_once(',').expect("two numbers");
        let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
        assert!(
            (LEFT..=RIGHT).contains(&x) && (TOP..=BOTTOM).contains(&y),
            "{place}"
        );
    }
}

#[test]
fn a_curve_without_points_is_no_figure() {
    for lines in [
        vec![],
        vec![("main", vec![])],
        vec![("main", vec![point(1, f64::NAN)])],
    ] {
        let curve = curve(CurveUnit::Share, CurveAxis::Days, lines);
        assert!(figure(&curve).is_none());
    }
}

/// One day of fourteen was once a dot in the middle of an axis of one day.
#[test]
fn the_axis_is_the_chosen_range_with_its_lessons() {
    let points = vec![CurvePoint {
        n: Some(25),
        ..point(20_013 * DAY_MS, 3.25)
    }];
    let lesson = CurveMark {
        at: 20_006 * DAY_MS,
        name: format!("<b>Be brief</b> {}", "and so on ".repeat(9)),
    };
    let html = drawn(&Curve {
        range: Some((20_000 * DAY_MS, 20_013 * DAY_MS)),
        marks: vec![lesson],
        ..curve(
            CurveUnit::Amount,
            CurveAxis::Days,
            vec![("complaints", points)],
        )
    });
    assert_is_sound(&html);
    for part in [
        "points=\"336.0,38.1\"",
        ">4 Oct<",
        ">2024-10-17: 3.25 (of 25)</text>",
        "d=\"M180.9 18V160\"",
        "2024-10-10: &lt;b&gt;Be brief",
        "a new lesson",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

#[test]
fn a_declined_adapter_is_hollow_named_and_off_the_line() {
    let made = |at, adapter: &str, is_declined| CurvePoint {
        adapter: Some(adapter.to_owned()),
        is_declined,
        ..point(at, at as f64)
    };
    let points = vec![made(1, "a", false), made(2, "b", true), made(3, "c", false)];
    let html = drawn(&curve(
        CurveUnit::Plain,
        CurveAxis::Steps,
        vec![("main", points)],
    ));
    assert_is_sound(&html);
    let line = html.split("class=\"line s1\" points=\"").nth(1).unwrap();
    assert_eq!(
        line.split('"').next().unwrap().split(' ').count(),
        2,
        "{line}"
    );
    for part in [
        "class=\"mark s1 declined\"",
        ">step 2: 2.00, declined: b</text>",
        "declined by its tests",
        "<td>b (declined)</td>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

#[test]
fn one_point_stands_in_the_middle_and_its_numbers_are_read_aloud() {
    let points = vec![CurvePoint {
        interval: Some(ValueInterval {
            low: 0.25,
            high: 0.75,
        }),
        n: Some(4),
        ..point(20_000 * DAY_MS, 0.5)
    }];
    let html = drawn(&curve(
        CurveUnit::Share,
        CurveAxis::Days,
        vec![("main", points)],
    ));
    assert_is_sound(&html);
    assert!(html.contains("points=\"192.0,85.0\""), "{html}");
    assert!(html.contains("aria-details=\"numbers-"), "{html}");
    let row = "<td>2024-10-04</td><td>50 %</td><td>25 % to 75 %</td><td>4</td>";
    assert!(html.contains(row), "{html}");
    assert!(!html.contains("legend"), "one line needs none");
}

#[test]
fn huge_ranges_and_missing_numbers_stay_within_the_drawing() {
    let points = vec![
        point(0, f64::MIN),
        point(1, f64::NAN),
        CurvePoint {
            limit: Some(f64::INFINITY),
            interval: Some(ValueInterval {
                low: f64::NEG_INFINITY,
                high: f64::NAN,
            }),
            ..point(2, 0.0)
        },
        point(u64::MAX, f64::MAX),
    ];
    for unit in [
        CurveUnit::Plain,
        CurveUnit::Amount,
        CurveUnit::Tokens,
        CurveUnit::Share,
    ] {
        for axis in [CurveAxis::Steps, CurveAxis::Days] {
            let mut points = points.clone();
            if axis == CurveAxis::Days {
                points.pop();
            }
            assert_is_sound(&drawn(&curve(unit, axis, vec![("main", points)])));
        }
    }
}

#[test]
fn names_are_text_and_lines_have_marks_of_their_own() {
    let name = "</title><script onload=x>'\"&";
    let mut of_hostile = curve(
        CurveUnit::Plain,
        CurveAxis::Steps,
        vec![
            (name, vec![point(1, 1.0), point(2, 2.0)]),
            ("b", vec![point(1, 1.5)]),
        ],
    );
    for text in [
        &mut of_hostile.id,
        &mut of_hostile.title,
        &mut of_hostile.about,
    ] {
        name.clone_into(text);
    }
    let html = drawn(&of_hostile).replace("&lt;script onload=x&gt;", "(escaped)");
    assert_is_sound(&html);
    assert!(html.contains("(escaped)"));
    assert_ne!(mark(1, 0.0, 0.0), mark(2, 0.0, 0.0));
    assert_ne!(mark(2, 0.0, 0.0), mark(3, 0.0, 0.0));
}

#[test]
fn more_lines_than_colours_are_in_the_table() {
    let names: Vec<String> = (0..9).map(|n| format!("agent{n}")).collect();
    let lines = names
        .iter()
        .map(|it| (it.as_str(), vec![point(1, 0.5)]))
        .collect();
    let html = drawn(&curve(CurveUnit::Share, CurveAxis::Steps, lines));
    assert_is_sound(&html);
    assert_eq!(html.matches("class=\"line s").count(), 2 * MOST_LINES);
    assert!(html.contains("3 more in the table"), "{html}");
    assert!(html.contains("<td>agent8</td>"));
}

#[test]
fn what_is_demanded_is_a_broken_line() {
    let demanded = |at, value| CurvePoint {
        limit: Some(1.6),
        ..point(at, value)
    };
    let points = vec![demanded(1, 1.5), demanded(2, 1.7)];
    let html = drawn(&curve(
        CurveUnit::Plain,
        CurveAxis::Steps,
        vec![("main", points)],
    ));
    assert_is_sound(&html);
    assert!(html.contains("class=\"limit s1\" points="), "{html}");
    assert!(html.contains("the limit of the test"));
    assert!(html.contains("<th scope=\"col\">demanded</th>"));
}
