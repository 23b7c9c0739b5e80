//! The keys that work, read from the schemas of the structs that hold them: paths and defaults from the fields, help from
//! their doc comments, kinds from their types and bounds.

use metaclaw_gateway::GatewayConfig;
use metaclaw_learner::LearnerConfig;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{
    key::{Key, KeyState},
    kind::ValueKind,
    sections::Config,
    unsupported_keys,
};

/// Smaller numbers than this are written with an exponent.
const LEAST_PLAIN: f64 = 1e-4;

/// All keys that work, in the order of their fields.
pub(crate) fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    for schema in [of::<Config>(), of::<GatewayConfig>(), of::<LearnerConfig>()] {
        collect("", &schema, &mut keys);
    }
    keys
}

fn of<T: JsonSchema>() -> Value {
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
    let mut kind = kind(property);
    if let ValueKind::OneOf(words) = &mut kind {
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

/// What values a property takes.
fn kind(property: &Value) -> ValueKind {
    let shown = without_null(property);
    let text = |name: &str| shown[name].as_str().unwrap_or_default();
    let is_filled = shown["minItems"] == 1 || shown["minLength"] == 1;
    let bound = |name: &str, none: f64| shown[name].as_f64().unwrap_or(none);
    let count = |name: &str, none: u64| shown[name].as_u64().unwrap_or(none);
    let (least, most) = (count("minimum", 0), count("maximum", u64::MAX));
    match (type_of(shown), text("format")) {
        ("boolean", _) => ValueKind::Bool,
        ("integer", "minutes") => ValueKind::Minutes(least, most),
        ("integer", _) => ValueKind::Count(least, most),
        ("number", _) => ValueKind::Number(bound("minimum", f64::MIN), bound("maximum", f64::MAX)),
        ("array", "calendars") => ValueKind::Calendars,
        ("array", _) => list(shown, is_filled),
        (_, "words") => ValueKind::SomeOf(words(shown)),
        (_, "secret") if is_filled => ValueKind::CallersKey,
        (_, "secret") => ValueKind::Secret,
        (_, "uri") => ValueKind::Url,
        (_, "ip") => ValueKind::Host,
        (_, "path") => ValueKind::Path,
        (_, "span") => ValueKind::Span,
        (_, "size") => ValueKind::Size,
        (_, "time") => ValueKind::Time,
        _ if words(shown).is_empty() => ValueKind::Text,
        _ => ValueKind::OneOf(words(shown)),
    }
}

/// What a list takes; `is_filled` where it has at least one item.
fn list(list: &Value, is_filled: bool) -> ValueKind {
    let items = without_null(&list["items"]);
    let words = words(items);
    match (type_of(items), items["format"].as_str(), is_filled) {
        ("object", ..) => ValueKind::Tree(list["shape"].as_str().unwrap_or("a tree").to_owned()),
        (_, Some("secret"), _) => ValueKind::Secrets,
        (_, _, true) if words.is_empty() => ValueKind::OneOrMore,
        (_, _, false) if words.is_empty() => ValueKind::Texts,
        (_, _, true) => ValueKind::Among(words),
        (_, _, false) => ValueKind::AnyOf(words),
    }
}

/// The schema of a value that is there.
fn without_null(schema: &Value) -> &Value {
    let either = schema["anyOf"].as_array();
    let other = either.and_then(|all| all.iter().find(|it| it["type"] != "null"));
    other.unwrap_or(schema)
}

/// The type, without `null`.
fn type_of(schema: &Value) -> &str {
    let name = match &schema["type"] {
        Value::Array(types) => types.iter().find(|it| **it != "null"),
        one => Some(one),
    };
    name.and_then(Value::as_str).unwrap_or_default()
}

/// The words that an enum takes; those with a doc comment stand each in a schema of its own.
fn words(schema: &Value) -> Vec<String> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let each = schema["oneOf"].as_array().into_iter().flatten();
    let documented = each.flat_map(|it| {
        let several = it["enum"].as_array().into_iter().flatten();
        it.get("const").into_iter().chain(several)
    });
    let all = plain.chain(documented).filter_map(Value::as_str);
    all.map(str::to_owned).collect()
}

/// The default as it stands in YAML; empty where there is none.
fn default(property: &Value, kind: &ValueKind) -> String {
    match &property["default"] {
        Value::Null => String::new(),
        Value::Array(items) if items.is_empty() && *kind == ValueKind::OneOrMore => String::new(),
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
