//! YAML text as values of JSON: the one place that reads YAML.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::{Location, Spanned};

/// Reads one YAML document, with the keys of each map in order. An empty text is null.
///
/// The scalars at those places that `is_text` names come as they were written: the key `0x10` is no 16, and `1.10` no 1.1.
///
/// # Errors
///
/// In words, with line and column, when the text is not YAML or names a key twice.
pub(crate) fn parse(text: &str, is_text: &dyn Fn(&str) -> bool) -> Result<Value, String> {
    // The reader allows 96 lines of comments between two keys. Without events for comments it has no such limit.
    let options = serde_saphyr::options! { emit_comments: false };
    let read = serde_saphyr::from_str_with_options(text, options);
    let read: Option<Spanned<YamlNode>> = read.map_err(|error: serde_saphyr::Error| {
        // The first line says what and where; the excerpt after it would show secrets.
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        // The rest is advice for programmers.
        let (said, _) = first
            .split_once(", set DuplicateKeyPolicy")
            .unwrap_or((first, ""));
        said.to_owned()
    })?;
    let wrong = RefCell::new(None);
    let whole = YamlText {
        text,
        is_text,
        wrong: &wrong,
    };
    let value = read.map(|read| whole.value(read, "")).unwrap_or_default();
    wrong.into_inner().map_or(Ok(value), Err)
}

/// A value of YAML in one line, as the environment gives trees.
pub(crate) fn value(text: &str) -> Option<Value> {
    parse(text, &|_| false).ok()
}

/// What one node of a document is; its place in the text is known beside it.
enum YamlNode {
    Map(BTreeMap<String, Spanned<YamlNode>>),
    List(Vec<Spanned<YamlNode>>),
    /// A number or a word of YAML, such as `yes`.
    Typed(Value),
    /// A text, or null.
    Plain(Value),
}

/// The text of a document, and which of its places hold texts.
struct YamlText<'a> {
    text: &'a str,
    is_text: &'a dyn Fn(&str) -> bool,
    /// The first tag of an application. YAML's reader would drop it without a word.
    wrong: &'a RefCell<Option<String>>,
}

// === impl YamlText ===

impl YamlText<'_> {
    fn value(&self, node: Spanned<YamlNode>, path: &str) -> Value {
        if let Some(tag) = self.tag(node.defined) {
            let line = node.defined.line();
            self.wrong.borrow_mut().get_or_insert_with(|| {
                format!("line {line}: {path} has the YAML tag {tag}, which means nothing here: write ${{NAME}} for a variable of the environment")
            });
        }
        match node.value {
            YamlNode::Map(entries) => {
                let dot = if path.is_empty() { "" } else { "." };
                let below = |(name, node): (String, _)| {
                    let value = self.value(node, &format!("{path}{dot}{name}"));
                    (name, value)
                };
                entries.into_iter().map(below).collect()
            }
            YamlNode::List(items) => items.into_iter().map(|it| self.value(it, path)).collect(),
            YamlNode::Typed(value) if (self.is_text)(path) => {
                self.written(node.defined).map_or(value, Value::from)
            }
            YamlNode::Typed(value) | YamlNode::Plain(value) => value,
        }
    }

    /// Returns the tag of the node at a place, before it or at its beginning, as in `!env NAME`. `!!str` is YAML's own.
    fn tag(&self, place: Location) -> Option<&str> {
        let at = usize::try_from(place.span().byte_offset()?).ok()?;
        let (before, from) = self.text.split_at_checked(at)?;
        let before = before.rsplit('\n').next()?.split_whitespace().last();
        let words = before.into_iter().chain(from.split_whitespace().next());
        let mut tags = words.filter(|word| word.len() > 1 && word.starts_with('!'));
        tags.find(|word| !word.starts_with("!!"))
    }

    fn written(&self, place: Location) -> Option<&str> {
        let span = place.span();
        let from = usize::try_from(span.byte_offset()?).ok()?;
        let len = usize::try_from(span.byte_len()?).ok()?;
        self.text.get(from..from.checked_add(len)?)
    }
}

// === impl YamlNode ===

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(yaml: D) -> Result<Self, D::Error> {
        yaml.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

/// A number; as a text where JSON has no such number.
macro_rules! numbers {
    ($($visit:ident: $type:ty => $read:expr,)*) => {
        $(fn $visit<E: Error>(self, it: $type) -> Result<YamlNode, E> {
            let number: Option<Number> = $read(it);
            let value = number.map_or_else(|| it.to_string().into(), Value::Number);
            Ok(YamlNode::Typed(value))
        })*
    };
}

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((name, node)) = map.next_entry()? {
            entries.insert(name, node);
        }
        Ok(YamlNode::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    numbers! {
        visit_i64: i64 => |number| Some(Number::from(number)),
        visit_u64: u64 => |number| Some(Number::from(number)),
        visit_i128: i128 => Number::from_i128,
        visit_u128: u128 => Number::from_u128,
        visit_f64: f64 => Number::from_f64,
    }

    fn visit_bool<E: Error>(self, it: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Typed(it.into()))
    }

    fn visit_str<E: Error>(self, it: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Plain(it.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Plain(Value::Null))
    }
}
