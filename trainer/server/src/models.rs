//! Chooses the adapter for requests that name no model.

use std::sync::{Mutex, PoisonError};

use metaclaw_trainer_api::AdapterName;
use metaclaw_trainer_chat::{BASE, DEFAULT};

use crate::{error::ApiError, host::Host};

/// The adapter that serves requests without a model's name.
#[derive(Debug, Default)]
pub(crate) struct DefaultAdapter {
    /// The adapter that this process saved last, as the fork's server serves it. After a restart it is the base until
    /// the next save. Our gateway always names an adapter.
    last_saved: Mutex<Option<AdapterName>>,
}

// === impl DefaultAdapter ===

impl DefaultAdapter {
    /// A new adapter is there: requests that name none go to it from now on.
    pub(crate) fn saved(&self, name: AdapterName) {
        *self
            .last_saved
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    /// Checks that an adapter may be deleted, which is not allowed for the default adapter.
    ///
    /// # Errors
    /// Returns 409.
    pub(crate) fn check_unused(&self, name: &AdapterName) -> Result<(), ApiError> {
        if self.last_saved().as_ref() != Some(name) {
            return Ok(());
        }
        let text = format!(
            "adapter {name} is in use: it was saved last, so requests that name no model go to it; save another first"
        );
        Err(ApiError::adapter_in_use(text))
    }

    /// Returns the default adapter.
    pub(crate) fn last_saved(&self) -> Option<AdapterName> {
        let last = self.last_saved.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks an adapter's name: a name that means the base model could never be requested.
    ///
    /// # Errors
    /// Returns 400 with the field.
    pub(crate) fn check_free(name: &AdapterName, host: &Host) -> Result<(), ApiError> {
        let name = name.as_str();
        if name != BASE && name != DEFAULT && name != host.base() {
            return Ok(());
        }
        let text =
            format!("name {name:?} is not allowed for an adapter: it asks for another model");
        Err(ApiError::field("name", text))
    }
}
