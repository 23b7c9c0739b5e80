//! GGUF files: converted once to a Hugging Face directory in the cache folder.
//!
//! A GGUF keeps model, tokenizer and chat template in one quantised file. The engine trains and
//! serves bf16 weights, and adapters are for tools that know directories, so the file is unpacked
//! to what `transformers` would load, under the sha256 of its content; later starts map that.
//! A conversion is made beside its place and renamed, under a lock: killed half-way it leaves
//! nothing that is taken for a model, and two processes do not do it twice.

mod blocks;
mod config;
mod header;
mod tensors;
mod tokenizer;

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use metaclaw_trainer_text::{ModelFileError, regular};
use sha2::{Digest, Sha256};

use self::header::GgufHeader;
use crate::digest::{hash_all, hex};
use crate::weights::error::Result;

/// The version of the conversion. Raise it when the conversion changes, so that old results are made anew.
const VERSION: u32 = 3;

/// The Hugging Face directory of a GGUF file, converting it when it is met for the first time.
///
/// # Errors
/// `LoadError` naming the file and what it holds that cannot be used, or the folder that cannot be written.
pub fn directory(gguf: &Path, cache_dir: &Path) -> Result<PathBuf> {
    let unreadable = ModelFileError::reading(gguf);
    let opened = regular(gguf).and_then(File::open);
    let mut file = opened.map_err(&unreadable)?;
    let sha = sha256(&mut file).map_err(&unreadable)?;
    let folder = cache_dir.join("gguf");
    let unwritable = ModelFileError::writing(&folder);
    fs::create_dir_all(&folder).map_err(&unwritable)?;
    let done = folder.join(format!("{sha}-v{VERSION}"));
    if done.is_dir() {
        return Ok(done);
    }
    let lock = File::create(folder.join(format!("{sha}.lock"))).map_err(&unwritable)?;
    lock.lock().map_err(&unwritable)?;
    if done.is_dir() {
        return Ok(done);
    }
    let partial = folder.join(format!("{sha}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(&unwritable)?;
    }
    fs::create_dir(&partial).map_err(&unwritable)?;
    tracing::info!(gguf = %gguf.display(), to = %done.display(), "converting to bf16 safetensors, once");
    convert(gguf, &mut file, &partial)?;
    fs::rename(&partial, &done).map_err(unwritable)?;
    Ok(done)
}

fn convert(gguf: &Path, file: &mut File, out: &Path) -> Result<()> {
    let header = GgufHeader::read(gguf, file)?;
    refuse_part(&header)?;
    let config = config::config(&header, file)?;
    let model_config = crate::model_config::from_json(gguf, config.clone())?;
    let generation = config::generation_config(&header, &config)?;
    for (name, json) in [
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer.json", tokenizer::tokenizer(&header)?),
        (
            "tokenizer_config.json",
            tokenizer::tokenizer_config(&header)?,
        ),
    ] {
        let pretty = format!("{json:#}\n");
        write(&out.join(name), pretty.as_bytes())?;
    }
    tensors::convert(&header, file, &model_config, &out.join("model.safetensors"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    Ok(write().map_err(ModelFileError::writing(path))?)
}

/// Refuses one part of a split model. A part does not name the others.
fn refuse_part(header: &GgufHeader) -> Result<()> {
    let n_parts = header.optional_int("split.count")?.unwrap_or(1);
    if n_parts < 2 {
        return Ok(());
    }
    let number = header.optional_int("split.no")?.unwrap_or(0);
    let part = number.saturating_add(1);
    let value =
        format!("{n_parts}: this is part {part} of a model that was split into several files");
    let allowed = "1, a model in one file (join the parts with llama.cpp: llama-gguf-split --merge FIRST-PART WHOLE.gguf)";
    Err(header.unsupported("split.count", &value, allowed))
}

fn sha256(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    file.seek(SeekFrom::Start(0))?;
    hash_all(file, &mut hash)?;
    Ok(hex(hash))
}

#[cfg(test)]
mod tests;
