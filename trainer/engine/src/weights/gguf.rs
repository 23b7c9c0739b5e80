//! GGUF files: converted once to a Hugging Face directory in the cache folder.
