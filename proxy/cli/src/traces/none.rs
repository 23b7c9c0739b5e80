//! No traces: the program was built without the feature `otel`.

use http::HeaderMap;
use tracing::{Span, Subscriber, warn};
use tracing_subscriber::{Layer, layer::Identity, registry::LookupSpan};

use crate::environment::Environment;

#[derive(Debug)]
pub(crate) struct Traces {
    is_asked_for: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
pub(crate) fn layer<S>(
    environment: &Environment,
) -> anyhow::Result<(Option<impl Layer<S> + use<S>>, Traces)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_asked_for = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
    Ok((None::<Identity>, Traces { is_asked_for }))
}

pub(crate) fn set_parent(_: &Span, _: &HeaderMap) {}

// === impl Traces ===

impl Traces {
    pub(crate) fn log_target(&self) {
        if self.is_asked_for {
            warn!(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, and this program was built without the feature otel: no traces"
            );
        }
    }

    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn end(self) {}
}
