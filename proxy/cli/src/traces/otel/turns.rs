//! From the line of a turn to its span.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer};

use super::span;

/// What the gateway says of turns.
const TARGET: &str = "metaclaw::turn";

/// Hears of turns and hands their spans on.
#[derive(Debug)]
pub(in crate::traces) struct Turns {
    spans: Sender<Value>,
    is_full: AtomicBool,
}

/// The fields of one line.
#[derive(Debug, Default)]
pub(super) struct Fields(pub(super) Map<String, Value>);

// === impl Turns ===

impl Turns {
    pub(super) fn new(spans: Sender<Value>) -> Self {
        Self {
            spans,
            is_full: AtomicBool::new(false),
        }
    }

    /// Whether a line is one of those that [`Turns`] is for: its filter.
    pub(in crate::traces) fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn hand_on(&self, span: Value) {
        let is_full = self.spans.try_send(span).is_err();
        let was_full = self.is_full.swap(is_full, Ordering::Relaxed);
        if is_full && !was_full {
            tracing::warn!("the collector of traces is too slow: spans are dropped");
        }
    }
}

impl<S: Subscriber> Layer<S> for Turns {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(span) = span::of(fields) {
            self.hand_on(span);
        }
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.0.insert(field.name().to_owned(), text.into());
    }
}
