//! The head of a GGUF file: metadata and where each tensor lies.
//!
//! Every count is checked against the size of the file before it is believed, so that a damaged
//! file is an error and not an allocation of its choosing. Format:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use metaclaw_trainer_text::ModelFileError;

use crate::weights::LoadError;
use crate::weights::error::Result;

/// ggml's token type of control tokens.
pub(super) const CONTROL: i64 = 3;
const DEFAULT_ALIGNMENT: u64 = 32;
/// Arrays of arrays do not occur in model files; a limit keeps a crafted one off the stack.
const DEEPEST: u32 = 4;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meta {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Meta>),
}

#[derive(Debug, Clone)]
pub(super) struct Info {
    /// Row-major, outermost first (GGUF writes it the other way round).
    pub(super) shape: Vec<usize>,
    pub(super) ggml_type: u32,
    /// The offset from the start of the file.
    pub(super) offset: u64,
}

#[derive(Debug)]
pub(super) struct GgufHeader {
    pub(super) file: PathBuf,
    pub(super) size: u64,
    meta: BTreeMap<String, Meta>,
    pub(super) tensors: BTreeMap<String, Info>,
}

impl GgufHeader {
    pub(super) fn read(path: &Path, file: &mut File) -> Result<Self> {
        let damaged = |detail: String| ModelFileError::damaged(path, detail);
        let unreadable = |error: std::io::Error| ModelFileError::damaged(path, error);
        let size = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let mut cursor = ByteReader {
            input: BufReader::new(file),
            position: 0,
            size,
        };
        let (meta, mut tensors) = cursor.header().map_err(damaged)?;
        let alignment = match meta.get("general.alignment") {
            Some(Meta::Int(n @ 1..=65_536)) => n.unsigned_abs(),
            None => DEFAULT_ALIGNMENT,
            Some(other) => return Err(damaged(format!("general.alignment is {other:?}")).into()),
        };
        let data = cursor.position.next_multiple_of(alignment);
        for info in tensors.values_mut() {
            info.offset = info.offset.saturating_add(data);
        }
        Ok(Self {
            file: path.to_owned(),
            size,
            meta,
            tensors,
        })
    }

    pub(super) fn get(&self, key: &str) -> Option<&Meta> {
        self.meta.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Result<&str> {
        match self.get(key) {
            Some(Meta::Text(text)) => Ok(text),
            other => Err(self.wrong(key, other, "a string")),
        }
    }

    pub(super) fn int(&self, key: &str) -> Result<i64> {
        match self.get(key) {
            Some(Meta::Int(n)) => Ok(*n),
            other => Err(self.wrong(key, other, "a whole number")),
        }
    }

    pub(super) fn optional_int(&self, key: &str) -> Result<Option<i64>> {
        self.get(key).map(|_| self.int(key)).transpose()
    }

    /// A float of the file is f32: through its shortest decimal form 1e-5 is 1e-5 again.
    pub(super) fn float(&self, key: &str) -> Result<f64> {
        match self.get(key) {
            #[expect(clippy::cast_possible_truncation, reason = "it was f32 in the file")]
            Some(Meta::Float(x)) => Ok((*x as f32).to_string().parse().unwrap_or(*x)),
            other => Err(self.wrong(key, other, "a number")),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<&[Meta]> {
        match self.get(key) {
            Some(Meta::List(list)) => Ok(list),
            other => Err(self.wrong(key, other, "a list")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&str>> {
        let mut texts = Vec::new();
        for item in self.list(key)? {
            match item {
                Meta::Text(text) => texts.push(text.as_str()),
                other => return Err(self.wrong(key, Some(other), "a list of strings")),
            }
        }
        Ok(texts)
    }

    pub(super) fn tensor(&self, name: &str) -> Result<&Info> {
        let info = self.tensors.get(name);
        info.ok_or_else(|| self.damaged(format!("tensor {name} is missing")))
    }

    pub(super) fn damaged(&self, detail: String) -> LoadError {
        ModelFileError::damaged(&self.file, detail).into()
    }

    pub(super) fn unsupported(&self, what: &str, value: &str, allowed: &str) -> LoadError {
        ModelFileError::unsupported(&self.file, what, value, allowed).into()
    }

    fn wrong(&self, key: &str, value: Option<&Meta>, allowed: &str) -> LoadError {
        let shown = match value {
            None => "missing".to_owned(),
            Some(Meta::List(list)) => format!("a list of {}", list.len()),
            Some(value) => format!("{value:?}"),
        };
        self.unsupported(key, &shown, allowed)
    }
}

type Tables = (BTreeMap<String, Meta>, BTreeMap<String, Info>);

/// Reads little-endian values and never beyond the file.
struct ByteReader<'a> {
    input: BufReader<&'a mut File>,
    position: u64,
    size: u64,
}

impl ByteReader<'_> {
    fn header(&mut self) -> Result<Tables, String> {
        if self.bytes::<4>()? != *b"GGUF" {
            return Err("it does not begin with GGUF".into());
        }
        let version = self.u32()?;
        if !matches!(version, 2 | 3) {
            return Err(format!("GGUF version is {version}, allowed: 2, 3"));
        }
        let (n_tensors, n_meta) = (self.count(24)?, self.count(13)?);
        let mut meta = BTreeMap::new();
        for _ in 0..n_meta {
            let key = self.text()?;
            let kind = self.u32()?;
            let value = self
                .value(kind, 0)
                .map_err(|e| format!("metadata {key}: {e}"))?;
            meta.insert(key, value);
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..n_tensors {
            let name = self.text()?;
            let info = self.info().map_err(|e| format!("tensor {name}: {e}"))?;
            tensors.insert(name, info);
        }
        Ok((meta, tensors))
    }

    fn info(&mut self) -> Result<Info, String> {
        let n_dims = self.u32()?;
        if !(1..=4).contains(&n_dims) {
            return Err(format!("{n_dims} dimensions, allowed: 1 to 4"));
        }
        let mut shape = Vec::new();
        for _ in 0..n_dims {
            let side = self.u64()?;
            let side = usize::try_from(side).map_err(|_| format!("a side of {side}"))?;
            shape.insert(0, side);
        }
        Ok(Info {
            shape,
            ggml_type: self.u32()?,
            offset: self.u64()?,
        })
    }

    #[expect(
        clippy::cast_possible_wrap,
        reason = "u64 metadata are counts; wrapped ones are refused later"
    )]
    fn value(&mut self, kind: u32, depth: u32) -> Result<Meta, String> {
        Ok(match kind {
            0 => Meta::Int(i64::from(u8::from_le_bytes(self.bytes()?))),
            1 => Meta::Int(i64::from(i8::from_le_bytes(self.bytes()?))),
            2 => Meta::Int(i64::from(u16::from_le_bytes(self.bytes()?))),
            3 => Meta::Int(i64::from(i16::from_le_bytes(self.bytes()?))),
            4 => Meta::Int(i64::from(self.u32()?)),
            5 => Meta::Int(i64::from(i32::from_le_bytes(self.bytes()?))),
            6 => Meta::Float(f64::from(f32::from_le_bytes(self.bytes()?))),
            7 => Meta::Bool(self.bytes::<1>()? != [0]),
            8 => Meta::Text(self.text()?),
            9 => self.list(depth)?,
            10 => Meta::Int(self.u64()? as i64),
            11 => Meta::Int(i64::from_le_bytes(self.bytes()?)),
            12 => Meta::Float(f64::from_le_bytes(self.bytes()?)),
            other => return Err(format!("value type is {other}, allowed: 0 to 12")),
        })
    }

    fn list(&mut self, depth: u32) -> Result<Meta, String> {
        if depth == DEEPEST {
            return Err(format!("lists nested deeper than {DEEPEST}"));
        }
        let kind = self.u32()?;
        let n = self.count(1)?;
        (0..n)
            .map(|_| self.value(kind, depth + 1))
            .collect::<Result<_, _>>()
            .map(Meta::List)
    }

    fn text(&mut self) -> Result<String, String> {
        let n = self.count(1)?;
        let mut bytes = vec![0; usize::try_from(n).map_err(|e| e.to_string())?];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| "a text that is not UTF-8".into())
    }

    /// A count of things that take at least `least` bytes each in the rest of the file.
    fn count(&mut self, least: u64) -> Result<u64, String> {
        let n = self.u64()?;
        let left = self.size.saturating_sub(self.position);
        if n.saturating_mul(least) > left {
            let Self { position, size, .. } = self;
            return Err(format!("a count of {n} at byte {position} of {size}"));
        }
        Ok(n)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let read = self.input.read_exact(bytes);
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                format!("it ends after {} bytes, in the header", self.size)
            }
            _ => error.to_string(),
        })?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}
