//! `adapter_config.json`, PEFT's.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::error::AdapterError;
use super::json::from_json;
use crate::lora::{IN_PART, Lora, LoraSpec, LoraTargets};

pub(super) struct AdapterConfigFile {
    file: PathBuf,
    fields: Map<String, Value>,
}

/// The modules of a model of text and images that have names like ours and are not of its text part; a regular expression.
const OF_GEMMA3: &str = ".*(vision_tower|multi_modal_projector).*";
const OF_QWEN35: &str = ".*visual.*";
const OF_GEMMA4: &str = ".*(vision_tower|embed_vision|audio_tower|embed_audio).*";
const OF_IMAGES: [&str; 3] = [OF_GEMMA3, OF_QWEN35, OF_GEMMA4];

/// PEFT's fields in its order, which is alphabetic. vLLM and llama.cpp read a part of them.
pub(super) fn to_json(lora: &Lora, base_name: &str) -> Value {
    let spec = &lora.spec;
    let mut targets = spec.targets.names();
    targets.sort_unstable();
    let mut json = json!({
        "alpha_pattern": {},
        "auto_mapping": null,
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "lora_alpha": spec.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": spec.rank,
        "rank_pattern": {},
        "revision": null,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": false,
    });
    if lora.dims.layers_at == IN_PART {
        let which = if lora.dims.gemma4.is_some() {
            OF_GEMMA4
        } else if lora.dims.delta.is_some() {
            OF_QWEN35
        } else {
            OF_GEMMA3
        };
        json["exclude_modules"] = json!(which);
    }
    json
}

/// Fields that change what an adapter computes in ways this engine does not do; absent or empty is fine.
const REFUSED: [&str; 21] = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "ensure_weight_tying",
    "exclude_modules",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "layers_pattern",
    "layers_to_transform",
    "lora_bias",
    "modules_to_save",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
    "velora_config",
];

impl AdapterConfigFile {
    pub(super) fn read(file: &Path) -> Result<Self, AdapterError> {
        let fields = from_json(file)?;
        Ok(Self {
            file: file.into(),
            fields,
        })
    }

    pub(super) fn base_name(&self) -> Option<&str> {
        self.fields.get("base_model_name_or_path")?.as_str()
    }

    pub(super) fn spec(&self) -> Result<LoraSpec, AdapterError> {
        self.text("peft_type", "LORA")?;
        if self.fields.contains_key("bias") {
            self.text("bias", "none")?;
        }
        for field in REFUSED {
            let value = self.fields.get(field);
            let text = value.and_then(Value::as_str);
            let is_ours =
                field == "exclude_modules" && text.is_some_and(|it| OF_IMAGES.contains(&it));
            if !is_ours && !value.is_none_or(is_empty) {
                return Err(self.error(
                    field,
                    "null, false or empty: this engine does not compute it",
                ));
            }
        }
        let rank = self.number("r")?;
        let alpha = self.number("lora_alpha")?;
        let alpha = u32::try_from(alpha).map_err(|_| self.error("lora_alpha", WHOLE))?;
        let targets = self.targets()?;
        Ok(LoraSpec {
            rank,
            alpha,
            targets,
        })
    }

    fn targets(&self) -> Result<LoraTargets, AdapterError> {
        const FIELD: &str = "target_modules";
        const ALLOWED: &str = "a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, out_proj, lm_head";
        let names = self.fields.get(FIELD).and_then(Value::as_array);
        let names: Option<Vec<&str>> =
            names.and_then(|all| all.iter().map(Value::as_str).collect());
        let targets = names.and_then(|names| LoraTargets::named(names).ok());
        targets.ok_or_else(|| self.error(FIELD, ALLOWED))
    }

    fn text(&self, field: &'static str, allowed: &'static str) -> Result<(), AdapterError> {
        match self.fields.get(field).and_then(Value::as_str) {
            Some(text) if text == allowed => Ok(()),
            _ => Err(self.error(field, allowed)),
        }
    }

    /// PEFT writes alpha as 32 or as 32.0.
    fn number(&self, field: &'static str) -> Result<i64, AdapterError> {
        let value = self.fields.get(field);
        let whole = value.and_then(Value::as_i64);
        let written_as_float = || {
            let text = value?.as_f64()?.to_string();
            text.parse().ok()
        };
        let number = whole.or_else(written_as_float).filter(|&n| n >= 1);
        number.ok_or_else(|| self.error(field, WHOLE))
    }

    fn error(&self, field: &'static str, allowed: &'static str) -> AdapterError {
        let written = self.fields.get(field).map(Value::to_string);
        let value = written.unwrap_or_else(|| "missing".to_owned());
        AdapterError::Field {
            file: self.file.clone(),
            field,
            value,
            allowed,
        }
    }
}

const WHOLE: &str = "a whole number from 1 up";

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
