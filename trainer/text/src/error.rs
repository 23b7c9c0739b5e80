//! Why a file of a model cannot be used.

use std::{
    io,
    path::{Path, PathBuf},
};

pub(crate) type Result<T, E = ModelFileError> = std::result::Result<T, E>;

/// Why a file of a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    #[error("cannot read {file}: {source}", file = file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("cannot write {file}: {source}", file = file.display())]
    Write { file: PathBuf, source: io::Error },
    /// The file is truncated, or its content does not match its name.
    #[error("{file} is damaged or no model file: {detail}", file = file.display())]
    Damaged { file: PathBuf, detail: String },
    #[error("{file} is not a JSON object: {detail}", file = file.display())]
    NoObject { file: PathBuf, detail: String },
    /// The file is valid, but contains something that this program does not support: a field, a tensor, a type.
    #[error("{file}: {what} is {value}, allowed: {allowed}", file = file.display())]
    Unsupported {
        file: PathBuf,
        what: String,
        value: String,
        allowed: String,
    },
    #[error("{file}: chat template cannot be used: {detail}", file = file.display())]
    Template { file: PathBuf, detail: String },
}

// === impl ModelFileError ===

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are passed on by map_err"
)]
impl ModelFileError {
    pub fn reading(file: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read {
            file: file.to_owned(),
            source,
        }
    }

    pub fn writing(file: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            file: file.to_owned(),
            source,
        }
    }

    pub fn damaged(file: &Path, detail: impl ToString) -> Self {
        let (file, detail) = (file.to_owned(), detail.to_string());
        Self::Damaged { file, detail }
    }

    pub fn no_object(file: &Path, detail: impl ToString) -> Self {
        let (file, detail) = (file.to_owned(), detail.to_string());
        Self::NoObject { file, detail }
    }

    pub fn template(file: &Path, detail: impl ToString) -> Self {
        let (file, detail) = (file.to_owned(), detail.to_string());
        Self::Template { file, detail }
    }

    pub fn unsupported(
        file: &Path,
        what: impl Into<String>,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            what: what.into(),
            value: value.into(),
            allowed: allowed.into(),
        }
    }
}
