//! The change to `openclaw.json`, and its reversal.

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::{Entry, Place};
use crate::document::{self, Path, PlaceError, existing, input, object_at, once, prune};

const DEFAULTS: [&str; 2] = ["agents", "defaults"];

/// A record of the change, so that it can be reversed even if others have written the file since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Edit {
    pub(crate) entry: Entry,
    /// `agents.defaults.model` as it was.
    pub(crate) model_before: Value,
    pub(crate) made: Vec<Path>,
}

/// Points the agent at the proxy.
///
/// # Errors
///
/// Returns [`PlaceError`] if the layout is too unusual. Nothing is lost in that case, because nothing is written here.
pub(crate) fn wire(text: &str, entry: Entry) -> Result<(String, Edit), PlaceError> {
    let root = document::parse(text)?;
    let mut made = Vec::new();
    let before = document::value(text)?;
    let model_before = before["agents"]["defaults"]["model"].clone();
    add_entry(&root, &entry, &mut made)?;
    let defaults = object_at(&root, &DEFAULTS, &mut made)?;
    once(&defaults, "model", "agents.defaults.model")?;
    set_model(&defaults, &entry)?;
    let edit = Edit {
        entry,
        model_before,
        made,
    };
    let after = root.to_string();
    // The result is checked: our model is first, and without our keys the file means the same as before.
    let is_right =
        stands(&after, &edit.entry) && document::value(&take_back(&after, &edit)?)? == before;
    if is_right {
        Ok((after, edit))
    } else {
        Err(PlaceError::Syntax(
            "its layout is beyond the editor".to_owned(),
        ))
    }
}

pub(crate) fn stands(text: &str, entry: &Entry) -> bool {
    let Ok(config) = document::value(text) else {
        return false;
    };
    let model = &config["agents"]["defaults"]["model"];
    let primary = model.as_str().or_else(|| model["primary"].as_str());
    primary == Some(&entry.reference()) && entry.is_in(&config)
}

pub(crate) fn has_fallback(text: &str, entry: &Entry) -> bool {
    let config = document::value(text).unwrap_or_default();
    let fallbacks = config["agents"]["defaults"]["model"]["fallbacks"].as_array();
    fallbacks.is_some_and(|all| all.iter().any(|it| *it == entry.former()))
}

/// Removes our keys, and restores the former model if the file still names ours.
///
/// # Errors
///
/// Fails like [`wire`].
pub(crate) fn take_back(text: &str, edit: &Edit) -> Result<String, PlaceError> {
    let root = document::parse(text)?;
    if let Some(defaults) = existing(&root, &DEFAULTS) {
        restore_model(&defaults, edit);
    }
    remove_entry(&root, &edit.entry);
    prune(&root, &edit.made);
    Ok(root.to_string())
}

fn add_entry(root: &CstRootNode, entry: &Entry, made: &mut Vec<Path>) -> Result<(), PlaceError> {
    let providers = object_at(root, &["models", "providers"], made)?;
    let taken = |place: String| {
        Err(PlaceError::Twice(format!(
            "{place} (which is there already)"
        )))
    };
    match &entry.place {
        Place::Provider => {
            if providers.get(entry.provider()).is_some() {
                return taken(format!("models.providers.{}", entry.provider()));
            }
            providers.append(entry.provider(), input(&entry.value));
        }
        Place::Model { provider } => {
            let place = ["models", "providers", provider];
            let models = object_at(root, &place, made)?;
            once(&models, "models", "models.providers.*.models")?;
            if models.get("models").is_none() {
                made.push(
                    ["models", "providers", provider, "models"]
                        .map(str::to_owned)
                        .into(),
                );
            }
            let place = format!("models.providers.{provider}.models");
            let list = models.array_value_or_create("models");
            let list = list.ok_or(PlaceError::NoObject(place))?;
            list.ensure_multiline();
            list.append(input(&entry.value));
        }
    }
    Ok(())
}

fn remove_entry(root: &CstRootNode, entry: &Entry) {
    match &entry.place {
        Place::Provider => {
            let providers = existing(root, &["models", "providers"]);
            if let Some(ours) = providers.and_then(|it| it.get(entry.provider())) {
                ours.remove();
            }
        }
        Place::Model { provider } => {
            let above = existing(root, &["models", "providers", provider]);
            let Some(list) = above.and_then(|it| it.array_value("models")) else {
                return;
            };
            for element in list.elements() {
                let value = element.to_serde_value().unwrap_or_default();
                if value["id"] == entry.value["id"] {
                    element.remove();
                }
            }
        }
    }
}

/// Sets our model first, then the former one, then the former fallbacks.
fn set_model(defaults: &CstObject, entry: &Entry) -> Result<(), PlaceError> {
    let (ours, former) = (entry.reference(), entry.former());
    let Some(model) = defaults.get("model").and_then(|it| it.object_value()) else {
        let whole = json!({"primary": ours, "fallbacks": [former]});
        match defaults.get("model") {
            Some(property) => property.set_value(input(&whole)),
            None => drop(defaults.append("model", input(&whole))),
        }
        return Ok(());
    };
    for name in ["primary", "fallbacks", "$include"] {
        once(&model, name, &format!("agents.defaults.model.{name}"))?;
    }
    if model.get("$include").is_some() {
        return Err(PlaceError::Included("agents.defaults.model".to_owned()));
    }
    set(&model, "primary", ours.into());
    match model.get("fallbacks") {
        None => drop(model.append("fallbacks", vec![former].into())),
        Some(property) => {
            let place = || PlaceError::NoObject("agents.defaults.model.fallbacks".to_owned());
            let list = property.array_value().ok_or_else(place)?;
            list.insert(0, former.into());
        }
    }
    Ok(())
}

fn restore_model(defaults: &CstObject, edit: &Edit) {
    let Some(property) = defaults.get("model") else {
        return;
    };
    let (ours, former) = (edit.entry.reference(), edit.entry.former());
    let left = json!({"primary": ours, "fallbacks": [former]});
    let now = property.to_serde_value().unwrap_or_default();
    if !edit.model_before.is_object() && (now == left || now == ours.as_str()) {
        property.set_value(input(&edit.model_before));
        return;
    }
    let Some(model) = property.object_value() else {
        return;
    };
    if now["primary"] == ours.as_str() {
        let before = &edit.model_before;
        let primary = before.as_str().or_else(|| before["primary"].as_str());
        set(&model, "primary", primary.unwrap_or(&former).into());
        remove_fallback(&model, 0, &former);
    }
    // Somebody who changed the model may have kept ours as a fallback, which would no longer work.
    let fallbacks = now["fallbacks"].as_array().cloned().unwrap_or_default();
    for index in (0..fallbacks.len()).rev() {
        remove_fallback(&model, index, &ours);
    }
    let is_empty = model
        .array_value("fallbacks")
        .is_some_and(|it| it.elements().is_empty());
    if is_empty
        && edit.model_before["fallbacks"].is_null()
        && let Some(fallbacks) = model.get("fallbacks")
    {
        fallbacks.remove();
    }
}

fn remove_fallback(model: &CstObject, index: usize, name: &str) {
    let element = model
        .array_value("fallbacks")
        .and_then(|it| it.elements().get(index).cloned());
    if let Some(element) = element
        && element.to_serde_value().is_some_and(|it| it == name)
    {
        element.remove();
    }
}

fn set(object: &CstObject, name: &str, value: CstInputValue) {
    match object.get(name) {
        Some(property) => property.set_value(value),
        None => drop(object.insert(0, name, value)),
    }
}
