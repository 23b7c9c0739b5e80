//! Variables of the environment, as secrets and addresses name them.

use metaclaw_chat::{is_variable, substituted};

/// Returns a variable that is set to something.
pub(crate) fn given<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().find(|(given, _)| given == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|it| !it.is_empty())
}

/// How other systems write that a secret is in a variable of the environment.
const FOREIGN: &str = "$NAME %NAME% <NAME> $(NAME) {{NAME}} $env:NAME env:NAME env.NAME {env:NAME} \
    os.environ/NAME os.environ[NAME] os.getenv(NAME) process.env.NAME";
/// How other systems write that a secret is elsewhere.
const ELSEWHERE: [&str; 5] = ["{file:", "file:", "op://", "vault:", "keyring:"];

/// Returns whether a text is another system's way to say that a secret is in a variable or elsewhere. No provider may get
/// such a text as a key.
pub(crate) fn is_foreign(text: &str) -> bool {
    let names = |form: &str| {
        let (before, behind) = form.split_once("NAME")?;
        let inside = text.strip_prefix(before)?.strip_suffix(behind)?;
        let name = inside.trim_matches(['"', '\'']);
        // A key may begin with one of the short signs.
        let is_name = is_variable(name) || before.len() > 2 && is_variable(&name.to_uppercase());
        Some(is_name || is_foreign(name))
    };
    let is_elsewhere = ELSEWHERE.iter().any(|it| text.starts_with(it));
    is_elsewhere || FOREIGN.split_whitespace().any(|it| names(it) == Some(true))
}

/// Puts variables in where a text names them: `${NAME}`, or `${NAME:-text}` for a text that stands for an unset one.
///
/// # Errors
/// What is wrong with a name, or that its variable is not set.
pub(crate) fn put_in(text: &str, variables: &[(String, String)]) -> Result<String, String> {
    let mut wrong = None;
    let whole = substituted(text, |inside| {
        let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
        let instead = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-'));
        if !is_variable(&name.to_uppercase()) || (instead.is_none() && !rest.is_empty()) {
            wrong = Some("${..} has to name a variable, as in ${NAME} or ${NAME:-text}".to_owned());
        }
        let value = given(variables, name).or(instead);
        if value.is_none() {
            let unset = || {
                format!(
                    "the variable {name}, which ${{{name}}} stands for, is not set in the environment"
                )
            };
            wrong.get_or_insert_with(unset);
        }
        value.map(str::to_owned)
    });
    wrong.map_or(Ok(whole), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_systems_ways_to_name_a_variable_are_known_and_keys_are_none() {
        for text in [
            "$MY_KEY",
            "%MY_KEY%",
            "<YOUR_KEY>",
            "$(MY_KEY)",
            "{{MY_KEY}}",
            "{{env.MY_KEY}}",
            "$env:MY_KEY",
            "env:MY_KEY",
            "env:my_key",
            "env.MY_KEY",
            "{env:MY_KEY}",
            "os.environ/MY_KEY",
            "os.environ['MY_KEY']",
            "os.getenv(\"MY_KEY\")",
            "process.env.MY_KEY",
            "{file:~/.key}",
            "op://vault/item/key",
        ] {
            assert!(is_foreign(text), "{text}");
        }
        for key in [
            "",
            "$",
            "%",
            "<>",
            "sk-0123",
            "$ecret",
            "EMPTY",
            "key",
            "sk-$HOME",
            "a%B%",
            "${MY_KEY}",
            "env",
            "env:",
            "AKIA0123",
            "eyJhbGciOi.x.y",
        ] {
            assert!(!is_foreign(key), "{key}");
        }
    }

    #[test]
    fn a_named_variable_is_put_in_or_missed_by_its_name() {
        let variables = [("MY_KEY", "sk-1"), ("lower", "sk-2"), ("BLANK", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (text, expected) in [
            ("sk-0", Ok("sk-0")),
            ("${MY_KEY}", Ok("sk-1")),
            ("${lower}", Ok("sk-2")),
            ("http://${MY_KEY}:1/${lower}", Ok("http://sk-1:1/sk-2")),
            ("${MY_KEY:-sk-3}", Ok("sk-1")),
            ("${UNSET:-sk-3}", Ok("sk-3")),
            ("${BLANK:-sk-3}", Ok("sk-3")),
            ("${UNSET-sk-3}", Ok("sk-3")),
            ("${UNSET:-}", Ok("")),
            ("$${MY_KEY}", Ok("${MY_KEY}")),
            ("${UNSET}", Err("the variable UNSET,")),
            ("${BLANK}", Err("the variable BLANK,")),
            ("${MY_KEY:?no}", Err("has to name a variable")),
            ("${env:MY_KEY}", Err("has to name a variable")),
            ("${}", Err("has to name a variable")),
            ("${1}", Err("has to name a variable")),
        ] {
            match (put_in(text, &variables), expected) {
                (Ok(is), Ok(expected)) => assert_eq!(is, expected, "{text}"),
                (Err(is), Err(expected)) => assert!(is.contains(expected), "{text}: {is}"),
                (is, _) => panic!("{text}: {is:?}"),
            }
        }
    }
}
