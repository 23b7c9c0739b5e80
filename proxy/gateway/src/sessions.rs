//! The lessons and the adapter of each session, which stay unchanged byte for byte.
//!
//! A changed system text invalidates the provider's prompt cache and ours. So the lessons and the adapter of a session
//! are chosen once, at its first instruction. After a pause of `serving.pin_idle`, or if the client begins the history
//! again, the caches are cold anyway, and both are chosen again. With `skills.refresh: turn`, the lessons are chosen at
//! every instruction. If the owner chooses another adapter, running sessions use it from their next request on.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    thread::available_parallelism,
    time::Duration,
};

use lru::LruCache;
use metaclaw_chat::{AgentId, SessionId, Speaker};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_skills::{Lessons, Library, MemoryScope, MemoryStore, Refresh, host_part};
use metaclaw_turns::{Rollout, TurnKind};
use tokio::{sync::Semaphore, task::spawn_blocking, time::Instant};

use crate::{
    identity::{Identity, Naming},
    lock::lock,
    metrics::Metrics,
    serving::{Lease, Serving},
    session_key::SessionKey,
};

/// The number of sessions that are remembered. A session that is removed counts as paused.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
const AGENTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

#[derive(Debug, Clone)]
pub(crate) struct SessionContext {
    /// Sessions with equal lessons share them.
    pub lessons: Arc<Lessons>,
    pub lease: Lease,
    /// One reference for each running request, and one for the session.
    holders: Arc<()>,
}

#[derive(Debug)]
pub(crate) struct SessionContexts {
    library: Library,
    /// Without it, nothing is remembered.
    memory: Option<MemoryStore>,
    /// Limits concurrent searches for lessons to half of the processors.
    retrievals: Arc<Semaphore>,
    serving: Arc<Serving>,
    pin_idle: Duration,
    metrics: Arc<Metrics>,
    known: Mutex<LruCache<SessionKey, KnownSession>>,
    /// The lessons of each agent's last session. The next session usually gets the same.
    last: Mutex<LruCache<AgentId, Arc<Lessons>>>,
}

#[derive(Debug)]
struct KnownSession {
    context: SessionContext,
    last_used: Instant,
    is_answered: bool,
}

// === impl SessionContext ===

impl SessionContext {
    fn new(lessons: Arc<Lessons>, lease: Lease) -> Self {
        let holders = Arc::default();
        Self {
            lessons,
            lease,
            holders,
        }
    }
}

// === impl SessionContexts ===

impl SessionContexts {
    pub(crate) fn new(
        library: Library,
        memory: Option<MemoryStore>,
        serving: Arc<Serving>,
        pin_idle: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        let n_processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            library,
            memory,
            retrievals: Arc::new(Semaphore::new(n_processors.div_ceil(2))),
            serving,
            pin_idle,
            metrics,
            known: Mutex::new(LruCache::new(SESSIONS)),
            last: Mutex::new(LruCache::new(AGENTS)),
        }
    }

    /// Returns what a chat holds until its reply has ended, so that training lets it go first.
    pub(crate) fn chat_begins(&self) -> Arc<()> {
        self.serving.chat_begins()
    }

    /// Records the scope of memories that a request names, before its session gets any.
    pub(crate) fn note_scope(&self, who: &Identity, scope: Option<MemoryScope>) {
        if let (Some(memory), Some(scope)) = (&self.memory, scope) {
            memory.note_scope(&who.agent, &who.session, scope);
        }
    }

    /// Returns the context of a request: that of its session, or a new one. Side turns get no lessons.
    pub(crate) async fn context(&self, who: &Identity, chat: &ChatRequest) -> SessionContext {
        match who.kind {
            TurnKind::Main => self.of_turn(who, chat).await,
            TurnKind::Side | TurnKind::Rollout => self.of_errand(who),
        }
    }

    async fn of_turn(&self, who: &Identity, chat: &ChatRequest) -> SessionContext {
        // If the name stands for one conversation only, a history that begins again was summarised.
        let begins = !chat.has_reply() && who.naming != Naming::Unique;
        if let Some(context) = self.kept(who, begins) {
            if !self.is_refreshed_by(chat) {
                return context;
            }
            let lessons = self.chosen(who, chat, &context.lease).await;
            return self.with_lessons(who, context, lessons);
        }
        let lease = self.serving.lease(&who.agent);
        let lessons = self.chosen(who, chat, &lease).await;
        self.keep(who, SessionContext::new(lessons, lease))
    }

    /// Returns the context of a request in a rollout: no lessons, and the adapter of the rollout's first request, so
    /// that one policy makes all of its turns. After a long silence, it continues with the adapter that serves then.
    pub(crate) fn context_of_rollout(&self, who: &Identity, rollout: &Rollout) -> SessionContext {
        if let Some(context) = self.pinned(who) {
            return context;
        }
        let lease = match &rollout.adapter {
            Some(adapter) => self.serving.lease_on(&who.agent, adapter),
            None => self.serving.lease(&who.agent),
        };
        self.keep(who, SessionContext::new(Arc::default(), lease))
    }

    /// Returns the context of its session, even if the owner has chosen another adapter since.
    fn pinned(&self, who: &Identity) -> Option<SessionContext> {
        let mut known = lock(&self.known);
        let session = known.get_mut(&key(who))?;
        session.last_used = Instant::now();
        Some(session.context.clone())
    }

    /// Returns the adapter of its session, whose cache may serve it, without lessons.
    fn of_errand(&self, who: &Identity) -> SessionContext {
        let known = lock(&self.known);
        let lease = known
            .peek(&key(who))
            .map(|session| session.context.lease.clone());
        drop(known);
        let lease = lease.unwrap_or_else(|| self.serving.lease(&who.agent));
        SessionContext::new(Arc::default(), lease)
    }

    /// Returns whether the lessons are chosen again for a request of a known session: with `skills.refresh: turn`, if
    /// the request ends with the owner's own words, and not for the tool calls that follow.
    fn is_refreshed_by(&self, chat: &ChatRequest) -> bool {
        let last = || chat.messages().next_back()?.utterance();
        let is_instruction = || last().is_some_and(|said| said.speaker != Speaker::Client);
        match self.library.refresh() {
            Refresh::Session => false,
            Refresh::Turn => is_instruction(),
        }
    }

    async fn chosen(&self, who: &Identity, chat: &ChatRequest, lease: &Lease) -> Arc<Lessons> {
        let agent = &who.agent;
        let last = chat.utterances().next();
        let query = last.map(|said| said.text.into_owned()).unwrap_or_default();
        let shown = self.shown_by_host(agent, chat);
        let lessons = self.retrieve(who, query, shown, lease.adapter()).await;
        self.shared(agent, lessons)
    }

    fn with_lessons(
        &self,
        who: &Identity,
        context: SessionContext,
        lessons: Arc<Lessons>,
    ) -> SessionContext {
        if let Some(session) = lock(&self.known).get_mut(&key(who)) {
            session.context.lessons = Arc::clone(&lessons);
        }
        SessionContext { lessons, ..context }
    }

    pub(crate) fn nothing() -> SessionContext {
        SessionContext::new(Arc::default(), Lease::of_base())
    }

    /// Returns what the agent's host says in this request, so that lessons do not repeat what the host has learned
    /// itself. The result is empty unless the host is known to have learned something.
    fn shown_by_host(&self, agent: &AgentId, chat: &ChatRequest) -> Vec<String> {
        if !self.library.knows_host(agent) {
            return Vec::new();
        }
        let parts = chat.messages().map(|message| {
            let text = message.text();
            host_part(message.role(), &text).to_owned()
        });
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Searches the lessons for a message on a blocking thread, because a long message takes half a second with tens of
    /// thousands of skills.
    async fn retrieve(
        &self,
        who: &Identity,
        query: String,
        shown: Vec<String>,
        adapter: Option<&str>,
    ) -> Lessons {
        let permit = Arc::clone(&self.retrievals).acquire_owned().await;
        let (library, agent) = (self.library.clone(), who.agent.clone());
        let (memory, session) = (self.memory.clone(), who.session.clone());
        let adapter = adapter.map(str::to_owned);
        let searched = spawn_blocking(move || {
            let _permit = permit;
            let held_back = library.held_back(&agent);
            let held_back = held_back.shown(|text| shown.iter().any(|part| part.contains(text)));
            let lessons = library.lessons_beside(&held_back, &agent, &query, adapter.as_deref());
            let memory = memory.filter(|memory| memory.is_on_for(&agent));
            let recalled = memory.and_then(|memory| recall(&memory, &agent, &session, &query));
            lessons.behind(recalled.as_deref())
        });
        searched.await.unwrap_or_else(|error| {
            tracing::error!(%error, "no lessons could be chosen");
            Lessons::default()
        })
    }

    /// Returns the agent's last lessons if they equal `lessons`, so that sessions share one copy. Otherwise remembers
    /// `lessons` as the last ones.
    fn shared(&self, agent: &AgentId, lessons: Lessons) -> Arc<Lessons> {
        let mut last = lock(&self.last);
        if let Some(same) = last.get(agent).filter(|last| ***last == lessons) {
            return Arc::clone(same);
        }
        let lessons = Arc::new(lessons);
        last.put(agent.clone(), Arc::clone(&lessons));
        lessons
    }

    /// Returns the context of a session, unless the session has paused, or its client has begun it again: OpenClaw's
    /// `/new` empties the history and keeps the name.
    fn kept(&self, who: &Identity, begins: bool) -> Option<SessionContext> {
        let mut known = lock(&self.known);
        let session = known.get_mut(&key(who))?;
        if session.is_idle(self.pin_idle) || (begins && session.is_answered) {
            let stale = known.pop(&key(who));
            drop(known);
            // Dropping it may unload an adapter, so the lock is released first.
            drop(stale);
            self.metrics.cache_breaks.inc();
            return None;
        }
        session.last_used = Instant::now();
        let renewed = self.serving.renewed(&who.agent, &session.context.lease);
        let replaced = renewed.map(|lease| std::mem::replace(&mut session.context.lease, lease));
        let context = session.context.clone();
        drop(known);
        drop(replaced);
        Some(context)
    }

    /// Stores the context of a session. If two requests begin a session at the same time, both get the context of the
    /// first.
    fn keep(&self, who: &Identity, context: SessionContext) -> SessionContext {
        let mut known = lock(&self.known);
        let begin = || KnownSession {
            context,
            last_used: Instant::now(),
            is_answered: false,
        };
        known.get_or_insert(key(who), begin).context.clone()
    }

    /// A reply of the session has ended, so its pause begins now, unless the session has ended too. Side turns do not
    /// count.
    pub(crate) fn touch(&self, who: &Identity) {
        let mut known = lock(&self.known);
        if who.is_last {
            known.pop(&key(who));
        } else if who.kind != TurnKind::Side
            && let Some(session) = known.get_mut(&key(who))
        {
            session.last_used = Instant::now();
            session.is_answered = true;
        }
    }

    /// Drops the contexts of silent sessions, so that their adapters can be unloaded.
    pub(crate) fn sweep(&self) {
        let mut known = lock(&self.known);
        let silent = known
            .iter()
            .filter(|(_, session)| session.is_idle(self.pin_idle));
        for key in silent.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            known.pop(&key);
        }
    }
}

// === impl KnownSession ===

impl KnownSession {
    /// Returns whether it has paused for `pin_idle`. A session with a running reply is not idle, however long the reply
    /// takes.
    fn is_idle(&self, pin_idle: Duration) -> bool {
        let is_answered = Arc::strong_count(&self.context.holders) == 1;
        is_answered && self.last_used.elapsed() >= pin_idle
    }
}

/// Returns the memories for a message. If they cannot be read, the chat continues without them.
fn recall(
    memory: &MemoryStore,
    agent: &AgentId,
    session: &SessionId,
    query: &str,
) -> Option<String> {
    let scope = memory.scope_of(agent, session);
    match memory.recall(agent, &scope, query) {
        Ok(recall) => recall.block,
        Err(error) => {
            tracing::warn!(%error, "no memories could be chosen");
            None
        }
    }
}

fn key(who: &Identity) -> SessionKey {
    SessionKey::new(&who.agent, &who.session)
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use metaclaw_dialects::Api;
    use metaclaw_skills::{SkillsConfig, WishesConfig};

    use super::*;

    #[test]
    fn lessons_are_searched_away_from_the_thread_that_chats() {
        // The one thread that searches is kept busy until it has been seen that this one does not.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (free, busy) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || busy.recv());
        runtime.block_on(search_elsewhere(free));
    }

    /// A skill of each of these names, and sessions that choose from them.
    fn sessions_with(names: &[&str]) -> (tempfile::TempDir, SessionContexts) {
        let skills = tempfile::tempdir().unwrap();
        for name in names {
            let folder = skills.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            let text =
                format!("---\nname: {name}\ndescription: Finding {name}\n---\nLook at October.\n");
            std::fs::write(folder.join("SKILL.md"), text).unwrap();
        }
        let (library, _) = Library::open(
            skills.path(),
            SkillsConfig::default(),
            WishesConfig::default(),
        );
        let sessions = SessionContexts::new(
            library,
            None,
            Serving::new(|_| ()),
            Duration::from_secs(600),
            Arc::default(),
        );
        (skills, sessions)
    }

    fn main_turn(session: &str) -> Identity {
        Identity {
            agent: AgentId::default_agent(),
            session: session.parse().unwrap(),
            kind: TurnKind::Main,
            naming: Naming::Reused,
            is_new: false,
            is_last: false,
        }
    }

    #[tokio::test]
    async fn skills_are_chosen_by_the_owners_words_and_not_by_what_stands_around_them() {
        let (_skills, sessions) = sessions_with(&["invoices", "calendars"]);
        let chosen = async |session: &str, content: &str| {
            let raw = serde_json::json!({"messages": [{"role": "user", "content": content}]});
            let chat = ChatRequest::parse(Api::Chat, raw.to_string().into()).unwrap();
            let context = sessions.context(&main_turn(session), &chat).await;
            let skills = context.lessons.skills.iter();
            skills
                .map(|skill| skill.name.to_string())
                .collect::<Vec<_>>()
        };
        let reminder = "<system-reminder>\nThe calendars of the owner are kept in calendars.\n</system-reminder>\n";
        let asked = "Which invoices are open?";
        let [before, behind] = [format!("{reminder}{asked}"), format!("{asked}\n{reminder}")];
        for (session, content) in [("plain", asked), ("before", &before), ("behind", &behind)] {
            assert_eq!(chosen(session, content).await, ["invoices"], "{session}");
        }
        // Said by the owner, the same word counts.
        let both = chosen("both", "Which calendars are open?").await;
        assert_eq!(both, ["calendars"]);
    }

    async fn search_elsewhere(free: std::sync::mpsc::Sender<()>) {
        let (_skills, sessions) = sessions_with(&["invoices"]);
        let who = main_turn("s");
        let raw = br#"{"messages":[{"role":"user","content":"Which invoices are open?"}]}"#;
        let chat = ChatRequest::parse(Api::Chat, raw[..].into()).unwrap();
        let mut first = pin!(sessions.context(&who, &chat));
        let polled = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending()));
        assert!(polled.await, "this thread has searched");
        drop(free);
        assert_eq!(first.await.lessons.skills.len(), 1);
        let mut second = pin!(sessions.context(&who, &chat));
        let polled = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_ready()));
        // Nothing is searched for a session that goes on.
        assert!(polled.await);
    }
}
