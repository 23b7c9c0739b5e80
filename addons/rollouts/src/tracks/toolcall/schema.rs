//! Checks arguments by a JSON schema, in the keywords that tool definitions use.
//!
//! A schema with any other keyword is refused, so that no constraint is passed over. The crate `jsonschema` knows them
//! all, and brings twenty crates along.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value};

/// Keywords that constrain nothing.
const ANNOTATIONS: [&str; 8] = [
    "$comment",
    "$schema",
    "default",
    "deprecated",
    "description",
    "examples",
    "format",
    "title",
];
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// A schema that was checked.
#[derive(Debug)]
pub(super) struct ArgumentSchema {
    types: Vec<String>,
    accepted: Option<Vec<Value>>,
    properties: Vec<(String, ArgumentSchema)>,
    required: BTreeSet<String>,
    additional: Additional,
    items: Option<Box<ArgumentSchema>>,
    any_of: Vec<ArgumentSchema>,
    pattern: Option<Regex>,
    bounds: Vec<SchemaBound>,
}

/// What an object may have beside its properties.
#[derive(Debug)]
enum Additional {
    Anything,
    Nothing,
    Like(Box<ArgumentSchema>),
}

#[derive(Debug)]
struct SchemaBound {
    keyword: &'static str,
    measure: Measure,
    is_upper: bool,
    is_exclusive: bool,
    limit: f64,
}

/// What a bound limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Number,
    Characters,
    Items,
}

const BOUNDS: [(&str, Measure, bool, bool); 8] = [
    ("minimum", Measure::Number, false, false),
    ("maximum", Measure::Number, true, false),
    ("exclusiveMinimum", Measure::Number, false, true),
    ("exclusiveMaximum", Measure::Number, true, true),
    ("minLength", Measure::Characters, false, false),
    ("maxLength", Measure::Characters, true, false),
    ("minItems", Measure::Items, false, false),
    ("maxItems", Measure::Items, true, false),
];

// === impl ArgumentSchema ===

impl ArgumentSchema {
    /// Reads a schema. `at` says where it stands.
    ///
    /// # Errors
    /// Names the keyword that is wrong or not known.
    pub(super) fn new(schema: &Value, at: &str) -> Result<Self, String> {
        let Value::Object(keywords) = schema else {
            return Err(format!(
                "{at}: {schema} is no schema: it has to be an object"
            ));
        };
        let known = [
            "additionalProperties",
            "anyOf",
            "const",
            "enum",
            "items",
            "oneOf",
            "pattern",
            "properties",
            "required",
            "type",
        ];
        for keyword in keywords.keys() {
            let is_bound = BOUNDS.iter().any(|(name, ..)| name == keyword);
            let keyword = &**keyword;
            if !is_bound && !known.contains(&keyword) && !ANNOTATIONS.contains(&keyword) {
                return Err(format!(
                    "{at}.{keyword} is not supported: use {}, or a bound such as minimum",
                    known.join(", ")
                ));
            }
        }
        Ok(Self {
            types: types(keywords, at)?,
            accepted: accepted(keywords, at)?,
            properties: properties(keywords, at)?,
            required: required(keywords, at)?,
            additional: additional(keywords, at)?,
            items: optional(keywords, "items", at)?.map(Box::new),
            any_of: any_of(keywords, at)?,
            pattern: pattern(keywords, at)?,
            bounds: bounds(keywords, at)?,
        })
    }

    /// Checks a value. `at` names it.
    ///
    /// # Errors
    /// Says in words what is wrong with it, as the model is told.
    pub(super) fn check(&self, value: &Value, at: &str) -> Result<(), String> {
        if !self.types.is_empty() && !self.types.iter().any(|it| is_of(value, it)) {
            return Err(format!("{at}: {value} is no {}", self.types.join(" or ")));
        }
        if let Some(accepted) = &self.accepted
            && !accepted.iter().any(|it| is_same(it, value))
        {
            let list: Vec<String> = accepted.iter().map(Value::to_string).collect();
            return Err(format!(
                "{at}: {value} is not allowed: use {}",
                list.join(", ")
            ));
        }
        if let (Some(pattern), Value::String(text)) = (&self.pattern, value)
            && !pattern.is_match(text)
        {
            return Err(format!("{at}: {value} does not match {}", pattern.as_str()));
        }
        for bound in &self.bounds {
            bound.check(value, at)?;
        }
        self.check_object(value, at)?;
        if let (Some(items), Value::Array(list)) = (&self.items, value) {
            for (place, item) in list.iter().enumerate() {
                items.check(item, &format!("{at}[{place}]"))?;
            }
        }
        let Some(first) = self.any_of.first() else {
            return Ok(());
        };
        if self.any_of.iter().any(|it| it.check(value, at).is_ok()) {
            return Ok(());
        }
        first.check(value, at)
    }

    fn check_object(&self, value: &Value, at: &str) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return Ok(());
        };
        if let Some(name) = self.required.iter().find(|it| !fields.contains_key(*it)) {
            return Err(format!("{at}.{name} is missing"));
        }
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            let known = self.properties.iter().find(|(it, _)| it == name);
            match (known, &self.additional) {
                (Some((_, schema)), _) => schema.check(field, &at)?,
                (None, Additional::Like(schema)) => schema.check(field, &at)?,
                (None, Additional::Anything) => {}
                (None, Additional::Nothing) => {
                    let names: Vec<&str> = self.properties.iter().map(|(it, _)| &**it).collect();
                    return Err(format!("{at} is not known: use {}", names.join(", ")));
                }
            }
        }
        Ok(())
    }
}

// === impl SchemaBound ===

impl SchemaBound {
    fn check(&self, value: &Value, at: &str) -> Result<(), String> {
        let size = match (self.measure, value) {
            (Measure::Number, Value::Number(number)) => number.as_f64(),
            (Measure::Characters, Value::String(text)) => Some(text.chars().count() as f64),
            (Measure::Items, Value::Array(list)) => Some(list.len() as f64),
            _ => None,
        };
        let Some(size) = size else {
            return Ok(());
        };
        let is_within = match (self.is_upper, self.is_exclusive) {
            (true, true) => size < self.limit,
            (true, false) => size <= self.limit,
            (false, true) => size > self.limit,
            (false, false) => size >= self.limit,
        };
        if !is_within {
            return Err(format!(
                "{at}: {value} is beyond {} {}",
                self.keyword, self.limit
            ));
        }
        Ok(())
    }
}

// === functions ===

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

fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => {
            let is_whole = number.as_f64().is_some_and(|it| it.fract() == 0.0);
            kind == "number" || (kind == "integer" && is_whole)
        }
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

fn types(keywords: &Map<String, Value>, at: &str) -> Result<Vec<String>, String> {
    let Some(given) = keywords.get("type") else {
        return Ok(Vec::new());
    };
    let list = match given {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    let names = list.into_iter().map(|it| {
        let name = it.as_str().filter(|it| TYPES.contains(it));
        let wrong = || format!("{at}.type {it} is not allowed: use {}", TYPES.join(", "));
        name.map(str::to_owned).ok_or_else(wrong)
    });
    names.collect()
}

fn accepted(keywords: &Map<String, Value>, at: &str) -> Result<Option<Vec<Value>>, String> {
    match (keywords.get("const"), keywords.get("enum")) {
        (Some(value), _) => Ok(Some(vec![value.clone()])),
        (None, Some(Value::Array(list))) => Ok(Some(list.clone())),
        (None, Some(other)) => Err(format!(
            "{at}.enum {other} is not allowed: it has to be a list"
        )),
        (None, None) => Ok(None),
    }
}

fn properties(
    keywords: &Map<String, Value>,
    at: &str,
) -> Result<Vec<(String, ArgumentSchema)>, String> {
    match keywords.get("properties") {
        None => Ok(Vec::new()),
        Some(Value::Object(fields)) => {
            let read = fields.iter().map(|(name, schema)| {
                let at = format!("{at}.properties.{name}");
                ArgumentSchema::new(schema, &at).map(|it| (name.clone(), it))
            });
            read.collect()
        }
        Some(other) => Err(format!(
            "{at}.properties {other} is not allowed: it has to be an object"
        )),
    }
}

fn required(keywords: &Map<String, Value>, at: &str) -> Result<BTreeSet<String>, String> {
    let Some(given) = keywords.get("required") else {
        return Ok(BTreeSet::new());
    };
    serde_json::from_value(given.clone())
        .map_err(|_| format!("{at}.required {given} is not allowed: it has to be a list of names"))
}

fn additional(keywords: &Map<String, Value>, at: &str) -> Result<Additional, String> {
    Ok(match keywords.get("additionalProperties") {
        None | Some(Value::Bool(true)) => Additional::Anything,
        Some(Value::Bool(false)) => Additional::Nothing,
        Some(schema) => {
            let at = format!("{at}.additionalProperties");
            Additional::Like(Box::new(ArgumentSchema::new(schema, &at)?))
        }
    })
}

fn optional(
    keywords: &Map<String, Value>,
    name: &str,
    at: &str,
) -> Result<Option<ArgumentSchema>, String> {
    let schema = keywords.get(name);
    let read = schema.map(|it| ArgumentSchema::new(it, &format!("{at}.{name}")));
    read.transpose()
}

/// `oneOf` is read as `anyOf`: alternatives of tool definitions exclude each other by their types.
fn any_of(keywords: &Map<String, Value>, at: &str) -> Result<Vec<ArgumentSchema>, String> {
    let (keyword, given) = match (keywords.get("anyOf"), keywords.get("oneOf")) {
        (None, None) => return Ok(Vec::new()),
        (Some(given), None) => ("anyOf", given),
        (None, Some(given)) => ("oneOf", given),
        (Some(_), Some(_)) => return Err(format!("{at} has anyOf and oneOf: use one of them")),
    };
    let Some(list) = given.as_array().filter(|list| !list.is_empty()) else {
        return Err(format!(
            "{at}.{keyword} {given} is not allowed: it has to be a list of at least one schema"
        ));
    };
    let read = list
        .iter()
        .enumerate()
        .map(|(place, schema)| ArgumentSchema::new(schema, &format!("{at}.{keyword}[{place}]")));
    read.collect()
}

fn pattern(keywords: &Map<String, Value>, at: &str) -> Result<Option<Regex>, String> {
    let Some(given) = keywords.get("pattern") else {
        return Ok(None);
    };
    let text = given
        .as_str()
        .ok_or_else(|| format!("{at}.pattern {given} is not allowed: it has to be a text"))?;
    let read = Regex::new(text).map_err(|error| format!("{at}.pattern {given}: {error}"));
    read.map(Some)
}

fn bounds(keywords: &Map<String, Value>, at: &str) -> Result<Vec<SchemaBound>, String> {
    let mut bounds = Vec::new();
    for (keyword, measure, is_upper, is_exclusive) in BOUNDS {
        let Some(given) = keywords.get(keyword) else {
            continue;
        };
        let limit = given.as_f64();
        bounds.push(SchemaBound {
            keyword,
            measure,
            is_upper,
            is_exclusive,
            limit: limit
                .ok_or_else(|| format!("{at}.{keyword} {given} is not allowed: a number"))?,
        });
    }
    Ok(bounds)
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
