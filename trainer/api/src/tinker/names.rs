//! Ids and paths. None can contain a slash, so that each is one component of a URL and of a `tinker://` path.

use std::{str::FromStr, sync::Arc};

use crate::{CheckpointName, NameError};

const MAX_ID: usize = 160;
const SCHEME: &str = "tinker://";

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} {value:?} is not allowed: 1 to {MAX_ID} of a-z A-Z 0-9 _ - . : @, beginning with a letter, a digit or _"
)]
pub struct IdError {
    pub field: &'static str,
    /// The given text, cut.
    pub value: String,
}

/// A client's session, as create_session returns it. Its models and samplers end with it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TinkerSessionId(Arc<str>);

/// A training run: `{session}:train:{n}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(Arc<str>);

/// Weights for sampling: `{session}:sample:{n}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SamplerId(Arc<str>);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Arc<str>);

/// `tinker://{run}/{weights|sampler_weights|external_weights}/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("{SCHEME}{run}/{}/{name}", kind.segment())]
pub struct TinkerPath {
    /// The run that wrote it.
    pub run: ModelId,
    pub kind: WeightsKind,
    pub name: CheckpointName,
}

/// The purpose of a path's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightsKind {
    /// Weights and optimiser, to continue training.
    Training,
    /// Weights for sampling.
    Sampler,
    /// Weights in the form of another system.
    External,
}

/// Why a text is not a `tinker://` path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not have three parts, or its kind is unknown.
    #[error(
        "path {value:?} is not allowed: tinker://RUN/KIND/NAME, KIND one of weights, sampler_weights, external_weights"
    )]
    Form {
        /// The given text, cut.
        value: String,
    },
    #[error(transparent)]
    Run(#[from] IdError),
    #[error(transparent)]
    Name(#[from] NameError),
}

fn cut(value: &str) -> String {
    value.chars().take(MAX_ID).collect()
}

fn id(field: &'static str, value: &str) -> Result<Arc<str>, IdError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b'@');
    let starts = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_id = value.len() <= MAX_ID
        && value.bytes().next().is_some_and(starts)
        && value.bytes().all(legal);
    if is_id {
        return Ok(Arc::from(value));
    }
    let value = cut(value);
    Err(IdError { field, value })
}

/// `session` and `n` of `{session}:{word}:{n}`.
fn parts(text: &str, word: &str) -> Option<(TinkerSessionId, u32)> {
    let (rest, n) = text.rsplit_once(':')?;
    let session = rest.strip_suffix(word)?.strip_suffix(':')?;
    let number: u32 = n.parse().ok()?;
    // `+1` and `01` are different texts for the same number.
    (number.to_string() == n).then_some((session.parse().ok()?, number))
}

// === impl ModelId ===

impl ModelId {
    /// Returns the id of a session's `n`th model.
    ///
    /// # Errors
    /// [`IdError`] where the session's id is too long for it.
    pub fn of(session: &TinkerSessionId, n: u32) -> Result<Self, IdError> {
        format!("{session}:train:{n}").parse()
    }

    /// The session and the number, where the id has them, as this server's have.
    pub fn parts(&self) -> Option<(TinkerSessionId, u32)> {
        parts(&self.0, "train")
    }
}

// === impl SamplerId ===

impl SamplerId {
    /// Returns the id of a session's `n`th sampler.
    ///
    /// # Errors
    /// [`IdError`] where the session's id is too long for it.
    pub fn of(session: &TinkerSessionId, n: u32) -> Result<Self, IdError> {
        format!("{session}:sample:{n}").parse()
    }

    /// The session and the number, where the id has them, as this server's have.
    pub fn parts(&self) -> Option<(TinkerSessionId, u32)> {
        parts(&self.0, "sample")
    }
}

// === impl WeightsKind ===

impl WeightsKind {
    pub const ALL: [Self; 3] = [Self::Training, Self::Sampler, Self::External];

    pub fn segment(self) -> &'static str {
        match self {
            Self::Training => "weights",
            Self::Sampler => "sampler_weights",
            Self::External => "external_weights",
        }
    }

    /// The kind's name in a list of checkpoints.
    pub fn checkpoint_type(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Sampler => "sampler",
            Self::External => "external",
        }
    }

    /// The kind that a path's segment names.
    pub fn of_segment(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.segment() == segment)
    }
}

// === impl TinkerPath ===

impl TinkerPath {
    /// Returns its name within its run, for example `weights/step-1`.
    pub fn checkpoint_id(&self) -> String {
        format!("{}/{}", self.kind.segment(), self.name)
    }
}

impl FromStr for TinkerPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let form = || PathError::Form { value: cut(text) };
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let mut parts = rest.split('/');
        let (Some(run), Some(kind), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(form());
        };
        Ok(Self {
            run: run.parse()?,
            kind: WeightsKind::of_segment(kind).ok_or_else(form)?,
            name: name.parse()?,
        })
    }
}

macro_rules! text_ids {
    ($($name:ident: $field:literal),*) => {
        $(
            impl FromStr for $name {
                type Err = IdError;

                fn from_str(value: &str) -> Result<Self, IdError> {
                    id($field, value).map(Self)
                }
            }
        )*
        metaclaw_trainer_terms::text_names!($($name),*);
    };
}
text_ids!(
    TinkerSessionId: "session_id",
    ModelId: "model_id",
    SamplerId: "sampling_session_id",
    RequestId: "request_id"
);
metaclaw_trainer_terms::serde_by_text!(TinkerPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_component_of_a_path() {
        let long = "a".repeat(161);
        for bad in ["", ".", "..", "a/b", "a\\b", "a b", "a\0", ":a", &long] {
            assert!(bad.parse::<ModelId>().is_err(), "{bad:?}");
        }
        let model: ModelId = "sess-0001:train:0".parse().unwrap();
        let session: TinkerSessionId = "sess-0001".parse().unwrap();
        assert_eq!(ModelId::of(&session, 0), Ok(model.clone()));
        assert_eq!(model.parts(), Some((session, 0)));
        for foreign in "model_1f s:train:01 s:train:+1 s:sample:1 :train:1".split(' ') {
            let parsed = foreign.parse::<ModelId>().ok();
            assert!(parsed.and_then(|id| id.parts()).is_none(), "{foreign}");
        }
    }

    #[test]
    fn a_path_has_three_parts() {
        let text = "tinker://sess-0001:train:0/weights/step-1";
        let path: TinkerPath = text.parse().unwrap();
        assert_eq!(path.to_string(), text);
        assert_eq!(path.checkpoint_id(), "weights/step-1");
        for bad in [
            "sess-0001:train:0/weights/step-1",
            "tinker://a/weights",
            "tinker://a/weights/b/c",
            "tinker://a/weights/..",
            "tinker:///weights/b",
            "tinker://a/other/b",
        ] {
            assert!(bad.parse::<TinkerPath>().is_err(), "{bad:?}");
        }
        insta::assert_snapshot!("tinker://a/w/b".parse::<TinkerPath>().unwrap_err(), @r#"path "tinker://a/w/b" is not allowed: tinker://RUN/KIND/NAME, KIND one of weights, sampler_weights, external_weights"#);
    }
}
