//! The sign-in at Google for a calendar, by the OAuth client of the user's own project, and the file of its token:
//! <https://developers.google.com/identity/protocols/oauth2/native-app>.
//!
//! The file has the form of Google's own library for Python, which the Python original uses. So both programs can read it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use metaclaw_chat::regular;
use metaclaw_settings::write_private;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::loopback::{Pkce, Redirect, answered};

const SCOPE: &str = "https://www.googleapis.com/auth/calendar.readonly";
const AUTH: &str = "https://accounts.google.com/o/oauth2/v2/auth";
const TOKEN: &str = "https://oauth2.googleapis.com/token";
const EARLY: Duration = Duration::from_secs(60);
/// The longest lifetime of a token that is believed, in seconds: a year. A greater number would overflow a time.
const MAX_LIFETIME: u64 = 365 * 24 * 3_600;
const AGAIN: &str = "sign in by `metaclaw auth login --provider google-calendar`";

/// An OAuth client, as in the file `credentials.json` of Google Cloud. It has a secret, and so no `Debug`.
#[derive(Clone, Deserialize)]
pub(crate) struct OauthClient {
    client_id: String,
    #[serde(default)]
    client_secret: String,
    #[serde(default = "auth")]
    auth_uri: String,
    #[serde(default = "token")]
    token_uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientFile {
    Installed(OauthClient),
    Web(OauthClient),
}

/// A token and its file. It has secrets, and so no `Debug`.
pub(crate) struct GoogleToken {
    path: PathBuf,
    fields: Map<String, Value>,
}

fn auth() -> String {
    AUTH.to_owned()
}

fn token() -> String {
    TOKEN.to_owned()
}

// === impl OauthClient ===

impl OauthClient {
    /// Reads the client's file.
    ///
    /// # Errors
    /// If it cannot be read, or is not of Google's form.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = regular(path).and_then(fs::read_to_string);
        let text = text.with_context(|| format!("cannot read {shown}"))?;
        let file: ClientFile = serde_json::from_str(&text).with_context(|| {
            format!("{shown} is no OAuth client: Google Cloud has it as a JSON file of a \"Desktop app\"")
        })?;
        Ok(match file {
            ClientFile::Installed(client) | ClientFile::Web(client) => client,
        })
    }

    pub(crate) fn page(&self, redirect: &Redirect, pkce: &Pkce) -> anyhow::Result<Url> {
        let back = come_back(redirect);
        let query = [
            ("client_id", self.client_id.as_str()),
            ("redirect_uri", &back),
            ("response_type", "code"),
            ("scope", SCOPE),
            ("state", &redirect.state),
            ("code_challenge", &pkce.challenge),
            ("code_challenge_method", "S256"),
            // A refresh token comes only with these.
            ("access_type", "offline"),
            ("prompt", "consent"),
        ];
        Ok(Url::parse_with_params(&self.auth_uri, query)?)
    }

    /// Returns the token that a code stands for. It is not saved yet.
    ///
    /// # Errors
    /// If Google refuses the code, or gives no refresh token.
    pub(crate) async fn token(
        &self,
        client: &reqwest::Client,
        redirect: &Redirect,
        code: &str,
        pkce: &Pkce,
        path: &Path,
    ) -> anyhow::Result<GoogleToken> {
        let back = come_back(redirect);
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", &pkce.verifier),
            ("redirect_uri", &back),
            ("client_id", &self.client_id),
            ("client_secret", &self.client_secret),
        ];
        let answer = answered(posted(client, &self.token_uri, &form)?).await;
        let answer = answer.context("Google gives no token")?;
        let refresh = answer["refresh_token"].as_str();
        let refresh = refresh.context("Google's answer has no refresh_token")?;
        let fields = json!({
            "refresh_token": refresh,
            "token_uri": self.token_uri,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "scopes": [SCOPE],
        });
        let mut token = GoogleToken {
            path: path.to_owned(),
            fields: fields.as_object().cloned().unwrap_or_default(),
        };
        token.take(&answer)?;
        Ok(token)
    }
}

// === impl GoogleToken ===

impl GoogleToken {
    /// Reads a token's file.
    ///
    /// # Errors
    /// If it cannot be read, or is not of Google's form.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {shown}: {AGAIN}"))?;
        let fields =
            serde_json::from_str(&text).with_context(|| format!("{shown} is no token: {AGAIN}"))?;
        Ok(Self {
            path: path.to_owned(),
            fields,
        })
    }

    /// Writes the file, for its owner alone, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.fields)?;
        let path = self.path.display();
        write_private(&self.path, &text).with_context(|| format!("cannot write {path}"))
    }

    /// Returns a valid access token. A token that ends soon is refreshed, and the new one is saved before it is used.
    ///
    /// # Errors
    /// If Google refuses to refresh the token or cannot be reached, or the new token cannot be saved.
    pub(crate) async fn access(
        &mut self,
        client: &reqwest::Client,
        now: Timestamp,
    ) -> anyhow::Result<String> {
        let ends = self
            .text("expiry")
            .and_then(|text| text.parse::<Timestamp>().ok());
        let is_good = ends.is_some_and(|ends| now + EARLY < ends);
        if let Some(token) = self.text("token").filter(|_| is_good) {
            return Ok(token.to_owned());
        }
        let given = |name: &str| self.text(name).unwrap_or_default().to_owned();
        let refresh = given("refresh_token");
        if refresh.is_empty() {
            bail!("the token has ended and cannot be refreshed: {AGAIN}");
        }
        let (id, secret) = (given("client_id"), given("client_secret"));
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("client_id", &id),
            ("client_secret", &secret),
        ];
        let place = self.text("token_uri").unwrap_or(TOKEN).to_owned();
        let answer = answered(posted(client, &place, &form)?).await;
        let answer = answer
            .with_context(|| format!("Google gives no new token; if that stays so, {AGAIN}"))?;
        self.take(&answer)?;
        self.save()?;
        Ok(given_text(&self.fields, "token")
            .unwrap_or_default()
            .to_owned())
    }

    fn take(&mut self, answer: &Value) -> anyhow::Result<()> {
        let token = answer["access_token"].as_str();
        let token = token.context("Google's answer has no access_token")?;
        let seconds = answer["expires_in"].as_u64().unwrap_or_default();
        let seconds = seconds.min(MAX_LIFETIME);
        let ends = Timestamp::now() + Duration::from_secs(seconds);
        self.fields.insert("token".to_owned(), json!(token));
        self.fields
            .insert("expiry".to_owned(), json!(ends.to_string()));
        // Google may replace the refresh token as well.
        if let Some(refresh) = answer["refresh_token"].as_str() {
            self.fields
                .insert("refresh_token".to_owned(), json!(refresh));
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        given_text(&self.fields, name)
    }
}

fn given_text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

fn come_back(redirect: &Redirect) -> String {
    format!("http://127.0.0.1:{}", redirect.port)
}

/// Returns a request with a form. Its fields are in the body, so no log of addresses has them.
fn posted(
    client: &reqwest::Client,
    url: &str,
    form: &[(&str, &str)],
) -> anyhow::Result<reqwest::RequestBuilder> {
    let encoded = Url::parse_with_params("http://form", form)?;
    let body = encoded.query().unwrap_or_default().to_owned();
    let request = client.post(url);
    let kind = "application/x-www-form-urlencoded";
    Ok(request.header("content-type", kind).body(body))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    /// Gives tokens as Google does, and refuses the refresh token "revoked".
    fn google() -> Server {
        Server::new(|request| {
            let form = String::from_utf8_lossy(&request.body);
            let has =
                |parts: [&str; 2]| assert!(parts.iter().all(|part| form.contains(part)), "{form}");
            if form.contains("refresh_token=revoked") {
                let error = json!({"error": "invalid_grant", "error_description": "Token has been expired or revoked."});
                return Reply::status(400, error);
            }
            Reply::json(if form.contains("grant_type=authorization_code") {
                has(["code=4%2F0A", "code_verifier="]);
                json!({"access_token": "first", "expires_in": 3599, "refresh_token": "r1", "token_type": "Bearer"})
            } else {
                has(["refresh_token=r1", "client_id=id"]);
                json!({"access_token": "second", "expires_in": u64::MAX, "token_type": "Bearer"})
            })
        })
    }

    fn written(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_kept_and_refreshed_before_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calendar_token.json");
        let google = google();
        let url = format!("{}/token", google.url());
        let file = folder.path().join("credentials.json");
        let installed = json!({"installed": {"client_id": "id", "client_secret": "s", "token_uri": url, "redirect_uris": ["http://localhost"]}});
        fs::write(&file, installed.to_string()).unwrap();
        let client = metaclaw_llm::loopback_client().unwrap();
        let redirect = Redirect::listen(0).await.unwrap();
        let oauth = OauthClient::load(&file).unwrap();
        let pkce = Pkce::new();
        let mut token = oauth
            .token(&client, &redirect, "4/0A", &pkce, &path)
            .await
            .unwrap();
        token.save().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let now = Timestamp::now();
        assert_eq!(token.access(&client, now).await.unwrap(), "first");
        let later = now + Duration::from_secs(3_590);
        let mut read = GoogleToken::load(&path).unwrap();
        assert_eq!(read.access(&client, later).await.unwrap(), "second");
        let written = written(&path);
        assert_eq!(
            (&written["token"], &written["refresh_token"]),
            (&json!("second"), &json!("r1"))
        );
    }

    #[tokio::test]
    async fn the_originals_file_is_read_and_a_withdrawn_token_is_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calendar_token.json");
        let google = google();
        let url = format!("{}/token", google.url());
        // As google.oauth2.credentials of Python writes it.
        let python = json!({"token": "old", "refresh_token": "r1", "token_uri": url, "client_id": "id", "client_secret": "s",
            "scopes": [SCOPE], "universe_domain": "googleapis.com", "account": "", "expiry": "2020-01-01T00:00:00.123456Z"});
        fs::write(&path, python.to_string()).unwrap();
        let client = metaclaw_llm::loopback_client().unwrap();
        let mut token = GoogleToken::load(&path).unwrap();
        assert_eq!(
            token.access(&client, Timestamp::now()).await.unwrap(),
            "second"
        );
        assert_eq!(written(&path)["universe_domain"], "googleapis.com");
        let withdrawn = json!({"token": "old", "refresh_token": "revoked", "token_uri": url});
        fs::write(&path, withdrawn.to_string()).unwrap();
        let mut token = GoogleToken::load(&path).unwrap();
        let why = token.access(&client, Timestamp::now()).await.unwrap_err();
        let why = format!("{why:#}");
        assert!(
            why.contains("auth login") && why.contains("expired or revoked"),
            "{why}"
        );
        assert_eq!(written(&path)["token"], "old", "nothing is lost");
    }
}
