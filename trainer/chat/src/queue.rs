//! Limits how many requests for text may be here at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// Permits for requests that wait or run. When the limit is reached, a request is refused at once, because the caller
/// knows better whether to wait or to use another model.
#[derive(Debug)]
pub struct RequestQueue {
    places: Arc<Semaphore>,
    n_places: usize,
}

/// The permits of one request, given back on drop.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

// === impl RequestQueue ===

impl RequestQueue {
    pub(crate) fn new(n_places: usize) -> Self {
        let places = Arc::new(Semaphore::new(n_places));
        Self { places, n_places }
    }

    /// Takes permits for so many replies.
    ///
    /// # Errors
    /// Answers 429 if too few are free.
    pub fn enter(&self, n: u32) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_many_owned(n);
        let n = self.n_places;
        let full = || {
            format!("{n} replies may wait or run at once, and there is no place: try again later")
        };
        place.map(Place).map_err(|_| ApiError::busy(full()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_when_it_is_dropped() {
        let queue = RequestQueue::new(1);
        let place = queue.enter(1).unwrap();
        insta::assert_snapshot!(queue.enter(1).unwrap_err(), @"1 replies may wait or run at once, and there is no place: try again later");
        drop(place);
        assert!(queue.enter(1).is_ok());
    }
}
