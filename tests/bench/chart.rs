//! Draws a chart for a bench that is no Rust program: JSON from standard input becomes SVG on standard output.

use std::io;

use metaclaw_tests::chart::Chart;

fn main() -> anyhow::Result<()> {
    let chart: Chart = serde_json::from_reader(io::stdin())?;
    println!("{}", chart.draw()?);
    Ok(())
}
