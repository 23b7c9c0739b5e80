//! How many requests for text may be here at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// Places for requests that wait for text or get it. At the bound a request is refused at once: the
/// caller knows better than we whether to wait or to ask another model.
#[derive(Debug)]
pub struct Queue {
    places: Arc<Semaphore>,
    n_places: usize,
}

/// Places of one request; given back when dropped.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

// === impl Queue ===

impl Queue {
    pub(crate) fn new(n_places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(n_places)),
            n_places,
        }
    }

    /// Places for so many replies.
    ///
    /// # Errors
    /// 429 when too few are free.
    pub fn enter(&self, n: u32) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_many_owned(n);
        place.map(Place).map_err(|_| {
            ApiError::busy(format!(
                "{} replies may wait or run at once, and there is no place: try again later",
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
        let place = queue.enter(1).unwrap();
        insta::assert_snapshot!(queue.enter(1).unwrap_err(), @"1 replies may wait or run at once, and there is no place: try again later");
        drop(place);
        assert!(queue.enter(1).is_ok());
    }
}
