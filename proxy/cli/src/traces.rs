//! Traces of requests for an OpenTelemetry collector: the feature `otel`. Without the feature, there is only a message
//! for those who ask for traces.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use self::none::{Traces, layer, set_parent};
#[cfg(feature = "otel")]
pub(crate) use self::otel::{Traces, layer, set_parent};
