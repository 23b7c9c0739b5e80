//! Keys: their home is `metaclaw-chat`.

pub use metaclaw_chat::Secret;
