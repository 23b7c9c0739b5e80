//! A session at the server: runs and samplers belong to it, and end if its heartbeats stop.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use reqwest::Method;
use tokio::sync::Mutex;

use super::{
    Flag,
    config::{Dialect, TinkerConfig},
    http::{Http, HttpRequest, SDK_VERSION},
};
use crate::backend::Result;
use crate::tinker::{
    TinkerSessionId,
    json::{
        ClientConfig, ClientConfigRequest, ClientEnd, CreateSession, CreatedSession, DynamicConfig,
        FinishSession, Heartbeat,
    },
};

const BEAT_DEADLINE: Duration = Duration::from_secs(10);

/// The SDK's own limit for servers that do not give one.
const MOST_DATUMS: usize = 1_024;
const MOST_BYTES: usize = 5_000_000;

#[derive(Debug)]
pub(super) struct Flags {
    /// Whether a request that was sent twice with one number is carried out once. Older servers do not report this, and
    /// do not do it.
    pub(super) dedupes: bool,
    /// Whether the server wants to know about results that nobody waits for any more.
    pub(super) cancels: bool,
    pub(super) protobuf: Flag,
    pub(super) compress: bool,
    pub(super) creates_by_load: Flag,
    pub(super) most_datums: usize,
    pub(super) most_bytes: usize,
}

#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) id: TinkerSessionId,
    pub(super) flags: Arc<Flags>,
    n_models: AtomicU32,
    n_samplers: AtomicU32,
    pub(super) is_over: Flag,
}

/// The session of this process: opened when it is needed, and again after the server has dropped it.
#[derive(Debug)]
pub(super) struct TinkerSessions {
    http: Arc<Http>,
    dialect: Dialect,
    project: Option<String>,
    heartbeat: Duration,
    open: Mutex<Option<Arc<OpenSession>>>,
}

// === impl Flags ===

impl Flags {
    /// Reads the flags from the server's answer. They have defaults if the server has no such call.
    fn new(answered: Option<&ClientConfig>, dialect: Dialect, cancels: bool) -> Self {
        let is_current = dialect == Dialect::Current && answered.is_some();
        let usual = ClientConfig::default();
        let config = answered.unwrap_or(&usual);
        let by_load = config.create_model_via_load_weights.unwrap_or(is_current);
        let most_datums = config.fwdbwd_max_chunk_len.map(|n| n.max(1) as usize);
        let most_bytes = config.fwdbwd_max_chunk_bytes_count;
        Self {
            dedupes: answered.is_some(),
            cancels,
            protobuf: Flag::new(config.proto_write_fwdbwd.unwrap_or(is_current)),
            compress: config.proto_compress_fwdbwd.unwrap_or(false),
            creates_by_load: Flag::new(by_load),
            most_datums: most_datums.unwrap_or(MOST_DATUMS),
            most_bytes: most_bytes.map_or(MOST_BYTES, |n| usize::try_from(n).unwrap_or(MOST_BYTES)),
        }
    }
}

// === impl OpenSession ===

impl OpenSession {
    pub(super) fn next_model(&self) -> u32 {
        self.n_models.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_sampler(&self) -> u32 {
        self.n_samplers.fetch_add(1, Ordering::Relaxed)
    }
}

// === impl TinkerSessions ===

impl TinkerSessions {
    pub(super) fn new(config: &TinkerConfig, http: Arc<Http>) -> Self {
        Self {
            http,
            dialect: config.dialect,
            project: config.project.clone(),
            heartbeat: config.heartbeat,
            open: Mutex::new(None),
        }
    }

    /// Returns the open session, or opens a new one.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn get(&self) -> Result<Arc<OpenSession>> {
        let mut open = self.open.lock().await;
        if let Some(session) = open.as_ref().filter(|session| !session.is_over.get()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.begin().await?);
        let (http, weak) = (Arc::clone(&self.http), Arc::downgrade(&session));
        let beat = beat(http, weak, self.heartbeat);
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends by itself once nobody holds the session, and keeps nothing alive"
        )]
        tokio::spawn(beat);
        *open = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The open session, if there is one. This sends nothing.
    pub(super) async fn current(&self) -> Option<Arc<OpenSession>> {
        let open = self.open.lock().await;
        open.as_ref()
            .filter(|session| !session.is_over.get())
            .cloned()
    }

    async fn begin(&self) -> Result<OpenSession> {
        let call = "client/config";
        let asked_by = ClientConfigRequest {
            sdk_version: SDK_VERSION.to_owned(),
        };
        let request = HttpRequest::json(call, call, &asked_by)?;
        let answer = self.http.send(&request).await?;
        let config: Option<ClientConfig> = match answer.status {
            404 | 405 => None,
            _ => Some(answer.json(self.http.whose(call))?),
        };
        let by_token = config.as_ref().and_then(|config| config.pjwt_auth_enabled);
        self.http.auth.by_token.set(by_token.unwrap_or(false));
        let asked = CreateSession {
            tags: vec!["metaclaw".to_owned()],
            sdk_version: SDK_VERSION.to_owned(),
            project_id: self.project.clone(),
            ..CreateSession::default()
        };
        let reply: CreatedSession = self.http.ask("create_session", &asked).await?;
        let url = &self.http.url;
        for message in [reply.warning_message, reply.error_message]
            .into_iter()
            .flatten()
        {
            tracing::warn!(
                url,
                message,
                "the training server sends a message to its users"
            );
        }
        // A server that does not say so does not want to know about results that nobody waits for any more.
        let dynamic = self
            .http
            .ask::<DynamicConfig>("client/dynamic_config", &asked_by);
        let cancels = dynamic
            .await
            .is_ok_and(|config| config.sample_cancel_enabled);
        Ok(OpenSession {
            id: reply.session_id,
            flags: Arc::new(Flags::new(config.as_ref(), self.dialect, cancels)),
            n_models: AtomicU32::new(0),
            n_samplers: AtomicU32::new(0),
            is_over: Flag::new(false),
        })
    }

    pub(super) async fn finish(&self) {
        let Some(session) = self.open.lock().await.take() else {
            return;
        };
        session.is_over.set(true);
        let path = format!("sessions/{}/finish", session.id);
        let (reason, detail) = (ClientEnd::Success, None);
        let body = FinishSession { reason, detail };
        if let Ok(request) = HttpRequest::json("sessions/finish", &path, &body) {
            // The session ends by itself when its heartbeats stop.
            let _ = self.http.send(&request.within(BEAT_DEADLINE)).await;
        }
    }
}

/// Tells the server that the session's client is there, for as long as somebody holds the session.
async fn beat(http: Arc<Http>, session: Weak<OpenSession>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(session) = session.upgrade().filter(|session| !session.is_over.get()) else {
            return;
        };
        let call = "session_heartbeat";
        let asked = Heartbeat {
            session_id: session.id.clone(),
        };
        let Ok(request) = HttpRequest::json(call, call, &asked) else {
            return;
        };
        match http.send(&request.within(BEAT_DEADLINE)).await {
            // A 404 may come from a server without heartbeats.
            Ok(answer) if answer.status == 410 => session.is_over.set(true),
            Ok(_) | Err(_) => {}
        }
    }
}

pub(super) fn is_gone(status: u16) -> bool {
    matches!(status, 404 | 410)
}

pub(super) fn get(call: &'static str, path: &str) -> HttpRequest {
    HttpRequest::bare(call, Method::GET, path)
}
