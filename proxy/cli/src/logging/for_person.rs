//! Formats log lines: on a terminal the time and plain words, in a file every field, each once.

use std::fmt::{self, Write as _};

use jiff::Zoned;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{Format, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use crate::out;

/// The targets of lines about turns: see `metaclaw-capture`.
const TURN: &str = "metaclaw::turn";
const MESSAGE: &str = "message";

/// The format of all lines.
pub(super) struct PersonLines {
    pub is_terminal: bool,
    pub full: Format,
}

/// The fields of a line in their order, the message among them.
#[derive(Default)]
struct LineFields(Vec<(&'static str, String)>);

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
        let metadata = event.metadata();
        let is_turn = metadata.target() == TURN;
        if !self.is_terminal && !is_turn {
            return self.full.format_event(context, writer, event);
        }
        let mut fields = LineFields::default();
        event.record(&mut fields);
        if !self.is_terminal {
            // The span has some of a turn's fields as well.
            let span = context.lookup_current().and_then(|span| {
                let fields = span
                    .extensions()
                    .get::<FormattedFields<N>>()?
                    .fields
                    .clone();
                Some(format!("{}{{{fields}}}: ", span.name()))
            });
            let span = span.unwrap_or_default();
            let fields = fields.beyond(&span);
            SystemTime.format_time(&mut writer)?;
            return writeln!(
                writer,
                " {:>5} {span}{TURN}: turn{fields}",
                metadata.level()
            );
        }
        let words = if is_turn {
            fields.turn()
        } else {
            fields.words(metadata)
        };
        let time = Zoned::now().strftime("%H:%M:%S");
        // A model's name comes from its provider.
        writeln!(writer, "{time}  {}", out::for_reader(&words, true))
    }
}

// === impl LineFields ===

impl LineFields {
    fn get(&self, name: &str) -> Option<&str> {
        let field = self.0.iter().find(|(given, _)| *given == name);
        field.map(|(_, value)| value.trim_matches('"'))
    }

    /// The fields that `span` does not have, as text.
    fn beyond(&self, span: &str) -> String {
        let is_there = |name: &str| {
            let mut parts = span.split([' ', '{']);
            parts.any(|part| part.split_once('=').is_some_and(|(its, _)| its == name))
        };
        let new = self.0.iter();
        let new = new.filter(|(name, _)| *name != MESSAGE && !is_there(name));
        new.fold(String::new(), |mut text, (name, value)| {
            let _ = write!(text, " {name}={value}");
            text
        })
    }

    /// A line that is about no turn: its message, and its fields in brackets.
    fn words(&self, metadata: &Metadata<'_>) -> String {
        let level = match *metadata.level() {
            Level::ERROR => "error: ".to_owned(),
            Level::WARN => "warning: ".to_owned(),
            Level::INFO => String::new(),
            level => format!("{} {}: ", level.as_str().to_lowercase(), metadata.target()),
        };
        let message = self.0.iter().find(|(name, _)| *name == MESSAGE);
        let message = message.map_or("", |(_, message)| message);
        let fields = self.beyond("");
        match fields.trim_start() {
            "" => format!("{level}{message}"),
            fields => format!("{level}{message} ({fields})"),
        }
    }

    fn turn(&self) -> String {
        let of = |name| self.get(name).unwrap_or("?");
        let kind = match self.get("kind") {
            Some("Main") | None => "",
            Some(_) => " (a request beside the conversation)",
        };
        let adapter = self.get("adapter").map(|it| format!(" with adapter {it}"));
        let outcome = match (self.get("end"), of("status")) {
            (Some("Complete") | None, "200") => "answered".to_owned(),
            (Some("Complete") | None, status) => format!("answered {status}"),
            (Some(end), status) => format!("{status} {end}"),
        };
        let mut line = format!(
            "{}{kind} asked {} of {}{}: {outcome} in {} ms",
            of("agent"),
            of("model"),
            of("upstream"),
            adapter.unwrap_or_default(),
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

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::fmt::format;

    use super::*;

    #[test]
    fn a_turn_is_a_few_words() {
        let fields = |pairs: &[(&'static str, &str)]| {
            LineFields(
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
            "main asked strong-1 of llm: answered in 449 ms, 12941 + 100 tokens, with 2 skills"
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
            "main (a request beside the conversation) asked base of policy with adapter main-1: 200 ClientGone in 7 ms"
        );
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written, without the time, of two lines in a request.
    fn written(is_terminal: bool) -> String {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(PersonLines {
                is_terminal,
                full: format(),
            })
            .finish();
        tracing::subscriber::with_default(lines, || {
            let span = tracing::info_span!("request", api = "chat", agent = "main");
            let _in = span.enter();
            tracing::info!(target: TURN, api = "chat", agent = "main", model = "m", "turn");
            tracing::warn!(n = 2, "it rains");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(_, line)| line.trim())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_terminal_has_words_and_a_file_each_field_once() {
        insta::assert_snapshot!(written(true), @r"
        main asked m of ?: answered ? in ? ms
        warning: it rains (n=2)
        ");
        insta::assert_snapshot!(written(false), @r#"
        INFO request{api="chat" agent="main"}: metaclaw::turn: turn model="m"
        WARN request{api="chat" agent="main"}: metaclaw::logging::for_person::tests: it rains n=2
        "#);
    }
}
