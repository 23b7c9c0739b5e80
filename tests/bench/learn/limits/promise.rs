//! A promise, what it is held against, and what was measured for it.

use crate::{
    content::Content,
    measure::Figures,
    record::{Measured, Record},
    reference::References,
};

/// One promise; not measured where no run tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Promise {
    pub what: String,
    pub limit: String,
    pub found: Option<f64>,
    pub is_kept: bool,
}

/// All that was measured.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    pub records: &'a [Record],
    pub references: &'a References,
    pub content: &'a Content,
}

// === impl Promise ===

impl Promise {
    pub fn at_least(what: String, least: f64, found: Option<f64>) -> Self {
        let is_kept = found.is_some_and(|it| it >= least);
        Self {
            what,
            limit: format!("at least {least:.2}"),
            found,
            is_kept,
        }
    }

    pub fn at_most(what: String, most: f64, found: Option<f64>) -> Self {
        let is_kept = found.is_some_and(|it| it <= most);
        Self {
            what,
            limit: format!("at most {most:.2}"),
            found,
            is_kept,
        }
    }
}

// === impl Results ===

impl<'a> Results<'a> {
    pub fn runs(self, row: &str, wish: &str) -> Vec<&'a Record> {
        let of = |it: &&Record| it.id.row == row && it.id.wish == wish;
        self.records.iter().filter(of).collect()
    }

    /// What a run came to in the end.
    pub fn end(self, row: &str, wish: &str) -> Option<&'a Measured> {
        self.runs(row, wish).first()?.end()
    }

    pub fn told(self, wish: &str) -> Option<Figures> {
        self.references.of(wish, self.content)
    }

    pub fn base(self) -> Option<Figures> {
        (!self.references.plain.is_empty()).then(|| self.references.base(self.content))
    }
}

/// The lowest of some values; none where one of them is missing or there are none.
pub fn lowest(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values?.into_iter().min_by(f64::total_cmp)
}

pub fn highest(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    lowest(values.into_iter().map(|it| it.map(|it| -it))).map(|it| -it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_of_all_or_none() {
        assert_eq!(lowest([Some(2.0), Some(1.0)]), Some(1.0));
        assert_eq!(highest([Some(2.0), Some(1.0)]), Some(2.0));
        assert_eq!(lowest([Some(2.0), None]), None);
        assert_eq!(lowest([]), None);
    }
}
