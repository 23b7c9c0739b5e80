//! A reply's text, split into what is said, what is thought and what is called, as it comes.

use std::mem;

use super::{Call, Options, call};

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";

const QWEN: &str = "<tool_call>";
const KIMI: &str = "<|tool_call_begin|>";

/// The markers that may stand anywhere in the text.
const MARKERS: [(&str, Marker); 4] = [
    (QWEN, Marker::Call(Style::Qwen)),
    (KIMI, Marker::Call(Style::Kimi)),
    ("<|tool_calls_section_begin|>", Marker::Section),
    ("<|tool_calls_section_end|>", Marker::Section),
];

/// The most that is held back in wait for an end, in bytes; what is longer is text.
const MAX_HELD: usize = 1 << 20;

/// One thing of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Thinking(String),
    Call(Call),
}

/// Whose markup a call is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `<tool_call>{json}</tool_call>`
    Qwen,
    /// `<|tool_call_begin|>name<|tool_call_argument_begin|>{json}<|tool_call_end|>`
    Kimi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Call(Style),
    /// Around Kimi's calls; says nothing by itself.
    Section,
}

/// Splits a text that comes in pieces; no cutting of the text changes what it says.
#[derive(Debug)]
pub(super) struct Splitter {
    options: Options,
    state: State,
    /// Text that may yet turn out to be part of a marker or of a call.
    held: String,
    n_calls: usize,
    takes_calls: bool,
    takes_thinking: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Blanks alone since the beginning, or since thinking or a call ended, which is where they are left out.
    Blank { keep: bool },
    /// Blanks at the start of the thinking are left out until something follows.
    Thinking { has_begun: bool },
    /// In the midst of the reply itself: a `<think>` is text here.
    Text,
    /// After a call's first marker.
    Call(Style, Scan),
}

/// How far a call's JSON has been looked through for its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Scan {
    at: usize,
    in_string: bool,
    is_escaped: bool,
}

// === impl Style ===

impl Style {
    fn begin(self) -> &'static str {
        match self {
            Self::Qwen => QWEN,
            Self::Kimi => KIMI,
        }
    }

    fn end(self) -> &'static str {
        match self {
            Self::Qwen => "</tool_call>",
            Self::Kimi => "<|tool_call_end|>",
        }
    }
}

// === impl Splitter ===

impl Splitter {
    pub(super) fn new(options: Options) -> Self {
        let state = if options.think_is_open {
            State::Thinking { has_begun: false }
        } else {
            State::Blank { keep: true }
        };
        Self {
            options,
            state,
            held: String::new(),
            n_calls: 0,
            takes_calls: true,
            takes_thinking: true,
        }
    }

    /// Whether a call was found.
    pub(super) fn has_calls(&self) -> bool {
        self.n_calls > 0
    }

    /// The upstream splits the thinking itself.
    pub(super) fn leave_thinking(&mut self) {
        self.takes_thinking = false;
        if self.state == (State::Thinking { has_begun: false }) {
            self.state = State::Blank { keep: true };
        }
    }

    /// The upstream splits the calls itself: what looked like the beginning of one is text.
    pub(super) fn leave_calls(&mut self, out: &mut Vec<Piece>) {
        self.takes_calls = false;
        if let State::Call(style, _) = self.state {
            self.give_up(style, out);
        }
        self.run(false, out);
    }

    /// Takes the next piece of text.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        self.run(false, out);
    }

    /// What was held back, as nothing follows. Only in a `whole` reply a call may lack its last marker.
    pub(super) fn finish(&mut self, whole: bool, out: &mut Vec<Piece>) {
        self.run(true, out);
        while let State::Call(style, _) = self.state {
            let call = whole.then(|| self.call(style, &self.held)).flatten();
            match call {
                Some(call) => self.found(call, self.held.len(), out),
                None => self.give_up(style, out),
            }
            self.run(true, out);
        }
    }

    fn run(&mut self, at_end: bool, out: &mut Vec<Piece>) {
        while self.step(at_end, out) {}
    }

    /// Moves held text on; whether there may be more to do.
    fn step(&mut self, at_end: bool, out: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Blank { keep } => self.blank(keep, at_end, out),
            State::Thinking { has_begun } => self.think(has_begun, at_end, out),
            State::Text => self.text(at_end, out),
            State::Call(style, scan) => self.look_for_end(style, scan, out),
        }
    }

    fn blank(&mut self, keep: bool, at_end: bool, out: &mut Vec<Piece>) -> bool {
        if !keep {
            self.drop_blanks();
        }
        let word = self.held.trim_start();
        let n_blank = self.held.len() - word.len();
        if self.takes_thinking && word.starts_with(THINK) {
            self.held.drain(..n_blank + THINK.len());
            self.state = State::Thinking { has_begun: false };
            return true;
        }
        if let Some((name, marker)) = self.marker(word) {
            self.held.drain(..n_blank + name.len());
            self.open(marker);
            return true;
        }
        let may_be_thinking = self.takes_thinking && THINK.starts_with(word);
        let may_wait = !at_end && self.held.len() <= MAX_HELD;
        if may_wait && (may_be_thinking || self.may_be_marker(word)) {
            return false;
        }
        if self.held.is_empty() {
            return false;
        }
        // Here no `<think>` can begin any more, and a text that is nothing yet cannot be one.
        self.state = State::Text;
        self.text(at_end, out)
    }

    fn drop_blanks(&mut self) {
        let n_blank = self.held.len() - self.held.trim_start().len();
        self.held.drain(..n_blank);
    }

    fn text(&mut self, at_end: bool, out: &mut Vec<Piece>) -> bool {
        let marks = self.held.match_indices('<');
        let found = marks
            .map(|(at, _)| (at, self.marker(&self.held[at..])))
            .find(|(at, marker)| marker.is_some() || self.may_be_marker(&self.held[*at..]));
        let Some((at, marker)) = found.filter(|(_, marker)| marker.is_some() || !at_end) else {
            put(out, Piece::Text, mem::take(&mut self.held));
            return false;
        };
        put(out, Piece::Text, self.held.drain(..at).collect());
        if let Some((name, marker)) = marker {
            self.held.drain(..name.len());
            self.open(marker);
        }
        marker.is_some()
    }

    fn think(&mut self, has_begun: bool, at_end: bool, out: &mut Vec<Piece>) -> bool {
        if !has_begun {
            self.drop_blanks();
            // A model may repeat the tag that its template has opened.
            if self.options.think_is_open && !at_end && THINK.starts_with(self.held.as_str()) {
                if self.held == THINK {
                    self.held.clear();
                }
                return false;
            }
            if self.options.think_is_open && self.held.starts_with(THINK) {
                self.held.drain(..THINK.len());
                return true;
            }
            if self.held.is_empty() {
                return false;
            }
            self.state = State::Thinking { has_begun: true };
        }
        if let Some(at) = self.held.find(THINK_END) {
            let thought = self.held[..at].trim_end().to_owned();
            self.held.drain(..at + THINK_END.len());
            put(out, Piece::Thinking, thought);
            self.state = State::Blank { keep: false };
            return true;
        }
        let before = if at_end {
            self.held.len()
        } else {
            tail(&self.held, THINK_END)
        };
        let n_sure = match self.held[..before].trim_end().len() {
            n if before - n > MAX_HELD => before,
            n => n,
        };
        put(out, Piece::Thinking, self.held.drain(..n_sure).collect());
        if at_end {
            self.held.clear();
        }
        false
    }

    /// After the first marker of a call: its end, unless that stands in a string of its JSON.
    fn look_for_end(&mut self, style: Style, mut scan: Scan, out: &mut Vec<Piece>) -> bool {
        match scan.find(self.held.as_bytes(), style.end().as_bytes()) {
            Some(at) => {
                let end = at + style.end().len();
                if let Some(call) = self.call(style, &self.held[..at]) {
                    self.found(call, end, out);
                } else {
                    let text: String = self.held.drain(..end).collect();
                    put(out, Piece::Text, style.begin().to_owned() + &text);
                    self.state = State::Text;
                }
                true
            }
            None if self.held.len() > MAX_HELD => {
                self.give_up(style, out);
                true
            }
            None => {
                self.state = State::Call(style, scan);
                false
            }
        }
    }

    fn call(&self, style: Style, text: &str) -> Option<Call> {
        match style {
            Style::Qwen => call::qwen(text, self.n_calls, &self.options.tools),
            Style::Kimi => call::kimi(text, self.n_calls, &self.options.tools),
        }
    }

    fn found(&mut self, call: Call, end: usize, out: &mut Vec<Piece>) {
        self.held.drain(..end);
        self.n_calls += 1;
        self.state = State::Blank { keep: false };
        out.push(Piece::Call(call));
    }

    /// The marker was text; what follows it may hold others.
    fn give_up(&mut self, style: Style, out: &mut Vec<Piece>) {
        put(out, Piece::Text, style.begin().to_owned());
        self.state = State::Text;
    }

    fn open(&mut self, marker: Marker) {
        self.state = match marker {
            Marker::Call(style) => State::Call(style, Scan::default()),
            Marker::Section => State::Blank { keep: false },
        };
    }

    fn marker(&self, text: &str) -> Option<(&'static str, Marker)> {
        let is_it = |(name, _): &(&str, Marker)| text.starts_with(name);
        MARKERS.into_iter().find(is_it).filter(|_| self.takes_calls)
    }

    /// Whether more text could make it a marker.
    fn may_be_marker(&self, text: &str) -> bool {
        self.takes_calls && MARKERS.iter().any(|(name, _)| name.starts_with(text))
    }
}

// === impl Scan ===

impl Scan {
    /// Where `end` stands in `text` outside of a JSON string; goes on where it last came to.
    fn find(&mut self, text: &[u8], end: &[u8]) -> Option<usize> {
        while let Some(byte) = text.get(self.at) {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else if *byte == b'"' {
                self.in_string = true;
            } else if *byte == end[0] {
                let rest = &text[self.at..];
                if rest.starts_with(end) {
                    return Some(self.at);
                }
                if end.starts_with(rest) {
                    return None;
                }
            }
            self.at += 1;
        }
        None
    }
}

/// Where the part begins that may be a beginning of `marker`.
fn tail(text: &str, marker: &str) -> usize {
    let longest = (1..marker.len())
        .rev()
        .find(|n| text.ends_with(&marker[..*n]));
    text.len() - longest.unwrap_or(0)
}

/// Appends text, to the piece before where that is of the same kind.
fn put(out: &mut Vec<Piece>, kind: fn(String) -> Piece, text: String) {
    if text.is_empty() {
        return;
    }
    match (out.last_mut(), kind(text)) {
        (Some(Piece::Text(known)), Piece::Text(more))
        | (Some(Piece::Thinking(known)), Piece::Thinking(more)) => known.push_str(&more),
        (_, piece) => out.push(piece),
    }
}
