//! Stub to be filled.
