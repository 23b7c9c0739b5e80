//! `/v1/memory/..`: calls of the memory API, read here and answered by another crate.
//!
//! Paths, bodies and answers are those of the Python original, and so is the form of an error: `{"detail": ".."}`.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use metaclaw_memory::MemoryScope;
use serde_json::{Value, json};

use crate::{
    auth::caller::Caller,
    body::Body,
    identity,
    respond::{GatewayError, json_response},
    route::MEMORY,
    services::{MemoryCall, MemoryRequest, ServiceError, Services, StoredRequest},
};

/// How many hits a search returns if the call does not say it, as in the original.
const LIMIT: usize = 20;
/// The most hits of one search.
const MAX_LIMIT: usize = 1_000;

/// Answers a call of the memory API.
pub(crate) async fn serve_memory(
    services: Services,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    let (head, raw) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions)?;
    let agent = identity::named_agent(&head.headers, &caller)?;
    let answer = async {
        let request = read(&head.method, &head.uri, &raw)?;
        let memory = services.memory.ok_or_else(|| ServiceError {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: "memory not enabled".to_owned(),
        })?;
        memory.call(MemoryCall { agent, request }).await
    };
    Ok(match answer.await {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(error) => json_response(error.status, &json!({"detail": error.message})),
    })
}

/// Reads a call.
fn read(method: &Method, uri: &Uri, raw: &[u8]) -> Result<MemoryRequest, ServiceError> {
    let path = uri.path().strip_prefix(MEMORY).unwrap_or_default();
    let query = Query(uri.query().unwrap_or_default());
    let scope = || query.get("scope").filter(|it| !it.is_empty());
    let scope = || scope().map(|name| MemoryScope::new(&name));
    Ok(match (method.as_str(), path.trim_matches('/')) {
        ("GET", "") => StoredRequest::List { scope: scope() }.into(),
        ("GET", "search") => StoredRequest::Search {
            query: query.get("q").unwrap_or_default(),
            scope: scope(),
            limit: query.limit()?,
        }
        .into(),
        ("GET", "stats") => StoredRequest::Stats { scope: scope() }.into(),
        ("GET", "health") => StoredRequest::Health { scope: scope() }.into(),
        ("GET", "summary") => StoredRequest::Summary.into(),
        ("GET", id) if !id.contains('/') => StoredRequest::Get { id: id.to_owned() }.into(),
        ("DELETE", id) if !id.is_empty() && !id.contains('/') => {
            StoredRequest::Forget { id: id.to_owned() }.into()
        }
        ("POST", "maintenance") => StoredRequest::Maintenance.into(),
        ("POST", action) => Fields::parse(raw)?.request(action)?,
        (method, path) => {
            return Err(ServiceError {
                status: StatusCode::METHOD_NOT_ALLOWED,
                message: format!("{MEMORY}/{path} does not take {method}"),
            });
        }
    })
}

/// The fields of a body.
struct Fields(Value);

// === impl Fields ===

impl Fields {
    fn parse(raw: &[u8]) -> Result<Self, ServiceError> {
        let raw = if raw.is_empty() { b"{}" } else { raw };
        let fields: Value = serde_json::from_slice(raw)
            .map_err(|error| bad(format!("the request body is no JSON: {error}")))?;
        if fields.is_object() {
            return Ok(Self(fields));
        }
        Err(bad("the request body must be a JSON object".to_owned()))
    }

    fn request(&self, action: &str) -> Result<MemoryRequest, ServiceError> {
        match action {
            "ingest" => Ok(MemoryRequest::Ingest {
                session: self.session()?,
                scope: self.scope("scope"),
            }),
            "buffer_turn" => Ok(MemoryRequest::BufferTurn {
                session: self.needed_session()?,
                scope: self.scope("scope_id"),
                said: self.said()?,
            }),
            "flush_session" => Ok(MemoryRequest::FlushSession {
                session: self.needed_session()?,
                scope: self.scope("scope_id"),
            }),
            "forget" => match self.text("memory_id") {
                Some(id) => Ok(StoredRequest::Forget { id: id.to_owned() }.into()),
                None => Err(bad("memory_id: a text is needed".to_owned())),
            },
            "retrieve" => Ok(StoredRequest::Retrieve {
                query: self.text("task_description").unwrap_or_default().to_owned(),
                scope: self.scope("scope_id"),
            }
            .into()),
            other => Err(ServiceError {
                status: StatusCode::NOT_FOUND,
                message: format!(
                    "POST {MEMORY}/{other} is not served: there are ingest, buffer_turn, flush_session, forget, retrieve and maintenance; `metaclaw memory add` stores a memory"
                ),
            }),
        }
    }

    /// Returns a text field that is not empty.
    fn text(&self, name: &str) -> Option<&str> {
        let text = self.0[name].as_str().map(str::trim);
        text.filter(|text| !text.is_empty())
    }

    fn scope(&self, name: &str) -> Option<MemoryScope> {
        self.text(name).map(MemoryScope::new)
    }

    fn session(&self) -> Result<Option<metaclaw_chat::SessionId>, ServiceError> {
        let named = self.text("session_id").map(str::parse).transpose();
        named.map_err(|error: metaclaw_chat::NameError| bad(format!("session_id: {error}")))
    }

    fn needed_session(&self) -> Result<metaclaw_chat::SessionId, ServiceError> {
        let missing = || bad("session_id: a text is needed".to_owned());
        self.session()?.ok_or_else(missing)
    }

    /// Returns what the owner typed in a turn. The reply, which is beside it, is a model's.
    fn said(&self) -> Result<String, ServiceError> {
        let said = self.0["turn"]["prompt_text"].as_str();
        let missing = || bad("turn.prompt_text: a text is needed".to_owned());
        said.map(str::to_owned).ok_or_else(missing)
    }
}

/// The query of an address.
struct Query<'q>(&'q str);

// === impl Query ===

impl Query<'_> {
    fn get(&self, name: &str) -> Option<String> {
        let mut fields = self.0.split('&').filter_map(|field| field.split_once('='));
        fields
            .find(|(key, _)| *key == name)
            .map(|(_, value)| decoded(value))
    }

    fn limit(&self) -> Result<usize, ServiceError> {
        let Some(given) = self.get("limit") else {
            return Ok(LIMIT);
        };
        let limit = given.parse().ok().filter(|it| (1..=MAX_LIMIT).contains(it));
        limit.ok_or_else(|| bad(format!("limit: {given:?} is not 1 to {MAX_LIMIT}")))
    }
}

/// Decodes a value of a query: `%` with two hexadecimal digits is a byte, and `+` a space.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after
            .get(..2)
            .filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
        let byte = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        let (byte, n) = match (*first, byte) {
            (b'%', Some(byte)) => (byte, 2),
            (b'+', _) => (b' ', 0),
            (other, _) => (other, 0),
        };
        bytes.push(byte);
        rest = after.get(n..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn bad(message: String) -> ServiceError {
    ServiceError {
        status: StatusCode::BAD_REQUEST,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, uri: &str, raw: &str) -> Result<MemoryRequest, (u16, String)> {
        let read = read(method, &uri.parse().unwrap(), raw.as_bytes());
        read.map_err(|error| (error.status.as_u16(), error.message))
    }

    #[test]
    fn calls_of_the_original_are_read() {
        let get = |uri: &str| asked(&Method::GET, uri, "").unwrap();
        assert_eq!(
            get("/v1/memory/search?q=dark%20mode+%E5%A4%9C&scope=user%3Aa&limit=3"),
            MemoryRequest::Stored(StoredRequest::Search {
                query: "dark mode 夜".to_owned(),
                scope: Some(MemoryScope::new("user:a")),
                limit: 3
            })
        );
        assert_eq!(
            get("/v1/memory/stats?scope="),
            MemoryRequest::Stored(StoredRequest::Stats { scope: None })
        );
        assert_eq!(
            get("/v1/memory/0badcafe"),
            MemoryRequest::Stored(StoredRequest::Get {
                id: "0badcafe".to_owned()
            })
        );
        let post = |path: &str, raw: &str| asked(&Method::POST, path, raw);
        assert_eq!(
            post("/v1/memory/ingest", "").unwrap(),
            MemoryRequest::Ingest {
                session: None,
                scope: None
            }
        );
        let turn =
            r#"{"session_id":"s","turn":{"prompt_text":"I live in Rome.","response_text":"x"}}"#;
        assert_eq!(
            post("/v1/memory/buffer_turn", turn).unwrap(),
            MemoryRequest::BufferTurn {
                session: "s".parse().unwrap(),
                scope: None,
                said: "I live in Rome.".to_owned()
            }
        );
        for (path, raw, status) in [
            ("/v1/memory/ingest", "[]", 400),
            ("/v1/memory/ingest", "{", 400),
            ("/v1/memory/flush_session", "{}", 400),
            ("/v1/memory/buffer_turn", r#"{"session_id":"s"}"#, 400),
            (
                "/v1/memory/buffer_turn",
                r#"{"session_id":"a\u0000b","turn":{}}"#,
                400,
            ),
            ("/v1/memory/forget", "{}", 400),
            ("/v1/memory/action-plan", "{}", 404),
        ] {
            assert_eq!(post(path, raw).unwrap_err().0, status, "{path} {raw}");
        }
        let refused = asked(&Method::GET, "/v1/memory/search?limit=0", "").unwrap_err();
        assert_eq!(refused, (400, "limit: \"0\" is not 1 to 1000".to_owned()));
        assert_eq!(asked(&Method::PUT, "/v1/memory/x", "").unwrap_err().0, 405);
    }

    #[test]
    fn a_query_is_decoded_and_never_panics() {
        assert_eq!(decoded("a%"), "a%");
        assert_eq!(decoded("%4"), "%4");
        assert_eq!(decoded("%+5"), "% 5");
        assert_eq!(decoded("%zz%41é+"), "%zzAé ");
    }
}
