//! Why a file cannot be fetched from the hub.

use std::path::PathBuf;

/// Why a model's files cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The environment forbids it.
    #[error("{model} is not in the cache {cache}, and HF_HUB_OFFLINE is set: unset it, or copy the model there", cache = cache.display())]
    Offline {
        /// The model.
        model: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub wants to know who asks.
    #[error("{model}: {url} answers {status}: no such model, or one that is not public; {}", key_hint(*has_token))]
    Unauthorized {
        /// The model.
        model: String,
        /// What was asked.
        url: String,
        /// Its answer.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The model's licence was not accepted by whoever asks.
    #[error("{model}: {url} answers {status}: its licence must be accepted on the model's page first; {}", key_hint(*has_token))]
    Gated {
        /// The model.
        model: String,
        /// What was asked.
        url: String,
        /// Its answer.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// There is no such model, or no such revision of it.
    #[error("{model}: {url} answers 404: there is no such model or revision; check the name")]
    NoModel {
        /// The model.
        model: String,
        /// What was asked.
        url: String,
    },
    /// The model has no tokenizer that can be read.
    #[error(
        "{model} has neither tokenizer.json nor tiktoken.model at the hub: give a folder that has one"
    )]
    NoTokenizer {
        /// The model.
        model: String,
    },
    /// The hub cannot be reached.
    #[error("{url} cannot be reached: {why}; check the network, HF_ENDPOINT and the proxy settings, or copy the model's files into the cache {cache}", cache = cache.display())]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why not.
        why: String,
        /// Where files may be put by hand.
        cache: PathBuf,
    },
    /// Any other answer.
    #[error("{url} answers {status}: {message}")]
    Status {
        /// What was asked.
        url: String,
        /// Its answer.
        status: u16,
        /// The first line of its words.
        message: String,
    },
    /// An answer that a hub does not give.
    #[error("{url} answers what is no hub's: {why}")]
    Unreadable {
        /// What was asked.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// What came is not what was announced.
    #[error("{url}: {why}; the file was removed, try again")]
    Damaged {
        /// What was asked.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Another process fetches the same file.
    #[error("{file} is being written by another process: wait until it has ended", file = file.display())]
    Locked {
        /// The unfinished file.
        file: PathBuf,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot write {file}: {source}", file = file.display())]
    File {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn key_hint(has_token: bool) -> &'static str {
    if has_token {
        "the token of HF_TOKEN may not read it"
    } else {
        "set HF_TOKEN to a token that may read it"
    }
}
