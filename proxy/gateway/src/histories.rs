//! The fields that upstreams attached to the replies of each session, such as signatures and thinking. The proxy
//! restores them if a client lost them, and removes them for another upstream.
//!
//! They are copied while turns go to the log, so that a request does not wait for the log's flushes. If a session did
//! not begin in this process, they are read from the log. What is not in the log (a conversation off the record, or one
//! that was forgotten before a restart) is not mended.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;
use memchr::memmem;
use metaclaw_capture::{Appending, TurnSink};
use metaclaw_chat::{AgentId, Message, SessionId};
use metaclaw_dialects::{
    Api,
    mend::{self, Demands, Mended, PastReply},
    translate::upstream_call_id,
};
use metaclaw_turns::{Done, NewTurn, Replied};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{LONGEST_NAME, lock::lock, past_replies::PastReplies, session_key::SessionKey};

/// The number of sessions that are remembered. For any other session, the log is read again.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
const REFUSED: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
/// The most bytes of one session. The newest replies are kept.
const MAX_BYTES: usize = 4 << 20;
/// The most bytes of all sessions. The least recently used sessions are removed first.
const MAX_BYTES_IN_ALL: usize = 32 << 20;
/// How long a request waits until the reply that it continues has arrived here.
const HEARD_WITHIN: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The number of call ids of a session that are remembered. They show whether that reply has arrived.
const CALLS: usize = 64;

pub(crate) struct Histories {
    past: Arc<dyn PastReplies>,
    known: Mutex<Known>,
    refused: Mutex<LruCache<(AgentId, SessionId, String), Demands>>,
}

struct Known {
    sessions: LruCache<SessionKey, History>,
    n_bytes: usize,
}

/// The replies of one session that have attached fields, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    replies: Vec<Arc<Replied>>,
    n_bytes: usize,
    calls: Vec<String>,
    /// The ids of the calls of replies with attached fields that have not arrived here yet. The client has them, or
    /// will soon.
    expected: Vec<String>,
    /// Whether everything that the log has of it is here. It is not asked before the first turn.
    is_whole: Option<bool>,
}

pub(crate) struct HeardLog {
    log: Arc<dyn TurnSink>,
    histories: Arc<Histories>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mending<'a> {
    pub history: &'a History,
    pub upstream: &'a str,
    pub demands: Demands,
}

// === impl Histories ===

impl Histories {
    pub(crate) fn new(past: Arc<dyn PastReplies>) -> Self {
        let known = Known {
            sessions: LruCache::new(SESSIONS),
            n_bytes: 0,
        };
        Self {
            past,
            known: Mutex::new(known),
            refused: Mutex::new(LruCache::new(REFUSED)),
        }
    }

    /// Returns the attached fields of a session. `last_call` returns the id of the request's last call, whose reply may
    /// not have arrived here yet. If the session has attached fields, or a reply with some is expected, this waits for
    /// that reply.
    pub(crate) async fn find(
        &self,
        agent: &AgentId,
        session: &SessionId,
        last_call: &(dyn Fn() -> Option<String> + Sync),
    ) -> History {
        let key = SessionKey::new(agent, session);
        let until = Instant::now() + HEARD_WITHIN;
        let mut last = None;
        loop {
            let known = lock(&self.known).sessions.get(&key).cloned();
            let history = match known.filter(|history| history.is_whole == Some(true)) {
                Some(history) => history,
                None => self.read(&key).await,
            };
            let is_settled = history.is_empty() && history.expected.is_empty();
            if is_settled || Instant::now() >= until {
                return history;
            }
            let last = last.get_or_insert_with(last_call).as_deref();
            if last.is_none_or(|id| history.has_call(id)) {
                return history;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// A session begins under a name that no session had before. So the log has nothing of it, even if its first
    /// request repeats a conversation.
    pub(crate) fn begin(&self, agent: &AgentId, session: &SessionId) {
        let mut known = lock(&self.known);
        let key = SessionKey::new(agent, session);
        let history = known.take(&key).unwrap_or_default();
        let is_whole = Some(true);
        known.put(
            key,
            History {
                is_whole,
                ..history
            },
        );
    }

    /// Reads a session from the log, and adds the replies that arrived meanwhile.
    async fn read(&self, key: &SessionKey) -> History {
        let logged = self.past.replies(&key.agent, &key.session).await;
        let mut history = History {
            // Otherwise the next request reads the log again.
            is_whole: Some(logged.is_ok()),
            ..History::default()
        };
        match logged {
            Ok(logged) => logged
                .into_iter()
                .for_each(|reply| history.add(&Arc::new(reply))),
            Err(error) => {
                tracing::warn!(%error, "the fields that upstreams attached to replies cannot be read from the log");
            }
        }
        let mut known = lock(&self.known);
        let heard = known.take(key).unwrap_or_default();
        for reply in &heard.replies {
            let is_it = |known: &Arc<Replied>| known.reply == reply.reply;
            if !history.replies.iter().any(is_it) {
                history.add(reply);
            }
        }
        history.expected = heard.expected;
        history.note_calls(heard.calls);
        known.put(key.clone(), history.clone());
        history
    }

    pub(crate) fn refused(&self, agent: &AgentId, session: &SessionId, upstream: &str) -> Demands {
        let key = (agent.clone(), session.clone(), upstream.to_owned());
        lock(&self.refused).get(&key).copied().unwrap_or_default()
    }

    pub(crate) fn refuse(
        &self,
        agent: &AgentId,
        session: &SessionId,
        upstream: &str,
        demands: Demands,
    ) {
        let key = (agent.clone(), session.clone(), upstream.to_owned());
        lock(&self.refused).put(key, demands);
    }

    /// Notes that the log will soon have this reply. It is called before the client has the end of the reply, so a
    /// request that repeats the reply's calls comes later.
    pub(crate) fn expect(&self, key: SessionKey, reply: &Message) {
        if !mend::has_own_fields(reply) {
            return;
        }
        let ids = reply.tool_calls().into_iter().map(|call| call.id);
        let mut known = lock(&self.known);
        let mut history = known.take(&key).unwrap_or_default();
        push_ids(&mut history.expected, ids);
        known.put(key, history);
    }

    fn hear(&self, turn: &NewTurn) {
        let Some(reply) = &turn.reply else {
            return;
        };
        let replied = Replied {
            upstream: turn.served.upstream.clone(),
            masked: false,
            reply: reply.clone(),
        };
        let key = SessionKey::new(&turn.agent, &turn.session);
        let messages = || turn.messages.iter();
        // A session without earlier calls has nothing in the log that matters here.
        let began_here = || !messages().any(|message| has_calls(message.text.as_str()));
        self.add(key, began_here, replied);
    }

    fn add(&self, key: SessionKey, began_here: impl FnOnce() -> bool, replied: Replied) {
        let mut known = lock(&self.known);
        let mut history = known.take(&key).unwrap_or_default();
        history.is_whole.get_or_insert_with(began_here);
        history.add(&Arc::new(replied));
        known.put(key, history);
    }
}

fn has_calls(message: &str) -> bool {
    memmem::find(message.as_bytes(), b"\"tool_calls\"").is_some()
}

// === impl Known ===

impl Known {
    fn take(&mut self, key: &SessionKey) -> Option<History> {
        let history = self.sessions.pop(key)?;
        self.n_bytes -= history.n_bytes;
        Some(history)
    }

    fn put(&mut self, key: SessionKey, history: History) {
        self.n_bytes += history.n_bytes;
        if let Some((_, pushed_out)) = self.sessions.push(key, history) {
            self.n_bytes -= pushed_out.n_bytes;
        }
        while self.n_bytes > MAX_BYTES_IN_ALL
            && let Some((_, oldest)) = self.sessions.pop_lru()
        {
            self.n_bytes -= oldest.n_bytes;
        }
    }
}

// === impl History ===

impl History {
    fn add(&mut self, reply: &Arc<Replied>) {
        self.note_calls(reply.reply.tool_calls().into_iter().map(|call| call.id));
        if !mend::has_own_fields(&reply.reply) {
            return;
        }
        self.n_bytes += size(reply);
        self.replies.push(Arc::clone(reply));
        while self.n_bytes > MAX_BYTES && !self.replies.is_empty() {
            self.n_bytes -= size(&self.replies.remove(0));
        }
    }

    fn note_calls(&mut self, ids: impl IntoIterator<Item = String>) {
        push_ids(&mut self.calls, ids);
        self.expected.retain(|id| !self.calls.contains(id));
    }

    /// Returns whether the reply with this call has arrived. A call without an id from the server may be any, because
    /// the caller got an id of ours.
    fn has_call(&self, id: &str) -> bool {
        let id = start(upstream_call_id(id));
        let is_same = |call: &String| call.is_empty() || upstream_call_id(call) == id;
        self.calls.iter().any(is_same)
    }

    fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

fn push_ids(calls: &mut Vec<String>, ids: impl IntoIterator<Item = String>) {
    calls.extend(ids.into_iter().map(|id| start(&id).to_owned()));
    let n_too_many = calls.len().saturating_sub(CALLS);
    calls.drain(..n_too_many);
}

fn start(id: &str) -> &str {
    &id[..id.floor_char_boundary(LONGEST_NAME)]
}

/// Returns the approximate length of a reply as JSON.
fn size(reply: &Replied) -> usize {
    let length = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string().len(), str::len)
    };
    reply.reply.as_map().values().map(length).sum()
}

// === impl HeardLog ===

impl HeardLog {
    pub(crate) fn around(
        log: Arc<dyn TurnSink>,
        histories: Option<&Arc<Histories>>,
    ) -> Arc<dyn TurnSink> {
        match histories.cloned() {
            Some(histories) => Arc::new(Self { log, histories }),
            None => log,
        }
    }
}

impl TurnSink for HeardLog {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        self.histories.hear(&turn);
        self.log.append(turn, done)
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        self.log.oldest_unflushed()
    }
}

// === impl Mending ===

impl Mending<'_> {
    pub(crate) fn is_needed(&self) -> bool {
        !self.history.is_empty() || self.demands != Demands::default()
    }

    pub(crate) fn apply(&self, api: Api, target: Api, request: &mut Value) -> Mended {
        let replies = self.history.replies.iter().map(|replied| PastReply {
            is_own: replied.upstream == self.upstream,
            is_masked: replied.masked,
            reply: &replied.reply,
        });
        let past: Vec<PastReply<'_>> = replies.collect();
        mend::mend(api, target, request, &past, self.demands)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use metaclaw_turns::LogError;
    use serde_json::json;

    use super::*;
    use crate::past_replies::{Finding, RepliesFuture};

    /// A log that has these, and counts how often it is asked; the first time it fails, where it is to.
    struct Logged(Vec<Replied>, AtomicUsize, bool);

    impl PastReplies for Logged {
        fn conversation<'a>(&'a self, _: &'a AgentId, _: &'a str) -> Finding<'a> {
            Box::pin(async { Ok(None) })
        }

        fn replies<'a>(&'a self, _: &'a AgentId, _: &'a SessionId) -> RepliesFuture<'a> {
            let n_asked = self.1.fetch_add(1, Ordering::Relaxed);
            let fails = self.2 && n_asked == 0;
            let why = "disk".to_owned();
            let found = if fails {
                Err(LogError::Broken { why })
            } else {
                Ok(self.0.clone())
            };
            Box::pin(async { found })
        }
    }

    fn reply(id: &str) -> Message {
        let call =
            json!({"id": id, "function": {"name": "f", "arguments": "{}"}, "extra_content": 1});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        message.try_into().unwrap()
    }

    fn replied(id: &str) -> Replied {
        Replied {
            upstream: "llm".to_owned(),
            masked: false,
            reply: reply(id),
        }
    }

    fn key() -> SessionKey {
        SessionKey::new(&"main".parse().unwrap(), &"s".parse().unwrap())
    }

    fn histories(logged: &[&str]) -> (Arc<Logged>, Histories) {
        let logged = logged.iter().map(|id| replied(id)).collect();
        let log = Arc::new(Logged(logged, AtomicUsize::new(0), false));
        (Arc::clone(&log), Histories::new(log))
    }

    async fn ids(histories: &Histories) -> Vec<String> {
        let SessionKey { agent, session } = key();
        let history = histories.find(&agent, &session, &|| None).await;
        let call = |it: &Arc<Replied>| it.reply.tool_calls().remove(0).id;
        history.replies.iter().map(call).collect()
    }

    #[tokio::test]
    async fn the_log_is_read_once_and_what_was_heard_stands_behind() {
        let (log, histories) = histories(&["a", "b"]);
        histories.add(key(), || false, replied("b"));
        histories.add(key(), || false, replied("c"));
        assert_eq!(ids(&histories).await, ["a", "b", "c"]);
        histories.add(key(), || false, replied("d"));
        assert_eq!(ids(&histories).await, ["a", "b", "c", "d"]);
        assert_eq!(log.1.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_log_that_could_not_be_read_is_read_again() {
        let log = Logged(vec![replied("a")], AtomicUsize::new(0), true);
        let histories = Histories::new(Arc::new(log));
        histories.add(key(), || false, replied("b"));
        assert_eq!(ids(&histories).await, ["b"]);
        assert_eq!(ids(&histories).await, ["a", "b"]);
    }

    #[tokio::test]
    async fn of_a_session_that_began_here_the_log_is_not_asked() {
        let (log, histories) = histories(&[]);
        histories.add(key(), || true, replied("a"));
        assert_eq!(ids(&histories).await, ["a"]);
        assert_eq!(log.1.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn of_a_session_that_begins_with_calls_of_another_the_log_is_not_asked() {
        let (log, histories) = histories(&["a"]);
        let SessionKey { agent, session } = key();
        histories.begin(&agent, &session);
        assert_eq!(ids(&histories).await, Vec::<String>::new());
        histories.add(key(), || false, replied("b"));
        assert_eq!(ids(&histories).await, ["b"]);
        assert_eq!(log.1.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn the_oldest_go_where_there_is_no_room() {
        let (_, histories) = histories(&[]);
        let long = |id: &str| {
            let mut message: serde_json::Map<_, _> = reply(id).as_map().clone();
            message.insert("reasoning_content".into(), "x".repeat(MAX_BYTES / 2).into());
            Replied {
                reply: Value::Object(message).try_into().unwrap(),
                ..replied(id)
            }
        };
        for id in ["a", "b", "c"] {
            histories.add(key(), || true, long(id));
        }
        assert_eq!(ids(&histories).await, ["c"]);
        for n in 0..40 {
            let session = format!("s{n}").parse().unwrap();
            let other = SessionKey::new(&"main".parse().unwrap(), &session);
            histories.add(other, || true, long("a"));
        }
        let known = lock(&histories.known);
        assert!(known.n_bytes <= MAX_BYTES_IN_ALL && known.n_bytes > MAX_BYTES_IN_ALL / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_on_its_way_is_waited_for() {
        let (_, histories) = histories(&[]);
        histories.add(key(), || true, replied("a"));
        let SessionKey { agent, session } = key();
        let last_call = || Some("b".to_owned());
        let look = histories.find(&agent, &session, &last_call);
        let hear = async {
            sleep(HEARD_WITHIN / 2).await;
            histories.add(key(), || true, replied("b"));
        };
        let (history, ()) = tokio::join!(look, hear);
        assert!(history.has_call("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reply_with_fields_is_waited_for_too() {
        let (_, histories) = histories(&[]);
        let SessionKey { agent, session } = key();
        histories.begin(&agent, &session);
        histories.expect(key(), &reply("a"));
        let last_call = || Some("a".to_owned());
        let hear = async {
            sleep(HEARD_WITHIN / 2).await;
            histories.add(key(), || true, replied("a"));
        };
        let (history, ()) = tokio::join!(histories.find(&agent, &session, &last_call), hear);
        assert_eq!(history.replies.len(), 1);
        assert!(history.expected.is_empty());
    }

    #[test]
    fn a_call_is_found_whether_its_id_got_a_suffix_or_not() {
        for (logged, asked, expected) in [
            ("call_0", "call_0", true),
            ("call_0", "call_0_mc2", true),
            ("call_0_mc2", "call_0_mc2", true),
            ("call_0_mc2", "call_0_mc3", true),
            ("", "call_0_mc2", true),
            ("call_0", "call_1_mc2", false),
            ("call_0", "call_0_mcx", false),
        ] {
            let mut history = History::default();
            history.note_calls([logged.to_owned()]);
            assert_eq!(history.has_call(asked), expected, "{logged} {asked}");
        }
    }
}
