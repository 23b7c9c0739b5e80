//! The time of day: its home is `metaclaw-chat`.

pub(crate) use metaclaw_chat::now_ms;
