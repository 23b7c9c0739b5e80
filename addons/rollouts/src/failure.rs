//! Why a request failed, in words.

use std::{error::Error, fmt::Write as _};

/// Returns an error without its address, and with its innermost cause, such as `Connection refused`.
pub(crate) fn in_words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(Error::source) {
        cause = Some(inner);
    }
    if let Some(cause) = cause {
        let _ = write!(text, ": {cause}");
    }
    text
}
