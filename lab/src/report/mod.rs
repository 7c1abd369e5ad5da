//! What a run says: tables in the terminal, and later pages to keep.

#[cfg(test)]
#[path = "../../tests/synthetic/mod.rs"]
pub mod synthetic;
