//! Credentials of AWS: from the environment, or from a profile of `~/.aws/credentials`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{Secret, if_there, regular};

const MAX_FILE: u64 = 1 << 20;

/// Credentials with which requests are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    pub access_key_id: String,
    pub secret_access_key: Secret,
    /// The token of temporary credentials.
    pub session_token: Option<Secret>,
}

/// The places of credentials. They are read again for each request, because temporary credentials are replaced while the
/// proxy runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialSource {
    /// The credentials of the environment. They come before the file.
    own: Option<AwsCredentials>,
    file: Option<PathBuf>,
    profile: String,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// There is no file of credentials.
    #[error(
        "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile into ~/.aws/credentials; an upstream at Bedrock can have a Bedrock API key instead"
    )]
    Nowhere,
    /// The file cannot be read.
    #[error("AWS credentials cannot be read from {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file has no such profile, or the profile has no keys.
    #[error(
        "{} has no aws_access_key_id and aws_secret_access_key in profile [{profile}] (AWS_PROFILE names another one); keys of a sign-in are written there by `aws configure export-credentials`", path.display()
    )]
    NoKeys { path: PathBuf, profile: String },
}

// === impl CredentialSource ===

impl CredentialSource {
    /// Reads the variables that AWS's own programs read: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN`, `AWS_PROFILE` and `AWS_SHARED_CREDENTIALS_FILE`. `home` is the user's folder.
    pub fn from_variables<'a>(
        variable: impl Fn(&str) -> Option<&'a str>,
        home: Option<&Path>,
    ) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let keys = given("AWS_ACCESS_KEY_ID").zip(given("AWS_SECRET_ACCESS_KEY"));
        let named = given("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        Self {
            own: keys.map(|(id, secret)| AwsCredentials {
                access_key_id: id.to_owned(),
                secret_access_key: secret.into(),
                session_token: given("AWS_SESSION_TOKEN").map(Into::into),
            }),
            file: named.or_else(|| Some(home?.join(".aws/credentials"))),
            profile: given("AWS_PROFILE").unwrap_or("default").to_owned(),
        }
    }

    /// Returns the present credentials. It reads a small file.
    ///
    /// # Errors
    /// Returns [`CredentialError`] if there are none.
    pub fn load(&self) -> Result<AwsCredentials, CredentialError> {
        if let Some(own) = &self.own {
            return Ok(own.clone());
        }
        let path = self.file.as_ref().ok_or(CredentialError::Nowhere)?;
        let read = if_there(read(path)).map_err(|source| CredentialError::Unreadable {
            path: path.clone(),
            source,
        });
        let text = read?.ok_or(CredentialError::Nowhere)?;
        credentials(&text, &self.profile).ok_or_else(|| CredentialError::NoKeys {
            path: path.clone(),
            profile: self.profile.clone(),
        })
    }
}

fn read(path: &Path) -> io::Result<String> {
    let n_bytes = regular(path)?.metadata()?.len();
    if n_bytes > MAX_FILE {
        let why = format!("it has {n_bytes} bytes, and at most {MAX_FILE} are read");
        return Err(io::Error::other(why));
    }
    fs::read_to_string(path)
}

/// Returns the credentials of a profile in a text of AWS's form: `[profile]`, then lines `name = value`.
fn credentials(text: &str, profile: &str) -> Option<AwsCredentials> {
    let (mut id, mut secret, mut token) = (None, None, None);
    let mut is_here = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.split(']').next()) {
            is_here = name.trim() == profile;
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_here) else {
            continue;
        };
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    Some(AwsCredentials {
        access_key_id: id?.to_owned(),
        secret_access_key: secret?.into(),
        session_token: token.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=s1\n\n[work]\nregion = eu-west-1\naws_access_key_id=AKIA2\naws_secret_access_key = s2=/+\naws_session_token = t2\n[sso]\nsso_session = x\n";

    fn source(variables: &[(&'static str, &'static str)], home: &Path) -> CredentialSource {
        let get = |name: &str| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| *value)
        };
        CredentialSource::from_variables(get, Some(home))
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        fs::write(home.path().join(".aws/credentials"), FILE).unwrap();
        home
    }

    #[test]
    fn the_environment_comes_before_the_file_and_a_profile_can_be_named() {
        let home = home();
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIA0"),
            ("AWS_SECRET_ACCESS_KEY", "s0"),
        ];
        let id = |variables: &[_]| {
            let found = source(variables, home.path()).load().unwrap();
            found.access_key_id
        };
        assert_eq!(id(&keys), "AKIA0");
        assert_eq!(id(&[]), "AKIA1");
        let work = source(&[("AWS_PROFILE", "work")], home.path())
            .load()
            .unwrap();
        assert_eq!(work.access_key_id, "AKIA2");
        assert_eq!(work.secret_access_key.expose(), "s2=/+");
        assert_eq!(work.session_token.unwrap().expose(), "t2");
    }

    #[test]
    fn new_credentials_are_found_while_the_proxy_runs() {
        let home = home();
        let source = source(&[], home.path());
        assert_eq!(source.load().unwrap().access_key_id, "AKIA1");
        let file = home.path().join(".aws/credentials");
        fs::write(file, FILE.replace("AKIA1", "AKIA9")).unwrap();
        assert_eq!(source.load().unwrap().access_key_id, "AKIA9");
    }

    #[test]
    fn what_is_missing_is_said_and_what_to_do() {
        let home = home();
        let why = |variables: &[_]| {
            source(variables, home.path())
                .load()
                .unwrap_err()
                .to_string()
        };
        let told = why(&[("AWS_PROFILE", "sso")]);
        assert!(told.contains("profile [sso]"), "{told}");
        let told = why(&[("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/at/all")]);
        assert!(told.contains("AWS_ACCESS_KEY_ID"), "{told}");
        assert!(!format!("{:?}", source(&[], home.path()).load()).contains("s1"));
    }
}
