//! Limits of bodies: their size, their speed, and the bytes of all bodies together.
//!
//! A body that cannot fit is refused by its announced length, or as soon as it exceeds the limit. It is never held in
//! memory.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::StatusCode,
};
use futures_util::StreamExt as _;
use metaclaw_trainer_terms::ErrorCode;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use crate::error::ApiError;

const SILENCE: Duration = Duration::from_secs(10);
/// The time for a body. It gets one more second for each [`LEAST_RATE`] bytes that arrived.
const GRACE: Duration = Duration::from_secs(30);
const LEAST_RATE: usize = 256 << 10;
/// A refused body is read to its end if it is no longer than this, because most clients write everything before they
/// read an answer.
const DRAINED: usize = 64 << 20;
/// Bytes per permit.
const UNIT: usize = 1 << 10;

/// A budget for the bodies of one kind of route.
#[derive(Debug)]
pub struct Pool {
    units: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    what: &'static str,
}

/// A permit of a pool. It is given back when the last clone is dropped. A request holds one until its body is read.
#[derive(Debug, Clone)]
pub struct Hold(
    #[expect(dead_code, reason = "held for its drop")]
    Arc<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
);

/// The largest body, and the answer to a larger one.
#[derive(Debug)]
pub struct Largest {
    pub bytes: usize,
    /// The answer to a larger one.
    pub refusal: ApiError,
}

// === impl Largest ===

impl Largest {
    /// A fixed limit in bytes.
    pub fn of(bytes: usize) -> Self {
        let text = format!("the body is larger than the {bytes} bytes that this server takes");
        let refusal = ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, text);
        let refusal = refusal.with_code(ErrorCode::BodyTooLarge);
        Self { bytes, refusal }
    }
}

// === impl Pool ===

impl Pool {
    /// Makes a pool for so many bytes in so many calls.
    pub fn new(what: &'static str, n_bytes: usize, n_calls: usize) -> Self {
        let semaphore = |n| Arc::new(Semaphore::new(n));
        let (units, calls) = (semaphore(n_bytes.div_ceil(UNIT)), semaphore(n_calls));
        Self { units, calls, what }
    }

    /// Reads the whole body, and returns it with its permit.
    ///
    /// # Errors
    /// Answers 413 for a body over `largest`, 503 if there is no room, and an error if the body breaks off.
    pub async fn read(&self, body: Body, largest: Largest) -> Result<(Bytes, Hold), ApiError> {
        let announced = body.size_hint().upper();
        let announced = announced.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let mut incoming = Incoming::new(body);
        let is_too_large = announced.is_some_and(|n| n > largest.bytes);
        let hold = if is_too_large {
            Err(largest.refusal.clone())
        } else {
            self.hold(announced.unwrap_or(largest.bytes))
        };
        let hold = match hold {
            Ok(hold) => hold,
            Err(refusal) => {
                if announced.is_none_or(|n| n <= DRAINED) {
                    drain(&mut incoming).await?;
                }
                return Err(refusal);
            }
        };
        let mut bytes = Vec::with_capacity(announced.unwrap_or(0));
        while let Some(more) = incoming.next().await? {
            if bytes.len() + more.len() > largest.bytes {
                drop(bytes);
                drain(&mut incoming).await?;
                return Err(largest.refusal);
            }
            bytes.extend_from_slice(&more);
        }
        Ok((bytes.into(), hold))
    }

    fn hold(&self, n_bytes: usize) -> Result<Hold, ApiError> {
        let n_units = u32::try_from(n_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let call = Arc::clone(&self.calls).try_acquire_owned();
        let units = Arc::clone(&self.units).try_acquire_many_owned(n_units);
        match (call, units) {
            (Ok(call), Ok(units)) => Ok(Hold(Arc::new((call, units)))),
            _ => Err(ApiError::unavailable(format!(
                "as much is being done for {} as fits into memory: try again later",
                self.what
            ))
            .with_code(ErrorCode::TooManyBodies)),
        }
    }
}

async fn drain(incoming: &mut Incoming) -> Result<(), ApiError> {
    while incoming.n_bytes < DRAINED && incoming.next().await?.is_some() {}
    Ok(())
}

struct Incoming {
    body: axum::body::BodyDataStream,
    begun: Instant,
    n_bytes: usize,
}

// === impl Incoming ===

impl Incoming {
    fn new(body: Body) -> Self {
        Self {
            body: body.into_data_stream(),
            begun: Instant::now(),
            n_bytes: 0,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let more = timeout(SILENCE, self.body.next()).await;
        let earned = Duration::from_secs((self.n_bytes / LEAST_RATE) as u64);
        match more {
            Ok(Some(Ok(_))) if self.begun.elapsed() > GRACE + earned => Err(too_slow()),
            Ok(Some(Ok(more))) => {
                self.n_bytes += more.len();
                Ok(Some(more))
            }
            Ok(Some(Err(error))) => Err(ApiError::bad(format!("the body broke off: {error}"))),
            Ok(None) => Ok(None),
            Err(_) => Err(too_slow()),
        }
    }
}

fn too_slow() -> ApiError {
    let seconds = SILENCE.as_secs();
    let text = format!(
        "the body came too slowly: it may pause for {seconds} s, and take a second for every {LEAST_RATE} bytes"
    );
    ApiError::status(StatusCode::REQUEST_TIMEOUT, text).with_code(ErrorCode::BodyTooSlow)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::response::IntoResponse as _;

    use futures_util::stream;

    use super::*;

    fn pool() -> Pool {
        Pool::new("training", 2000, 2)
    }

    fn pieces(n: usize, pause: Duration) -> Body {
        let pieces = stream::iter(0..n).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from_static(&[b' '; 100]))
        });
        Body::from_stream(pieces)
    }

    async fn read(pool: &Pool, body: Body) -> Result<(Bytes, Hold), u16> {
        let read = pool.read(body, Largest::of(1000)).await;
        read.map_err(|error| error.into_response().status().as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_is_refused_by_its_length_or_where_it_passes_the_bound() {
        let pool = pool();
        assert_eq!(
            read(&pool, Body::from(vec![b' '; 1000]))
                .await
                .unwrap()
                .0
                .len(),
            1000
        );
        assert_eq!(
            read(&pool, pieces(10, Duration::ZERO))
                .await
                .unwrap()
                .0
                .len(),
            1000
        );
        for body in [Body::from(vec![b' '; 1001]), pieces(11, Duration::ZERO)] {
            assert_eq!(read(&pool, body).await.unwrap_err(), 413);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_worked_on_have_a_bound() {
        let pool = pool();
        let one = read(&pool, Body::from(vec![b' '; 1000])).await.unwrap();
        let other = read(&pool, Body::from(vec![b' '; 1000])).await.unwrap();
        assert_eq!(read(&pool, Body::from(" ")).await.unwrap_err(), 503);
        drop(one);
        assert!(read(&pool, Body::from(" ")).await.is_ok());
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_given_up() {
        let pool = pool();
        for seconds in [11, 9] {
            let body = pieces(8, Duration::from_secs(seconds));
            assert_eq!(read(&pool, body).await.unwrap_err(), 408, "{seconds}");
        }
        // Its permits are free again.
        assert_eq!(pool.units.available_permits(), 2);
    }
}
