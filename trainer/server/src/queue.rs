//! How many requests for text may be here at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// Places for requests that wait for text or get it. At the bound a request is refused at once: the
/// caller knows better than we whether to wait or to ask another model.
#[derive(Debug)]
pub(crate) struct Queue {
    places: Arc<Semaphore>,
    n_places: usize,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

// === impl Queue ===

impl Queue {
    pub(crate) fn new(n_places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(n_places)),
            n_places,
        }
    }

    /// A place.
    ///
    /// # Errors
    /// 429 when all are taken.
    pub(crate) fn enter(&self) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map(Place).map_err(|_| {
            ApiError::busy(format!(
                "{} requests are waiting or running, which is all that --max-queue allows: try again later",
                self.n_places
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_it_is_dropped() {
        let queue = Queue::new(1);
        let place = queue.enter().unwrap();
        insta::assert_snapshot!(queue.enter().unwrap_err(), @"1 requests are waiting or running, which is all that --max-queue allows: try again later");
        drop(place);
        assert!(queue.enter().is_ok());
    }
}
