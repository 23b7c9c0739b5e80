//! YAML text as figment values. figment's own reader pulls in a deprecated crate.

use figment::value::Value;

/// Reads one YAML document. An empty text is an empty value.
///
/// # Errors
///
/// In words, with line and column, when the text is not YAML or names a key twice.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let value: Option<Value> = serde_saphyr::from_str(text).map_err(|error| {
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
    Ok(value.unwrap_or_else(|| Value::from(figment::value::Empty::Unit)))
}
