//! Masks secrets in texts before they are written: keys, tokens, passwords of known shapes, and matches of
//! `turns.mask`.
//!
//! The replacement names only the kind of the secret. So the same text always gives the same masked text, which is
//! found again when a client repeats it. `docs/using/privacy.md` lists the shapes.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

use self::shapes::{LITERALS, SHAPES, mask_field};
use crate::error::OpenError;

mod shapes;

#[derive(Debug)]
pub(crate) struct Mask {
    known: bool,
    own: Vec<Regex>,
}

// === impl Mask ===

impl Mask {
    /// Makes a mask for known shapes, if `known` is set, and for matches of the `own` patterns.
    ///
    /// # Errors
    /// Returns [`OpenError::Mask`], which names a pattern that is invalid or matches the empty text.
    pub(crate) fn new(known: bool, own: &[String]) -> Result<Self, OpenError> {
        let compile = |pattern: &String| {
            let refused = |why: String| OpenError::Mask {
                pattern: pattern.clone(),
                why,
            };
            let regex = Regex::new(pattern).map_err(|error| refused(error.to_string()))?;
            if regex.is_match("") {
                return Err(refused("it matches where nothing stands".to_owned()));
            }
            Ok(regex)
        };
        if known {
            // The literals are compiled now, and not when the first turn waits for them.
            LazyLock::force(&LITERALS);
            LazyLock::force(&SHAPES);
        }
        let own = own.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { known, own })
    }

    /// Returns a text without its secrets, or `None` if it has none.
    pub(crate) fn text(&self, text: &str) -> Option<String> {
        let mut masked = Cow::Borrowed(text);
        if self.known {
            let may_be_in = LITERALS.found_in(text);
            for (shape, _) in SHAPES.iter().zip(may_be_in).filter(|(_, may_be)| *may_be) {
                if let Some(text) = shape.mask(&masked) {
                    masked = Cow::Owned(text);
                }
            }
        }
        for pattern in &self.own {
            if let Cow::Owned(text) = pattern.replace_all(&masked, "[masked]") {
                masked = Cow::Owned(text);
            }
        }
        match masked {
            Cow::Owned(masked) => (masked != text).then_some(masked),
            Cow::Borrowed(_) => None,
        }
    }

    /// Masks the secrets in a value's texts and names. Returns whether there were any.
    pub(crate) fn value(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => replace(text, self.text(text)),
            Value::Array(values) => values
                .iter_mut()
                .fold(false, |masked, value| self.value(value) | masked),
            Value::Object(fields) => {
                let in_name = fields.keys().any(|name| self.text(name).is_some());
                if in_name {
                    let named =
                        |(name, value): (String, Value)| (self.text(&name).unwrap_or(name), value);
                    *fields = std::mem::take(fields).into_iter().map(named).collect();
                }
                fields.iter_mut().fold(in_name, |masked, (name, value)| {
                    masked | self.field(name, value)
                })
            }
        }
    }

    /// A field whose name says that its value is a secret has no other sign of it.
    fn field(&self, name: &str, value: &mut Value) -> bool {
        let Value::String(text) = value else {
            return self.value(value);
        };
        let masked = self.known.then(|| mask_field(name, text)).flatten();
        replace(text, masked.or_else(|| self.text(text)))
    }
}

fn replace(text: &mut String, masked: Option<String>) -> bool {
    let is_masked = masked.is_some();
    *text = masked.unwrap_or_else(|| std::mem::take(text));
    is_masked
}

#[cfg(test)]
pub(crate) mod tests;
