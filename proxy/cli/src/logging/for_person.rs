//! Formats log lines for a person at a terminal: a turn takes a few words. Files contain every field.

use std::{collections::BTreeMap, fmt};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use crate::out;

/// The targets of lines about turns: see `metaclaw-capture`.
const TURN: &str = "metaclaw::turn";

/// The format of all lines; if `is_terminal`, turns are shortened.
pub(super) struct PersonLines {
    pub is_terminal: bool,
    pub full: Format,
}

#[derive(Default)]
struct PersonFields(BTreeMap<&'static str, String>);

// === impl PersonLines ===

impl<S, N> FormatEvent<S, N> for PersonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !self.is_terminal || event.metadata().target() != TURN {
            return self.full.format_event(context, writer, event);
        }
        let mut fields = PersonFields::default();
        event.record(&mut fields);
        SystemTime.format_time(&mut writer)?;
        // A model's name comes from its provider.
        writeln!(writer, "  turn: {}", out::for_reader(&fields.turn(), true))
    }
}

// === impl PersonFields ===

impl PersonFields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn turn(&self) -> String {
        let of = |name| self.get(name).unwrap_or("?");
        let kind = match self.get("kind") {
            Some("Main") | None => "",
            Some(_) => " (on the side)",
        };
        let adapter = self.get("adapter").map(|it| format!(" with adapter {it}"));
        let end = match self.get("end") {
            Some("Complete") | None => String::new(),
            Some(end) => format!(" {end}"),
        };
        let mut line = format!(
            "{}{kind} asked {} of {}{}: {}{end} in {} ms",
            of("agent"),
            of("model"),
            of("upstream"),
            adapter.unwrap_or_default(),
            of("status"),
            of("total_ms"),
        );
        if let (Some(prompt), Some(completion)) =
            (self.get("prompt_tokens"), self.get("completion_tokens"))
        {
            line = format!("{line}, {prompt} + {completion} tokens");
        }
        if let Some(skills) = self.get("skills").filter(|n| *n != "0") {
            line = format!("{line}, with {skills} skills");
        }
        line
    }
}

impl Visit for PersonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_few_words() {
        let fields = |pairs: &[(&'static str, &str)]| {
            PersonFields(
                pairs
                    .iter()
                    .map(|(name, value)| (*name, (*value).to_owned()))
                    .collect(),
            )
        };
        let whole = fields(&[
            ("agent", "main"),
            ("kind", "Main"),
            ("model", "strong-1"),
            ("upstream", "llm"),
            ("status", "200"),
            ("end", "Complete"),
            ("total_ms", "449"),
            ("prompt_tokens", "12941"),
            ("completion_tokens", "100"),
            ("skills", "2"),
            ("session", "not shown"),
        ]);
        assert_eq!(
            whole.turn(),
            "main asked strong-1 of llm: 200 in 449 ms, 12941 + 100 tokens, with 2 skills"
        );
        let cut = fields(&[
            ("agent", "main"),
            ("kind", "Side"),
            ("model", "base"),
            ("upstream", "policy"),
            ("adapter", "main-1"),
            ("status", "200"),
            ("end", "ClientGone"),
            ("total_ms", "7"),
            ("skills", "0"),
        ]);
        assert_eq!(
            cut.turn(),
            "main (on the side) asked base of policy with adapter main-1: 200 ClientGone in 7 ms"
        );
    }
}
