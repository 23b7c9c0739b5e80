//! The last wall: a panic of libtorch's bindings becomes an error of what it happened in.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) fn guarded<T>(what: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic_text(panic.as_ref());
        tracing::error!(what, message, "panicked on the engine thread");
        message
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".into())
}
