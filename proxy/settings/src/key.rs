//! What one key of `config.yaml` is: its place, its kind, its default, and what becomes of it.

use super::kind::Kind;

/// One key; `*` in its path stands for a name that people choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Dotted path, as in `rl.batch_size`.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The default as it stands in YAML; empty where there is none.
    pub default: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// What becomes of it.
    pub state: State,
    /// Single values with a state_of of their own.
    pub values: &'static [(&'static str, State)],
}

/// What becomes of a key, or of one value of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Done,
    /// Accepted, without effect; the banner says so, with the reason.
    Inert(&'static str),
    /// The start is refused, with the reason.
    Refused(&'static str),
    /// Another name of the key (or value) given here.
    Alias(&'static str),
}

/// A part of the table: the keys below one heading of the example file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// What the part is about.
    pub title: &'static str,
    /// Its keys, in the order of the example.
    pub keys: &'static [Key],
}

/// A key that works.
pub(crate) const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        path,
        kind,
        default,
        meaning,
        state: State::Done,
        values: &[],
    }
}

/// A key that is accepted and does nothing, and why.
pub(crate) const fn inert(path: &'static str, kind: Kind, reason: &'static str) -> Key {
    let mut it = key(path, kind, "", "");
    it.state = State::Inert(reason);
    it
}

/// An older name of `target`.
pub(crate) const fn alias(path: &'static str, kind: Kind, target: &'static str) -> Key {
    let mut it = key(path, kind, "", "");
    it.state = State::Alias(target);
    it
}

// === impl Key ===

impl Key {
    /// With single values that have a state_of of their own.
    pub(crate) const fn values(mut self, values: &'static [(&'static str, State)]) -> Self {
        self.values = values;
        self
    }

    /// Whether this is the key at `path`.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        let mut given = path.split('.');
        let mut own = self.path.split('.');
        loop {
            match (own.next(), given.next()) {
                (None, None) => return true,
                (Some(mine), Some(theirs)) if mine == "*" || mine == theirs => {}
                _ => return false,
            }
        }
    }

    /// Whether this key lies below the section `path`.
    pub(crate) fn is_below(&self, path: &str) -> bool {
        let mut own = self.path.split('.');
        let given = path.split('.');
        let covered = given
            .into_iter()
            .all(|part| own.next().is_some_and(|mine| mine == "*" || mine == part));
        covered && own.next().is_some()
    }

    /// What is allowed, in words that end an error message.
    pub(crate) fn allowed(&self) -> String {
        match self.kind {
            Kind::OneOf(words) => self.words(words, ", "),
            other => other.allowed(),
        }
    }

    /// What is allowed, where the default does not show it already.
    pub(crate) fn choice(&self) -> Option<String> {
        match self.kind {
            Kind::OneOf(words) => Some(self.words(words, " | ")),
            Kind::SomeOf(_)
            | Kind::AnyOf(_)
            | Kind::Among(_)
            | Kind::Tree(_)
            | Kind::Count(..)
            | Kind::Minutes(..)
            | Kind::Number(..) => Some(self.kind.allowed()),
            Kind::Text
            | Kind::Secret
            | Kind::CallersKey
            | Kind::Url
            | Kind::Host
            | Kind::Path
            | Kind::Bool
            | Kind::Span
            | Kind::Size
            | Kind::Time
            | Kind::Texts
            | Kind::OneOrMore
            | Kind::Secrets
            | Kind::Calendars => None,
        }
    }

    /// The words that work, without older ones, those that do nothing and those that are refused.
    fn words(&self, words: &[&str], between: &str) -> String {
        let works = |word: &&str| match self.state_of(word) {
            State::Done => true,
            // Where the key itself does nothing, any word is as good.
            State::Inert(_) => self.state != State::Done,
            State::Refused(_) | State::Alias(_) => false,
        };
        let words: Vec<&str> = words.iter().copied().filter(works).collect();
        words.join(between)
    }

    /// What becomes of one value of this key.
    pub(crate) fn state_of(&self, value: &str) -> State {
        let own = self.values.iter().find(|(given, _)| *given == value);
        own.map_or(self.state, |(_, state)| *state)
    }
}
