//! Writes JSON like Python's `json.dumps(x, ensure_ascii=False)`, because models were trained on tool lists in that
//! form.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value as Jinja};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// No template uses a larger indent.
const MOST_INDENT: usize = 16;
const OPTIONS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

/// The `tojson` filter of `transformers`: `ensure_ascii`, `indent`, `separators` and `sort_keys`, by position in this
/// order or by name.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
pub(super) fn tojson(value: &Jinja, args: Rest<Jinja>, options: Kwargs) -> Result<Jinja, Error> {
    let given = |name: &str| -> Result<Option<Jinja>, Error> {
        let named = options.get::<Option<Jinja>>(name)?;
        let at = OPTIONS.iter().position(|option| *option == name);
        let value = named.or_else(|| args.get(at?).cloned());
        Ok(value.filter(|value| !value.is_none()))
    };
    let is_on = |name: &str| Ok::<_, Error>(given(name)?.is_some_and(|value| value.is_true()));
    let indent = given("indent")?.map(usize::try_from).transpose()?;
    let separators = given("separators")?.map(|value| pair(&value)).transpose()?;
    let mut value = serde_json::to_value(value).map_err(failed)?;
    if is_on("sort_keys")? {
        sort_keys(&mut value);
    }
    let style = DumpStyle::new(indent, separators, is_on("ensure_ascii")?);
    Ok(Jinja::from_safe_string(
        dumps(&value, style).map_err(failed)?,
    ))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}"))
}

fn pair(separators: &Jinja) -> Result<(String, String), Error> {
    let both: Vec<String> = separators
        .try_iter()?
        .map(|separator| separator.to_string())
        .collect();
    match <[String; 2]>::try_from(both) {
        Ok([item, key]) => Ok((item, key)),
        Err(_) => Err(failed("separators are not two")),
    }
}

/// Sorts the keys of all objects like Python's `sorted`.
pub(crate) fn sort_keys(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.sort_keys();
            map.values_mut().for_each(sort_keys);
        }
        Value::Array(list) => list.iter_mut().for_each(sort_keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn dumps(value: &Value, style: DumpStyle) -> Result<String, io::Error> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, style))?;
    String::from_utf8(out).map_err(io::Error::other)
}

/// The options of `json.dumps`.
struct DumpStyle {
    item: String,
    key: String,
    indent: Option<usize>,
    ascii: bool,
    depth: usize,
    has_value: bool,
}

// === impl DumpStyle ===

impl DumpStyle {
    /// The default separators are those of `json.dumps`: `", "` and `": "`, and with an indent no blank at the end of
    /// lines.
    fn new(indent: Option<usize>, separators: Option<(String, String)>, ascii: bool) -> Self {
        let item = if indent.is_some() { "," } else { ", " };
        let (item, key) = separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned()));
        Self {
            item,
            key,
            indent: indent.map(|n| n.min(MOST_INDENT)),
            ascii,
            depth: 0,
            has_value: false,
        }
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        out.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.line(out)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        if self.has_value {
            self.line(out)?;
        }
        self.has_value = true;
        out.write_all(bracket)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else {
            return Ok(());
        };
        out.write_all(b"\n")?;
        out.write_all(" ".repeat(indent * self.depth).as_bytes())
    }
}

impl Formatter for DumpStyle {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(super::python::float(number).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii || fragment.is_ascii() {
            return out.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if c.is_ascii() {
                write!(out, "{c}")?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;
    use serde_json::json;

    fn eval(expression: &str, value: &Value) -> String {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.add_filter("tojson", tojson);
        let source = format!("{{{{ {expression} }}}}");
        let v = minijinja::value::Serde(value);
        environment
            .render_str(&source, minijinja::context! { v => Jinja::from(v) })
            .unwrap()
    }

    #[test]
    fn json_is_spelled_as_python_spells_it() {
        let value = json!({"b": [1, 2.5, null], "a": {"x": "é<\"\n"}, "e": []});
        assert_eq!(
            eval("v | tojson", &value),
            r#"{"b": [1, 2.5, null], "a": {"x": "é<\"\n"}, "e": []}"#
        );
        assert_eq!(
            eval("v | tojson(indent=2)", &json!({"a": [1], "e": [], "o": {}})),
            "{\n  \"a\": [\n    1\n  ],\n  \"e\": [],\n  \"o\": {}\n}"
        );
        assert_eq!(
            eval("v | tojson(false, 1)", &json!([[1]])),
            "[\n [\n  1\n ]\n]"
        );
    }

    /// Kimi's template uses the first.
    #[test]
    fn options_of_json_dumps_are_done() {
        let value = json!({"b": [1, 2], "a": "é🙂\n"});
        for (options, wanted) in [
            ("separators=(',', ':')", "{\"b\":[1,2],\"a\":\"é🙂\\n\"}"),
            ("sort_keys=true", "{\"a\": \"é🙂\\n\", \"b\": [1, 2]}"),
            (
                "ensure_ascii=true",
                "{\"b\": [1, 2], \"a\": \"\\u00e9\\ud83d\\ude42\\n\"}",
            ),
            (
                "ensure_ascii=false, indent=none",
                "{\"b\": [1, 2], \"a\": \"é🙂\\n\"}",
            ),
        ] {
            let expression = format!("v | tojson({options})");
            assert_eq!(eval(&expression, &value), wanted, "{options}");
        }
    }
}
