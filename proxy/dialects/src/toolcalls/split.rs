//! A reply's text, split into what is said, what is thought and what is called, as it comes.

use serde_json::Value;

use super::{
    call::{self, TextCall, says_something},
    held::Held,
    markup::{Found, MARKERS, MarkupScan, Style, THINKING},
    options::ToolCallOptions,
    xml::{self, CallEnding, Lookahead},
};
use crate::calls::call_id;

/// The most that is held back in wait for the end of a call, in bytes; what is longer is text.
const MAX_HELD: usize = 1 << 20;

/// The most blanks that are held back in wait for what follows them, in bytes.
const MAX_BLANK: usize = 4 << 10;

/// The most that is looked through for calls that turn out to be none, in bytes. A model that repeats a
/// marker without end would otherwise have the rest of its text looked through for each.
const MAX_IN_VAIN: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SplitPiece {
    Text(String),
    Thinking(String),
    Call(TextCall),
}

/// Splits a text that comes in pieces; no cutting of the text changes what it says.
#[derive(Debug)]
pub(super) struct Splitter {
    options: ToolCallOptions,
    state: State,
    /// The tags of the thinking.
    tags: (&'static str, &'static str),
    held: Held,
    reply_id: String,
    n_calls: usize,
    n_in_vain: usize,
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
    Call(Style, MarkupScan),
}

// === impl Splitter ===

impl Splitter {
    pub(super) fn new(options: ToolCallOptions, reply_id: &str) -> Self {
        let state = if options.think_is_open {
            State::Thinking { has_begun: false }
        } else {
            State::Blank { keep: true }
        };
        Self {
            options,
            state,
            tags: THINKING[0],
            held: Held::default(),
            reply_id: reply_id.to_owned(),
            n_calls: 0,
            n_in_vain: 0,
            takes_calls: true,
            takes_thinking: true,
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.n_calls > 0
    }

    /// Leaves to the upstream what it splits itself, as `message`, or a delta of one, says: the thinking; the
    /// calls, and then what looked like the beginning of one is text.
    pub(super) fn leave(&mut self, message: &Value, out: &mut Vec<SplitPiece>) {
        if says_something(&message["reasoning_content"]) || says_something(&message["reasoning"]) {
            self.takes_thinking = false;
            if let State::Thinking {
                has_begun: false, ..
            } = self.state
            {
                self.state = State::Blank { keep: true };
            }
        }
        let calls = message["tool_calls"].as_array();
        if calls.is_some_and(|calls| !calls.is_empty()) {
            self.takes_calls = false;
            if let State::Call(style, scan) = self.state {
                self.give_up(style, scan, out);
            }
            self.run(Lookahead::Open, out);
        }
    }

    pub(super) fn push(&mut self, text: &str, out: &mut Vec<SplitPiece>) {
        self.held.push(text);
        self.run(Lookahead::Open, out);
    }

    /// What was held back, as nothing follows. Only in a `whole` reply a call may lack its last marker.
    pub(super) fn finish(&mut self, whole: bool, out: &mut Vec<SplitPiece>) {
        let rest = if whole {
            Lookahead::Nothing
        } else {
            Lookahead::Cut
        };
        self.run(rest, out);
        while let State::Call(style, scan) = self.state {
            let call = whole.then(|| self.call(style, self.held.text())).flatten();
            match call {
                Some(call) => self.found(vec![call], self.held.text().len(), out),
                None => self.give_up(style, scan, out),
            }
            self.run(rest, out);
        }
    }

    fn run(&mut self, rest: Lookahead, out: &mut Vec<SplitPiece>) {
        while self.step(rest, out) {}
    }

    /// Moves held text on; whether there may be more to do.
    fn step(&mut self, rest: Lookahead, out: &mut Vec<SplitPiece>) -> bool {
        let at_end = rest != Lookahead::Open;
        match self.state {
            State::Blank { keep } => self.blank(keep, at_end, out),
            State::Thinking { has_begun } => self.think(has_begun, at_end, out),
            State::Text => self.text(at_end, out),
            State::Call(style, scan) => self.look_for_end(style, scan, rest, out),
        }
    }

    fn blank(&mut self, keep: bool, at_end: bool, out: &mut Vec<SplitPiece>) -> bool {
        if !keep {
            self.held.skip_blanks();
        }
        let held = self.held.text();
        let word = held.trim_start();
        let n_blank = held.len() - word.len();
        let mut thinking = THINKING.iter().filter(|_| self.takes_thinking);
        if let Some(tags) = thinking.clone().find(|(open, _)| word.starts_with(open)) {
            self.held.skip(n_blank + tags.0.len());
            self.tags = *tags;
            self.state = State::Thinking { has_begun: false };
            return true;
        }
        let may_be_thinking = thinking.any(|(open, _)| open.starts_with(word));
        if let Some((name, style)) = self.marker(word) {
            self.held.skip(n_blank + name.len());
            self.open(style);
            return true;
        }
        let may_wait = !at_end && held.len() <= MAX_BLANK;
        if may_wait && (may_be_thinking || self.may_be_marker(word)) {
            return false;
        }
        if held.is_empty() {
            return false;
        }
        // Here no `<think>` can begin any more, and a text that is nothing yet cannot be one.
        self.state = State::Text;
        self.text(at_end, out)
    }

    fn text(&mut self, at_end: bool, out: &mut Vec<SplitPiece>) -> bool {
        let held = self.held.text();
        let marks = held.match_indices('<');
        let found = marks
            .map(|(at, _)| (at, self.marker(&held[at..])))
            .find(|(at, marker)| marker.is_some() || self.may_be_marker(&held[*at..]));
        let Some((at, marker)) = found.filter(|(_, marker)| marker.is_some() || !at_end) else {
            put(out, SplitPiece::Text, self.held.take(held.len()));
            return false;
        };
        put(out, SplitPiece::Text, self.held.take(at));
        if let Some((name, style)) = marker {
            self.held.skip(name.len());
            self.open(style);
        }
        marker.is_some()
    }

    fn think(&mut self, has_begun: bool, at_end: bool, out: &mut Vec<SplitPiece>) -> bool {
        let (open, close) = self.tags;
        if !has_begun {
            self.held.skip_blanks();
            let held = self.held.text();
            // A model may repeat the tag that its template has opened.
            if self.options.think_is_open && !at_end && open.starts_with(held) {
                if held == open {
                    self.held.skip(open.len());
                }
                return false;
            }
            if self.options.think_is_open && held.starts_with(open) {
                self.held.skip(open.len());
                return true;
            }
            if held.is_empty() {
                return false;
            }
            self.state = State::Thinking { has_begun: true };
        }
        let held = self.held.text();
        if let Some(at) = held.find(close) {
            let thought = held[..at].trim_end().to_owned();
            self.held.skip(at + close.len());
            put(out, SplitPiece::Thinking, thought);
            self.state = State::Blank { keep: false };
            return true;
        }
        let before = if at_end {
            held.len()
        } else {
            tail(held, close)
        };
        let n_sure = match held[..before].trim_end().len() {
            n if before - n > MAX_BLANK => before,
            n => n,
        };
        put(out, SplitPiece::Thinking, self.held.take(n_sure));
        if at_end {
            self.held.skip(self.held.text().len());
        }
        false
    }

    /// After the first marker of a call: its end, unless that stands in a string of its JSON.
    fn look_for_end(
        &mut self,
        style: Style,
        mut scan: MarkupScan,
        rest: Lookahead,
        out: &mut Vec<SplitPiece>,
    ) -> bool {
        let held = self.held.text();
        match scan.find(held.as_bytes(), style, &self.options, rest) {
            Found::End(CallEnding { call, all }) => {
                let calls = self.calls(style, &held[..call]);
                if calls.is_empty() {
                    put(out, SplitPiece::Text, style.begin().to_owned());
                    put(out, SplitPiece::Text, self.held.take(all));
                    self.state = State::Text;
                } else {
                    self.found(calls, all, out);
                }
                true
            }
            Found::Nothing if held.len() <= MAX_HELD => {
                self.state = State::Call(style, scan);
                false
            }
            Found::Nothing | Found::NoCall => {
                self.give_up(style, scan, out);
                true
            }
        }
    }

    fn calls(&self, style: Style, text: &str) -> Vec<TextCall> {
        if let Some(call) = self.call(style, text) {
            return vec![call];
        }
        let options = &self.options;
        match style {
            Style::Bare | Style::Gemma => Vec::new(),
            Style::Kimi => {
                let call = call::mended_kimi(text, self.id("call_kimi", 0), options);
                call.into_iter().collect()
            }
            Style::Qwen => {
                let calls = call::mended_qwen(text, |n| self.id("call_xml", n), options);
                calls.unwrap_or_default()
            }
        }
    }

    fn call(&self, style: Style, text: &str) -> Option<TextCall> {
        let options = &self.options;
        match style {
            Style::Qwen => match text.trim_start().strip_prefix(xml::FUNCTION) {
                Some(text) => xml::call(text, self.id("call_xml", 0), options),
                None => call::qwen(text, self.id("call_xml", 0), options),
            },
            Style::Bare => xml::call(text, self.id("call_xml", 0), options),
            Style::Kimi => call::kimi(text, self.id("call_kimi", 0), &options.tools),
            Style::Gemma => call::gemma(text, self.id("call_gemma", 0), &options.tools),
        }
    }

    fn id(&self, kind: &str, n: usize) -> String {
        call_id(kind, &self.reply_id, self.n_calls + n)
    }

    fn found(&mut self, calls: Vec<TextCall>, end: usize, out: &mut Vec<SplitPiece>) {
        self.held.skip(end);
        self.n_calls += calls.len();
        self.state = State::Blank { keep: false };
        out.extend(calls.into_iter().map(SplitPiece::Call));
    }

    fn give_up(&mut self, style: Style, scan: MarkupScan, out: &mut Vec<SplitPiece>) {
        self.n_in_vain += scan.at;
        self.takes_calls &= self.n_in_vain <= MAX_IN_VAIN;
        put(out, SplitPiece::Text, style.begin().to_owned());
        self.state = State::Text;
    }

    fn open(&mut self, style: Option<Style>) {
        self.state = match style {
            Some(style) => State::Call(style, MarkupScan::default()),
            None => State::Blank { keep: false },
        };
    }

    fn marker(&self, text: &str) -> Option<(&'static str, Option<Style>)> {
        let is_it = |(name, _): &(&str, Option<Style>)| text.starts_with(name);
        self.markers().find(is_it)
    }

    fn may_be_marker(&self, text: &str) -> bool {
        self.markers().any(|(name, _)| name.starts_with(text))
    }

    fn markers(&self) -> impl Iterator<Item = (&'static str, Option<Style>)> + '_ {
        let has_tools = self.options.has_tools();
        let markers = MARKERS.into_iter().filter(|_| self.takes_calls);
        markers.filter(move |(_, style)| *style != Some(Style::Bare) || has_tools)
    }
}

fn tail(text: &str, marker: &str) -> usize {
    let longest = (1..marker.len())
        .rev()
        .find(|n| text.ends_with(&marker[..*n]));
    text.len() - longest.unwrap_or(0)
}

fn put(out: &mut Vec<SplitPiece>, kind: fn(String) -> SplitPiece, text: String) {
    if text.is_empty() {
        return;
    }
    match (out.last_mut(), kind(text)) {
        (Some(SplitPiece::Text(known)), SplitPiece::Text(more))
        | (Some(SplitPiece::Thinking(known)), SplitPiece::Thinking(more)) => known.push_str(&more),
        (_, piece) => out.push(piece),
    }
}
