//! What a run says: tables in the terminal, and later pages to keep.

mod terminal;

pub use terminal::{json, tables};
