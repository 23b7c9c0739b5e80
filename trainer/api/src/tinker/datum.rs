//! A datum of either dialect, to and from [`Datum`].
//!
//! The error names the field of anything unsupported: pictures, sound, and inputs that no loss reads.

use std::collections::BTreeMap;

use super::{
    json::{JsonDatum, ModelInput, PromptChunk as JsonChunk},
    proto::{self, ChunkPiece},
    tensor::{self, MAX_ELEMENTS, Room, WireError, WireTensor},
};
use crate::{Datum, DatumParts, Tensor2};

const TARGETS: &str = "target_tokens";
const WEIGHTS: &str = "weights";
const LOGPROBS: &str = "logprobs";
const ADVANTAGES: &str = "advantages";

/// Reads the datums of a protobuf request.
///
/// # Errors
/// [`WireError`] naming the datum and the field.
pub fn from_proto(data: Vec<proto::ProtoDatum>) -> Result<Vec<Datum>, WireError> {
    let mut room = Room(MAX_ELEMENTS);
    let read = data.into_iter().enumerate().map(|(at, datum)| {
        let tokens = proto_tokens(datum.model_input);
        one(at, tokens, datum.loss_fn_inputs, &mut room)
    });
    read.collect()
}

/// Reads the datums of a JSON request.
///
/// # Errors
/// Returns [`WireError`] with the datum and the field.
pub fn from_json(data: Vec<JsonDatum>) -> Result<Vec<Datum>, WireError> {
    let mut room = Room(MAX_ELEMENTS);
    let read = data.into_iter().enumerate().map(|(at, datum)| {
        let tokens = datum.model_input.into_tokens();
        one(at, tokens, datum.loss_fn_inputs, &mut room)
    });
    read.collect()
}

/// The datum as a protobuf request has it.
pub fn to_proto(datum: &Datum) -> proto::ProtoDatum {
    let tokens = tensor::id_bytes(&datum.parts().model_input_tokens);
    let piece = ChunkPiece::EncodedText(proto::EncodedTextChunk { tokens });
    proto::ProtoDatum {
        model_input: vec![proto::ProtoChunk { piece: Some(piece) }],
        loss_fn_inputs: inputs(datum),
        ..proto::ProtoDatum::default()
    }
}

/// The datum as a JSON request has it.
pub fn to_json(datum: &Datum) -> JsonDatum {
    JsonDatum {
        model_input: ModelInput::of(datum.parts().model_input_tokens.clone()),
        loss_fn_inputs: inputs(datum),
    }
}

fn one<T: WireTensor>(
    at: usize,
    tokens: Result<Vec<u32>, String>,
    mut inputs: BTreeMap<String, T>,
    room: &mut Room,
) -> Result<Datum, WireError> {
    let field = |name: &str| format!("data[{at}].{name}");
    let wrong = |name: &str, why| {
        let field = field(name);
        WireError { field, why }
    };
    let input = |name: &str, why| wrong(&format!("loss_fn_inputs.{name}"), why);
    let tokens = tokens.map_err(|why| wrong("model_input", why))?;
    let targets = inputs.remove(TARGETS);
    let targets = targets.ok_or_else(|| input(TARGETS, "it is missing".to_owned()))?;
    let targets = targets.read(room).and_then(target_ids);
    let mut floats = |name: &str| {
        let read = inputs.remove(name).map(|tensor| tensor.read::<f32>(room));
        read.transpose().map_err(|why| input(name, why))
    };
    let weights = floats(WEIGHTS)?;
    let mut vector = |name: &str| match floats(name)? {
        Some(tensor) if tensor.is_matrix() => {
            let why = format!("shape {:?} is not allowed: [N]", tensor.shape());
            Err(input(name, why))
        }
        tensor => Ok(tensor.map(Tensor2::into_values)),
    };
    let parts = DatumParts {
        model_input_tokens: tokens,
        target_tokens: targets.map_err(|why| input(TARGETS, why))?,
        weights,
        logprobs: vector(LOGPROBS)?,
        advantages: vector(ADVANTAGES)?,
    };
    if let Some(name) = inputs.into_keys().next() {
        let why = format!("not known: {TARGETS}, {WEIGHTS}, {LOGPROBS} or {ADVANTAGES}");
        let name: String = name.chars().take(64).collect();
        return Err(input(&name, why));
    }
    Datum::new(parts).map_err(|error| WireError {
        field: format!("data[{at}]"),
        why: error.to_string(),
    })
}

fn proto_tokens(chunks: Vec<proto::ProtoChunk>) -> Result<Vec<u32>, String> {
    let mut tokens = Vec::new();
    for chunk in chunks {
        match chunk.piece {
            Some(ChunkPiece::EncodedText(text)) => tokens.extend(tensor::ids(&text.tokens)?),
            Some(ChunkPiece::Image(_)) => return Err(no_chunk("image")),
            Some(ChunkPiece::Dmel(_)) => return Err(no_chunk("dmel")),
            None => return Err(no_chunk("of no known type")),
        }
    }
    Ok(tokens)
}

fn no_chunk(kind: &str) -> String {
    format!("a chunk is {kind}: only encoded_text is allowed")
}

fn target_ids(targets: Tensor2<i64>) -> Result<Tensor2<u32>, String> {
    let shape = targets.shape();
    let ids = targets
        .into_values()
        .into_iter()
        .map(|id| u32::try_from(id).map_err(|_| format!("it holds {id}: a token id is 0 or more")));
    let ids = ids.collect::<Result<Vec<u32>, _>>()?;
    Tensor2::shaped(ids, &shape).map_err(|error| error.to_string())
}

fn inputs<T: WireTensor>(datum: &Datum) -> BTreeMap<String, T> {
    let parts = datum.parts();
    let targets = &parts.target_tokens;
    let wide: Vec<i64> = targets.values().iter().map(|id| i64::from(*id)).collect();
    let vector = |values: &Vec<f32>| T::of(values, &[values.len()]);
    let weights = parts.weights.as_ref();
    let named = [
        (TARGETS, Some(T::of(&wide, &targets.shape()))),
        (
            WEIGHTS,
            weights.map(|weights| T::of(weights.values(), &weights.shape())),
        ),
        (LOGPROBS, parts.logprobs.as_ref().map(vector)),
        (ADVANTAGES, parts.advantages.as_ref().map(vector)),
    ];
    let present = named
        .into_iter()
        .filter_map(|(name, tensor)| Some((name.to_owned(), tensor?)));
    present.collect()
}

// === impl ModelInput ===

impl ModelInput {
    /// A prompt of one chunk of text.
    pub fn of(tokens: Vec<u32>) -> Self {
        let chunks = vec![JsonChunk::EncodedText { tokens }];
        Self { chunks }
    }

    /// Returns the number of its ids; chunks that are not text have none.
    pub fn n_tokens(&self) -> usize {
        let count = |chunk: &JsonChunk| match chunk {
            JsonChunk::EncodedText { tokens } => tokens.len(),
            JsonChunk::Image(_) | JsonChunk::ImageAssetPointer(_) | JsonChunk::Dmel(_) => 0,
        };
        self.chunks.iter().map(count).sum()
    }

    /// The ids of all chunks.
    ///
    /// # Errors
    /// Returns a message for a chunk that is not text.
    pub fn into_tokens(self) -> Result<Vec<u32>, String> {
        let mut all = Vec::new();
        for chunk in self.chunks {
            match chunk {
                JsonChunk::EncodedText { tokens } => all.extend(tokens),
                JsonChunk::Image(_) => return Err(no_chunk("image")),
                JsonChunk::ImageAssetPointer(_) => return Err(no_chunk("image_asset_pointer")),
                JsonChunk::Dmel(_) => return Err(no_chunk("dmel")),
            }
        }
        Ok(all)
    }
}
