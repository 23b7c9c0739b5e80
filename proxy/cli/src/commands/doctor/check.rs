//! The result of one check.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DoctorCheck {
    pub(super) name: String,
    pub(super) is: CheckOutcome,
    said: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckOutcome {
    Fine,
    /// The result is worth a note, and no fault.
    Note,
    Bad,
    /// The fault was found and repaired.
    Mended,
}

// === impl DoctorCheck ===

impl DoctorCheck {
    pub(super) fn fine(name: &str, said: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Fine, said)
    }

    pub(super) fn note(name: &str, said: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Note, said)
    }

    pub(super) fn mended(name: &str, said: impl Into<String>) -> Self {
        Self::new(name, CheckOutcome::Mended, said)
    }

    pub(super) fn bad(name: &str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(name, CheckOutcome::Bad, said)
        }
    }

    fn new(name: &str, is: CheckOutcome, said: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            is,
            said: said.into(),
            remedy: None,
        }
    }

    pub(super) fn fault(&self) -> String {
        let remedy = self.remedy.as_deref().unwrap_or_default();
        format!("{}: {remedy}", self.said)
    }

    /// `width` is that of the widest name.
    pub(super) fn line(&self, width: usize) -> String {
        let mark = match self.is {
            CheckOutcome::Fine => "ok  ",
            CheckOutcome::Note => "note",
            CheckOutcome::Bad => "BAD ",
            CheckOutcome::Mended => "done",
        };
        let given = self.remedy.as_ref();
        let indent = 7 + width;
        let remedy = given.map(|remedy| format!("\n{:indent$}-> {remedy}", ""));
        format!(
            "{mark}  {:<width$} {}{}",
            self.name,
            self.said,
            remedy.unwrap_or_default()
        )
    }
}
