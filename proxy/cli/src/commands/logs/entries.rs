//! Filters the lines of a log.

use tracing::Level;

/// Passes lines of a level or worse; a line without a level belongs to the one before it.
#[derive(Debug)]
pub(super) struct Filter {
    least: Level,
    /// Whether the last entry passed.
    passed: bool,
}

// === impl Filter ===

impl Filter {
    /// # Errors
    /// Returns an error if there is no such level.
    pub(super) fn new(level: &str) -> anyhow::Result<Self> {
        Ok(Self {
            least: level.parse()?,
            passed: true,
        })
    }

    pub(super) fn passes(&mut self, line: &str) -> bool {
        if let Some(level) = level(line) {
            // A worse level is the lower value.
            self.passed = level <= self.least;
        }
        self.passed
    }
}

/// Returns the level of a line, which comes after its time: `2026-11-22T15:00:00.000000Z  WARN ..`.
fn level(line: &str) -> Option<Level> {
    let mut words = line.split_whitespace();
    let time = words.next()?;
    let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T');
    words.next().filter(|_| is_time)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_level_goes_with_the_one_before() {
        let mut filter = Filter::new("warn").unwrap();
        let lines = [
            ("2026-11-22T15:00:00.1Z  INFO metaclaw: starts", false),
            ("  of it", false),
            ("2026-11-22T15:00:00.1Z  WARN metaclaw: slow", true),
            ("panicked at ERROR", true),
            ("2026-11-22T15:00:00.1Z ERROR metaclaw: gone", true),
            ("2026-11-22T15:00:00.1Z DEBUG metaclaw: x", false),
        ];
        for (line, passes) in lines {
            assert_eq!(filter.passes(line), passes, "{line}");
        }
    }
}
