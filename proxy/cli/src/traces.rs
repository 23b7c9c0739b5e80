//! Traces of turns, for those who run an OpenTelemetry collector: the feature `otel`. Without it there
//! is nothing here but a word to those who ask for traces all the same.

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Subscriber;
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::environment::Environment;

#[cfg(feature = "otel")]
mod otel;

/// What is still to be sent on; nothing where no collector is named.
#[derive(Debug)]
pub(crate) struct Traces {
    #[cfg(feature = "otel")]
    exporter: Option<otel::Exporter>,
    #[cfg(not(feature = "otel"))]
    is_asked_for: bool,
}

/// What hears of turns, and what sends them on.
///
/// # Errors
/// Names the variable that cannot be used.
#[cfg(feature = "otel")]
pub(crate) fn of<S>(
    environment: &Environment,
) -> anyhow::Result<(Option<impl Layer<S> + use<S>>, Traces)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    use tracing_subscriber::filter::filter_fn;

    let (turns, exporter) = otel::from(environment)?.unzip();
    let turns = turns.map(|turns| turns.with_filter(filter_fn(otel::Turns::wants)));
    Ok((turns, Traces { exporter }))
}

/// Nothing.
///
/// # Errors
/// None.
#[cfg(not(feature = "otel"))]
#[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
pub(crate) fn of<S>(
    environment: &Environment,
) -> anyhow::Result<(Option<impl Layer<S> + use<S>>, Traces)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_asked_for = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
    let nothing = None::<tracing_subscriber::layer::Identity>;
    Ok((nothing, Traces { is_asked_for }))
}

// === impl Traces ===

impl Traces {
    /// Sends them on until `stop`.
    #[cfg(feature = "otel")]
    pub(crate) fn export(self, tasks: &TaskTracker, stop: &CancellationToken) {
        if let Some(exporter) = self.exporter {
            let url = exporter.url();
            tracing::info!(
                url,
                "a span of each turn, without its text, goes to the collector"
            );
            tasks.spawn(exporter.run(stop.clone()));
        }
    }

    /// Says that there are none.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn export(self, _: &TaskTracker, _: &CancellationToken) {
        if self.is_asked_for {
            tracing::warn!(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, and this program was built without the feature otel: no traces"
            );
        }
    }
}
