//! YAML, edited at the positions that the parser reports, so that no other byte of the text changes. New values are
//! written as JSON, which is valid YAML on one line.

use std::ops::Range;

use serde_json::{Map, Value, json};

use self::nodes::{Kind, Node, Style};
use crate::document::{PlaceError, beyond, named};

mod nodes;

pub(super) fn values(text: &str) -> Result<Value, PlaceError> {
    let read: Option<Value> = serde_saphyr::from_str(text)
        .map_err(|error| PlaceError::Format("YAML", first_line(&error.to_string())))?;
    Ok(read.unwrap_or(Value::Null))
}

pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, PlaceError> {
    let Some(root) = nodes::parse(text)? else {
        return Ok(appended(text, path, value));
    };
    let (node, depth) = deepest(&root, path);
    if depth == path.len() {
        return Ok(replaced(text, node, value));
    }
    let rest = whole(&path[depth + 1..], value);
    match &node.kind {
        Kind::Map(entries, style) if !entries.is_empty() => {
            let last = &entries[entries.len() - 1];
            let entry = format!("{}: {rest}", key(&path[depth]));
            Ok(match style {
                Style::Flow => spliced(text, last.value.end, last.value.end, &format!(", {entry}")),
                Style::Block => line_after(text, last.value.end, last.key.column, &entry),
            })
        }
        Kind::Map(..) | Kind::Null => {
            let map = whole(&path[depth..], value);
            if depth == 0 && matches!(node.kind, Kind::Null) {
                return Ok(appended(text, path, value));
            }
            Ok(replaced(text, node, &map))
        }
        Kind::List(..) | Kind::Other => Err(PlaceError::NoObject(named(&path[..depth]))),
    }
}

pub(super) fn remove(text: &str, path: &[String]) -> Result<String, PlaceError> {
    let root = nodes::parse(text)?.ok_or_else(beyond)?;
    let (name, above) = path.split_last().ok_or_else(beyond)?;
    let (node, depth) = deepest(&root, above);
    let Kind::Map(entries, style) = &node.kind else {
        return Err(beyond());
    };
    let at = entries.iter().position(|it| it.name == *name);
    let at = at.filter(|_| depth == above.len()).ok_or_else(beyond)?;
    let entry = &entries[at];
    if let ([_], Style::Block, false) = (entries.as_slice(), style, above.is_empty()) {
        return Ok(replaced(text, node, &json!({})));
    }
    let (start, end) = match style {
        Style::Block => lines_of(text, entry.key.start, entry.value.end),
        Style::Flow => {
            let next = entries.get(at + 1).map(|it| it.key.start);
            let before = at.checked_sub(1).map(|it| entries[it].value.end);
            of_flow(entry.key.start..entry.value.end, before, next)
        }
    };
    Ok(spliced(text, start, end, ""))
}

pub(super) fn insert(text: &str, path: &[String], item: &Value) -> Result<String, PlaceError> {
    let root = nodes::parse(text)?.ok_or_else(beyond)?;
    let (items, style) = list_at(&root, path)?;
    let first = items.first().ok_or_else(beyond)?;
    match style {
        Style::Flow => Ok(spliced(
            text,
            first.start,
            first.start,
            &format!("{item}, "),
        )),
        Style::Block => {
            let dash = dash_of(text, first)?;
            let indent = &text[line_start(text, dash)..dash];
            let line = format!("- {item}\n{indent}");
            Ok(spliced(text, dash, dash, &line))
        }
    }
}

pub(super) fn remove_item(text: &str, path: &[String], index: usize) -> Result<String, PlaceError> {
    let root = nodes::parse(text)?.ok_or_else(beyond)?;
    let (items, style) = list_at(&root, path)?;
    let item = items.get(index).ok_or_else(beyond)?;
    let (start, end) = match style {
        Style::Flow => {
            let next = items.get(index + 1).map(|it| it.start);
            let before = index.checked_sub(1).map(|it| items[it].end);
            of_flow(item.start..item.end, before, next)
        }
        Style::Block => match items.get(index + 1) {
            Some(next) => (dash_of(text, item)?, dash_of(text, next)?),
            None => lines_of(text, dash_of(text, item)?, item.end),
        },
    };
    Ok(spliced(text, start, end, ""))
}

/// Returns the node at `path`, or the last existing node above it, and the number of names that lead to it.
fn deepest<'n>(root: &'n Node, path: &[String]) -> (&'n Node, usize) {
    let mut node = root;
    for (depth, name) in path.iter().enumerate() {
        let Kind::Map(entries, _) = &node.kind else {
            return (node, depth);
        };
        match entries.iter().find(|it| it.name == *name) {
            Some(entry) => node = &entry.value,
            None => return (node, depth),
        }
    }
    (node, path.len())
}

fn list_at<'n>(root: &'n Node, path: &[String]) -> Result<(&'n [Node], Style), PlaceError> {
    match deepest(root, path) {
        (
            Node {
                kind: Kind::List(items, style),
                ..
            },
            depth,
        ) if depth == path.len() => Ok((items, *style)),
        _ => Err(PlaceError::NoList(named(path))),
    }
}

/// Replaces a node by a value on one line. A block begins below its key; a missing value is right behind the colon.
fn replaced(text: &str, node: &Node, value: &Value) -> String {
    let head = text[..node.start].trim_end_matches([' ', '\n']);
    let is_below = head.ends_with(':') && text[head.len()..node.start].contains('\n');
    let is_at_colon = text[..node.start].ends_with(':');
    if is_below {
        spliced(text, head.len(), node.end, &format!(" {value}"))
    } else if is_at_colon {
        spliced(text, node.start, node.end, &format!(" {value}"))
    } else {
        spliced(text, node.start, node.end, &value.to_string())
    }
}

/// Adds the first key, after comments and the marker of the document's begin.
fn appended(text: &str, path: &[String], value: &Value) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let Some((name, rest)) = path.split_first() else {
        return format!("{text}{end}{value}\n");
    };
    format!("{text}{end}{}: {}\n", key(name), whole(rest, value))
}

/// Adds a line below the line that ends at or behind `end`.
fn line_after(text: &str, end: usize, column: usize, entry: &str) -> String {
    let indent = " ".repeat(column);
    if text[..end].ends_with('\n') {
        return spliced(text, end, end, &format!("{indent}{entry}\n"));
    }
    match text[end..].find('\n') {
        Some(at) => spliced(
            text,
            end + at + 1,
            end + at + 1,
            &format!("{indent}{entry}\n"),
        ),
        None => format!("{text}\n{indent}{entry}"),
    }
}

/// Returns the range of an entry's lines, without the text before it on its first line.
fn lines_of(text: &str, start: usize, end: usize) -> (usize, usize) {
    let first = line_start(text, start);
    let is_alone = text[first..start].trim().is_empty();
    let end = if text[..end].ends_with('\n') && end > start {
        end
    } else {
        text[end..].find('\n').map_or(text.len(), |at| end + at + 1)
    };
    (if is_alone { first } else { start }, end)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |line| line + 1)
}

fn of_flow(own: Range<usize>, before: Option<usize>, next: Option<usize>) -> (usize, usize) {
    match (before, next) {
        (Some(before), _) => (before, own.end),
        (None, Some(next)) => (own.start, next),
        (None, None) => (own.start, own.end),
    }
}

/// Returns the position of an item's dash, which is on the item's line.
fn dash_of(text: &str, item: &Node) -> Result<usize, PlaceError> {
    let head = text[..item.start].trim_end_matches(' ');
    let dash = head.len().checked_sub(1).filter(|_| head.ends_with('-'));
    dash.ok_or_else(beyond)
}

fn spliced(text: &str, start: usize, end: usize, new: &str) -> String {
    format!("{}{new}{}", &text[..start], &text[end..])
}

fn whole(names: &[String], value: &Value) -> Value {
    names.iter().rev().fold(value.clone(), |value, name| {
        let mut map = Map::new();
        map.insert(name.clone(), value);
        Value::Object(map)
    })
}

fn key(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain);
    if is_word {
        name.to_owned()
    } else {
        json!(name).to_string()
    }
}

/// Describes an error without the parser's excerpt, because the excerpt may contain a key.
fn first_line(said: &str) -> String {
    said.lines().next().unwrap_or_default().to_owned()
}
