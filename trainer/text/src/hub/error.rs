//! Why a file cannot be downloaded from the hub.

use std::path::PathBuf;

/// Why a model's files cannot be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("{model} is not in the cache {cache}, and HF_HUB_OFFLINE is set: unset it, or copy the model there", cache = cache.display())]
    Offline { model: String, cache: PathBuf },
    #[error("{model}: {url} answers {status}: no such model, or one that is not public; {}", key_hint(*has_token))]
    Unauthorized {
        model: String,
        url: String,
        status: u16,
        has_token: bool,
    },
    /// The owner of the token has not accepted the model's licence.
    #[error("{model}: {url} answers {status}: its licence must be accepted on the model's page first; {}", key_hint(*has_token))]
    Gated {
        model: String,
        url: String,
        status: u16,
        has_token: bool,
    },
    /// There is no such model, or no such revision of it.
    #[error("{model}: {url} answers 404: there is no such model or revision; check the name")]
    NoModel { model: String, url: String },
    #[error(
        "{model} has neither tokenizer.json nor tiktoken.model at the hub: give a folder that has one"
    )]
    NoTokenizer { model: String },
    #[error(
        "{model} has neither model.safetensors nor model.safetensors.index.json at the hub: weights of other forms are not read; give a model that has them, or a GGUF file by its path"
    )]
    NoWeights { model: String },
    #[error("{model} has no config.json at the hub: it is no model in Hugging Face form")]
    NoConfig { model: String },
    /// The download is larger than the free disk space.
    #[error("{model}: {} are to be fetched into {folder}, where {} are free: free {} more, or set HF_HOME to a folder on a larger disk", size(*needed), size(*free), size(needed.saturating_sub(*free)), folder = folder.display())]
    NoRoom {
        model: String,
        needed: u64,
        free: u64,
        folder: PathBuf,
    },
    /// The disk became full during the download.
    #[error("{file}: the disk is full, after {} of it; make room, then try again: it goes on where it ended", size(*done), file = file.display())]
    Full { file: PathBuf, done: u64 },
    #[error("{url} cannot be reached: {why}; check the network, HF_ENDPOINT and the proxy settings, or copy the model's files into the cache {cache}", cache = cache.display())]
    Unreachable {
        url: String,
        why: String,
        cache: PathBuf,
    },
    #[error("{url} answers {status}: {message}")]
    Status {
        url: String,
        status: u16,
        /// The first line of the hub's message.
        message: String,
    },
    /// The answer is not one of a hub.
    #[error("{url} answers what is no hub's: {why}")]
    Unreadable { url: String, why: String },
    /// The downloaded bytes differ from the announced ones.
    #[error("{url}: {why}; the file was removed, try again")]
    Damaged { url: String, why: String },
    /// Another process downloads the same file.
    #[error("{file} is being written by another process: wait until it has ended", file = file.display())]
    Locked { file: PathBuf },
    /// A file of the cache cannot be read or written.
    #[error("cannot write {file}: {source}", file = file.display())]
    File {
        file: PathBuf,
        source: std::io::Error,
    },
}

// === impl HubError ===

impl HubError {
    pub(super) fn unreadable(url: impl Into<String>, why: impl Into<String>) -> Self {
        let (url, why) = (url.into(), why.into());
        Self::Unreadable { url, why }
    }
}

/// Formats a number of bytes in units of 1000, as hubs do.
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
