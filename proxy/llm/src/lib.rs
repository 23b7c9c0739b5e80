//! A chat model, asked: one client for judge, evolver, teacher, embeddings.
