//! Sends HTTP requests, once or repeatedly while the server is away, and says in words why one failed.

use std::{error::Error, fmt::Write as _, time::Duration};

use reqwest::{RequestBuilder, StatusCode};
use tokio::time::{Instant, sleep};

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Sends a request, and reads the whole answer.
// pair: what every answer has, the status and the body
pub(crate) async fn fetch(
    request: RequestBuilder,
) -> Result<(StatusCode, Vec<u8>), reqwest::Error> {
    let response = request.send().await?;
    Ok((response.status(), response.bytes().await?.into()))
}

/// Repeats an attempt for at most `patience`. An error that may pass comes with the shortest wait after which a new
/// attempt may help. An error without a wait is returned at once.
pub(crate) async fn patiently<T, E>(
    patience: Duration,
    attempt: impl AsyncFn() -> Result<T, (E, Option<Duration>)>,
) -> Result<T, E> {
    let deadline = Instant::now() + patience;
    let mut wait = FIRST_WAIT;
    loop {
        let (error, least) = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        // A server may ask for a wait that no clock reaches.
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(pause) = least
            .map(|least| wait.max(least))
            .filter(|pause| *pause <= left)
        else {
            return Err(error);
        };
        sleep(pause).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Returns an error without its address, and with its innermost cause, such as `Connection refused`.
pub(crate) fn in_words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(Error::source) {
        cause = Some(inner);
    }
    if let Some(cause) = cause {
        let _ = write!(text, ": {cause}");
    }
    text
}
