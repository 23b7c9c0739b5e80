//! What an upstream can be told to do.

/// The usage that every reply reports.
pub const PROMPT_TOKENS: u64 = 1234;
/// Of those, from the provider's cache.
pub const CACHED_TOKENS: u64 = 1000;
/// And of the reply.
pub const COMPLETION_TOKENS: u64 = 7;

/// The model that answers, whatever model was asked for.
pub(super) const MODEL: &str = "mock-model";

/// A request for a reply, as far as a script may want to know it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The route.
    pub path: &'a str,
    /// The model that it names.
    pub model: &'a str,
    /// How many requests for a reply by that model in the same API came before.
    pub n_before: usize,
}

/// What the upstream does with one request.
#[derive(Debug, Clone, Copy)]
pub enum Play {
    /// Answers with this text.
    Text(&'static str),
    /// Thinks this aloud, then answers with this text.
    Thought(&'static str, &'static str),
    /// Asks for one `exec` call with this command; answers with the text once its result is there.
    Tool {
        /// The shell command that the model asks for.
        command: &'static str,
        /// The answer after the result.
        then: &'static str,
    },
    /// Answers with this text, and leaves out what providers usually send.
    Without(Part, &'static str),
    /// Begins to answer with this text and breaks the connection off.
    Cut(&'static str),
    /// Begins to answer with this text and falls silent; a reply that is not streamed never begins.
    Stall(&'static str),
    /// Answers with an error.
    Refuse(Failure),
    /// Knows no such route.
    Unknown,
}

/// Parts of a reply that some providers do not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The count of tokens.
    Usage,
    /// Why the reply ended.
    Finish,
    /// The stream's own end mark.
    End,
}

/// Errors of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 500.
    Server,
    /// 429, with `Retry-After` of a second.
    RateLimit,
    /// 400: the conversation is longer than the model's context.
    ContextOverflow,
}

/// A reply, in whatever API.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub said: Said,
    pub without: Option<Part>,
    /// Its number: no two replies of a provider have the same id.
    pub number: usize,
}

/// What a reply says.
#[derive(Debug, Clone, Copy)]
pub(super) enum Said {
    Text(&'static str),
    Thought(&'static str, &'static str),
    Call(&'static str),
}

impl Reply {
    /// Whether a part is to be sent.
    pub(super) fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }
}

impl Said {
    /// The text in pieces, as a model says it.
    pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split_inclusive(' ')
    }

    /// The arguments of a call, and the same in two pieces.
    pub(super) fn arguments(command: &str) -> (String, [String; 2]) {
        let whole = serde_json::json!({ "command": command }).to_string();
        let (head, tail) = whole.split_at(whole.len() / 2);
        let pieces = [head.to_owned(), tail.to_owned()];
        (whole, pieces)
    }
}

impl Failure {
    /// The HTTP status.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Server => 500,
            Self::RateLimit => 429,
            Self::ContextOverflow => 400,
        }
    }
}
