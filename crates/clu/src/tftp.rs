//! TFTP (RFC 1350), by which the files of a CLU are read and written: the machines of both ends.
//!
//! The server is locked unless a request to the CLU has unlocked it, and again soon after a transfer. TFTP has no
//! encryption: for that time, the address that was unlocked, or a program that forges it, can read and write the files.
//! There are no options, only blocks of 512 bytes.

mod client;
mod message;
mod netascii;
mod path;
mod server;
mod transfer;

pub use client::{TftpClient, TftpFailure};
pub use message::{TftpErrorCode, TftpMode, TftpPacket};
pub use path::FilePath;
pub use server::{
    FileStore, StoreFault, TftpOutput, TftpServer, TftpServerConfig, TftpServerCounts, TftpSocket, TransferId,
};
