//! The native library of the Java package `io.github.fodopv`: contexts, channels, operations, monitors and servers of
//! `fodo-net` and `fodo-ioc`.
//!
//! Java refers to objects by handles, and passes and receives everything else as bytes in a direct buffer. No native thread
//! enters the Java virtual machine: results and events wait in queues, from which threads of Java take them.

mod codec;
mod context;
mod entry;
mod error;
mod group;
mod handle;
mod limit;
mod list;
mod monitor;
mod operation;
mod queue;
mod server;
