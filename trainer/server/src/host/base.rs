//! `base_model`: which model a run needs, and where it is.

use std::path::{Path, PathBuf};

use metaclaw_trainer_text::hub::HubName;

use super::{Host, fetcher::refused};
use crate::{error::Result, fields::cut};

const LOADED: [&str; 3] = ["", "base", "default"];

// === impl Host ===

impl Host {
    /// Checks that the requested model is the loaded one. If no model is loaded, it loads this one.
    ///
    /// # Errors
    /// Returns 400 `base_model` if another one is loaded, or it cannot be found or used. Returns 503 `model_fetching`
    /// while it is downloaded from the hub.
    pub(crate) async fn load_base(&self, wanted: &str) -> Result<()> {
        if self.engine.info().is_none() {
            let (path, name) = self.find(wanted)?;
            self.engine.load_once(path, name).await?;
        }
        if self.is_base(wanted) {
            return Ok(());
        }
        Err(refused(format!(
            "base_model {:?} is not loaded: this server has {:?} and holds one base model; start another for another",
            cut(wanted),
            self.base()
        )))
    }

    fn is_base(&self, wanted: &str) -> bool {
        let path = Path::new(wanted);
        if LOADED.contains(&wanted) || wanted == self.base() || Some(path) == self.engine.path() {
            return true;
        }
        if let Ok(real) = path.canonicalize() {
            let loaded = self.engine.path().and_then(|path| path.canonicalize().ok());
            return loaded == Some(real);
        }
        // It is no path here: the name of a file or folder elsewhere, or at a hub.
        let name = path.file_name().and_then(|name| name.to_str());
        name == Some(self.base())
    }

    /// Returns a path, or the folder of a hub's model and its name.
    fn find(&self, wanted: &str) -> Result<(PathBuf, Option<String>)> {
        if LOADED.contains(&wanted) {
            let text = "base_model is not given and no model is loaded: a folder in Hugging Face form, a GGUF file, or owner/name of one at the Hugging Face hub";
            return Err(refused(text));
        }
        let path = PathBuf::from(wanted);
        if path.exists() {
            return Ok((path, None));
        }
        let shown = cut(wanted);
        let Ok(model) = wanted.parse::<HubName>() else {
            let text = format!(
                "base_model {shown:?} is no file or folder here, and no owner/name of a model"
            );
            return Err(refused(text));
        };
        let path = self.fetcher.place(&model)?;
        Ok((path, Some(model.name().to_owned())))
    }
}
