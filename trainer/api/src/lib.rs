//! Terms, wire types and client of the training API; no libtorch.
