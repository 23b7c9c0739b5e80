//! Prints tables of counts.

/// Rows by name, in the order in which they were first counted, each with a total and a count for each column.
#[derive(Debug)]
pub struct Table {
    columns: &'static [&'static str],
    rows: Vec<(String, usize, Vec<usize>)>,
}

impl Table {
    pub fn new(columns: &'static [&'static str]) -> Self {
        let rows = Vec::new();
        Self { columns, rows }
    }

    /// Counts one case of a row, in each column for which `is_counted` has true.
    pub fn count(&mut self, row: &str, is_counted: &[bool]) {
        let at = self.rows.iter().position(|(name, ..)| name == row);
        let at = at.unwrap_or_else(|| {
            let counts = vec![0; self.columns.len()];
            self.rows.push((row.to_owned(), 0, counts));
            self.rows.len() - 1
        });
        let (_, total, counts) = &mut self.rows[at];
        *total += 1;
        for (count, is_counted) in counts.iter_mut().zip(is_counted) {
            *count += usize::from(*is_counted);
        }
    }

    pub fn print(&self) {
        println!("\n| | cases | {} |", self.columns.join(" | "));
        println!("|---|---|{}", "---|".repeat(self.columns.len()));
        for (name, total, counts) in &self.rows {
            let share = |n: &usize| format!("{n} ({:.3})", *n as f64 / *total as f64);
            let cells: Vec<String> = counts.iter().map(share).collect();
            println!("| {name} | {total} | {} |", cells.join(" | "));
        }
    }
}
