//! The markup in which models write calls and thinking as text, and where a call in it ends.

use super::xml;

pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";

const QWEN: &str = "<tool_call>";
const KIMI: &str = "<|tool_call_begin|>";

/// The markers that may stand anywhere in the text, and whose calls they begin; those around Kimi's say
/// nothing by themselves.
pub(super) const MARKERS: [(&str, Option<Style>); 4] = [
    (QWEN, Some(Style::Qwen)),
    (KIMI, Some(Style::Kimi)),
    ("<|tool_calls_section_begin|>", None),
    ("<|tool_calls_section_end|>", None),
];

/// Whose markup a call is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `<tool_call>{json}</tool_call>`, and Qwen3-Coder's with [`xml`] between.
    Qwen,
    /// `<|tool_call_begin|>name<|tool_call_argument_begin|>{json}<|tool_call_end|>`
    Kimi,
}

/// How far a call's JSON has been looked through for its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub at: usize,
    /// `None` where only blanks have come.
    notation: Option<Notation>,
    in_string: bool,
    is_escaped: bool,
}

/// How what stands between a call's markers is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// As JSON, or with JSON in it.
    Json,
    Xml,
    /// It is no call.
    Otherwise,
}

/// What a look for a call's end came to.
pub(super) enum Found {
    End(usize),
    /// It may yet come.
    Nothing,
    /// What stands there is no call.
    NoCall,
}

// === impl Style ===

impl Style {
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Qwen => QWEN,
            Self::Kimi => KIMI,
        }
    }

    pub(super) fn end(self) -> &'static str {
        match self {
            Self::Qwen => "</tool_call>",
            Self::Kimi => "<|tool_call_end|>",
        }
    }

    /// How a call is written that begins so after its first marker; `None` until that is clear.
    fn notation(self, text: &[u8]) -> Option<Notation> {
        let xml = xml::FUNCTION.as_bytes();
        match (self, text) {
            (_, []) => None,
            (Self::Kimi, _) | (Self::Qwen, [b'{', ..]) => Some(Notation::Json),
            (Self::Qwen, text) if text.starts_with(xml) => Some(Notation::Xml),
            (Self::Qwen, text) if xml.starts_with(text) => None,
            (Self::Qwen, _) => Some(Notation::Otherwise),
        }
    }
}

// === impl Scan ===

impl Scan {
    /// Where a call's end stands in `text` outside of a JSON string; goes on where it last came to.
    pub(super) fn find(&mut self, text: &[u8], style: Style) -> Found {
        let end = style.end().as_bytes();
        while let Some(byte) = text.get(self.at) {
            if self.notation.is_none() && !byte.is_ascii_whitespace() {
                self.notation = style.notation(&text[self.at..]);
            }
            let is_xml = match self.notation {
                Some(Notation::Otherwise) => return Found::NoCall,
                None if !byte.is_ascii_whitespace() => return Found::Nothing,
                notation => notation == Some(Notation::Xml),
            };
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else if *byte == b'"' && !is_xml {
                self.in_string = true;
            } else if *byte == end[0] {
                let rest = &text[self.at..];
                if rest.starts_with(end) && (!is_xml || xml::may_end(&text[..self.at])) {
                    return Found::End(self.at);
                }
                if end.starts_with(rest) {
                    return Found::Nothing;
                }
            }
            self.at += 1;
        }
        Found::Nothing
    }
}
