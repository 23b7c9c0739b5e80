//! Converts the tools of Responses to functions of a chat completion, and back.
//!
//! Chat completions have only functions, with one flat name. A tool of a namespace gets both names in one. A custom
//! tool, whose input is free text, gets one field for it. Tools that run at the provider have no counterpart, so the
//! model does not see them.

use serde_json::{Map, Value, json};

use super::{
    at::{CHAT, PathValue},
    error::TranslateError,
    names,
    wire::{copy, filled, given},
};

const INPUT: &str = "input";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GivenTool {
    pub name: String,
    pub namespace: Option<String>,
    pub is_custom: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResponseTools(Vec<(String, GivenTool)>);

pub(super) fn sent_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => names::tool(&format!("{namespace}__{name}")).into_owned(),
        None => names::tool(name).into_owned(),
    }
}

pub(super) fn arguments(input: &str) -> String {
    json!({ INPUT: input }).to_string()
}

/// Returns the arguments of a custom tool's function as its input: the text in them, or all of them if a model did not
/// use this form.
pub(super) fn input(arguments: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        return arguments.to_owned();
    };
    let mut texts = fields.values().filter_map(Value::as_str);
    let one = match (fields.get(INPUT), texts.next(), texts.next()) {
        (Some(Value::String(input)), ..) => Some(input.as_str()),
        (_, Some(only), None) if fields.len() == 1 => Some(only),
        _ => None,
    };
    one.unwrap_or(arguments).to_owned()
}

pub(super) fn to_chat(body: &Value, out: &mut Map<String, Value>) -> Result<(), TranslateError> {
    let mut tools = Vec::new();
    for list in lists(body)? {
        for tool in list.items()? {
            add(&tool, None, &mut tools)?;
        }
    }
    let choice = choice(&PathValue::top(body, "tool_choice"), &mut tools)?;
    if tools.is_empty() {
        return Ok(());
    }
    out.insert("tools".into(), tools.into());
    out.extend(choice.map(|choice| ("tool_choice".to_owned(), choice)));
    if body["parallel_tool_calls"].as_bool() == Some(false) {
        out.insert("parallel_tool_calls".into(), false.into());
    }
    Ok(())
}

/// Returns the lists of a request's tools. Codex adds some in the middle of its input.
fn lists(body: &Value) -> Result<Vec<PathValue<'_>>, TranslateError> {
    let mut lists = vec![PathValue::top(body, "tools")];
    let input = PathValue::top(body, "input");
    if input.is_array() {
        let more = input.items()?.filter(|it| it["type"] == "additional_tools");
        lists.extend(more.map(|tools| tools.field("tools")));
    }
    Ok(lists)
}

fn add(
    tool: &PathValue<'_>,
    namespace: Option<&str>,
    out: &mut Vec<Value>,
) -> Result<(), TranslateError> {
    tool.object()?;
    match tool.field("type").string()? {
        "function" => out.push(function(tool, namespace)?),
        "custom" => out.push(custom(tool, namespace)?),
        "namespace" if namespace.is_none() => {
            let name = tool.field("name").string()?;
            for tool in tool.field("tools").items()? {
                add(&tool, Some(name), out)?;
            }
        }
        // These are the provider's own.
        _ => {}
    }
    Ok(())
}

fn function(tool: &PathValue<'_>, namespace: Option<&str>) -> Result<Value, TranslateError> {
    let mut function = Map::new();
    let name = tool.field("name").string()?;
    function.insert("name".into(), sent_name(namespace, name).into());
    copy(tool, "description", &mut function, "description");
    if let Some(parameters) = tool.field("parameters").given() {
        let mut schema = parameters.object()?.clone();
        // OpenAI refuses an object without it.
        schema.entry("properties").or_insert_with(|| json!({}));
        function.insert("parameters".into(), schema.into());
    }
    if tool["strict"].as_bool() == Some(true) {
        function.insert("strict".into(), true.into());
    }
    Ok(json!({ "type": "function", "function": function }))
}

fn custom(tool: &PathValue<'_>, namespace: Option<&str>) -> Result<Value, TranslateError> {
    let name = sent_name(namespace, tool.field("name").string()?);
    let format = &tool["format"];
    let form = match filled(&format["definition"]) {
        Some(grammar) => {
            let syntax = filled(&format["syntax"]).unwrap_or("given");
            format!(
                "The field \"{INPUT}\" is one text that follows this {syntax} grammar:\n{grammar}"
            )
        }
        None => format!("Here it is called as a function: the field \"{INPUT}\" is the text."),
    };
    let description = match filled(&tool["description"]) {
        Some(text) => format!("{text}\n\n{form}"),
        None => form,
    };
    let parameters = json!({
        "type": "object",
        "properties": { INPUT: { "type": "string" } },
        "required": [INPUT],
        "additionalProperties": false,
    });
    let function = json!({ "name": name, "description": description, "parameters": parameters });
    Ok(json!({ "type": "function", "function": function }))
}

/// Converts `tool_choice`. For a list of allowed tools, the others are removed.
fn choice(choice: &PathValue<'_>, tools: &mut Vec<Value>) -> Result<Option<Value>, TranslateError> {
    let Some(given) = given(choice) else {
        return Ok(None);
    };
    let allowed =
        "\"auto\", \"none\", \"required\", and functions and custom tools that the request offers";
    let has = |tools: &[Value], name: &str| tools.iter().any(|it| it["function"]["name"] == name);
    let kind = given.as_str().or_else(|| given["type"].as_str());
    match kind {
        Some(kind @ ("auto" | "none")) => Ok(Some(kind.into())),
        Some(kind @ "required") if !tools.is_empty() => Ok(Some(kind.into())),
        Some("function" | "custom") => {
            let name = sent_name(given["namespace"].as_str(), choice.field("name").string()?);
            if !has(tools, &name) {
                return Err(choice.field("name").unsayable(CHAT, allowed));
            }
            Ok(Some(
                json!({ "type": "function", "function": { "name": name } }),
            ))
        }
        Some("allowed_tools") => {
            let named = choice.field("tools");
            let names = named.items()?.filter_map(|tool| {
                Some(sent_name(
                    tool["namespace"].as_str(),
                    tool["name"].as_str()?,
                ))
            });
            let names: Vec<String> = names.collect();
            tools.retain(|tool| names.iter().any(|name| tool["function"]["name"] == **name));
            let mode = choice.field("mode");
            match mode.as_str() {
                Some("required") if tools.is_empty() => Err(choice.unsayable(CHAT, allowed)),
                Some(mode @ ("auto" | "required")) => Ok(Some(mode.into())),
                Some(_) | None => Err(mode.invalid("\"auto\" or \"required\"")),
            }
        }
        // This is one of the provider's own tools, which must be called.
        Some(_) => Err(choice.unsayable(CHAT, allowed)),
        None => Err(choice.invalid("a string or an object with a type")),
    }
}

// === impl ResponseTools ===

impl ResponseTools {
    pub(super) fn of_request(body: &Value) -> Self {
        let mut tools = Self::default();
        for list in lists(body).unwrap_or_default() {
            for tool in list.list().unwrap_or_default() {
                tools.add(tool, None);
            }
        }
        tools
    }

    fn add(&mut self, tool: &Value, namespace: Option<&str>) {
        let Some(name) = tool["name"].as_str() else {
            return;
        };
        match tool["type"].as_str() {
            Some(kind @ ("function" | "custom")) => {
                let sent = sent_name(namespace, name);
                let given = GivenTool {
                    name: name.to_owned(),
                    namespace: namespace.map(str::to_owned),
                    is_custom: kind == "custom",
                };
                if sent != name || given.is_custom {
                    self.0.push((sent, given));
                }
            }
            Some("namespace") if namespace.is_none() => {
                for tool in tool["tools"].as_array().into_iter().flatten() {
                    self.add(tool, Some(name));
                }
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn given(&self, sent: &str) -> GivenTool {
        let known = self.0.iter().find(|(name, _)| name == sent);
        known.map_or_else(
            || GivenTool {
                name: sent.to_owned(),
                namespace: None,
                is_custom: false,
            },
            |(_, given)| given.clone(),
        )
    }
}
