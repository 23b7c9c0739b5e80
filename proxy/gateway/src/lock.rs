//! A helper for mutexes.

pub(crate) use metaclaw_chat::lock;
