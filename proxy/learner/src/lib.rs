//! The loop behind the chat: judge, learn, batch, train, swap.
