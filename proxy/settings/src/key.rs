//! What one key of `config.yaml` is: its place, its kind, its default, and what becomes of it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::kind::{ValueForm, ValueKind};

/// One key; `*` in its path stands for a name that people choose.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Dotted path, as in `rl.batch_size`.
    pub(crate) path: String,
    pub(crate) kind: ValueKind,
    /// The default as it stands in YAML; empty where there is none.
    pub(crate) default: String,
    /// What it does, in sentences; empty for keys that do nothing.
    pub(crate) help: String,
    pub(crate) state: KeyState,
    pub(crate) values: BTreeMap<String, KeyState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyState {
    Works,
    /// It is accepted and has no effect; the banner says so, with this reason.
    WithoutEffect(String),
    /// The start is refused, with this reason.
    Refused(String),
    /// It is another name of the key, or value, given here.
    SameAs(String),
}

// === impl Key ===

impl Key {
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.n_parts_below(path) == Some(0)
    }

    pub(crate) fn is_below(&self, path: &str) -> bool {
        self.n_parts_below(path).is_some_and(|n| n > 0)
    }

    /// How many parts its path has beyond `path`, with which it begins.
    fn n_parts_below(&self, path: &str) -> Option<usize> {
        let mut own = self.path.split('.');
        let is_own = |part| own.next().is_some_and(|word| word == "*" || word == part);
        path.split('.').all(is_own).then(|| own.count())
    }

    /// Whether an empty text is as good as leaving the key out.
    pub(crate) fn may_be_blank(&self) -> bool {
        let has_default = !self.default.is_empty() && !self.path.contains('*');
        let is_read = !matches!(self.state, KeyState::WithoutEffect(_));
        self.kind != ValueKind::One(ValueForm::CallersKey) && !(has_default && is_read)
    }

    pub(crate) fn allowed(&self) -> String {
        match &self.kind {
            ValueKind::One(ValueForm::Word(words)) => self.words(words, ", "),
            other => other.allowed(),
        }
    }

    /// What is allowed, where the default does not show it already.
    pub(crate) fn choice(&self) -> Option<String> {
        match &self.kind {
            ValueKind::One(ValueForm::Word(words)) => Some(self.words(words, " | ")),
            kind => kind.is_bounded().then(|| kind.allowed()),
        }
    }

    /// The words that work, without older ones, those that do nothing and those that are refused.
    fn words(&self, words: &[String], between: &str) -> String {
        let works = |word: &&str| match self.state_of(word) {
            KeyState::Works => true,
            // Where the key itself does nothing, any word is as good.
            KeyState::WithoutEffect(_) => self.state != KeyState::Works,
            KeyState::Refused(_) | KeyState::SameAs(_) => false,
        };
        let words: Vec<&str> = words.iter().map(String::as_str).filter(works).collect();
        words.join(between)
    }

    pub(crate) fn state_of(&self, value: &str) -> &KeyState {
        self.values.get(value).unwrap_or(&self.state)
    }
}
