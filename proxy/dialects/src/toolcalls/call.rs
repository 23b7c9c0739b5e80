//! One call in a model's notation.

use metaclaw_chat::StopReason;
use metaclaw_trainer_terms::gemma;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{mend, names, options::ToolCallOptions};
use crate::calls::function_call;

const ARGUMENTS: &str = "<|tool_call_argument_begin|>";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// The fields of a call in models' notation. The values stay as they were written.
#[derive(Debug, Deserialize)]
struct WrittenCall<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_name: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}

/// Reads `{"name": .., "arguments": ..}`, or both in a `function`.
pub(super) fn qwen(text: &str, id: String, options: &ToolCallOptions) -> Option<TextCall> {
    let call: WrittenCall<'_> = serde_json::from_str(text.trim()).ok()?;
    let function = call
        .function
        .and_then(|f| serde_json::from_str::<WrittenCall<'_>>(f.get()).ok());
    let function = function.as_ref();
    let names = [
        call.name,
        call.tool_name,
        function.and_then(|function| function.name),
        call.function,
    ];
    let name = names.into_iter().flatten().find_map(string)?;
    let written = [
        call.arguments,
        call.parameters,
        function.and_then(|function| function.arguments),
        function.and_then(|function| function.parameters),
    ];
    let arguments = match written.into_iter().flatten().next() {
        Some(written) => arguments(written)?,
        // If the name is that of an offered tool, the other fields are its arguments.
        None if options.offers(&name) => beside_the_name(text),
        None => "{}".to_owned(),
    };
    Some(TextCall {
        id,
        name: names::normalised(&name, &arguments, &options.tools),
        arguments,
    })
}

/// Reads calls of offered tools in JSON with mistakes: several in one pair of markers, a wrong bracket or line end, a
/// code fence around them. Returns `None` if one of them is anything else.
pub(super) fn mended_qwen(
    text: &str,
    id: impl Fn(usize) -> String,
    options: &ToolCallOptions,
) -> Option<Vec<TextCall>> {
    let objects = mend::objects(text)?;
    let calls = objects.iter().enumerate();
    calls
        .map(|(n, object)| {
            let call = qwen(object, id(n), options)?;
            options.tools.contains(&call.name).then_some(call)
        })
        .collect()
}

pub(super) fn mended_kimi(text: &str, id: String, options: &ToolCallOptions) -> Option<TextCall> {
    let (name, written) = text.split_once(ARGUMENTS)?;
    let mended = mend::objects(written)?;
    let [arguments] = mended.as_slice() else {
        return None;
    };
    let call = kimi(&format!("{name}{ARGUMENTS}{arguments}"), id, &options.tools)?;
    options.tools.contains(&call.name).then_some(call)
}

fn beside_the_name(text: &str) -> String {
    let mut fields = serde_json::from_str::<Map<String, Value>>(text.trim()).unwrap_or_default();
    fields
        .retain(|key, _| !["name", "tool_name", "function", "id", "type"].contains(&key.as_str()));
    Value::Object(fields).to_string()
}

/// Reads `name:0<|tool_call_argument_begin|>{json}`.
pub(super) fn kimi(text: &str, id: String, tools: &[String]) -> Option<TextCall> {
    let (name, written) = text.split_once(ARGUMENTS)?;
    let arguments = match written.trim() {
        "" => "{}".to_owned(),
        written => arguments(serde_json::from_str(written).ok()?)?,
    };
    Some(TextCall {
        id,
        name: names::normalised(name.trim(), &arguments, tools),
        arguments,
    })
}

/// Reads `call:name{..}`.
pub(super) fn gemma(text: &str, id: String, tools: &[String]) -> Option<TextCall> {
    let (name, arguments) = gemma::read_call(text)?;
    Some(TextCall {
        id,
        name: names::normalised(name, &arguments, tools),
        arguments,
    })
}

fn arguments(written: &RawValue) -> Option<String> {
    let text = match string(written) {
        Some(text) => text,
        None if written.get() == "null" => "{}".to_owned(),
        None => written.get().to_owned(),
    };
    let is_object = matches!(serde_json::from_str(&text), Ok(Value::Object(_)));
    is_object.then_some(text)
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

pub(super) fn finish_with_calls(choice: &mut Value) {
    let reason = choice["finish_reason"].as_str();
    if reason.and_then(StopReason::of) == Some(StopReason::Done) {
        choice["finish_reason"] = "tool_calls".into();
    }
}

pub(super) fn says_something(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

impl From<TextCall> for Value {
    fn from(call: TextCall) -> Self {
        function_call(&call.id.into(), &call.name.into(), &call.arguments)
    }
}
