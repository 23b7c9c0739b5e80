//! The rows of a data set: chats in the format of OpenAI's fine-tuning, TRL and Tinker's cookbook, or pairs of replies in
//! the formats of TRL and OpenAI. They become token ids, with the ids that the model is to say.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{
    BackendError, Datum, DatumError, NameError, TrainingBackend,
    wire::{TokenizeReply, TokenizeRequest},
};
use metaclaw_turns::LogError;
use serde_json::{Map, Value, json};

use crate::error::TrainError;

/// Why a data set was not trained on.
#[derive(Debug, thiserror::Error)]
pub enum SftError {
    #[error("cannot read {file}: {source}", file = file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{file} has {n} MB: at most {most} MB, so split it", file = file.display())]
    Large { file: PathBuf, n: u64, most: u64 },
    #[error("{file} has no row: one JSON object a line", file = file.display())]
    Empty { file: PathBuf },
    #[error("{file}, {error}", file = file.display())]
    Row { file: PathBuf, error: RowError },
    #[error("{file} has {held_out} and {other} {trained}: both need the same format", file = file.display(), other = other.display())]
    Mixed {
        file: PathBuf,
        held_out: &'static str,
        other: PathBuf,
        trained: &'static str,
    },
    #[error("{field} is {value}, allowed: {allowed}")]
    Setting {
        field: &'static str,
        value: String,
        allowed: &'static str,
    },
    #[error("{n} row: at least 2 are needed to hold one out; --held-out 0 holds none out")]
    Few { n: usize },
    #[error("{0}")]
    NoStart(String),
    /// A training server of another kind.
    #[error(
        "the training server does not say where the assistant's text begins (POST /tokenize with split_reply): run metaclaw-trainer there"
    )]
    NoSplit,
    #[error(
        "the training server does not score replies, so that no held-out loss can be measured: --held-out 0 trains without one"
    )]
    NoScores,
    #[error(
        "the training server does not score replies, and pairs are trained by what they are scored at: train chats, or run metaclaw-trainer there"
    )]
    NoPairs,
    /// The server refused the work; what earlier epochs came to is there.
    #[error("the training server refused: {0}")]
    Refused(String),
    #[error("another training of agent {agent} has been asked for")]
    Busy { agent: AgentId },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("a row cannot be sent: {0}")]
    Datum(#[from] DatumError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

// === impl SftError ===

impl From<LogError> for SftError {
    fn from(error: LogError) -> Self {
        Self::Train(error.into())
    }
}

const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];
const TAKEN: &str = "a chat {\"messages\": [..]} whose assistant's messages are trained, or a pair {\"prompt\", \"chosen\", \"rejected\"} or {\"input\", \"preferred_output\", \"non_preferred_output\"}";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DataRow {
    /// From 1.
    pub(super) line: usize,
    pub(super) tools: Option<Value>,
    /// Variables of the chat template (`chat_template_kwargs`).
    pub(super) variables: Map<String, Value>,
    pub(super) content: RowContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum RowContent {
    Chat {
        messages: Vec<Value>,
        /// The places of the assistant's messages that are trained, ascending.
        trained: Vec<usize>,
    },
    /// Two conversations that end with the assistant's message.
    Pair {
        chosen: Vec<Value>,
        rejected: Vec<Value>,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct RowError {
    /// From 1.
    pub line: usize,
    pub why: String,
}

/// Reads every line that is not blank. All are of one kind.
///
/// # Errors
/// Returns the first line that is not taken, with its field.
pub(super) fn rows(text: &str) -> Result<Vec<DataRow>, RowError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows: Vec<DataRow> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let refused = |why: String| RowError { line: at + 1, why };
        let mut row = read_row(line).map_err(refused)?;
        row.line = at + 1;
        if let Some(first) = rows.first()
            && first.content.kind() != row.content.kind()
        {
            let (kind, first_kind) = (row.content.kind(), first.content.kind());
            return Err(refused(format!(
                "it is one of {kind}, and line {} one of {first_kind}: a file has one kind",
                first.line
            )));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn read_row(line: &str) -> Result<DataRow, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        let hint = if line.trim_start().starts_with('[') {
            " (one JSON object a line, and no list around them)"
        } else {
            ""
        };
        format!("it is no JSON: {error}{hint}")
    })?;
    let Value::Object(object) = &value else {
        return Err(mismatch("it", &value, TAKEN));
    };
    let content = if object.contains_key("messages") {
        chat(&object["messages"], "messages")?
    } else if object.contains_key("chosen") || object.contains_key("rejected") {
        trl_pair(object)?
    } else if object.contains_key("preferred_output") {
        openai_pair(object)?
    } else {
        let keys: Vec<&str> = object.keys().take(6).map(String::as_str).collect();
        return Err(format!("it has {}, and has to be {TAKEN}", keys.join(", ")));
    };
    let of_input = object.get("input").and_then(|input| input.get("tools"));
    let tools = match of_input.or_else(|| object.get("tools")) {
        None | Some(Value::Null) => None,
        Some(Value::Array(list)) => Some(list).filter(|list| !list.is_empty()),
        Some(other) => return Err(mismatch("tools", other, "a list in OpenAI's format")),
    };
    let variables = match object.get("chat_template_kwargs") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(variables)) => variables.clone(),
        Some(other) => return Err(mismatch("chat_template_kwargs", other, "an object")),
    };
    Ok(DataRow {
        line: 0,
        tools: tools.map(|list| Value::Array(list.clone())),
        variables,
        content,
    })
}

fn chat(messages: &Value, field: &str) -> Result<RowContent, String> {
    let mut messages = checked(messages, field)?;
    let mut trained = Vec::new();
    for (at, message) in messages.iter_mut().enumerate() {
        let weight = message
            .as_object_mut()
            .and_then(|fields| fields.remove("weight"));
        let is_said = message["role"] == "assistant";
        if let Some(weight) = &weight
            && !is_said
        {
            return Err(format!(
                "{field}[{at}].weight is {weight} and its role {}: only the assistant's messages are trained",
                message["role"]
            ));
        }
        let counts = match weight.as_ref().map_or(Some(1.0), Value::as_f64) {
            Some(1.0) => true,
            Some(0.0) => false,
            Some(_) | None => {
                let given = weight.unwrap_or_default();
                return Err(format!("{field}[{at}].weight is {given}, allowed: 0 and 1"));
            }
        };
        if is_said && counts {
            trained.push(at);
        }
    }
    if trained.is_empty() {
        return Err(format!(
            "{field} has no message of the assistant's that is trained (role assistant, without weight 0)"
        ));
    }
    Ok(RowContent::Chat { messages, trained })
}

fn trl_pair(object: &Map<String, Value>) -> Result<RowContent, String> {
    let prompt = match object.get("prompt") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        Some(messages) => checked(messages, "prompt")?,
    };
    pair(object, &prompt, ["chosen", "rejected"])
}

fn openai_pair(object: &Map<String, Value>) -> Result<RowContent, String> {
    let input = object.get("input").ok_or("input is missing")?;
    let messages = input.get("messages").ok_or("input.messages is missing")?;
    let prompt = checked(messages, "input.messages")?;
    let fields = ["preferred_output", "non_preferred_output"];
    pair(object, &prompt, fields)
}

fn pair(
    object: &Map<String, Value>,
    prompt: &[Value],
    [chosen, rejected]: [&str; 2],
) -> Result<RowContent, String> {
    Ok(RowContent::Pair {
        chosen: reply_after(prompt, object.get(chosen), chosen)?,
        rejected: reply_after(prompt, object.get(rejected), rejected)?,
    })
}

fn reply_after(prompt: &[Value], reply: Option<&Value>, field: &str) -> Result<Vec<Value>, String> {
    let reply = match reply {
        None | Some(Value::Null) => return Err(format!("{field} is missing")),
        Some(Value::String(text)) => vec![json!({"role": "assistant", "content": text})],
        Some(messages) => checked(messages, field)?,
    };
    let Some((last, before)) = reply.split_last() else {
        return Err(format!(
            "{field} is empty: it ends with the assistant's message"
        ));
    };
    if last["role"] != "assistant" {
        let role = &last["role"];
        return Err(format!(
            "{field} ends with role {role}, and has to end with the assistant's message"
        ));
    }
    if !prompt.is_empty() && !before.is_empty() {
        return Err(format!(
            "{field} has {} messages beside the prompt: one is taken, the assistant's",
            reply.len()
        ));
    }
    if prompt.is_empty() && before.is_empty() {
        return Err(format!(
            "prompt is missing, and {field} has no message before the assistant's"
        ));
    }
    let mut whole = [prompt, &reply].concat();
    for message in &mut whole {
        message
            .as_object_mut()
            .map(|fields| fields.remove("weight"));
    }
    Ok(whole)
}

fn checked(messages: &Value, field: &str) -> Result<Vec<Value>, String> {
    let Value::Array(messages) = messages else {
        return Err(mismatch(field, messages, "a list of messages"));
    };
    if messages.is_empty() {
        return Err(format!("{field} is empty"));
    }
    for (at, message) in messages.iter().enumerate() {
        let Value::Object(message) = message else {
            return Err(mismatch(&format!("{field}[{at}]"), message, "an object"));
        };
        let role = message.get("role").unwrap_or(&Value::Null);
        if !role.as_str().is_some_and(|role| ROLES.contains(&role)) {
            let roles = ROLES.join(", ");
            return Err(format!("{field}[{at}].role is {role}, allowed: {roles}"));
        }
        let content = message.get("content").unwrap_or(&Value::Null);
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let has_calls = calls.is_some_and(|calls| !calls.is_empty());
        let may_lack_content = has_calls && role == "assistant";
        if !(content.is_string() || content.is_array() || (content.is_null() && may_lack_content)) {
            let kind = kind_of(content);
            return Err(format!(
                "{field}[{at}].content is {kind}, allowed: a text, a list of parts, or null beside tool_calls of the assistant's"
            ));
        }
    }
    Ok(messages.clone())
}

fn mismatch(field: &str, value: &Value, wanted: &str) -> String {
    format!("{field} is {}, and has to be {wanted}", kind_of(value))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

// === impl RowContent ===

impl RowContent {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Chat { .. } => "chats",
            Self::Pair { .. } => "pairs",
        }
    }
}

const AT_ONCE: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenRow {
    pub(super) line: usize,
    /// Of a chat, as few sequences as the template allows; of a pair, the one with the chosen reply and the one with the
    /// rejected reply.
    pub(super) examples: Vec<TokenExample>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenExample {
    pub(super) ids: Vec<u32>,
    /// The ids that the model is to say: at least one, and never the first.
    pub(super) trained: Vec<Range<usize>>,
}

pub(super) async fn token_rows(
    backend: &dyn TrainingBackend,
    file: &Path,
    rows: Vec<DataRow>,
) -> Result<Vec<TokenRow>, SftError> {
    let tokenised = rows.into_iter().map(|row| token_row(backend, file, row));
    stream::iter(tokenised)
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

async fn token_row(
    backend: &dyn TrainingBackend,
    file: &Path,
    row: DataRow,
) -> Result<TokenRow, SftError> {
    let mut examples = Vec::new();
    match &row.content {
        RowContent::Chat { messages, trained } => {
            for at in trained {
                add(
                    &mut examples,
                    example(backend, file, &row, &messages[..=*at]).await?,
                );
            }
        }
        RowContent::Pair { chosen, rejected } => {
            for messages in [chosen, rejected] {
                examples.push(example(backend, file, &row, messages).await?);
            }
        }
    }
    let line = row.line;
    Ok(TokenRow { line, examples })
}

async fn example(
    backend: &dyn TrainingBackend,
    file: &Path,
    row: &DataRow,
    messages: &[Value],
) -> Result<TokenExample, SftError> {
    let request = TokenizeRequest {
        tools: row.tools.clone(),
        chat_template_kwargs: row.variables.clone(),
        add_generation_prompt: false,
        split_reply: true,
        ..TokenizeRequest::messages(messages.to_vec())
    };
    let line = row.line;
    let refused = |why: String| SftError::Row {
        file: file.to_owned(),
        error: RowError { line, why },
    };
    let TokenizeReply {
        tokens,
        reply_start,
        max_model_len,
        ..
    } = match backend.tokenize(request).await {
        // What the template refuses is the row's fault, and so is a text that is too long.
        Err(BackendError::Status {
            status: 400 | 413 | 422,
            message,
            ..
        }) => return Err(refused(message)),
        reply => reply.map_err(|error| TrainError::NoTrainer { why: error.words() })?,
    };
    let start = reply_start.ok_or(SftError::NoSplit)? as usize;
    let n = tokens.len();
    if n > max_model_len as usize {
        return Err(refused(format!(
            "it has {n} tokens, and the model takes at most {max_model_len}"
        )));
    }
    if start == 0 || start >= n {
        return Err(refused("its reply has no token after a prompt".to_owned()));
    }
    Ok(TokenExample {
        ids: tokens,
        trained: std::iter::once(start..n).collect(),
    })
}

/// Adds the sequence of a later reply of the same chat: to the one before where it begins like that, so that what both
/// share is computed once. A template that rewrites what was said before gives each reply a sequence of its own.
fn add(examples: &mut Vec<TokenExample>, later: TokenExample) {
    if let Some(last) = examples.last_mut()
        && later.ids.starts_with(&last.ids)
        && later.trained[0].start >= last.ids.len()
    {
        last.ids = later.ids;
        last.trained.extend(later.trained);
    } else {
        examples.push(later);
    }
}

// === impl TokenRow ===

impl TokenRow {
    pub(super) fn n_tokens(&self) -> usize {
        self.examples.iter().map(TokenExample::n_tokens).sum()
    }

    pub(super) fn n_trained(&self) -> usize {
        self.examples.iter().map(TokenExample::n_trained).sum()
    }
}

// === impl TokenExample ===

impl TokenExample {
    pub(super) fn n_tokens(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn n_trained(&self) -> usize {
        self.trained.iter().map(Range::len).sum()
    }

    pub(super) fn positions(&self) -> Vec<usize> {
        let trained = self.trained.iter();
        trained.flat_map(|ids| ids.start - 1..ids.end - 1).collect()
    }

    /// The sequence with this weight at each id that is trained.
    ///
    /// # Errors
    /// Of a weight that is no number.
    pub(super) fn datum(&self, weight: f32) -> Result<Datum, DatumError> {
        let n = self.ids.len() - 1;
        let mut weights = vec![0.0; n];
        for at in self.positions() {
            weights[at] = weight;
        }
        Datum::cross_entropy(self.ids[..n].to_vec(), self.ids[1..].to_vec(), weights)
    }
}

#[cfg(test)]
mod tests;
