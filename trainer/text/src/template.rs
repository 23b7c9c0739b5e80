//! Chat templates: Jinja as Hugging Face runs it.
//!
//! `transformers` sets `trim_blocks` and `lstrip_blocks`, prints JSON like Python's `json.dumps`, and gives templates
//! `raise_exception` and `strftime_now`. All of this is needed to get the same bytes.

mod clock;
mod error;
mod json;
mod marks;
mod messages;
mod python;

use std::{collections::BTreeMap, io};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value, json};

pub use self::error::RenderError;
pub(crate) use self::json::sort_keys;
use self::marks::TemplateInput;
use crate::content::ControlTokens;

const NAME: &str = "chat";
const MARK: &str = "metaclaw-system-mark";
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Steps of minijinja that a rendering may take, a twentieth of a second or less.
const STEPS: u64 = 1_000_000;
/// More steps for each pair of messages: a template may go over all messages for each message, as Gemma 4's does.
const STEPS_OF_PAIR: u64 = 64;
/// The most bytes that the steps of one rendering may print of the template's own text. In a macro, this text is not
/// counted while it is printed.
const MOST_OWN_TEXT: usize = 8 << 30;

/// The input of a template.
#[derive(Debug, Clone, Copy, Default)]
pub struct RenderRequest<'a> {
    pub messages: &'a [Value],
    /// Tools in OpenAI's format, a list.
    pub tools: Option<&'a Value>,
    /// Whether to end with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// A text that is added at the end of the system prompt: the conversation's, or the template's default if there is
    /// none.
    pub append_system: Option<&'a str>,
    /// Switches of the template (`chat_template_kwargs`), such as `enable_thinking`. A switch that it does not know has
    /// no effect.
    pub extra: Option<&'a Map<String, Value>>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    special: BTreeMap<String, String>,
    default_system: Option<String>,
    /// Whether it writes arguments of calls unchanged if they are text.
    takes_text: bool,
    most_steps: u64,
    takes_late_system: bool,
    /// Whether it writes results of tools only if they are in the message with the calls, as Gemma 4's first one does.
    takes_results_with_calls: bool,
}

impl ChatTemplate {
    /// Compiles a template. `special` has `bos_token` and similar tokens.
    ///
    /// # Errors
    /// Returns where and why it does not compile.
    pub fn new(source: &str, special: BTreeMap<String, String>) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax()?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        python::add_to(&mut environment);
        environment.add_filter("tojson", json::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", clock::strftime_now);
        let source_of_text = without_generation_blocks(&source.replace("\r\n", "\n"));
        let added = environment.add_template_owned(NAME, source_of_text);
        added.map_err(|error| describe(&error))?;
        let mut template = Self {
            environment,
            source: source.to_owned(),
            special,
            default_system: None,
            takes_text: takes_text(source),
            most_steps: most_steps(source),
            takes_late_system: false,
            takes_results_with_calls: false,
        };
        template.takes_late_system = template.writes_late_system();
        template.takes_results_with_calls = template.writes_results_with_calls();
        template.default_system = template.find_default_system();
        Ok(template)
    }

    /// Renders a conversation. Returns also the mark that breaks control tokens in its content, if it contains any.
    ///
    /// # Errors
    /// Returns [`RenderError`] if it cannot be rendered.
    pub(crate) fn render(
        &self,
        request: &RenderRequest<'_>,
        controls: &ControlTokens,
    ) -> Result<(String, Option<char>), RenderError> {
        let mut messages = messages::normalise(request.messages, self.takes_text)?;
        if !self.takes_late_system {
            messages::system_first(&mut messages);
        }
        if self.takes_results_with_calls {
            messages = messages::results_with_calls(messages);
        }
        if let Some(text) = request.append_system {
            messages::append_system(&mut messages, self.default_system(), text);
        }
        let mut given = TemplateInput {
            messages,
            tools: request.tools.cloned(),
            extra: request.extra.cloned().unwrap_or_default(),
        };
        self.refuse_reserved(&given.extra)?;
        let mark = given.mark(controls, &self.source)?;
        let text = self.run(&given, request.add_generation_prompt)?;
        Ok((text, mark))
    }

    /// Returns the system prompt that the template writes by itself, or `None` if it writes none.
    pub fn default_system(&self) -> Option<&str> {
        self.default_system.as_deref()
    }

    /// A switch must not replace a value of the request or the model.
    fn refuse_reserved(&self, extra: &Map<String, Value>) -> Result<(), RenderError> {
        let reserved =
            |name: &&String| RESERVED.contains(&name.as_str()) || self.special.contains_key(*name);
        match extra.keys().find(reserved) {
            None => Ok(()),
            Some(name) => Err(RenderError::Reserved { name: name.clone() }),
        }
    }

    fn run(
        &self,
        given: &TemplateInput,
        add_generation_prompt: bool,
    ) -> Result<String, RenderError> {
        let mut context: BTreeMap<&str, Jinja> = BTreeMap::new();
        for (name, text) in &self.special {
            context.insert(name, Jinja::from(text.as_str()));
        }
        for (name, value) in &given.extra {
            context.insert(name, Jinja::from(Serde(value)));
        }
        let tools = given.tools.as_ref();
        let tools = tools.map_or_else(|| Jinja::from(()), |tools| Serde(tools).into());
        context.insert("messages", Jinja::from(Serde(&given.messages)));
        context.insert("tools", tools);
        context
            .entry("documents")
            .or_insert_with(|| Jinja::from(()));
        context.insert("add_generation_prompt", add_generation_prompt.into());
        let pairs = u64::try_from(given.messages.len()).unwrap_or(u64::MAX);
        let pairs = pairs.saturating_mul(pairs);
        let steps = STEPS.saturating_add(pairs.saturating_mul(STEPS_OF_PAIR));
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps.min(self.most_steps)));
        environment
            .get_template(NAME)
            .and_then(|template| {
                let mut out = BoundedText::default();
                template.render_captured_to(Jinja::from_pairs(context), &mut out)?;
                String::from_utf8(out.0)
                    .map_err(|error| Error::new(ErrorKind::WriteFailure, error.to_string()))
            })
            .map_err(|error| refusal(&error))
    }

    fn try_out(&self, messages: &[(&str, &str)]) -> Result<String, RenderError> {
        let message = |(role, content): &(&str, &str)| json!({"role": role, "content": content});
        self.try_messages(messages.iter().map(message).collect())
    }

    fn try_messages(&self, messages: Vec<Value>) -> Result<String, RenderError> {
        let given = TemplateInput {
            messages,
            tools: None,
            extra: Map::new(),
        };
        self.run(&given, false)
    }

    /// Renders a marked system message in the middle, which many templates refuse or leave out.
    fn writes_late_system(&self) -> bool {
        let [system, user, assistant] = ["system", "user", "assistant"].map(|role| (role, "x"));
        let text = self.try_out(&[system, user, assistant, ("system", MARK), user]);
        text.is_ok_and(|text| text.contains(MARK))
    }

    /// Renders a call with a marked result in both forms.
    fn writes_results_with_calls(&self) -> bool {
        let function = json!({"name": "x", "arguments": {}});
        let call = json!({"id": "x", "type": "function", "function": function});
        let turns = vec![
            json!({"role": "user", "content": "x"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "content": MARK, "tool_call_id": "x"}),
        ];
        let moved = self.try_messages(messages::results_with_calls(turns.clone()));
        moved
            .is_ok_and(|moved| moved.contains(MARK) && self.try_messages(turns).ok() != Some(moved))
    }

    /// Renders with a marked system prompt and without one. The text at the place of the mark is the default.
    fn find_default_system(&self) -> Option<String> {
        let user = ("user", "metaclaw-user-mark");
        let run = |messages: &[(&str, &str)]| {
            let text = self.try_out(messages);
            if let Err(RenderError::Failed(why)) = &text {
                tracing::warn!("the chat template fails for a chat of one message: {why}");
            }
            text.ok()
        };
        let with = run(&[("system", MARK), user])?;
        let without = run(&[user])?;
        let (before, after) = with.split_once(MARK)?;
        let default = without.strip_prefix(before)?.strip_suffix(after)?;
        (!default.trim().is_empty()).then(|| default.to_owned())
    }
}

/// The most steps that a template may take, whatever the conversation. One step prints at most the longest text between
/// two of its tags.
fn most_steps(source: &str) -> u64 {
    let texts = source.split("{%").flat_map(|text| text.split("{{"));
    let longest = match texts.map(str::len).max() {
        Some(longest) if !source.contains("endraw") => longest,
        _ => source.len(),
    };
    u64::try_from(MOST_OWN_TEXT / longest.max(1)).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        python::check_size(self.0.len().saturating_add(text.len())).map_err(io::Error::other)?;
        self.0.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a template checks if arguments are text, as Qwen's and Kimi's do, and then writes them unchanged. A
/// template that iterates over them by name still needs objects, as Gemma's does.
fn takes_text(source: &str) -> bool {
    let source: String = source.split_whitespace().collect();
    let says = |ends: &[&str]| {
        let mut ends = ends.iter();
        ends.any(|end| {
            let spelled = ["arguments", "arguments']", "arguments\"]"];
            spelled
                .iter()
                .any(|name| source.contains(&format!("{name}{end}")))
        })
    };
    says(&["isstring"]) && !says(&[".items", "|items", "|dictsort"])
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
fn raise_exception(message: String) -> Result<Jinja, Error> {
    let text = format!("{RAISED}{message}");
    Err(Error::new(ErrorKind::InvalidOperation, text))
}

/// Distinguishes a template's own refusal from its failure.
const RAISED: &str = "raised: ";

fn refusal(error: &Error) -> RenderError {
    match error
        .detail()
        .and_then(|detail| detail.strip_prefix(RAISED))
    {
        Some(message) => RenderError::Refused {
            message: message.to_owned(),
        },
        None => RenderError::Failed(describe(error)),
    }
}

fn describe(error: &Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps".to_owned(),
        ErrorKind::WriteFailure => {
            format!(
                "it prints more than {} MiB of text",
                python::MOST_TEXT >> 20
            )
        }
        _ => format!("{error:#}"),
    };
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

fn syntax() -> Result<SyntaxConfig, String> {
    let mut syntax = SyntaxConfig::builder();
    let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
    syntax.map_err(|error| describe(&error))
}

/// Replaces `{% generation %}`, which marks the assistant's text for training masks and prints nothing.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start..].find("%}").map(|n| start + n) else {
            break;
        };
        let inner = &rest[start + 2..end];
        out.push_str(&rest[..start + 2]);
        out.push_str(&match inner.trim_matches(['-', '+', ' ', '\n']) {
            // Blocks with a true condition keep the tag's own white-space control working.
            "generation" => inner.replace("generation", " if true "),
            "endgeneration" => inner.replace("endgeneration", " endif "),
            _ => inner.to_owned(),
        });
        out.push_str("%}");
        rest = &rest[end + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
