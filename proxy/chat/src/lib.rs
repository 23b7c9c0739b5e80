//! Names, messages, keys and the clock that all crates of MetaClaw share. It does no IO.
//!
//! A name that becomes a path or a key is parsed once, here, into a type that cannot hold a bad value. Inner code does
//! not check again. A message keeps the JSON in which it arrived, so that nothing a client sent is lost.

mod call_texts;
mod chain;
mod clock;
mod counting;
mod excerpt;
mod file;
mod lock;
mod message;
mod mode;
mod names;
mod own_words;
mod secret;
mod stop_reason;
mod thinking;
mod units;
mod utterance;
mod variables;
mod verdict;
mod words;

pub use self::{
    call_texts::CallTexts,
    chain::{Chain, ChainHash, Said, SaidHash},
    clock::{now_ms, retry_after, unix_ms, whole_ms},
    counting::count_words,
    excerpt::{excerpt, head, one_line},
    file::{if_there, make_private, regular},
    lock::lock,
    message::{Message, MessageError, OF_ANOTHER, Role, TYPED_PARTS, ToolCall, Usage},
    mode::Mode,
    names::{AgentId, GroupId, NameError, RolloutId, SenderId, SessionId, TaskId, TurnId},
    own_words::{LOOKED_BACK, SaidBefore, owners_words, typed_at, utterance_at, utterances},
    secret::Secret,
    stop_reason::{StopReason, breaks_off, finish_reason},
    thinking::without_thinking,
    units::{Size, Span, UnitError},
    utterance::{Speaker, Utterance, work},
    variables::{is_variable, substituted},
    verdict::{JudgedBy, Score, Verdict, Vote},
    words::{thinking, token_count, words},
};
