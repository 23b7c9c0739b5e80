//! Text and token ids: everything of a model that is not a tensor, without libtorch.
//!
//! [`tokenizer`] converts text to ids and back, [`template`] writes a conversation in the form that the model was
//! trained on, `content` keeps control tokens out of the content of a conversation, [`served`] finds ids that were
//! sampled earlier, [`stop`] searches a reply for stop texts, [`hub`] finds a model's files on this machine.

mod content;
mod error;
mod file;
pub mod hub;
pub mod served;
pub mod stop;
pub mod template;
pub mod testing;
pub mod tokenizer;

pub use self::{error::ModelFileError, file::regular};
