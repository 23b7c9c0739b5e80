//! Safetensors files of our own: small, f32, whole in memory.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::num::TryFromIntError;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use tch::{Kind, TchError, Tensor};

use crate::torch::Result;

/// Why a file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused to read.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system refused to write.
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is truncated, or its content does not fit its name.
    #[error("{file} is damaged: {detail}", file = file.display())]
    Damaged {
        file: PathBuf,
        /// What is wrong with the file.
        detail: String,
    },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

// === impl FileError ===

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors are passed on by map_err"
)]
impl FileError {
    pub(crate) fn reading(file: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Read {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn writing(file: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Write {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(file: &Path, detail: impl ToString) -> Self {
        let (file, detail) = (file.to_owned(), detail.to_string());
        Self::Damaged { file, detail }
    }
}

/// Writes named tensors as f32 with `{"format": "pt"}`, which PEFT and transformers look for, and syncs the file.
///
/// One tensor at a time is in memory besides those that are given.
///
/// # Shapes
/// Any; f32, f16 or bf16.
///
/// # Errors
/// What the system or libtorch refuses.
pub fn write<'a>(
    file: &Path,
    tensors: impl Iterator<Item = (String, &'a Tensor)>,
) -> Result<(), FileError> {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let shapes = tensors.iter().map(|(name, tensor)| {
        let shape = tensor.size().into_iter().map(usize::try_from);
        Ok((name.clone(), shape.collect::<Result<_, _>>()?))
    });
    let shapes = shapes.collect::<Result<Vec<_>, TryFromIntError>>();
    let header = shapes.map_err(|error| error.to_string());
    let header = header.and_then(|shapes| header_of(Dtype::F32, shapes));
    let header = header.map_err(|detail| FileError::damaged(file, detail))?;
    let failed = FileError::writing(file);
    let mut open = File::create(file).map_err(&failed)?;
    open.write_all(&header).map_err(&failed)?;
    let mut bytes = Vec::new();
    for (_, tensor) in &tensors {
        numbers(tensor, &mut bytes)?;
        open.write_all(&bytes).map_err(&failed)?;
    }
    open.sync_all().map_err(failed)
}

/// What a safetensors file begins with that holds tensors of one type in this order. The error is a message.
pub(crate) fn header_of(
    dtype: Dtype,
    shapes: Vec<(String, Vec<usize>)>,
) -> Result<Vec<u8>, String> {
    const ALIGNMENT: usize = 64;
    let mut end = 0;
    let infos = shapes.into_iter().map(|(name, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let data_offsets = (start, end);
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets,
        };
        (name, info)
    });
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(format), infos.collect());
    let metadata = metadata.map_err(|error| error.to_string())?;
    let mut text = serde_json::to_vec(&metadata).map_err(|error| error.to_string())?;
    // Numbers begin at such a multiple, so that the file can be mapped.
    text.resize((text.len() + 8).next_multiple_of(ALIGNMENT) - 8, b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

/// Puts a tensor's numbers, as little-endian f32 in row-major order, in the place of what `bytes` held.
///
/// # Shapes
/// Any; f32, f16 or bf16, on any device.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn numbers(tensor: &Tensor, bytes: &mut Vec<u8>) -> Result<()> {
    let tensor = tensor.f_to_kind(Kind::Float)?;
    let n = tensor.numel();
    bytes.resize(n * Kind::Float.elt_size_in_bytes(), 0);
    tensor.f_copy_data_u8(bytes, n)
}

/// Writes a file and syncs it.
///
/// # Errors
/// [`FileError::Write`].
pub fn write_bytes(file: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let write = || {
        let mut open = File::create(file)?;
        open.write_all(bytes)?;
        open.sync_all()
    };
    write().map_err(FileError::writing(file))
}

/// Reads a header and checks that every tensor is inside the file. The error is a message.
pub(crate) fn parse(bytes: &[u8]) -> Result<SafeTensors<'_>, String> {
    SafeTensors::deserialize(bytes).map_err(|error| {
        let n = bytes.len();
        match error {
            SafeTensorError::HeaderTooSmall
            | SafeTensorError::InvalidHeaderLength
            | SafeTensorError::MetadataIncompleteBuffer => {
                format!("it ends after {n} bytes, before its tensors do: truncated, fetch it again")
            }
            error => format!("it is no valid safetensors file: {error} ({n} bytes)"),
        }
    })
}

/// Reads all tensors of a file, each as f32.
///
/// # Shapes
/// Any; f32, on the CPU.
///
/// # Errors
/// A file that is missing or truncated, or a tensor that is neither f32, f16 nor bf16, by name.
pub fn read(file: &Path) -> Result<BTreeMap<String, Tensor>, FileError> {
    let bytes = read_bytes(file)?;
    let damaged = |detail: String| FileError::damaged(file, detail);
    let parsed = parse(&bytes).map_err(damaged)?;
    let mut tensors = BTreeMap::new();
    for (name, view) in parsed.iter() {
        let kind = match view.dtype() {
            Dtype::F32 => Kind::Float,
            Dtype::F16 => Kind::Half,
            Dtype::BF16 => Kind::BFloat16,
            other => {
                let detail = format!("tensor {name:?} is {other:?}, allowed are F32, F16 and BF16");
                return Err(damaged(detail));
            }
        };
        let shape: Result<Vec<i64>, _> = view.shape().iter().map(|&n| i64::try_from(n)).collect();
        let shape = shape.map_err(|error| damaged(error.to_string()))?;
        let tensor = Tensor::f_from_data_size(view.data(), &shape, kind)?;
        tensors.insert(name.to_owned(), tensor.f_to_kind(Kind::Float)?);
    }
    Ok(tensors)
}

/// Reads a file whole.
///
/// # Errors
/// [`FileError::Read`].
pub fn read_bytes(file: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(file).map_err(FileError::reading(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.safetensors");
        let tensor = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        write(&file, [("a".to_owned(), &tensor)].into_iter()).unwrap();
        assert!(read(&file).unwrap()["a"].equal(&tensor));
        let bytes = std::fs::read(&file).unwrap();
        for keep in [4, 20, bytes.len() - 1] {
            std::fs::write(&file, &bytes[..keep]).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains("x.safetensors is damaged: "), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(
            read(&file)
                .unwrap_err()
                .to_string()
                .starts_with("cannot read ")
        );
    }
}
