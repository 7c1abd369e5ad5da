//! The files of a CLU, and their transfer.

use std::io;
use std::net::SocketAddr;

use fodo_clu::client::CluRequest;
use fodo_clu::tftp::{TftpErrorCode, TftpFailure};
use fodo_net::clu::{
    CLU_TFTP_PORT, TransferError, TransferFailure, download_file_with_progress, upload_file_with_progress,
};

use super::outcome::CluFailure;
use super::progress::ProgressBar;
use super::target::{CluFlags, ConnectedClu};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::limit;

/// The scripts that Object Manager writes, in the order in which it uploads them.
pub const SCRIPTS: [&str; 3] = ["MAIN.LUA", "OM.LUA", "USER.LUA"];

/// Flags of the transfers.
#[derive(Clone, Debug, clap::Args)]
pub struct TransferFlags {
    /// UDP port of the CLU for files (TFTP)
    #[arg(long, value_name = "N", default_value_t = CLU_TFTP_PORT)]
    tftp_port: u16,
    /// Use names in lower case, as some CLUs require
    #[arg(long)]
    lower_case: bool,
}

/// Where a CLU transfers files.
pub struct CluFileAccess {
    tftp: SocketAddr,
}

impl TransferFlags {
    /// The name of a file in the CLU: `a:\MAIN.LUA`, or as given if it has a drive.
    pub fn name_in_clu(&self, name: &str) -> String {
        let with_drive = if name.contains(':') { name.to_owned() } else { format!("a:\\{name}") };
        if self.lower_case { with_drive.to_lowercase() } else { with_drive }
    }

    /// Connects to a CLU and has it permit transfers.
    pub fn start(&self, flags: &CluFlags, name: &str) -> Result<(ConnectedClu, CluFileAccess), CluFailure> {
        let clu = ConnectedClu::open(flags, name)?;
        clu.request("the start of TFTP", CluRequest::StartTftp, false).map_err(|mut failure| {
            if failure.exit == Exit::Refused {
                failure.message += "; a virtual CLU permits it only with --tftp";
            }
            failure
        })?;
        let mut tftp = clu.target.address;
        tftp.set_port(self.tftp_port);
        Ok((clu, CluFileAccess { tftp }))
    }
}

impl CluFileAccess {
    /// Writes a file of the CLU.
    pub fn upload(&self, clu: &ConnectedClu, name: &str, content: &[u8]) -> Result<(), CluFailure> {
        let mut bar = ProgressBar::new(name.to_owned());
        let n_total = Some(content.len() as u64);
        let transferred = upload_file_with_progress(self.tftp, name, content, limit::FILE_TRANSFER, |n_bytes| {
            bar.set(n_bytes, n_total);
        });
        drop(bar);
        transferred.map_err(|error| self.failure(clu, &error))
    }

    /// Reads a file of the CLU.
    pub fn download(&self, clu: &ConnectedClu, name: &str) -> Result<Vec<u8>, CluFailure> {
        let mut bar = ProgressBar::new(name.to_owned());
        let transferred =
            download_file_with_progress(self.tftp, name, limit::FILE_TRANSFER, |n_bytes| bar.set(n_bytes, None));
        drop(bar);
        transferred.map_err(|error| self.failure(clu, &error))
    }
}

impl CluFileAccess {
    fn failure(&self, clu: &ConnectedClu, error: &TransferError) -> CluFailure {
        let (exit, outcome) = match &error.reason {
            TransferFailure::Tftp(TftpFailure::Refused { code: TftpErrorCode::NOT_FOUND, .. }) => {
                (Exit::NotFound, "not_found")
            }
            TransferFailure::Tftp(TftpFailure::Refused { .. }) => (Exit::Refused, "refused"),
            TransferFailure::Tftp(TftpFailure::TooLarge) => (Exit::BadValue, "too_large"),
            TransferFailure::Tftp(TftpFailure::NoReply) | TransferFailure::TimedOut(_) => (Exit::NoReply, "timeout"),
            TransferFailure::Socket(_) => (Exit::Other, "error"),
        };
        let advice = match &error.reason {
            TransferFailure::Tftp(TftpFailure::NoReply) => format!(
                "; the CLU permits transfers, but UDP port {} is silent: check --tftp-port and firewalls",
                self.tftp.port()
            ),
            TransferFailure::Tftp(TftpFailure::Refused { code: TftpErrorCode::NOT_FOUND, .. }) => {
                "; some CLUs require --lower-case".to_owned()
            }
            _ => String::new(),
        };
        CluFailure { exit, outcome, message: format!("{}: {error}{advice}", clu.target) }
    }
}

/// Reports a failure that concerns a file.
pub fn fail(
    failure: &CluFailure,
    clu: &str,
    file: Option<&str>,
    (command, as_json): (&str, bool),
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Exit> {
    let mut object = serde_json::Map::from_iter([("clu".to_owned(), clu.into())]);
    if let Some(file) = file {
        object.insert("file".into(), file.into());
    }
    failure.report(as_json.then_some(object), command, outlet)
}
