//! How calls to the training server fail.

use std::time::Duration;

use metaclaw_trainer_api::{BackendError, ErrorCode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody there; nothing was done.
    Unreachable,
    /// Nothing was done, and no answer came.
    LostBefore,
    /// It was done, and no answer came.
    LostAfter,
    /// It was done, and the answer is a 500.
    ErrorAfter,
    /// The server was killed before the call: it forgets its runs.
    Killed,
    ClientKilledBefore,
    ClientKilledAfter,
    /// The client is killed, and what it asked to be written is written so many calls later.
    WrittenLate(usize),
    /// 400.
    Refused,
    /// Nothing was done, and the answer is this status, with this code.
    Answers(u16, Option<&'static str>),
}

impl Failure {
    pub(crate) const OF_ANY_CALL: [Self; 7] = [
        Self::Unreachable,
        Self::LostBefore,
        Self::LostAfter,
        Self::ErrorAfter,
        Self::Killed,
        Self::ClientKilledBefore,
        Self::ClientKilledAfter,
    ];
}

pub(super) fn refusal(call: &'static str, status: u16, code: Option<&str>) -> BackendError {
    let (url, message) = ("world".to_owned(), "no".to_owned());
    BackendError::Status {
        call,
        url,
        status,
        code: code.map(ErrorCode::from),
        param: None,
        message,
    }
}

pub(super) fn lost(call: &'static str) -> BackendError {
    BackendError::Timeout {
        call,
        url: "world".to_owned(),
        after: Duration::ZERO,
    }
}
