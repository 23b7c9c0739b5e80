//! Tensors of a GGUF as bf16 safetensors: dequantised by candle, renamed, q and k put back in order.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use half::bf16;
use serde_json::{Map, json};
use tch::{Kind, TchError, Tensor};

use super::header::{Header, Info};
use super::write;
use crate::family::{Architecture, Family};
use crate::weights::{LoadError, expected};

/// Types that candle turns into numbers; the others are refused by these names.
const ALLOWED: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";

struct Plan {
    name: String,
    shape: Vec<usize>,
    source: String,
    info: Info,
    dtype: GgmlDType,
    /// Heads whose rows are interleaved: llama.cpp stores q and k of `llama` so.
    interleaved: Option<usize>,
}

/// Writes every tensor that the family calls for.
pub(super) fn convert(
    header: &Header,
    file: &mut File,
    family: &Family,
    out: &Path,
) -> Result<(), LoadError> {
    let plans = expected(family)
        .into_iter()
        .map(|(name, shape)| plan(header, family, name, &shape))
        .collect::<Result<Vec<_>, _>>()?;
    refuse_unknown(header, &plans)?;
    let mut failed = None;
    let written = write(out, |out| {
        let mut out = BufWriter::with_capacity(1 << 20, out);
        out.write_all(&safetensors_header(&plans))?;
        for plan in &plans {
            match numbers(header, file, plan) {
                Ok(bytes) => out.write_all(&bytes)?,
                Err(error) => {
                    failed = Some(error);
                    return Err(std::io::Error::other("conversion stopped"));
                }
            }
        }
        out.flush()
    });
    match failed {
        Some(error) => Err(error),
        None => written,
    }
}

fn plan(header: &Header, family: &Family, name: String, shape: &[i64]) -> Result<Plan, LoadError> {
    let source = gguf_name(&name);
    let damaged = |detail: String| LoadError::Damaged {
        file: header.file.clone(),
        detail,
    };
    let info = header
        .tensors
        .get(&source)
        .ok_or_else(|| damaged(format!("tensor {source} is missing")))?
        .clone();
    let shape: Vec<usize> = shape
        .iter()
        .filter_map(|&n| usize::try_from(n).ok())
        .collect();
    if info.shape != shape {
        return Err(damaged(format!(
            "tensor {source} has shape {:?}, its metadata call for {shape:?}",
            info.shape
        )));
    }
    let dtype = dtype(header, &source, info.ggml_type)?;
    let stored = stored_bytes(&info, dtype).ok_or_else(|| {
        damaged(format!(
            "tensor {source} does not fill whole blocks of {dtype:?}"
        ))
    })?;
    if info
        .offset
        .checked_add(stored)
        .is_none_or(|end| end > header.size)
    {
        let detail = format!(
            "tensor {source} ends beyond the file ({} bytes): truncated, fetch it again",
            header.size
        );
        return Err(damaged(detail));
    }
    let interleaved = interleaved(family, &source);
    Ok(Plan {
        name,
        shape,
        source,
        info,
        dtype,
        interleaved,
    })
}

fn interleaved(family: &Family, source: &str) -> Option<usize> {
    let heads = if family.architecture != Architecture::Llama {
        return None;
    } else if source.contains(".attn_q.") {
        family.n_heads
    } else if source.contains(".attn_k.") {
        family.n_kv_heads
    } else {
        return None;
    };
    usize::try_from(heads).ok()
}

fn stored_bytes(info: &Info, dtype: GgmlDType) -> Option<u64> {
    let n: usize = info
        .shape
        .iter()
        .try_fold(1_usize, |n, &side| n.checked_mul(side))?;
    let blocks = n
        .is_multiple_of(dtype.block_size())
        .then(|| n / dtype.block_size())?;
    u64::try_from(blocks.checked_mul(dtype.type_size())?).ok()
}

/// The GGUF name of a Hugging Face tensor.
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

fn dtype(header: &Header, source: &str, number: u32) -> Result<GgmlDType, LoadError> {
    Ok(match number {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        other => {
            let what = format!("the type of tensor {source}");
            return Err(header.unsupported(&what, &type_name(other), ALLOWED));
        }
    })
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

fn refuse_unknown(header: &Header, plans: &[Plan]) -> Result<(), LoadError> {
    match header
        .tensors
        .keys()
        .find(|name| plans.iter().all(|plan| plan.source != **name))
    {
        None => Ok(()),
        Some(name) => {
            Err(header.unsupported("tensor", name, "the tensors that its metadata call for"))
        }
    }
}

/// Length, then JSON, padded so that the numbers start at a multiple of 64.
fn safetensors_header(plans: &[Plan]) -> Vec<u8> {
    const ALIGN: usize = 64;
    let mut table = Map::new();
    table.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut start = 0;
    for plan in plans {
        let end = start + plan.shape.iter().product::<usize>() * size_of::<bf16>();
        let entry = json!({"dtype": "BF16", "shape": plan.shape, "data_offsets": [start, end]});
        table.insert(plan.name.clone(), entry);
        start = end;
    }
    let mut text = serde_json::Value::Object(table).to_string().into_bytes();
    text.resize((text.len() + 8).next_multiple_of(ALIGN) - 8, b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    header
}

/// One tensor as bf16 bytes.
fn numbers(header: &Header, file: &mut File, plan: &Plan) -> Result<Vec<u8>, LoadError> {
    let damaged = |error: &dyn std::fmt::Display| LoadError::Damaged {
        file: header.file.clone(),
        detail: format!("tensor {}: {error}", plan.source),
    };
    let stored = stored_bytes(&plan.info, plan.dtype).unwrap_or(0);
    let stored = usize::try_from(stored).unwrap_or(0);
    // candle views the bytes as blocks of up to 4-byte fields and checks neither length nor alignment.
    let mut buffer = vec![0; stored + 8];
    let start = buffer.as_ptr().align_offset(8).min(8);
    let bytes = &mut buffer[start..start + stored];
    file.seek(SeekFrom::Start(plan.info.offset))
        .map_err(|e| damaged(&e))?;
    file.read_exact(bytes).map_err(|e| damaged(&e))?;
    let device = candle_core::Device::Cpu;
    let values = qtensor_from_ggml(plan.dtype, bytes, plan.info.shape.clone(), &device)
        .and_then(|quantised| quantised.dequantize(&device))
        .and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>())
        .map_err(|e| damaged(&e))?;
    Ok(to_bytes(&values, plan)?)
}

/// bf16, little-endian, rows in the order of Hugging Face.
///
/// GGUF interleaves the two halves of each head of q and k: row `2 i + j` there is row `j head_dim / 2 + i` here.
fn to_bytes(values: &[f32], plan: &Plan) -> Result<Vec<u8>, TchError> {
    let mut tensor = Tensor::f_from_slice(values)?;
    if let Some(heads) = plan.interleaved {
        let rows = plan.shape.first().copied().unwrap_or(0);
        let pairs = (rows / heads.max(1) / 2).cast_signed() as i64;
        let heads = heads.cast_signed() as i64;
        tensor = tensor.f_reshape([heads, pairs, 2, -1])?.f_transpose(1, 2)?;
    }
    let tensor = tensor.f_contiguous()?.f_to_kind(Kind::BFloat16)?;
    let mut bytes = vec![0; values.len() * size_of::<bf16>()];
    tensor.f_copy_data_u8(&mut bytes, values.len())?;
    Ok(bytes)
}
