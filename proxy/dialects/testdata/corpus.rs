//! Reads and compares recorded cases: a caller's request, the request that the upstream should get, the upstream's
//! answer, and the answer that the caller should get. `README.md` describes their format.

use std::{fs, path::Path};

use metaclaw_chat::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Api, Reply};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// A sentence: what went wrong elsewhere, or what is right.
    pub about: String,
    /// Where it was reported.
    #[serde(default)]
    pub source: Option<String>,
    pub caller: Api,
    pub upstream: Api,
    /// The upstream is Anthropic itself.
    #[serde(default)]
    pub is_anthropic: bool,
    pub request: Value,
    /// What the upstream gets: see [`differs`].
    #[serde(default)]
    pub sent: Option<Value>,
    /// Words of the error, where the request is refused.
    #[serde(default)]
    pub refused: Option<String>,
    /// What the upstream may answer. All of them come to the same.
    #[serde(default)]
    pub answers: Vec<Answer>,
    /// What the caller reads of each: `status`, `text`, `thinking`, `calls`, `finish_reason` and `error`.
    #[serde(default)]
    pub reply: Value,
}

/// What an upstream answers: one body, or a stream of data and of lines as they are.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Body(Value),
    Events(Vec<Value>),
}

pub(super) fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dialects/testdata/cases");
    let files = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: &Path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = serde_json::from_slice(&fs::read(path).unwrap());
        let case: Case = case.unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_sound = !case.is_anthropic || case.upstream == Api::Messages;
        assert!(is_sound, "{name}: Anthropic speaks messages");
        (name, case)
    };
    paths.iter().map(|path| read(path)).collect()
}

/// Where `given` is not what a case says. Of an object, only the fields that the case names count; one that it
/// says is `null` must not be there.
pub(super) fn differs(expected: &Value, given: &Value) -> Option<String> {
    match (expected, given) {
        (Value::Object(fields), Value::Object(_)) => fields.iter().find_map(|(name, expected)| {
            differs(expected, &given[name]).map(|why| format!("{name}: {why}"))
        }),
        (Value::Array(list), Value::Array(others)) if list.len() == others.len() => {
            let mut pairs = list.iter().zip(others).enumerate();
            pairs.find_map(|(n, (a, b))| differs(a, b).map(|why| format!("[{n}] {why}")))
        }
        _ => (expected != given).then(|| format!("{given} instead of {expected}")),
    }
}

impl Case {
    pub(super) fn told(&self, name: &str) -> String {
        let source = self.source.as_deref().unwrap_or_default();
        format!("{name}: {} {source}", self.about)
    }

    pub(super) fn wants_stream(&self) -> bool {
        self.request["stream"] == true
    }

    pub(super) fn differs(&self, status: u16, body: &[u8], is_events: bool) -> Option<String> {
        let reply = if is_events {
            self.caller.read_sse(body)
        } else {
            self.caller.read_json(body)
        };
        let read = read(status, &reply);
        let error = self.reply["error"].as_str().unwrap_or_default();
        let said = read["error"].as_str().unwrap_or_default();
        let mut expected = self.reply.clone();
        if !error.is_empty() && said.contains(error) {
            expected["error"] = said.into();
        }
        let ends = !is_events || reply.is_whole() || !said.is_empty();
        let why = differs(&expected, &read).or_else(|| (!ends).then(|| "it has no end".to_owned()));
        why.map(|why| format!("{why}\n{}", String::from_utf8_lossy(body)))
    }
}

impl Answer {
    pub(super) fn is_events(&self) -> bool {
        matches!(self, Self::Events(_))
    }

    /// Its bytes. An event that is a text stands as it is.
    pub(super) fn bytes(&self, api: Api) -> Vec<u8> {
        let event = |event: &Value| match (event, api) {
            (Value::String(raw), _) => raw.clone(),
            (data, Api::Messages) => {
                let kind = data["type"].as_str().unwrap_or_default();
                format!("event: {kind}\ndata: {data}\n\n")
            }
            (data, _) => format!("data: {data}\n\n"),
        };
        match self {
            Self::Body(body) => body.to_string().into_bytes(),
            Self::Events(events) => events.iter().map(event).collect::<String>().into_bytes(),
        }
    }
}

fn read(status: u16, reply: &Reply) -> Value {
    let message = reply.message.as_ref();
    let calls = message.map(Message::tool_calls).unwrap_or_default();
    let call = |arguments: &str, name: &str| {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
        json!([name, arguments])
    };
    let calls = calls.iter().map(|it| call(&it.arguments, &it.name));
    let error = reply
        .error
        .as_ref()
        .map(|error| match error["message"].as_str() {
            Some(message) => message.to_owned(),
            None => error.to_string(),
        });
    json!({
        "status": status,
        "text": message.map(|message| message.text().into_owned()).unwrap_or_default(),
        "thinking": message.and_then(|it| it.get("reasoning_content").cloned()),
        "calls": calls.collect::<Vec<_>>(),
        "finish_reason": reply.finish_reason,
        "error": error,
    })
}
