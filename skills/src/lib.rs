//! Wishes and skills on disk: library, retrieval, rendering.
