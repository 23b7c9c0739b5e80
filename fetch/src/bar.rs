//! Progress bars of downloads.
#![expect(
    clippy::print_stdout,
    reason = "who waits for a file is told how far it is"
)]

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The interval grows after each failure.
#[expect(
    clippy::disallowed_methods,
    reason = "there is nothing to wait for but that the server is well again"
)]
pub(crate) fn pause(failures: u32) {
    std::thread::sleep(Duration::from_secs(1 << (failures - 1)));
}

pub(crate) fn progress(bytes: u64, what: &str) -> ProgressBar {
    // The template is a constant. If it were invalid, the plain bar would be shown.
    let style = ProgressStyle::with_template(
        "{msg:>12} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes)
        .with_style(style)
        .with_message(what.to_owned());
    if bar.is_hidden() {
        println!("fetching {what}: {}", indicatif::HumanBytes(bytes));
    }
    bar
}
