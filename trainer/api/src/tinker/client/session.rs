//! A session at the server: runs and samplers belong to it, and end if its heartbeats stop.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use reqwest::Method;
use tokio::sync::Mutex;

use super::{
    config::{Dialect, TinkerConfig},
    http::{Http, HttpRequest, SDK_VERSION},
};
use crate::{
    BackendError,
    tinker::{
        TinkerSessionId,
        json::{
            ClientConfig, ClientConfigRequest, ClientEnd, CreateSession, CreatedSession as Opened,
            DynamicConfig, FinishSession, Heartbeat,
        },
    },
};

/// The timeout of a heartbeat.
const BEAT_DEADLINE: Duration = Duration::from_secs(10);

/// The SDK's own limit for servers that do not give one.
const MOST_DATUMS: usize = 1_024;
const MOST_BYTES: usize = 5_000_000;

/// The server's wishes for requests.
#[derive(Debug)]
pub(super) struct Flags {
    /// Whether a request that was sent twice with one number is carried out once. Older servers do not report this, and
    /// do not do it.
    pub(super) dedupes: bool,
    /// Whether the server wants to know about results that nobody waits for any more.
    pub(super) cancels: bool,
    /// Whether training requests are protobuf.
    protobuf: AtomicBool,
    /// Whether a body is to be compressed.
    pub(super) compress: bool,
    /// Whether a model is created by loading a checkpoint, in one call.
    create_by_load: AtomicBool,
    /// The largest number of sequences in one request.
    pub(super) most_datums: usize,
    /// The largest size of one request, in bytes.
    pub(super) most_bytes: usize,
}

/// A session that is open, as far as is known.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) id: TinkerSessionId,
    pub(super) flags: Arc<Flags>,
    n_models: AtomicU32,
    n_samplers: AtomicU32,
    is_over: AtomicBool,
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
    fn of(answered: Option<&ClientConfig>, dialect: Dialect, cancels: bool) -> Self {
        let is_current = dialect == Dialect::Current && answered.is_some();
        let usual = ClientConfig::default();
        let said = answered.unwrap_or(&usual);
        let bytes = said.fwdbwd_max_chunk_bytes_count;
        let bytes = bytes.and_then(|it| usize::try_from(it).ok());
        Self {
            dedupes: answered.is_some(),
            cancels,
            protobuf: AtomicBool::new(said.proto_write_fwdbwd.unwrap_or(is_current)),
            compress: said.proto_compress_fwdbwd.unwrap_or(false),
            create_by_load: AtomicBool::new(
                said.create_model_via_load_weights.unwrap_or(is_current),
            ),
            most_datums: said
                .fwdbwd_max_chunk_len
                .map_or(MOST_DATUMS, |it| it.max(1) as usize),
            most_bytes: bytes.unwrap_or(MOST_BYTES),
        }
    }

    pub(super) fn protobuf(&self) -> bool {
        self.protobuf.load(Ordering::Relaxed)
    }

    /// Records that the server reads JSON only.
    pub(super) fn set_json(&self) {
        self.protobuf.store(false, Ordering::Relaxed);
    }

    pub(super) fn creates_by_load(&self) -> bool {
        self.create_by_load.load(Ordering::Relaxed)
    }

    /// Records that the server loads only into existing models.
    pub(super) fn set_loads_into_models(&self) {
        self.create_by_load.store(false, Ordering::Relaxed);
    }
}

// === impl OpenSession ===

impl OpenSession {
    /// The number of the next model.
    pub(super) fn next_model(&self) -> u32 {
        self.n_models.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the next sampler, of all kinds.
    pub(super) fn next_sampler(&self) -> u32 {
        self.n_samplers.fetch_add(1, Ordering::Relaxed)
    }

    /// Records that the server does not know the session any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
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
    pub(super) async fn get(&self) -> Result<Arc<OpenSession>, BackendError> {
        let mut open = self.open.lock().await;
        if let Some(session) = open.as_ref().filter(|it| !it.is_over()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.begin().await?);
        let beat = beat(
            Arc::clone(&self.http),
            Arc::downgrade(&session),
            self.heartbeat,
        );
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
        open.as_ref().filter(|it| !it.is_over()).cloned()
    }

    async fn begin(&self) -> Result<OpenSession, BackendError> {
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
        let by_token = config.as_ref().and_then(|it| it.pjwt_auth_enabled);
        self.http.auth().set_by_token(by_token.unwrap_or(false));
        let call = "create_session";
        let asked = CreateSession {
            tags: vec!["metaclaw".to_owned()],
            sdk_version: SDK_VERSION.to_owned(),
            project_id: self.project.clone(),
            ..CreateSession::default()
        };
        let answer = self
            .http
            .send(&HttpRequest::json(call, call, &asked)?)
            .await?;
        let reply: Opened = answer.json(self.http.whose(call))?;
        let words = [&reply.warning_message, &reply.error_message];
        for said in words.into_iter().flatten() {
            tracing::warn!(
                url = self.http.url(),
                said,
                "the training server has a word for its users"
            );
        }
        Ok(OpenSession {
            id: reply.session_id,
            flags: Arc::new(Flags::of(
                config.as_ref(),
                self.dialect,
                self.cancels(&asked_by).await,
            )),
            n_models: AtomicU32::new(0),
            n_samplers: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether the server wants to know about results that nobody waits for any more. A server that does not say so
    /// does not.
    async fn cancels(&self, asked_by: &ClientConfigRequest) -> bool {
        let call = "client/dynamic_config";
        let Ok(request) = HttpRequest::json(call, call, asked_by) else {
            return false;
        };
        let Ok(answer) = self.http.send(&request).await else {
            return false;
        };
        let config = answer.json::<DynamicConfig>(self.http.whose(call));
        config.is_ok_and(|it| it.sample_cancel_enabled)
    }

    /// Tells the server that the session is over, so that it frees what it holds.
    pub(super) async fn finish(&self) {
        let Some(session) = self.open.lock().await.take() else {
            return;
        };
        session.end();
        let path = format!("sessions/{}/finish", session.id);
        let body = FinishSession {
            reason: ClientEnd::Success,
            detail: None,
        };
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
        let Some(session) = session.upgrade().filter(|it| !it.is_over()) else {
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
            Ok(answer) if answer.status == 410 => session.end(),
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether a status says that a session, model or sampler does not exist (any more).
pub(super) fn is_gone(status: u16) -> bool {
    matches!(status, 404 | 410)
}

/// A GET request for a call.
pub(super) fn get(call: &'static str, path: &str) -> HttpRequest {
    HttpRequest::bare(call, Method::GET, path)
}
