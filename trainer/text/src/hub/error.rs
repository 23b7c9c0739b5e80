//! Why a file cannot be fetched from the hub.

use std::path::PathBuf;

/// Why a model's files cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The environment forbids it.
    #[error("{model} is not in the cache {cache}, and HF_HUB_OFFLINE is set: unset it, or copy the model there", cache = cache.display())]
    Offline {
        model: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub wants to know who asks.
    #[error("{model}: {url} answers {status}: no such model, or one that is not public; {}", key_hint(*has_token))]
    Unauthorized {
        model: String,
        url: String,
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The model's licence was not accepted by whoever asks.
    #[error("{model}: {url} answers {status}: its licence must be accepted on the model's page first; {}", key_hint(*has_token))]
    Gated {
        model: String,
        url: String,
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// There is no such model, or no such revision of it.
    #[error("{model}: {url} answers 404: there is no such model or revision; check the name")]
    NoModel { model: String, url: String },
    /// The model has no tokenizer that can be read.
    #[error(
        "{model} has neither tokenizer.json nor tiktoken.model at the hub: give a folder that has one"
    )]
    NoTokenizer { model: String },
    /// The model has no weights that can be loaded.
    #[error(
        "{model} has neither model.safetensors nor model.safetensors.index.json at the hub: weights of other forms are not read; give a model that has them, or a GGUF file by its path"
    )]
    NoWeights { model: String },
    /// The model is not in Hugging Face form.
    #[error("{model} has no config.json at the hub: it is no model in Hugging Face form")]
    NoConfig { model: String },
    /// More is to be fetched than the disk has room for.
    #[error("{model}: {} are to be fetched into {folder}, where {} are free: free {} more, or set HF_HOME to a folder on a larger disk", size(*needed), size(*free), size(needed.saturating_sub(*free)), folder = folder.display())]
    NoRoom {
        model: String,
        /// Bytes that are to come.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        folder: PathBuf,
    },
    /// The disk became full meanwhile.
    #[error("{file}: the disk is full, after {} of it; make room, then try again: it goes on where it ended", size(*done), file = file.display())]
    Full {
        file: PathBuf,
        /// Bytes that are there.
        done: u64,
    },
    /// The hub cannot be reached.
    #[error("{url} cannot be reached: {why}; check the network, HF_ENDPOINT and the proxy settings, or copy the model's files into the cache {cache}", cache = cache.display())]
    Unreachable {
        url: String,
        why: String,
        /// Where files may be put by hand.
        cache: PathBuf,
    },
    #[error("{url} answers {status}: {message}")]
    Status {
        url: String,
        status: u16,
        /// The first line of its words.
        message: String,
    },
    /// An answer that a hub does not give.
    #[error("{url} answers what is no hub's: {why}")]
    Unreadable { url: String, why: String },
    /// What came is not what was announced.
    #[error("{url}: {why}; the file was removed, try again")]
    Damaged { url: String, why: String },
    /// Another process fetches the same file.
    #[error("{file} is being written by another process: wait until it has ended", file = file.display())]
    Locked { file: PathBuf },
    /// A file of the cache cannot be read or written.
    #[error("cannot write {file}: {source}", file = file.display())]
    File {
        /// The file or folder.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Bytes in words, as hubs count them: in units of 1000.
pub(super) fn size(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = "bytes";
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    match unit {
        "bytes" => format!("{n} bytes"),
        _ => format!("{value:.1} {unit}"),
    }
}

fn key_hint(has_token: bool) -> &'static str {
    if has_token {
        "the token of HF_TOKEN may not read it"
    } else {
        "set HF_TOKEN to a token that may read it"
    }
}
