//! Reads the files beside a tokenizer: its configuration and the chat templates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{ModelFileError, error::Result, regular, template::ChatTemplate};

pub(super) fn read(file: &Path) -> Result<Vec<u8>> {
    let read = regular(file).and_then(std::fs::read);
    read.map_err(ModelFileError::reading(file))
}

/// `tokenizer_config.json`, which a model may lack.
pub(super) struct TokenizerConfig {
    file: PathBuf,
    pub(super) json: Value,
    /// `bos_token` and similar tokens, which templates write themselves.
    pub(super) special: BTreeMap<String, String>,
}

impl TokenizerConfig {
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let file = dir.join("tokenizer_config.json");
        let json: Value = if file.exists() {
            serde_json::from_slice(&read(&file)?)
                .map_err(|error| ModelFileError::damaged(&file, error))?
        } else {
            Value::Null
        };
        let special = special_tokens(&json);
        Ok(Self {
            file,
            json,
            special,
        })
    }

    /// Returns the chat template, and the one for conversations with tools if the model has two.
    ///
    /// As in `transformers`, separate files take precedence over this one, and a template named `tool_use` is used if
    /// there are tools.
    pub(super) fn templates(
        &self,
        dir: &Path,
    ) -> Result<(Option<ChatTemplate>, Option<ChatTemplate>)> {
        let extra = dir.join("additional_chat_templates");
        let find = |name: &str, files: &[PathBuf]| {
            let (file, source) = match files.iter().find(|file| file.exists()) {
                Some(file) => (file.clone(), Some(template_text(file)?)),
                None => (self.file.clone(), named_template(&self.json, name)),
            };
            let template = source.map(|source| ChatTemplate::new(&source, self.special.clone()));
            template
                .transpose()
                .map_err(|detail| ModelFileError::template(&file, detail))
        };
        let default = [dir.join("chat_template.jinja"), extra.join("default.jinja")];
        let default = match find("default", &default)? {
            // Models that read images had it in this file before they had a separate file.
            None => processor_template(&dir.join("chat_template.json"), &self.special)?,
            found => found,
        };
        Ok((default, find("tool_use", &[extra.join("tool_use.jinja")])?))
    }
}

fn template_text(file: &Path) -> Result<String> {
    String::from_utf8(read(file)?).map_err(|error| ModelFileError::template(file, error))
}

fn processor_template(
    file: &Path,
    special: &BTreeMap<String, String>,
) -> Result<Option<ChatTemplate>> {
    if !file.exists() {
        return Ok(None);
    }
    let json: Value = serde_json::from_slice(&read(file)?)
        .map_err(|error| ModelFileError::template(file, error))?;
    let source = named_template(&json, "default");
    let template = source.map(|source| ChatTemplate::new(&source, special.clone()));
    template
        .transpose()
        .map_err(|detail| ModelFileError::template(file, detail))
}

/// Returns the template with this name. If there is only one, it is the default.
fn named_template(config: &Value, name: &str) -> Option<String> {
    let template = config.get("chat_template")?;
    let is_named = |it: &&Value| it["name"] == name;
    let named = template.as_array().into_iter().flatten().find(is_named);
    let single = template.as_str().filter(|_| name == "default");
    single
        .or_else(|| named?["template"].as_str())
        .map(str::to_owned)
}

fn special_tokens(config: &Value) -> BTreeMap<String, String> {
    let fields = config.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| key.ends_with("_token"))
        .filter_map(|(key, value)| {
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some((key.clone(), text.to_owned()))
        })
        .collect()
}
