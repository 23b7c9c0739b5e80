//! OpenAI and Anthropic wire shapes: SSE, accumulation, translation; pure.
