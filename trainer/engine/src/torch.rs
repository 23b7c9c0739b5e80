//! Names for what nearly every call of libtorch returns.

use tch::TchError;

pub(crate) type Result<T, E = TchError> = std::result::Result<T, E>;
