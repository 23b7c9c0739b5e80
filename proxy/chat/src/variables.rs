//! Variables of the environment that a text names.

/// Returns whether a name is written as variables are: in capitals.
pub fn is_variable(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(is_part)
}

/// Replaces each `${..}` in a text by what `value` makes of its inside. If that is nothing, it stays unchanged. `$${NAME}`
/// stands for `${NAME}` itself.
pub fn substituted(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').unwrap_or_default();
        let escaped = before.strip_suffix('$').filter(|_| is_variable(inside));
        whole.push_str(escaped.unwrap_or(before));
        let is_whole = after.contains('}') && escaped.is_none();
        if let Some(value) = is_whole.then(|| value(inside)).flatten() {
            whole.push_str(&value);
            rest = behind;
        } else {
            whole.push_str("${");
            rest = after;
        }
    }
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_replaced_and_all_else_stays() {
        for (text, expected) in [
            ("", ""),
            ("sk-1", "sk-1"),
            ("${A}", "[A]"),
            ("x${A}y${B_2}z", "x[A]y[B_2]z"),
            ("${unknown}${A}", "${unknown}[A]"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("$${unknown}", "$${unknown}"),
            ("${A", "${A"),
            ("${", "${"),
            ("${}", "${}"),
            ("${unknown ${A}", "${unknown [A]"),
        ] {
            let value = |name: &str| is_variable(name).then(|| format!("[{name}]"));
            assert_eq!(substituted(text, value), expected, "{text}");
        }
    }
}
