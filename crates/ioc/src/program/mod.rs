//! The program that runs an IOC: it defines records, sets their values and takes those of outputs.

mod builder;
pub(crate) mod handle;
pub(crate) mod output;

pub use builder::IocBuilder;
pub use handle::{RecordError, RecordHandle, SetManyError};
pub use output::OutputRequest;
