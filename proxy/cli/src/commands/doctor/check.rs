//! The result of one check.

use serde::Serialize;

/// One thing that is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) is: Verdict,
    said: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Fine,
    /// The result is worth a note, and no fault.
    Note,
    Bad,
    /// The fault was found and repaired.
    Mended,
}

// === impl Check ===

impl Check {
    pub(super) fn fine(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fine, said)
    }

    pub(super) fn note(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Note, said)
    }

    pub(super) fn mended(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Mended, said)
    }

    pub(super) fn bad(
        name: &'static str,
        said: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(name, Verdict::Bad, said)
        }
    }

    fn new(name: &'static str, is: Verdict, said: impl Into<String>) -> Self {
        Self {
            name,
            is,
            said: said.into(),
            remedy: None,
        }
    }

    pub(super) fn line(&self) -> String {
        let mark = match self.is {
            Verdict::Fine => "ok  ",
            Verdict::Note => "note",
            Verdict::Bad => "BAD ",
            Verdict::Mended => "done",
        };
        let remedy = self
            .remedy
            .as_ref()
            .map(|it| format!("\n                -> {it}"));
        format!(
            "{mark}  {:<9} {}{}",
            self.name,
            self.said,
            remedy.unwrap_or_default()
        )
    }
}
