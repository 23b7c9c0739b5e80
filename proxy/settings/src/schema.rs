//! The keys that work, read from the schemas of the structs that hold them: paths and defaults from the fields, help from
//! their doc comments, kinds from their types and bounds.

use metaclaw_gateway::GatewayConfig;
use metaclaw_learner::LearnerConfig;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{
    key::{Key, KeyState},
    kind::{ValueForm, ValueKind},
    sections::Config,
    unsupported_keys,
};

/// Smaller numbers than this are written with an exponent.
const LEAST_PLAIN: f64 = 1e-4;

/// All keys that work, in the order of their fields.
pub(crate) fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    for schema in [
        schema_of::<Config>(),
        schema_of::<GatewayConfig>(),
        schema_of::<LearnerConfig>(),
    ] {
        collect("", &schema, &mut keys);
    }
    keys
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// Adds the keys below `prefix`.
fn collect(prefix: &str, schema: &Value, keys: &mut Vec<Key>) {
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{prefix}{name}");
        if property["properties"].is_object() {
            collect(&format!("{path}."), property, keys);
        } else if property["additionalProperties"].is_object() {
            let named = &property["additionalProperties"];
            collect(&format!("{path}.*."), named, keys);
        } else {
            keys.push(key(path, property));
        }
    }
}

fn key(path: String, property: &Value) -> Key {
    let values = unsupported_keys::values(&path);
    let mut kind = ValueKind::from_schema(property);
    if let ValueKind::One(ValueForm::Word(words)) = &mut kind {
        words.extend(values.keys().cloned());
    }
    let help = property["description"].as_str().unwrap_or_default();
    Key {
        default: default(property, &kind),
        help: help.split_whitespace().collect::<Vec<_>>().join(" "),
        state: KeyState::Works,
        path,
        kind,
        values,
    }
}

/// The default as it stands in YAML; empty where there is none.
fn default(property: &Value, kind: &ValueKind) -> String {
    match &property["default"] {
        Value::Null => String::new(),
        Value::Array(items) if items.is_empty() && matches!(kind, ValueKind::List(_, 1)) => {
            String::new()
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|it| scalar(it, property)).collect();
            format!("[{}]", items.join(", "))
        }
        one => scalar(one, property),
    }
}

fn scalar(value: &Value, property: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => String::new(),
        // Whether YAML reads it back as it is, and would in 1.1, which takes 23:00 for a number.
        Value::String(text) if text.contains([':', ',', '[', ']', '{', '}', '#']) => {
            Value::from(text.as_str()).to_string()
        }
        Value::String(text) => text.clone(),
        // A single-precision number has more digits in double precision than somebody wrote.
        Value::Number(number) if property["format"] == "float" => number
            .to_string()
            .parse::<f32>()
            .map_or_else(|_| number.to_string(), |it| it.to_string()),
        Value::Number(number) => match number.as_f64() {
            Some(it) if it != 0.0 && it.abs() < LEAST_PLAIN => format!("{it:e}"),
            Some(it) => it.to_string(),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}
