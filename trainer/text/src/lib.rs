//! Text and token ids: everything of a model that is not a tensor; no libtorch.
//!
//! [`tokenizer`] turns text into ids and back, [`template`] writes a conversation as the model was taught to read
//! it, `content` keeps control tokens out of what a conversation says, [`served`] finds the ids again that were
//! sampled earlier, [`stop`] looks for stop texts in a reply, [`hub`] finds a model's files on this machine.

mod content;
mod error;
pub mod hub;
pub mod served;
pub mod stop;
pub mod template;
pub mod testing;
pub mod tokenizer;

pub use self::error::LoadError;
