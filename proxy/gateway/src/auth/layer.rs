//! The layer that lets callers in.

use std::{future::ready, sync::Arc};

use http::Request;
use metaclaw_chat::Secret;
use tower::service_fn;

use super::{
    Authenticator,
    caller::{AuthError, Caller, KEY_HEADERS, shown_keys},
};
use crate::{
    handler::{Answer, Handler},
    respond::GatewayError,
    rollouts::{RolloutError, RolloutPath, Rollouts},
    route::{ROLLOUTS, TRAIN_STEP},
};

#[derive(Debug, Clone)]
pub(crate) struct AuthLayer {
    pub authenticator: Arc<Authenticator>,
    /// The token of the admin route only.
    pub admin_token: Secret,
    /// The rollouts that are open, each with a key of its own.
    pub rollouts: Option<Arc<Rollouts>>,
}

// === impl AuthLayer ===

impl AuthLayer {
    fn admit<B>(&self, request: &mut Request<B>) -> Result<(), GatewayError> {
        let caller = match request.extensions().get::<RolloutPath>() {
            Some(path) => {
                let rollouts = self.rollouts.as_ref().ok_or(RolloutError::Unrecorded)?;
                let rollout = rollouts.caller(path, request.headers())?;
                let caller = Caller::Of([rollout.agent.clone()].into());
                // Its key is of use here only.
                for name in &KEY_HEADERS {
                    request.headers_mut().remove(name);
                }
                request.extensions_mut().insert(rollout);
                caller
            }
            None => self.caller(request)?,
        };
        if matches!(caller, Caller::Of(_)) && request.uri().path() == ROLLOUTS {
            let name = self.authenticator.name_of_key(request.headers());
            name.map(|name| request.extensions_mut().insert(name));
        }
        request.extensions_mut().insert(caller);
        Ok(())
    }

    fn caller<B>(&self, request: &Request<B>) -> Result<Caller, AuthError> {
        let headers = request.headers();
        if request.uri().path() != TRAIN_STEP {
            return self.authenticator.authenticate(headers);
        }
        let is_admin = shown_keys(headers).any(|shown| self.admin_token.matches(shown));
        is_admin.then_some(Caller::Any).ok_or(AuthError::NotAdmin)
    }

    pub(crate) fn around<B>(
        self,
        mut inner: impl Handler<B, GatewayError>,
    ) -> impl Handler<B, GatewayError>
    where
        B: Send + 'static,
    {
        service_fn(move |mut request: Request<B>| -> Answer<GatewayError> {
            match self.admit(&mut request) {
                Ok(()) => inner.call(request),
                Err(error) => Box::pin(ready(Err(error))),
            }
        })
    }
}
