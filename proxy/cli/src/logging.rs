//! Writes log lines to standard error, which `-d` redirects into a file in the home folder.
//!
//! A separate thread writes them, so that a terminal stopped with Ctrl-S, or a pipe without a reader, stops no chat:
//! lines beyond the queue are dropped and counted.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal, Write},
    panic,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use metaclaw_learner::{WITH_WORDS, WITHOUT_WORDS};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer, filter::filter_fn, fmt::format, layer::SubscriberExt, util::SubscriberInitExt,
};

use self::for_person::PersonLines;
use crate::{
    environment::Environment,
    out,
    traces::{self, Traces},
};

mod for_person;

/// The number of lines that may wait to be written; each is cut at [`MAX_LINE`] bytes.
const QUEUE: usize = 4_096;
const MAX_LINE: usize = 4 << 10;
/// `metaclaw.log` is rotated at this size, and one older file is kept.
const MAX_FILE: u64 = 16 << 20;
/// The longest time that the first lines wait for the banner.
const HOLD: Duration = Duration::from_secs(2);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Logging {
    /// What is sent to a collector.
    pub traces: Traces,
    /// Counts the lines that were dropped.
    pub dropped: ErrorCounter,
    /// Holds the first lines back.
    pub gate: LogGate,
    /// The writer's guard, for [`end`].
    pub writer: WorkerGuard,
    /// What to say of a filter that cannot be used.
    pub bad_filter: Option<String>,
}

struct LogLine {
    queue: NonBlocking,
    gate: LogGate,
}

/// In a terminal, the banner comes first: the lines of the start wait here until it is printed, or a moment has passed.
#[derive(Debug, Clone)]
pub(crate) struct LogGate(Arc<Mutex<Option<HeldLines>>>);

#[derive(Debug)]
struct HeldLines {
    queue: NonBlocking,
    lines: Vec<Vec<u8>>,
    until: Instant,
}

struct LogFile {
    path: PathBuf,
    file: File,
}

/// Begins to log, to standard error or to `file`, if standard error is redirected there. `RUST_LOG` chooses what is
/// logged, for example `debug` or `metaclaw_learner=debug`, and without it `level`; traces get every request.
///
/// # Errors
/// Returns an error if traces are requested and cannot be sent, or the file cannot be written.
pub(crate) fn begin(
    environment: &Environment,
    level: &str,
    file: Option<PathBuf>,
) -> anyhow::Result<Logging> {
    let (filter, bad_filter) = filter(environment.get("RUST_LOG"), level);
    let builder = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE)
        .thread_name("log");
    // What is written into a file stays there when the words are to be deleted.
    let hidden = if file.is_none() && io::stderr().is_terminal() {
        WITHOUT_WORDS
    } else {
        WITH_WORDS
    };
    let (queue, writer) = match file {
        Some(path) => builder.finish(LogFile::open(path)?),
        None => builder.finish(io::stderr()),
    };
    let dropped = queue.error_counter();
    let gate = LogGate::new((hidden == WITHOUT_WORDS).then(|| queue.clone()));
    let first = gate.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || LogLine {
            queue: queue.clone(),
            gate: first.clone(),
        })
        .with_ansi(io::stderr().is_terminal())
        .event_format(PersonLines {
            is_terminal: hidden == WITHOUT_WORDS,
            full: format(),
        })
        .with_filter(filter);
    let (turns, traces) = traces::layer(environment)?;
    let logger = tracing_subscriber::registry()
        .with(filter_fn(move |event| event.target() != hidden))
        .with(lines)
        .with(turns);
    // This fails only if logging has begun already, as in tests.
    drop(logger.try_init());
    // The default writes to standard error, and would block the thread with it.
    panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(Logging {
        traces,
        dropped,
        gate,
        writer,
        bad_filter,
    })
}

/// The filter of log lines, and what to say of a `RUST_LOG` that is none.
fn filter(given: Option<&str>, level: &str) -> (EnvFilter, Option<String>) {
    let usual = match level {
        "debug" | "trace" => format!("info,metaclaw={level}"),
        level => level.to_owned(),
    };
    let given = given.unwrap_or(&usual);
    match EnvFilter::try_new(given) {
        Ok(filter) => (filter, None),
        Err(error) => {
            let said = format!(
                "RUST_LOG in the environment: {given:?} is not allowed ({error}): error, warn, info, debug, trace, or as in metaclaw_learner=debug. log.level decides instead: {level}"
            );
            (EnvFilter::new(usual), Some(said))
        }
    }
}

pub(crate) async fn warn_dropped(dropped: ErrorCounter, ending: CancellationToken) {
    let mut told = 0;
    while ending
        .run_until_cancelled(tokio::time::sleep(WARN_EVERY))
        .await
        .is_some()
    {
        let n_dropped = dropped.dropped_lines();
        if n_dropped > told {
            warn!(
                n_dropped,
                "log lines were dropped: nobody read them in time"
            );
            told = n_dropped;
        }
    }
}

/// Writes the remaining lines, as long as there is a reader.
pub(crate) fn end(gate: &LogGate, writer: WorkerGuard) {
    gate.open();
    // If the queue is full, the guard reports it on standard output, which may be the stopped terminal.
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        drop(writer);
        ended.send(())
    });
    end.recv_timeout(FLUSH_TIMEOUT).ok();
}

// === impl LogLine ===

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = match line.split_at_checked(MAX_LINE) {
            Some((start, rest)) if !rest.is_empty() => {
                let start = String::from_utf8_lossy(start);
                let start = start.trim_end_matches(char::REPLACEMENT_CHARACTER);
                format!("{start}…\n").into()
            }
            _ => String::from_utf8_lossy(line),
        };
        // The formatter escapes other control characters.
        let text = out::escaped(&text, out::is_bidi_control);
        if !self.gate.holds(text.as_bytes()) {
            self.queue.write_all(text.as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.queue.flush()
    }
}

// === impl LogGate ===

impl LogGate {
    /// The gate is closed while there is a queue to release lines to later.
    fn new(queue: Option<NonBlocking>) -> Self {
        let held = queue.map(|queue| HeldLines {
            queue,
            lines: Vec::new(),
            until: Instant::now() + HOLD,
        });
        Self(Arc::new(Mutex::new(held)))
    }

    pub(crate) fn open(&self) {
        if let Some(mut held) = self.held().take() {
            for line in held.lines {
                // The thread writes the line; a line that it cannot write is counted.
                held.queue.write_all(&line).ok();
            }
        }
    }

    fn holds(&self, line: &[u8]) -> bool {
        let mut held = self.held();
        match held.as_mut() {
            None => return false,
            Some(held) if Instant::now() < held.until && held.lines.len() < QUEUE => {
                held.lines.push(line.to_owned());
                return true;
            }
            Some(_) => {}
        }
        drop(held);
        self.open();
        false
    }

    /// A panic elsewhere leaves complete lines, because each is pushed at once.
    fn held(&self) -> MutexGuard<'_, Option<HeldLines>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl LogFile ===

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.file.metadata()?.len() >= MAX_FILE {
            // The file is cut and not replaced, because standard error is redirected into it. If the disk has no space
            // for the copy, the size limit has priority.
            fs::copy(&self.path, older(&self.path)).ok();
            self.file.set_len(0)?;
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(crate) fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_line_is_cut_between_two_characters() {
        let written = LogBuffer::default();
        let (queue, guard) = NonBlockingBuilder::default().finish(written.clone());
        let long = format!("a{}\n", "ü".repeat(MAX_LINE));
        let gate = LogGate::new(Some(queue.clone()));
        let line = |queue| LogLine {
            queue,
            gate: gate.clone(),
        };
        line(queue.clone()).write_all(long.as_bytes()).unwrap();
        assert_eq!(*written.0.lock().unwrap(), b"", "the banner is not out yet");
        gate.open();
        line(queue).write_all("short\u{202e}\n".as_bytes()).unwrap();
        end(&gate, guard);
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let (cut, rest) = written.split_once('\n').unwrap();
        assert!(cut.len() < MAX_LINE + 4 && cut.ends_with("ü…"), "{cut}");
        assert_eq!(rest, "short\\u202e\n");
    }

    #[test]
    fn a_filter_that_is_none_is_named_and_the_level_holds() {
        for (given, level, is) in [
            (None, "info", "info"),
            (None, "debug", "metaclaw=debug,info"),
            (Some("warn"), "trace", "warn"),
            (Some("metaclaw=lod"), "warn", "warn"),
            (Some("###"), "info", "info"),
        ] {
            let (filter, said) = filter(given, level);
            assert_eq!(filter.to_string(), is, "{given:?}");
            let is_named = said.is_some_and(|said| said.contains(given.unwrap_or_default()));
            assert_eq!(is_named, !matches!(given, None | Some("warn")), "{given:?}");
        }
    }

    #[test]
    fn the_log_file_begins_anew_at_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metaclaw.log");
        File::create(&path).unwrap().set_len(MAX_FILE - 1).unwrap();
        let mut log = LogFile::open(path.clone()).unwrap();
        log.write_all(b"before\n").unwrap();
        log.write_all(b"after\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after\n");
        let kept = folder.path().join("metaclaw.log.1");
        assert_eq!(fs::metadata(kept).unwrap().len(), MAX_FILE + 6);
    }
}
