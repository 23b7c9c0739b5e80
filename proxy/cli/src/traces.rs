//! Traces of requests, for those who run an OpenTelemetry collector: the feature `otel`. Without it
//! there is nothing here but a word to those who ask for traces all the same.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use self::none::{Traces, layer, set_parent};
#[cfg(feature = "otel")]
pub(crate) use self::otel::{Traces, layer, set_parent};
