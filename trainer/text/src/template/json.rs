//! JSON as Python's `json.dumps(x, ensure_ascii=False)` writes it: tool lists were learned in that form.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value as Jinja};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The `tojson` filter: `indent` as an argument or by name, other options of `json.dumps` are ignored.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
pub(super) fn tojson(value: &Jinja, args: Rest<Jinja>, options: Kwargs) -> Result<Jinja, Error> {
    let indent = match options.get::<Option<Jinja>>("indent")? {
        Some(indent) => Some(indent),
        None => args.first().cloned(),
    };
    let indent = indent
        .filter(|v| !v.is_none())
        .map(usize::try_from)
        .transpose()?;
    let value = serde_json::to_value(value).map_err(failed)?;
    Ok(Jinja::from_safe_string(
        dumps(&value, indent).map_err(failed)?,
    ))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}"))
}

fn dumps(value: &Value, indent: Option<usize>) -> Result<String, io::Error> {
    let mut out = Vec::new();
    match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))?;
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced))?,
    }
    String::from_utf8(out).map_err(io::Error::other)
}

/// `", "` and `": "` between things.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_spelled_as_python_spells_it() {
        let value = json!({"b": [1, 2.5, null], "a": {"x": "é<\"\n"}, "e": []});
        assert_eq!(
            dumps(&value, None).unwrap(),
            r#"{"b": [1, 2.5, null], "a": {"x": "é<\"\n"}, "e": []}"#
        );
        assert_eq!(
            dumps(&json!({"a": [1]}), Some(2)).unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
    }
}
