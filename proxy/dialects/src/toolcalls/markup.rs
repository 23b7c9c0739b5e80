//! The markup in which models write calls and thinking as text, and the search for a call's end.

use memchr::memchr;
use metaclaw_trainer_terms::gemma;

use super::{
    options::ToolCallOptions,
    xml::{self, CallEnding, Lookahead},
};

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";

/// The tags around thinking at the beginning of a reply, those of Gemma 4 last.
pub(super) const THINKING: [(&str, &str); 2] =
    [(THINK, THINK_END), ("<|channel>thought", "<channel|>")];

const QWEN: &str = "<tool_call>";
const KIMI: &str = "<|tool_call_begin|>";
const KIMI_SECTION_END: &str = "<|tool_calls_section_end|>";

/// The longest closing tag that may be a wrong one, in bytes.
const MAX_TAG: usize = 32;

/// The markers that may occur anywhere in the text, and the notation of the calls that they begin. Those around Kimi's
/// calls mean nothing by themselves.
pub(super) const MARKERS: [(&str, Option<Style>); 6] = [
    (QWEN, Some(Style::Qwen)),
    (xml::FUNCTION, Some(Style::Bare)),
    (KIMI, Some(Style::Kimi)),
    (gemma::CALL, Some(Style::Gemma)),
    ("<|tool_calls_section_begin|>", None),
    (KIMI_SECTION_END, None),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `<tool_call>{json}</tool_call>`, or Qwen3-Coder's with [`xml`] inside.
    Qwen,
    /// Qwen3-Coder's without the `<tool_call>` before it. This is a mistake, and is read for offered tools.
    Bare,
    /// `<|tool_call_begin|>name<|tool_call_argument_begin|>{json}<|tool_call_end|>`
    Kimi,
    /// `<|tool_call>call:name{..}<tool_call|>`, see [`gemma`].
    Gemma,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MarkupScan {
    pub at: usize,
    /// `None` as long as only white space has arrived.
    notation: Option<Notation>,
    in_string: bool,
    is_escaped: bool,
    depth: usize,
    /// The position after the last one that closed all.
    closed: Option<usize>,
    xml: xml::XmlScan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// JSON, or a text with JSON in it.
    Json,
    Xml,
    Gemma,
    /// It is not a call.
    Otherwise,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    End(CallEnding),
    /// It may still come.
    Nothing,
    /// The text is not a call.
    NoCall,
}

// === impl Style ===

impl Style {
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Qwen => QWEN,
            Self::Bare => xml::FUNCTION,
            Self::Kimi => KIMI,
            Self::Gemma => gemma::CALL,
        }
    }

    fn end(self) -> &'static str {
        match self {
            Self::Qwen | Self::Bare => xml::CALL_END,
            Self::Kimi => "<|tool_call_end|>",
            Self::Gemma => gemma::CALL_END,
        }
    }

    /// Returns the markers that end a call whose own end is missing.
    fn next(self) -> &'static [&'static str] {
        match self {
            Self::Qwen | Self::Bare => &[QWEN],
            Self::Kimi => &[KIMI, KIMI_SECTION_END],
            Self::Gemma => &[],
        }
    }

    /// Returns the notation of a call from the text after its first marker, or `None` until that is clear.
    fn notation(self, text: &[u8], options: &ToolCallOptions) -> Option<Notation> {
        let is_or_may_be = |word: &str| {
            let word = word.as_bytes();
            let is_it = text.starts_with(word);
            (is_it || word.starts_with(text)).then_some(is_it)
        };
        match (self, text) {
            (_, []) => None,
            (Self::Bare, _) => match xml::is_offered(text, options) {
                None => None,
                Some(true) => Some(Notation::Xml),
                Some(false) => Some(Notation::Otherwise),
            },
            (Self::Gemma, _) => match is_or_may_be("call:") {
                Some(is_it) => is_it.then_some(Notation::Gemma),
                None => Some(Notation::Otherwise),
            },
            (Self::Kimi, _) | (Self::Qwen, [b'{', ..]) => Some(Notation::Json),
            (Self::Qwen, [b'[', ..]) if options.has_tools() => Some(Notation::Json),
            (Self::Qwen, _) => match (is_or_may_be(xml::FUNCTION), is_or_may_be("```")) {
                (Some(true), _) => Some(Notation::Xml),
                (_, Some(true)) if options.has_tools() => Some(Notation::Json),
                (Some(false), _) | (_, Some(false)) => None,
                (None, _) => Some(Notation::Otherwise),
            },
        }
    }
}

// === impl Scan ===

impl MarkupScan {
    /// Finds a call's end in `text` outside JSON strings. It continues where the last search stopped.
    pub(super) fn find(
        &mut self,
        text: &[u8],
        style: Style,
        options: &ToolCallOptions,
        rest: Lookahead,
    ) -> Found {
        let n_blank = text.len() - text.trim_ascii_start().len();
        if self.notation.is_none() {
            self.at = n_blank;
            self.notation = style.notation(&text[n_blank..], options);
        }
        match self.notation {
            None => Found::Nothing,
            Some(Notation::Otherwise) => Found::NoCall,
            Some(Notation::Xml) => {
                let name = text[n_blank..].strip_prefix(xml::FUNCTION.as_bytes());
                let call = xml::CallAsWritten {
                    is_wrapped: style == Style::Qwen,
                    is_offered: xml::is_offered(name.unwrap_or(text), options) == Some(true),
                };
                let found = self.xml.find(text, call, rest);
                self.at = self.xml.at;
                found.map_or(Found::Nothing, Found::End)
            }
            Some(Notation::Json) => self.find_in_json(text, style, options),
            Some(Notation::Gemma) => self.find_in_gemma(text),
        }
    }

    fn find_in_gemma(&mut self, text: &[u8]) -> Found {
        let [quote, end] = [gemma::QUOTE, gemma::CALL_END].map(str::as_bytes);
        while let Some(n) = memchr(b'<', &text[self.at..]) {
            self.at += n;
            let (at, rest) = (self.at, &text[self.at..]);
            if rest.starts_with(end) && !self.in_string {
                let all = at + end.len();
                return Found::End(CallEnding { call: at, all });
            }
            if quote.starts_with(rest) || end.starts_with(rest) {
                return Found::Nothing;
            }
            let is_quote = rest.starts_with(quote);
            self.in_string ^= is_quote;
            self.at += if is_quote { quote.len() } else { 1 };
        }
        self.at = text.len();
        Found::Nothing
    }

    fn find_in_json(&mut self, text: &[u8], style: Style, options: &ToolCallOptions) -> Found {
        while let Some(byte) = text.get(self.at) {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        self.closed = (self.depth == 0).then_some(self.at + 1);
                    }
                    b'<' => match self.tag(text, style, options) {
                        None => {}
                        Some(found) => return found,
                    },
                    _ => {}
                }
            }
            self.at += 1;
        }
        Found::Nothing
    }

    fn tag(&self, text: &[u8], style: Style, options: &ToolCallOptions) -> Option<Found> {
        let (at, rest) = (self.at, &text[self.at..]);
        let end = style.end().as_bytes();
        let found = |n_tag: usize| {
            let all = at + n_tag;
            Some(Found::End(CallEnding { call: at, all }))
        };
        if rest.starts_with(end) {
            return found(end.len());
        }
        if end.starts_with(rest) {
            return Some(Found::Nothing);
        }
        // The end is not the call's own. This is a mistake, and accepted only if it is unambiguous.
        let closed = self.closed.filter(|_| options.has_tools())?;
        if !text[closed..at].trim_ascii().is_empty() {
            return None;
        }
        for next in style.next() {
            if rest.starts_with(next.as_bytes()) {
                return found(0);
            }
            if next.as_bytes().starts_with(rest) {
                return Some(Found::Nothing);
            }
        }
        if style == Style::Kimi || !rest.starts_with(b"</") {
            return None;
        }
        match rest.iter().take(MAX_TAG).position(|byte| *byte == b'>') {
            Some(n) => found(n + 1),
            None => (rest.len() < MAX_TAG).then_some(Found::Nothing),
        }
    }
}
