//! `.env`: lines of `NAME=value`, with or without `export`, values in quotes or without.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::document::{PlaceError, named};

struct Assignment<'t> {
    /// The text up to the `=`.
    head: &'t str,
    name: &'t str,
    value: String,
}

/// Returns the variables of a file. The last one of a name counts.
pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(parse);
    lines
        .map(|line| (line.name.to_owned(), line.value))
        .collect()
}

pub(super) fn values(text: &str) -> Result<Value, PlaceError> {
    let mut values = Map::new();
    for line in text.lines().filter_map(parse) {
        let again = values.insert(line.name.to_owned(), line.value.into());
        if again.is_some() {
            return Err(PlaceError::Twice(line.name.to_owned()));
        }
    }
    Ok(Value::Object(values))
}

pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, PlaceError> {
    let (name, value) = single(path, value)?;
    let mut is_set = false;
    let mut lines = String::with_capacity(text.len() + 80);
    for line in text.split_inclusive('\n') {
        match parse(line).filter(|it| it.name == name) {
            Some(old) => {
                is_set = true;
                let end = if line.ends_with('\n') { "\n" } else { "" };
                lines.extend([old.head, "=", &quoted(value), end]);
            }
            None => lines.push_str(line),
        }
    }
    if !is_set {
        if !lines.is_empty() && !lines.ends_with('\n') {
            lines.push('\n');
        }
        lines.extend([name, "=", &quoted(value), "\n"]);
    }
    Ok(lines)
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<String, PlaceError> {
    let (name, _) = single(path, &Value::Null)?;
    let lines = text.split_inclusive('\n');
    let is_other = |line: &&str| parse(line).is_none_or(|it| it.name != name);
    Ok(lines.filter(is_other).collect())
}

fn single<'v>(path: &'v [String], value: &'v Value) -> Result<(&'v str, &'v str), PlaceError> {
    match path {
        [name] => Ok((name, value.as_str().unwrap_or_default())),
        _ => Err(PlaceError::NoObject(named(path))),
    }
}

fn parse(line: &str) -> Option<Assignment<'_>> {
    let line = line.trim_end_matches(['\n', '\r']);
    let (head, value) = line.split_once('=')?;
    let name = head.trim();
    let name = name.strip_prefix("export ").unwrap_or(name).trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_part);
    is_name.then(|| Assignment {
        head,
        name,
        value: unquoted(value.trim()),
    })
}

fn unquoted(value: &str) -> String {
    if let Some(inner) = value.strip_prefix('\'') {
        return inner.split('\'').next().unwrap_or_default().to_owned();
    }
    let Some(inner) = value.strip_prefix('"') else {
        let plain = if value.starts_with('#') { "" } else { value };
        return plain.split(" #").next().unwrap_or(plain).trim().to_owned();
    };
    let mut unescaped = String::new();
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => unescaped.extend(rest.next()),
            c => unescaped.push(c),
        }
    }
    unescaped
}

fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+,%".contains(c);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
