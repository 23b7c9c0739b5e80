//! The numbers of a curve as a table, for readers who cannot see the drawing or want to copy them.

use maud::{Markup, html};
use metaclaw_control::curves::{Curve, CurveLine, CurvePoint};

use super::words::{axis, identifier, position, unit, value};

/// A column, which is left out if no row has something in it.
struct TableColumn {
    heading: String,
    cell: fn(&Curve, &CurveLine, &CurvePoint) -> Option<String>,
}

pub(super) fn table(curve: &Curve) -> Markup {
    let lines = curve.lines.iter();
    let rows = lines.flat_map(|line| line.points.iter().map(move |point| (line, point)));
    let rows: Vec<(&CurveLine, &CurvePoint)> = rows.collect();
    let mut columns = Vec::from(columns(curve));
    columns.retain(|it| {
        rows.iter()
            .any(|(line, point)| (it.cell)(curve, line, point).is_some())
    });
    html! {
        details id={ "numbers-" (identifier(&curve.id)) } {
            summary { "The numbers" }
            div.scroll {
                table {
                    caption { (curve.title) }
                    thead { tr { @for column in &columns { th scope="col" { (column.heading) } } } }
                    tbody {
                        @for (line, point) in &rows {
                            tr { @for column in &columns { td { ((column.cell)(curve, line, point).unwrap_or_default()) } } }
                        }
                    }
                }
            }
        }
    }
}

fn columns(curve: &Curve) -> [TableColumn; 7] {
    let measured = match unit(curve.unit) {
        "" => "value".to_owned(),
        unit => format!("value ({unit})"),
    };
    let column = |heading: &str, cell| TableColumn {
        heading: heading.to_owned(),
        cell,
    };
    [
        column("line", |curve, line, _| {
            (curve.lines.len() > 1).then(|| line.name.clone())
        }),
        column("adapter", |_, _, point| {
            let declined = if point.is_declined { " (declined)" } else { "" };
            Some(format!("{}{declined}", point.adapter.as_ref()?))
        }),
        column(axis(curve.axis), |curve, _, point| {
            Some(position(curve.axis, point.at))
        }),
        column(&measured, |curve, _, point| {
            Some(value(curve.unit, point.value))
        }),
        column("95 % interval", |curve, _, point| {
            let it = point.interval?;
            let (low, high) = (value(curve.unit, it.low), value(curve.unit, it.high));
            Some(format!("{low} to {high}"))
        }),
        column("of", |_, _, point| Some(point.n?.to_string())),
        column("demanded", |curve, _, point| {
            Some(value(curve.unit, point.limit?))
        }),
    ]
}
