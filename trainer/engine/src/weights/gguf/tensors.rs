//! Tensors of a GGUF as bf16 safetensors: dequantised, renamed, q and k put back in order.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use half::bf16;
use metaclaw_trainer_text::ModelFileError;
use safetensors::Dtype;
use tch::{Kind, TchError, Tensor};

use super::blocks::BlockFormat;
use super::header::{GgufHeader, Info};
use crate::model_config::{Architecture, ModelConfig};
use crate::tensors;
use crate::weights::error::Result;
use crate::weights::expected;

const ALLOWED: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";

struct StoredTensor {
    shape: Vec<usize>,
    offset: u64,
    n_bytes: u64,
    format: BlockFormat,
}

struct Plan {
    name: String,
    source: String,
    stored: StoredTensor,
    /// Heads whose rows are interleaved: llama.cpp stores q and k of `llama` so.
    interleaved: Option<usize>,
}

pub(super) fn convert(
    header: &GgufHeader,
    file: &mut File,
    config: &ModelConfig,
    out: &Path,
) -> Result<()> {
    let expected = expected(config).into_iter();
    let plans = expected.map(|(name, shape)| plan(header, config, name, &shape));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    refuse_unknown(header, &plans)?;
    let shapes = plans.iter();
    let shapes = shapes.map(|plan| (plan.name.clone(), plan.stored.shape.clone()));
    let head = tensors::header_of(Dtype::BF16, shapes.collect());
    let head = head.map_err(|detail| header.damaged(detail))?;
    let failed = ModelFileError::writing(out);
    let mut open = File::create(out).map_err(&failed)?;
    open.write_all(&head).map_err(&failed)?;
    for plan in &plans {
        let values = plan.stored.numbers(header, file, &plan.source)?;
        let bytes = to_bytes(&values, plan)?;
        open.write_all(&bytes).map_err(&failed)?;
    }
    Ok(open.sync_all().map_err(failed)?)
}

fn plan(header: &GgufHeader, config: &ModelConfig, name: String, shape: &[i64]) -> Result<Plan> {
    let source = gguf_name(&name);
    let stored = StoredTensor::new(header, &source)?;
    let sides = shape.iter().filter_map(|&n| usize::try_from(n).ok());
    let shape: Vec<usize> = sides.collect();
    if stored.shape != shape {
        let found = &stored.shape;
        return Err(header.damaged(format!(
            "tensor {source} has shape {found:?}, its metadata call for {shape:?}"
        )));
    }
    Ok(Plan {
        interleaved: interleaved(config, &source),
        name,
        source,
        stored,
    })
}

// === impl StoredTensor ===

impl StoredTensor {
    fn new(header: &GgufHeader, source: &str) -> Result<Self> {
        let info = header.tensor(source)?;
        let format = BlockFormat::from_ggml(info.ggml_type).ok_or_else(|| {
            let what = format!("the type of tensor {source}");
            header.unsupported(&what, &type_name(info.ggml_type), ALLOWED)
        })?;
        let n_bytes = stored_bytes(info, format).ok_or_else(|| {
            header.damaged(format!(
                "tensor {source} does not fill whole blocks of {format:?}"
            ))
        })?;
        let end = info.offset.checked_add(n_bytes);
        if end.is_none_or(|end| end > header.size) {
            let size = header.size;
            return Err(header.damaged(format!(
                "tensor {source} ends beyond the file ({size} bytes): truncated, fetch it again"
            )));
        }
        Ok(Self {
            shape: info.shape.clone(),
            offset: info.offset,
            n_bytes,
            format,
        })
    }

    fn numbers(&self, header: &GgufHeader, file: &mut File, source: &str) -> Result<Vec<f32>> {
        let damaged = |detail: String| header.damaged(format!("tensor {source}{detail}"));
        let unreadable = |error: io::Error| damaged(format!(": {error}"));
        let mut bytes = vec![0; usize::try_from(self.n_bytes).unwrap_or(0)];
        file.seek(SeekFrom::Start(self.offset))
            .map_err(unreadable)?;
        file.read_exact(&mut bytes).map_err(unreadable)?;
        let values = self.format.dequantise(&bytes);
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => Err(damaged(format!(" holds {} at {at}", values[at]))),
        }
    }
}

pub(super) fn read(header: &GgufHeader, file: &mut File, source: &str) -> Result<Vec<f64>> {
    let numbers = StoredTensor::new(header, source)?.numbers(header, file, source)?;
    Ok(numbers.into_iter().map(f64::from).collect())
}

fn interleaved(config: &ModelConfig, source: &str) -> Option<usize> {
    let heads = match config.architecture {
        Architecture::Llama if source.contains(".attn_q.") => config.n_heads,
        Architecture::Llama if source.contains(".attn_k.") => config.n_kv_heads,
        _ => return None,
    };
    usize::try_from(heads).ok()
}

fn stored_bytes(info: &Info, format: BlockFormat) -> Option<u64> {
    let mut sides = info.shape.iter();
    let n = sides.try_fold(1_usize, |n, &side| n.checked_mul(side))?;
    let (n_numbers, n_bytes) = format.block();
    let blocks = n.is_multiple_of(n_numbers).then(|| n / n_numbers)?;
    u64::try_from(blocks.checked_mul(n_bytes)?).ok()
}

fn gguf_name(name: &str) -> String {
    const PARTS: [(&str, &str); 13] = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("model.layers", "blk"),
        ("model.embed_tokens", "token_embd"),
    ];
    let name = name
        .replace("model.norm", "output_norm")
        .replace("lm_head", "output");
    PARTS
        .iter()
        .fold(name, |name, (theirs, ggufs)| name.replace(theirs, ggufs))
}

fn type_name(number: u32) -> String {
    let name = match number {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        other => return format!("ggml type {other}"),
    };
    name.to_owned()
}

fn refuse_unknown(header: &GgufHeader, plans: &[Plan]) -> Result<()> {
    // The divisors of this one are in config.json.
    let mut names = header
        .tensors
        .keys()
        .filter(|name| *name != "rope_freqs.weight");
    let unknown = names.find(|name| plans.iter().all(|plan| plan.source != **name));
    let allowed = "the tensors that its metadata call for";
    unknown.map_or(Ok(()), |name| {
        Err(header.unsupported("tensor", name, allowed))
    })
}

/// bf16, little-endian, rows in the order of Hugging Face.
///
/// GGUF interleaves the two halves of each head of q and k: row `2 i + j` there is row `j head_dim / 2 + i` here.
fn to_bytes(values: &[f32], plan: &Plan) -> Result<Vec<u8>, TchError> {
    let mut tensor = Tensor::f_from_slice(values)?;
    if let Some(heads) = plan.interleaved {
        let rows = plan.stored.shape.first().copied().unwrap_or(0);
        let pairs = (rows / heads.max(1) / 2).cast_signed() as i64;
        let heads = heads.cast_signed() as i64;
        tensor = tensor.f_reshape([heads, pairs, 2, -1])?.f_transpose(1, 2)?;
    }
    let tensor = tensor.f_contiguous()?.f_to_kind(Kind::BFloat16)?;
    let mut bytes = vec![0; values.len() * size_of::<bf16>()];
    tensor.f_copy_data_u8(&mut bytes, values.len())?;
    Ok(bytes)
}
