//! What a run says: tables in the terminal, and later pages to keep.

#[cfg(test)]
pub mod synthetic;
mod terminal;

pub use terminal::{json, tables};
