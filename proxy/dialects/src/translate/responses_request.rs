//! A request of Responses as a chat one.
//!
//! What a model says in one turn is several items there, and one message here. A `previous_response_id` is not looked
//! at: what it stands for has been put in front by then ([`super::go_on`]).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
};

use serde_json::{Map, Value, json};

use super::{
    accounting,
    at::{CHAT, PathValue},
    chat_messages::{add_system, add_user, text_part, tool_message},
    content::{Place, as_text, typed_url},
    effort,
    error::TranslateError,
    names, own_reasoning,
    params::{self, Says},
    responses_tools,
    wire::{copy, filled},
};
use crate::calls::{arguments_text, function_call};

const NO_RESULT: &str = "(no result)";
#[derive(Default)]
struct Conversation<'a> {
    messages: Vec<Value>,
    /// What the model said since the last message of another's.
    reply: ResponsesReply,
    results: Results<'a>,
    /// Images of tools' results, which go with the user's next words.
    images: Vec<Value>,
}

/// What tools returned. Chat wants it right behind the reply with the calls, wherever it stands.
#[derive(Default)]
struct Results<'a> {
    of_calls: HashMap<&'a str, VecDeque<(usize, PathValue<'a>)>>,
    placed: HashSet<usize>,
}

#[derive(Default)]
struct ResponsesReply {
    reasoning: Vec<String>,
    signed: Vec<Value>,
    texts: Vec<String>,
    /// The calls, each with the id by which its result is found.
    calls: Vec<(String, Value)>,
}

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    PathValue::new("the body", body).object()?;
    refuse_unsayable(body)?;
    let mut conversation = Conversation::default();
    let instructions = PathValue::top(body, "instructions");
    if instructions.is_array() {
        for message in instructions.items()? {
            conversation.message(&message, Place::New)?;
        }
    } else if let Some(instructions) = instructions.given() {
        conversation.system(&[text_part(instructions.string()?)])?;
    }
    let input = PathValue::top(body, "input");
    if input.is_string() {
        conversation.user(vec![text_part(input.string()?)])?;
    } else {
        let items: Vec<PathValue<'_>> = input.items()?.collect();
        conversation.results = Results::of_items(&items);
        let last_reply = items.iter().rposition(|item| is_models(item));
        for (n, item) in items.iter().enumerate() {
            let place = match last_reply {
                Some(last) if n <= last => Place::History,
                Some(_) | None => Place::New,
            };
            conversation.item(n, item, place)?;
        }
    }
    let messages = conversation.finish()?;
    if messages.is_empty() {
        return Err(input.invalid("a text, or at least one item that says something"));
    }
    let mut out = Map::new();
    copy(body, "model", &mut out, "model");
    out.insert("messages".into(), messages.into());
    params(body, &mut out)?;
    Ok(Value::Object(out))
}

fn is_models(item: &Value) -> bool {
    match item["role"].as_str() {
        Some(role) => role == "assistant",
        None => item["type"]
            .as_str()
            .is_some_and(|kind| !kind.ends_with("_output")),
    }
}

// === the conversation ===

impl Conversation<'_> {
    fn item(&mut self, n: usize, item: &PathValue<'_>, place: Place) -> Result<(), TranslateError> {
        if item.is_string() {
            return self.user(vec![text_part(item.string()?)]);
        }
        item.object()?;
        match item["type"].as_str() {
            // With the tools; and what only its maker can read.
            Some("additional_tools" | "compaction" | "compaction_trigger") => {}
            Some("reasoning") => self.reasoning(item),
            Some("function_call") => self.call(item, &arguments_text(&item["arguments"])),
            Some("custom_tool_call") => {
                let input = item["input"].as_str().unwrap_or_default();
                self.call(item, &responses_tools::arguments(input));
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                self.end_reply()?;
                if !self.results.placed.contains(&n) {
                    // A client that summed its history up may have lost the call.
                    self.user(vec![text_part(&as_text(item))])?;
                }
            }
            Some("item_reference") => {
                let allowed = "the item itself, as upstream keeps none";
                return Err(item.field("type").unsayable(CHAT, allowed));
            }
            None | Some("message") => self.message(item, place)?,
            // Of a tool that chat has no word for: what it did is said as text.
            Some(_) if is_models(item) => self.reply.texts.push(as_text(item)),
            Some(_) => self.user(vec![text_part(&as_text(item))])?,
        }
        Ok(())
    }

    fn message(&mut self, message: &PathValue<'_>, place: Place) -> Result<(), TranslateError> {
        let content = message.field("content");
        match message["role"].as_str() {
            Some("system" | "developer") => self.system(&parts(&content, place)?)?,
            Some("user") => self.user(parts(&content, place)?)?,
            Some("assistant") => {
                let texts = parts(&content, Place::History)?.into_iter();
                let texts = texts.map(|part| match part["text"].as_str() {
                    Some(text) => text.to_owned(),
                    None => as_text(&part),
                });
                let text: String = texts.collect();
                self.reply
                    .texts
                    .extend(Some(text).filter(|text| !text.is_empty()));
            }
            Some(_) | None => {
                let allowed = "\"user\", \"assistant\", \"system\" and \"developer\"";
                return Err(message.field("role").unsayable_kind(CHAT, allowed));
            }
        }
        Ok(())
    }

    fn system(&mut self, parts: &[Value]) -> Result<(), TranslateError> {
        self.end_reply()?;
        let texts = parts.iter().filter_map(|part| part["text"].as_str());
        let texts = texts.map(accounting::without).filter(|it| !it.is_empty());
        let text = texts.collect::<Vec<_>>().join("\n\n");
        self.flush_images();
        add_system(&mut self.messages, &text, flat);
        Ok(())
    }

    fn user(&mut self, parts: Vec<Value>) -> Result<(), TranslateError> {
        self.end_reply()?;
        self.flush_images();
        add_user(&mut self.messages, parts, flat);
        Ok(())
    }

    fn reasoning(&mut self, item: &Value) {
        let texts = |list: &str| -> Vec<String> {
            let texts = item[list].as_array().into_iter().flatten();
            let texts = texts.filter_map(|part| filled(&part["text"]));
            texts.map(str::to_owned).collect()
        };
        let mut said = texts("content");
        if said.is_empty() {
            said = texts("summary");
        }
        self.reply.reasoning.append(&mut said);
        self.reply.signed.extend(own_reasoning::signed(item));
    }

    fn call(&mut self, item: &PathValue<'_>, arguments: &str) {
        match (filled(&item["call_id"]), filled(&item["name"])) {
            (Some(id), Some(name)) => {
                let name = responses_tools::sent_name(item["namespace"].as_str(), name);
                let call = function_call(&names::chat_id(id).into(), &name.into(), arguments);
                self.reply.calls.push((id.to_owned(), call));
            }
            _ => self.reply.texts.push(as_text(item)),
        }
    }

    /// What the model said is a message, and the results of its calls follow: servers refuse a history in which one
    /// is missing.
    fn end_reply(&mut self) -> Result<(), TranslateError> {
        let ResponsesReply {
            reasoning,
            signed,
            texts,
            calls,
        } = mem::take(&mut self.reply);
        if texts.is_empty() && calls.is_empty() {
            return Ok(());
        }
        self.flush_images();
        let mut message = json!({ "role": "assistant", "content": texts.join("\n") });
        if texts.is_empty() {
            message["content"] = Value::Null;
        }
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.join("\n\n").into();
        }
        if !signed.is_empty() {
            message["thinking_blocks"] = signed.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(|(_, call)| call.clone()).collect();
        }
        self.messages.push(message);
        for (id, ..) in &calls {
            let result = match self.results.take(id) {
                Some(result) => parts(&result.field("output"), Place::History)?,
                None => vec![text_part(NO_RESULT)],
            };
            self.messages
                .push(tool_message(id, result, &mut self.images));
        }
        Ok(())
    }

    fn flush_images(&mut self) {
        add_user(&mut self.messages, mem::take(&mut self.images), flat);
    }

    fn finish(mut self) -> Result<Vec<Value>, TranslateError> {
        self.end_reply()?;
        self.flush_images();
        Ok(self.messages)
    }
}

// === impl Results ===

impl<'a> Results<'a> {
    fn of_items(items: &[PathValue<'a>]) -> Self {
        let mut of_calls: HashMap<_, VecDeque<_>> = HashMap::new();
        for (n, item) in items.iter().enumerate() {
            let kind = item["type"].as_str().unwrap_or_default();
            let is_result = kind == "function_call_output" || kind == "custom_tool_call_output";
            let id = item.value["call_id"].as_str().filter(|_| is_result);
            if let Some(id) = id {
                of_calls.entry(id).or_default().push_back((n, item.clone()));
            }
        }
        Self {
            of_calls,
            placed: HashSet::new(),
        }
    }

    fn take(&mut self, call_id: &str) -> Option<PathValue<'a>> {
        let (n, result) = self.of_calls.get_mut(call_id)?.pop_front()?;
        self.placed.insert(n);
        Some(result)
    }
}

fn parts(content: &PathValue<'_>, place: Place) -> Result<Vec<Value>, TranslateError> {
    match content.value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text_part(text)]),
        Value::Array(_) => content.items()?.map(|item| part(&item, place)).collect(),
        // What else a tool may return.
        _ if place == Place::History => Ok(vec![text_part(&as_text(content))]),
        _ => Err(content.invalid("a string or a list of parts")),
    }
}

fn part(part: &PathValue<'_>, place: Place) -> Result<Value, TranslateError> {
    match new_part(part) {
        Err(_) if place == Place::History => Ok(text_part(&as_text(part))),
        part => part,
    }
}

fn new_part(part: &PathValue<'_>) -> Result<Value, TranslateError> {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
            Ok(text_part(part.field("text").string()?))
        }
        Some("refusal") => Ok(text_part(part.field("refusal").string()?)),
        Some("input_image") => {
            let url = part.field("image_url");
            let Some(url) = url.as_str() else {
                let allowed = "its address or its bytes in \"image_url\"";
                return Err(part.field("file_id").unsayable(CHAT, allowed));
            };
            let mut image = json!({ "url": typed_url(url) });
            if let Some(detail @ ("low" | "high" | "auto")) = part["detail"].as_str() {
                image["detail"] = detail.into();
            }
            Ok(json!({ "type": "image_url", "image_url": image }))
        }
        Some("input_file") => {
            let Some(data) = filled(&part["file_data"]) else {
                let by = ["file_id", "file_url"].map(|name| part.field(name));
                let by = by.into_iter().find_map(PathValue::given);
                let by = by.unwrap_or_else(|| part.field("file_data"));
                return Err(by.unsayable(CHAT, "the file itself as \"file_data\""));
            };
            let mut file = json!({ "file_data": typed_url(data) });
            if let Some(name) = filled(&part["filename"]) {
                file["filename"] = name.into();
            }
            Ok(json!({ "type": "file", "file": file }))
        }
        Some("input_audio") => {
            let audio = part.field("input_audio");
            audio.object()?;
            Ok(json!({ "type": "input_audio", "input_audio": audio.value }))
        }
        _ => {
            let allowed = "\"input_text\", \"input_image\", \"input_file\" and \"input_audio\"";
            Err(part.field("type").unsayable_kind(CHAT, allowed))
        }
    }
}

/// Texts alone as one string, which every server takes.
fn flat(parts: Vec<Value>) -> Value {
    let texts = parts.iter().map(|part| part["text"].as_str());
    match texts.collect::<Option<Vec<_>>>() {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(parts),
    }
}

// === all else ===

fn refuse_unsayable(body: &Value) -> Result<(), TranslateError> {
    let is_false: Says = |value| value.as_bool() == Some(false);
    let is_zero: Says = |value| value.as_u64() == Some(0);
    let items = "the items themselves in \"input\"";
    let text = "its text in \"instructions\" or \"input\"";
    let fields = [
        ("background", is_false, "false"),
        ("conversation", Value::is_null, items),
        ("prompt", Value::is_null, text),
        ("top_logprobs", is_zero, "0"),
    ];
    params::refuse(body, CHAT, &fields)
}

fn params(body: &Value, out: &mut Map<String, Value>) -> Result<(), TranslateError> {
    let user = filled(&body["safety_identifier"]).or_else(|| filled(&body["user"]));
    params::shared_to_chat(
        body,
        "max_output_tokens",
        &["temperature", "top_p"],
        user,
        out,
    );
    format(&PathValue::top(body, "text").field("format"), out)?;
    responses_tools::to_chat(body, out)?;
    effort::to_chat(body, out);
    Ok(())
}

fn format(format: &PathValue<'_>, out: &mut Map<String, Value>) -> Result<(), TranslateError> {
    let format = match format["type"].as_str() {
        None if format.is_null() => return Ok(()),
        Some("text") => return Ok(()),
        Some("json_object") => json!({ "type": "json_object" }),
        Some("json_schema") => {
            let mut schema = Map::new();
            let name = filled(&format["name"]).unwrap_or("reply");
            schema.insert("name".into(), name.into());
            for name in ["description", "strict"] {
                copy(format, name, &mut schema, name);
            }
            schema.insert(
                "schema".into(),
                format.field("schema").object()?.clone().into(),
            );
            json!({ "type": "json_schema", "json_schema": schema })
        }
        Some(_) | None => {
            let allowed = "\"text\", \"json_schema\" and \"json_object\"";
            return Err(format.field("type").unsayable(CHAT, allowed));
        }
    };
    out.insert("response_format".into(), format);
    Ok(())
}
