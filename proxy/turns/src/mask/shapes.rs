//! The known shapes of secrets: patterns and replacements.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::{Captures, Regex};

/// Characters that may come before a key: the beginning, anything except a letter or digit, or an escape of JSON within
/// JSON.
const FRONT: &str = r"(?P<front>^|[^A-Za-z0-9]|\\+(?:[nrtfb]|u[0-9A-Fa-f]{4}))";
const WORDS: &str = r"(?i-u:password|passwd|passphrase|\bpwd)|密码|口令";
const NAMES: &str =
    r"(?i-u:secret|token|credential|api[ _-]?key|access[_-]?key|private[_-]?key|auth[_-]?key)";
const REST: &str = r"(?i-u:s|key|value)?(?:[_-][A-Za-z0-9_-]*)?";
const IS: &str = r#"["'\\]*(?P<is>\s*(?:=>|:=|[=:：是为]|(?i-u:\bis\b))\s*)"#;
/// A value: up to the closing quote, between back-ticks, or up to white space, a bracket or the end of a part of a
/// Chinese sentence.
const VALUE: &str = r#"(?:(?P<quote>["'\\]+)(?P<quoted>[^"'\\\n]{4,})|`(?P<ticked>[^`\n]{4,})`|(?P<tick>`?)(?P<value>[^\s"'\\<>(){}\[\]，。；、！？「」『』（）“”]{4,}))"#;

/// Keys that can be recognised by their shape, each after [`FRONT`].
const KEYS: &str = r"sk-[A-Za-z0-9_-]{16,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}";
/// Literals that occur in each of them, and in each of [`WORDS`] and [`NAMES`].
const OF_KEYS: &str = "sk-|sk_|pk_|rk_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|akia|asia|abia|acca|xox|xapp-|aiza|ya29.|hf_|gsk_|xai-|npm_|pypi-|sg.|:aa|age-secret-key-1";
const OF_NAMES: &str = "password|passwd|passphrase|pwd|密码|口令|secret|token|credential|api key|api_key|api-key|apikey|access_key|access-key|accesskey|private_key|private-key|privatekey|auth_key|auth-key|authkey";
/// A signed token (RFC 7519): three or more parts, of which the first is JSON.
const TOKEN: &str = r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,4}";
/// A private key in PEM (RFC 7468), or a part of one. Its lines may be escaped.
const PEM: &str = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?:\s|\\+[nrt])*(?:[A-Za-z0-9+/=]{16,}|(?:Proc-Type|DEK-Info|Version|Comment|Hash): ?[^\n\\]*))*(?:(?:\s|\\+[nrt])*=?[A-Za-z0-9+/=]{1,15})?(?:\s|\\+[nrt])*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?";

#[derive(Debug)]
pub(super) struct SecretShape {
    regex: Regex,
    /// Returns the replacement of a match, or `None` if it is not a secret after all.
    masked: Masked,
}

/// All shapes, the widest first.
pub(super) static SHAPES: LazyLock<[SecretShape; 6]> =
    LazyLock::new(|| shapes().map(SecretShape::new));
/// The literals of all shapes. One pass finds out which shapes may be in a text. Without it 915 KB took 25 ms to 1.7 s.
/// With it they take 7 to 9 ms (a dev build, on the log's thread).
pub(super) static LITERALS: LazyLock<Literals> = LazyLock::new(Literals::new);

#[derive(Debug)]
pub(super) struct Literals {
    searcher: AhoCorasick,
    shapes: Vec<usize>,
}

static NAMED: LazyLock<Regex> =
    LazyLock::new(|| compiled(&format!("(?:(?P<word>{WORDS})|{NAMES}){REST}$")));

type Masked = fn(&Captures<'_>) -> Option<String>;

/// A row of the table of shapes: literals between bars, and a pattern, each match of which contains one of them in any
/// case.
type ShapeRow = (&'static str, String, Masked);

fn shapes() -> [ShapeRow; 6] {
    [
        ("-----begin ", PEM.to_owned(), |_| Some(mask("private key"))),
        ("eyj", format!("{FRONT}(?:{TOKEN})"), |found| {
            Some(front(found) + &mask("token"))
        }),
        (OF_KEYS, format!("{FRONT}(?:{KEYS})"), |found| {
            has_digit(&found[0]).then(|| front(found) + &mask("api key"))
        }),
        (
            "bearer|basic|token",
            r"(?P<head>(?i-u:bearer|basic|token)(?:\s|%20)+)(?P<value>[A-Za-z0-9._~+/=-]{16,})"
                .to_owned(),
            |found| has_digit(&found["value"]).then(|| found["head"].to_owned() + &mask("token")),
        ),
        (
            "://",
            r#"(?P<head>://[^\s/:@"'\\]*:)(?P<value>[^\s/@"'\\\[]{3,})@"#.to_owned(),
            |found| Some(format!("{}{}@", &found["head"], mask("password"))),
        ),
        (
            OF_NAMES,
            format!("(?P<head>(?:(?P<word>{WORDS})|{NAMES}){REST}{IS}){VALUE}"),
            assigned,
        ),
    ]
}

#[expect(
    clippy::expect_used,
    reason = "the patterns stand above, and tests use every one: no input reaches them"
)]
fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of ours")
}

pub(super) fn mask_field(name: &str, value: &str) -> Option<String> {
    let found = NAMED.captures(name)?;
    mask_named(found.name("word").is_some(), value)
}

fn mask(kind: &str) -> String {
    format!("[masked: {kind}]")
}

fn front(found: &Captures<'_>) -> String {
    found["front"].to_owned()
}

/// A random key has digits. Words joined by dashes have none.
fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Masks a value that is assigned to a name. Ordinary text has the same words: "the password: required".
fn assigned(found: &Captures<'_>) -> Option<String> {
    let part = |name| found.name(name).map(|found| found.as_str());
    let (before, value, after) = match (part("quoted"), part("ticked")) {
        (Some(quoted), _) => (part("quote")?, quoted, ""),
        (None, Some(ticked)) if is_prose(ticked) => return None,
        (None, Some(ticked)) => ("`", ticked, "`"),
        (None, None) => {
            let (value, after) = before_tick(part("value")?);
            (part("tick")?, value, after)
        }
    };
    let is_tight = part("quoted").is_some() || part("is") == Some("=");
    let has_signs = value.contains(|c: char| c.is_ascii_punctuation() && !"._-:/?!,;`".contains(c));
    let is_phrase = part("ticked").is_some() && value.contains(char::is_whitespace);
    let is_word = part("word").is_some();
    let is_secret = is_word && (is_tight || has_digit(value) || has_signs || is_phrase);
    let is_placeholder =
        value.starts_with(['$', '%', '*', '[', '{', '<']) || value.starts_with("...");
    let masked = mask_named(is_word, value).filter(|_| is_secret || !is_word)?;
    (!is_placeholder).then(|| format!("{}{before}{masked}{after}", &found["head"]))
}

fn is_prose(ticked: &str) -> bool {
    let between = [", ", " or ", " and ", " | ", "，", "、", "或"];
    let is_call = ticked.ends_with(')') && ticked.contains('(');
    is_call || between.iter().any(|sign| ticked.contains(sign))
}

/// Splits a value from the back-tick after it that closes one from before the name, as in `password: string`.
fn before_tick(value: &str) -> (&str, &str) {
    let tick = value.find('`').filter(|at| {
        let mut behind = value[*at..].bytes();
        behind.all(|byte| byte.is_ascii_punctuation())
    });
    value.split_at(tick.unwrap_or(value.len()))
}

fn mask_named(is_word: bool, value: &str) -> Option<String> {
    let is_masked = value.starts_with("[masked");
    if is_word {
        return (value.len() >= 4 && !is_masked).then(|| mask("password"));
    }
    let is_long = value.len() >= 12 && !value.contains(char::is_whitespace);
    (is_long && has_digit(value)).then(|| mask("secret"))
}

// === impl Literals ===

impl Literals {
    #[expect(
        clippy::expect_used,
        reason = "a few dozen words that stand above: no input reaches them"
    )]
    fn new() -> Self {
        let rows = shapes();
        let of_row =
            |(n, row): (usize, &ShapeRow)| row.0.split('|').map(move |literal| (n, literal));
        let literals = rows.iter().enumerate().flat_map(of_row);
        let (shapes, literals): (_, Vec<&str>) = literals.unzip();
        let searcher = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(literals)
            .expect("literals of ours");
        Self { searcher, shapes }
    }

    pub(super) fn found_in(&self, text: &str) -> [bool; 6] {
        let mut found = [false; 6];
        for literal in self.searcher.find_overlapping_iter(text) {
            found[self.shapes[literal.pattern().as_usize()]] = true;
            if found == [true; 6] {
                break;
            }
        }
        found
    }
}

// === impl SecretShape ===

impl SecretShape {
    fn new((_, pattern, masked): ShapeRow) -> Self {
        let regex = compiled(&pattern);
        Self { regex, masked }
    }

    pub(super) fn mask(&self, text: &str) -> Option<String> {
        let mut rest = String::new();
        let mut done = 0;
        for found in self.regex.captures_iter(text) {
            if let Some(masked) = (self.masked)(&found)
                && let Some(whole) = found.get(0)
            {
                rest.push_str(&text[done..whole.start()]);
                rest.push_str(&masked);
                done = whole.end();
            }
        }
        (done > 0).then(|| rest + &text[done..])
    }
}
