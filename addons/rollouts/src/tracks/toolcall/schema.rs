//! Checks arguments by a JSON schema, in the keywords that tool definitions use.
//!
//! A schema with any other keyword is refused, so that no constraint is passed over. The crate `jsonschema` knows them
//! all, and brings twenty crates along.

use regex::Regex;
use serde_json::{Map, Value};

/// The keywords that constrain values, except those of `BOUNDS`.
const KEYWORDS: &str =
    "additionalProperties, anyOf, const, enum, items, oneOf, pattern, properties, required, type";
const BOUNDS: [(&str, Bound); 8] = [
    ("minimum", |size, limit| size >= limit),
    ("maximum", |size, limit| size <= limit),
    ("exclusiveMinimum", |size, limit| size > limit),
    ("exclusiveMaximum", |size, limit| size < limit),
    ("minLength", |size, limit| size >= limit),
    ("maxLength", |size, limit| size <= limit),
    ("minItems", |size, limit| size >= limit),
    ("maxItems", |size, limit| size <= limit),
];
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

type Bound = fn(f64, f64) -> bool;

#[derive(Debug)]
pub(super) struct ArgumentSchema(Value);

// === impl ArgumentSchema ===

impl ArgumentSchema {
    /// Reads a schema. `at` says where it stands.
    ///
    /// # Errors
    /// Names the keyword that is wrong or not known.
    pub(super) fn new(schema: &Value, at: &str) -> Result<Self, String> {
        validate(schema, at)?;
        Ok(Self(schema.clone()))
    }

    /// Checks a value. `at` names it.
    ///
    /// # Errors
    /// Says in words what is wrong with it, as the model is told.
    pub(super) fn check(&self, value: &Value, at: &str) -> Result<(), String> {
        check(&self.0, value, at)
    }
}

// === functions ===

fn validate(schema: &Value, at: &str) -> Result<(), String> {
    let Value::Object(keywords) = schema else {
        return Err(format!(
            "{at}: {schema} is no schema: it has to be an object"
        ));
    };
    if keywords.contains_key("anyOf") && keywords.contains_key("oneOf") {
        return Err(format!("{at} has anyOf and oneOf: use one of them"));
    }
    for (keyword, given) in keywords {
        let place = format!("{at}.{keyword}");
        let wrong = |allowed: &str| Err(format!("{place} {given} is not allowed: {allowed}"));
        match (&**keyword, given) {
            ("type", _) => {
                let is_known =
                    |name: &&Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                if let Some(name) = listed(given).iter().find(|name| !is_known(name)) {
                    let types = TYPES.join(", ");
                    return Err(format!("{place} {name} is not allowed: use {types}"));
                }
            }
            ("properties", Value::Object(fields)) => {
                for (name, field) in fields {
                    validate(field, &format!("{place}.{name}"))?;
                }
            }
            ("properties", _) => return wrong("it has to be an object"),
            ("required", Value::Array(names)) if names.iter().all(Value::is_string) => {}
            ("required", _) => return wrong("it has to be a list of names"),
            ("const", _) | ("enum", Value::Array(_)) | ("additionalProperties", Value::Bool(_)) => {
            }
            ("enum", _) => return wrong("it has to be a list"),
            ("additionalProperties" | "items", one) => validate(one, &place)?,
            // `oneOf` is read as `anyOf`, because the alternatives of tool definitions exclude each other by their
            // types.
            ("anyOf" | "oneOf", Value::Array(list)) if !list.is_empty() => {
                for (index, one) in list.iter().enumerate() {
                    validate(one, &format!("{place}[{index}]"))?;
                }
            }
            ("anyOf" | "oneOf", _) => return wrong("it has to be a list of at least one schema"),
            ("pattern", Value::String(text)) => {
                Regex::new(text).map_err(|error| format!("{place} {given}: {error}"))?;
            }
            ("pattern", _) => return wrong("it has to be a text"),
            (name, _) if BOUNDS.iter().any(|(bound, _)| *bound == name) => {
                if !given.is_number() {
                    return wrong("a number");
                }
            }
            // These keywords constrain nothing.
            (
                "$comment" | "$schema" | "default" | "deprecated" | "description" | "examples"
                | "format" | "title",
                _,
            ) => {}
            _ => {
                return Err(format!(
                    "{place} is not supported: use {KEYWORDS}, or a bound such as minimum"
                ));
            }
        }
    }
    Ok(())
}

fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let types = schema.get("type").map_or(&[][..], listed);
    if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
        let names: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        return Err(format!("{at}: {value} is no {}", names.join(" or ")));
    }
    let constant = schema.get("const").map(std::slice::from_ref);
    let accepted = constant.or_else(|| schema.get("enum")?.as_array().map(Vec::as_slice));
    if let Some(accepted) = accepted
        && !accepted.iter().any(|one| is_same(one, value))
    {
        let list: Vec<String> = accepted.iter().map(Value::to_string).collect();
        let list = list.join(", ");
        return Err(format!("{at}: {value} is not allowed: use {list}"));
    }
    if let (Some(Value::String(pattern)), Value::String(text)) = (schema.get("pattern"), value)
        && !Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
    {
        return Err(format!("{at}: {value} does not match {pattern}"));
    }
    for (keyword, is_within) in BOUNDS {
        let limit = schema.get(keyword).and_then(Value::as_f64);
        if let (Some(size), Some(limit)) = (size(keyword, value), limit)
            && !is_within(size, limit)
        {
            return Err(format!("{at}: {value} is beyond {keyword} {limit}"));
        }
    }
    if let Value::Object(fields) = value {
        check_fields(schema, fields, at)?;
    }
    if let (Some(items), Value::Array(list)) = (schema.get("items"), value) {
        for (place, item) in list.iter().enumerate() {
            check(items, item, &format!("{at}[{place}]"))?;
        }
    }
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"));
    match alternatives.and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, rest @ ..]) if !rest.iter().any(|one| check(one, value, at).is_ok()) => {
            check(first, value, at)
        }
        _ => Ok(()),
    }
}

fn check_fields(schema: &Value, fields: &Map<String, Value>, at: &str) -> Result<(), String> {
    let required = schema.get("required").map_or(&[][..], listed);
    let required = required.iter().filter_map(Value::as_str);
    if let Some(name) = required.filter(|name| !fields.contains_key(*name)).min() {
        return Err(format!("{at}.{name} is missing"));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    for (name, field) in fields {
        let at = format!("{at}.{name}");
        match (properties.and_then(|known| known.get(name)), additional) {
            (None, Some(Value::Bool(false))) => {
                let names = properties.into_iter().flat_map(Map::keys);
                let names: Vec<&str> = names.map(String::as_str).collect();
                return Err(format!("{at} is not known: use {}", names.join(", ")));
            }
            (None, None | Some(Value::Bool(_))) => {}
            (Some(schema), _) | (None, Some(schema)) => check(schema, field, &at)?,
        }
    }
    Ok(())
}

/// Returns the size of a value that a bound limits, or `None` if the bound is for another type.
fn size(keyword: &str, value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) if keyword.ends_with("imum") => number.as_f64(),
        Value::String(text) if keyword.ends_with("Length") => Some(text.chars().count() as f64),
        Value::Array(list) if keyword.ends_with("Items") => Some(list.len() as f64),
        _ => None,
    }
}

fn listed(given: &Value) -> &[Value] {
    match given {
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}

/// Returns whether two values are equal. JSON does not tell 5 from 5.0.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        // Whole numbers may be larger than a float can tell apart.
        (Value::Number(a), Value::Number(b)) if !a.is_f64() && !b.is_f64() => a == b,
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let has = |(name, value)| b.get(name).is_some_and(|other| is_same(value, other));
            a.len() == b.len() && a.iter().all(has)
        }
        _ => a == b,
    }
}

fn is_of(value: &Value, kind: &Value) -> bool {
    let own = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if kind == "integer" => {
            return number.as_f64().is_some_and(|size| size.fract() == 0.0);
        }
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    kind == own
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ArgumentSchema;

    fn told(schema: &Value, value: &Value) -> String {
        let schema = ArgumentSchema::new(schema, "parameters").unwrap();
        schema.check(value, "arguments").err().unwrap_or_default()
    }

    #[test]
    fn a_value_that_breaks_a_keyword_is_told_where_and_how() {
        let schema = json!({
            "type": "object",
            "description": "ignored",
            "properties": {
                "city": { "type": "string", "minLength": 2, "pattern": "^[A-Z]" },
                "days": { "type": "integer", "minimum": 1, "exclusiveMaximum": 8 },
                "unit": { "enum": ["C", "F"] },
                "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2 },
                "at": { "anyOf": [{ "type": "null" }, { "type": "object", "required": ["x"] }] },
            },
            "required": ["city"],
            "additionalProperties": false,
        });
        for (value, expected) in [
            (
                json!({ "city": "Bern", "days": 3.0, "unit": "C", "tags": ["a"], "at": null }),
                "",
            ),
            (json!({ "city": "Bern", "at": { "x": 1 } }), ""),
            (json!([]), "arguments: [] is no object"),
            (json!({}), "arguments.city is missing"),
            (json!({ "city": 5 }), "arguments.city: 5 is no string"),
            (
                json!({ "city": "B" }),
                "arguments.city: \"B\" is beyond minLength 2",
            ),
            (
                json!({ "city": "bern" }),
                "arguments.city: \"bern\" does not match ^[A-Z]",
            ),
            (
                json!({ "city": "Bern", "days": 0 }),
                "arguments.days: 0 is beyond minimum 1",
            ),
            (
                json!({ "city": "Bern", "days": 8 }),
                "arguments.days: 8 is beyond exclusiveMaximum 8",
            ),
            (
                json!({ "city": "Bern", "days": 1.5 }),
                "arguments.days: 1.5 is no integer",
            ),
            (
                json!({ "city": "Bern", "unit": "K" }),
                "arguments.unit: \"K\" is not allowed: use \"C\", \"F\"",
            ),
            (
                json!({ "city": "Bern", "tags": [1] }),
                "arguments.tags[0]: 1 is no string",
            ),
            (
                json!({ "city": "Bern", "tags": ["a", "b", "c"] }),
                "arguments.tags: [\"a\",\"b\",\"c\"] is beyond maxItems 2",
            ),
            (
                json!({ "city": "Bern", "at": 5 }),
                "arguments.at: 5 is no null",
            ),
            (
                json!({ "city": "Bern", "town": 5 }),
                "arguments.town is not known: use city, days, unit, tags, at",
            ),
        ] {
            assert_eq!(told(&schema, &value), expected, "{value}");
        }
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let positive = json!({ "exclusiveMinimum": 0 });
        assert_eq!(told(&positive, &json!(1e-20)), "");
        assert_ne!(told(&positive, &json!(0)), "");
        let id = json!({ "const": 9_007_199_254_740_993_u64 });
        assert_eq!(told(&id, &json!(9_007_199_254_740_993_u64)), "");
        assert_ne!(told(&id, &json!(9_007_199_254_740_992_u64)), "");
        assert_eq!(told(&json!({ "const": 5 }), &json!(5.0)), "");
    }

    #[test]
    fn a_keyword_that_is_not_known_is_refused_where_it_stands() {
        let schema = json!({ "properties": { "a": { "$ref": "#/x" } } });
        let error = ArgumentSchema::new(&schema, "parameters").unwrap_err();
        assert!(
            error.starts_with("parameters.properties.a.$ref is not supported: use "),
            "{error}"
        );
        for wrong in [
            json!({ "type": "text" }),
            json!({ "enum": 5 }),
            json!({ "minimum": "1" }),
            json!({ "required": "a" }),
            json!({ "pattern": "(" }),
            json!({ "pattern": 5 }),
            json!({ "items": 5 }),
            json!({ "anyOf": {} }),
            json!({ "oneOf": [] }),
            json!({ "anyOf": [{ "type": "null" }], "oneOf": [{ "type": "string" }] }),
        ] {
            assert!(
                ArgumentSchema::new(&wrong, "parameters").is_err(),
                "{wrong}"
            );
        }
    }
}
