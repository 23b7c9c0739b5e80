//! Tests, filters, methods and numbers as Python and Jinja2 have them, where minijinja differs.
//!
//! `testdata/jinja.json` compares both, and lists the differences that remain.

use std::borrow::Cow;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value as Jinja};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::content::may_be_mark;

/// The most text that one rendering may print, in macros and captured blocks too. No context of a model is as long.
pub(super) const MOST_TEXT: usize = 128 << 20;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.set_formatter(print);
    environment.set_unknown_method_callback(method);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", |value: &Jinja| {
        is_iterable(value) && value.kind() != ValueKind::Iterable
    });
    for name in ["length", "count"] {
        environment.add_filter(name, length);
    }
    environment.add_filter("replace", replace);
    environment.add_filter("dictsort", dictsort);
}

/// None is not iterable, and undefined is. Templates ask whether there are tools by this test.
fn is_iterable(value: &Jinja) -> bool {
    use ValueKind::{Bytes, Iterable, Map, Seq, String, Undefined};
    matches!(
        value.kind(),
        Bytes | Iterable | Map | Seq | String | Undefined
    )
}

fn length(value: &Jinja) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    minijinja::filters::length(value)
}

/// Sorts keys as if they had no marks, which break control tokens in them.
fn dictsort(map: &Jinja, options: Kwargs) -> Result<Jinja, Error> {
    let is_by_key = options.args().next().is_none();
    let sorted = minijinja::filters::dictsort(map, options)?;
    let mut pairs: Vec<Jinja> = sorted.try_iter()?.collect();
    if is_by_key {
        pairs.sort_by_cached_key(|pair| {
            let key = pair.get_item_by_index(0).ok()?;
            let letters = key.as_str()?.chars().filter(|&c| !may_be_mark(c));
            Some(letters.collect::<String>().to_lowercase())
        });
    }
    Ok(pairs.into())
}

/// `count`: how many at most; negative for all.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
fn replace(
    text: Cow<'_, str>,
    old: Cow<'_, str>,
    new: Cow<'_, str>,
    count: Option<i64>,
) -> Result<String, Error> {
    let most = usize::try_from(count.unwrap_or(-1)).unwrap_or(usize::MAX);
    let n = text.matches(&*old).take(most).count();
    check_size(n.saturating_mul(new.len()))?;
    Ok(text.replacen(&*old, &new, most))
}

pub(super) fn check_size(n_bytes: usize) -> Result<(), Error> {
    if n_bytes <= MOST_TEXT {
        return Ok(());
    }
    Err(Error::from(ErrorKind::WriteFailure))
}

#[derive(Default)]
struct Printed(usize);

fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Jinja) -> Result<(), Error> {
    let text: Cow<'_, str> = match value.as_str() {
        Some(text) => text.into(),
        None if value.kind() == ValueKind::Number && !value.is_integer() => {
            float(f64::try_from(value.clone())?).into()
        }
        None => value.to_string().into(),
    };
    let printed = state.get_or_insert_extension_with(Printed::default);
    printed.0 = printed.0.saturating_add(text.len());
    check_size(printed.0)?;
    if matches!(state.auto_escape(), AutoEscape::None) {
        return Ok(out.write_str(&text)?);
    }
    minijinja::escape_formatter(out, state, value)
}

/// Writes a number like Python's `repr`.
pub(super) fn float(number: f64) -> String {
    let short = format!("{number:e}");
    let exponent = short.split_once('e');
    let exponent =
        exponent.and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    match exponent {
        Some((digits, exponent)) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number:?}").to_lowercase(),
    }
}

/// Methods of texts and lists that minijinja does not have.
fn method(
    state: &mut State<'_, '_>,
    value: &Jinja,
    name: &str,
    args: &[Jinja],
) -> Result<Jinja, Error> {
    let missing = || Error::new(ErrorKind::InvalidOperation, "substring not found");
    let n = |n: &Jinja| usize::try_from(n.clone()).map(|n| n.saturating_add(1));
    let given: Vec<&str> = args.iter().filter_map(Jinja::as_str).collect();
    Ok(match (value.as_str(), name, args, given.as_slice()) {
        (Some(text), "removeprefix", [_], [part]) => text.strip_prefix(part).unwrap_or(text).into(),
        (Some(text), "removesuffix", [_], [part]) => text.strip_suffix(part).unwrap_or(text).into(),
        (Some(text), "rsplit", [_, most], [part]) if !part.is_empty() => {
            let parts: Vec<&str> = text.rsplitn(n(most)?, part).collect();
            parts.into_iter().rev().map(Jinja::from).collect()
        }
        (Some(text), "index", [_], [part]) => {
            let at = text.find(part).ok_or_else(missing)?;
            text[..at].chars().count().into()
        }
        (None, "index", [wanted], _) if value.kind() == ValueKind::Seq => {
            let at = value.try_iter()?.position(|item| item == *wanted);
            at.map(Jinja::from).ok_or_else(missing)?
        }
        (Some(_), "replace", _, _) => {
            let given: Vec<Jinja> = std::iter::once(value).chain(args).cloned().collect();
            return state.apply_filter(name, &given);
        }
        _ => return unknown_method_callback(state, value, name, args),
    })
}
