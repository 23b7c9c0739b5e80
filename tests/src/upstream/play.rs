//! The actions of an upstream's script.

use metaclaw_test_kit::Request;
use serde_json::Value;

/// The usage that every reply reports.
pub const PROMPT_TOKENS: u64 = 1234;
/// The part of these tokens that came from the provider's cache.
pub const CACHED_TOKENS: u64 = 1000;
/// The tokens of the reply.
pub const COMPLETION_TOKENS: u64 = 7;

/// The model that answers, whatever model was asked for.
pub(super) const MODEL: &str = "mock-model";

/// The parts of a request for a reply that a script may need.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub path: &'a str,
    /// The model that it names.
    pub model: &'a str,
    /// How many requests for a reply by that model in the same API came before.
    pub n_before: usize,
    pub request: &'a Request,
    pub body: &'a Value,
}

/// What the upstream does with one request.
#[derive(Debug, Clone, Copy)]
pub enum Play {
    /// Answers with this text.
    Text(&'static str),
    /// Sends this as thinking, then answers with this text.
    Thought(&'static str, &'static str),
    /// Asks for one `exec` call with this command; answers with the text once its result is there.
    Tool {
        /// The shell command that the model asks for.
        command: &'static str,
        /// The answer after the result.
        then: &'static str,
    },
    /// Asks for one call, whatever came before.
    Call {
        name: &'static str,
        /// Its arguments, a JSON object.
        arguments: &'static str,
    },
    /// Answers with this text, and leaves out what providers usually send.
    Without(Part, &'static str),
    /// Begins to answer with this text, and breaks the connection off.
    Cut(&'static str),
    /// Begins to answer with this text and then sends nothing more; a reply that is not streamed never begins.
    Stall(&'static str),
    /// Answers with an error.
    Refuse(Failure),
    /// Answers that there is no such route.
    Unknown,
}

/// Parts of a reply that some providers do not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The number of tokens.
    Usage,
    /// Why the reply ended.
    Finish,
    /// The stream's own end mark.
    End,
}

/// Errors of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Status 500.
    Server,
    /// Status 429, with `Retry-After` of a second.
    RateLimit,
    /// Status 400: the conversation is longer than the model's context.
    ContextOverflow,
}

/// A reply, in any API.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub said: Said,
    pub without: Option<Part>,
    /// The number of this reply. Its id is made from the number, because no two replies of a provider have the same id.
    pub number: usize,
}

/// The content of a reply.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Text(&'static str),
    Thought(&'static str, &'static str),
    Call(Call),
}

/// A call that a reply asks for.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Its number among all requests, because no two calls of a conversation have the same id.
    pub number: usize,
    pub name: &'static str,
    pub arguments: String,
}

impl Reply {
    /// Returns whether a part is sent.
    pub(super) fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }
}

impl Said {
    /// Returns the text in pieces, as a model streams it.
    pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split_inclusive(' ')
    }
}

impl Call {
    /// Returns one call of the tool `exec`; there is never a second one in its conversation.
    pub(super) fn exec(command: &str) -> Self {
        Self {
            number: 1,
            name: "exec",
            arguments: serde_json::json!({ "command": command }).to_string(),
        }
    }

    /// Returns the arguments in two pieces.
    pub(super) fn pieces(&self) -> [&str; 2] {
        let arguments = self.arguments.as_str();
        let ends = arguments.char_indices().map(|(at, _)| at);
        let middle = ends.take_while(|at| *at <= arguments.len() / 2).last();
        let (head, tail) = arguments.split_at(middle.unwrap_or_default());
        [head, tail]
    }
}

impl Asked<'_> {
    /// Returns the newest message or item of the conversation that is not a system message, as JSON, because Claude
    /// Code puts a system message after the typed text.
    pub fn newest(&self) -> &Value {
        let lists = ["messages", "input"];
        let list = lists.iter().find_map(|name| self.body[*name].as_array());
        let mut items = list.into_iter().flatten().rev();
        let newest = items.find(|it| it["role"] != "system" && it["role"] != "developer");
        newest.unwrap_or(&Value::Null)
    }

    /// Returns whether the newest message is a user's and contains this text.
    pub fn is_told(&self, text: &str) -> bool {
        let newest = self.newest();
        newest["role"] == "user" && newest["content"].to_string().contains(text)
    }

    /// Returns whether a tool of this name is offered.
    pub fn offers(&self, tool: &str) -> bool {
        let is_named =
            |offered: &Value| offered["name"] == tool || offered["function"]["name"] == tool;
        let tools = self.body["tools"].as_array();
        tools.is_some_and(|tools| tools.iter().any(is_named))
    }
}

impl Failure {
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Server => 500,
            Self::RateLimit => 429,
            Self::ContextOverflow => 400,
        }
    }
}
