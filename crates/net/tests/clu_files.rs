//! The files of a CLU: transfers with a TFTP server on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fodo_clu::tftp::{
    FilePath, FileStore, StoreFault, TftpOutput, TftpServer, TftpServerConfig, TftpSocket, TransferId,
};
use fodo_data::Now;
use fodo_net::clu::{TftpErrorCode, TftpFailure, TransferFailure, download_file, upload_file};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

type SharedFiles = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The files by the text of their paths, and that of the transfer in progress.
#[derive(Default)]
struct Files {
    files: SharedFiles,
    writing: Option<(String, Vec<u8>)>,
}

fn name(path: &FilePath) -> String {
    format!("{path:?}").to_lowercase()
}

impl FileStore for Files {
    fn read(&mut self, path: &FilePath, n_bytes_max: usize) -> Result<Vec<u8>, StoreFault> {
        let file = self.files.lock().unwrap().get(&name(path)).cloned().ok_or(StoreFault::NotFound)?;
        if file.len() > n_bytes_max { Err(StoreFault::TooLarge) } else { Ok(file) }
    }

    fn begin(&mut self, _: TransferId, path: &FilePath) -> Result<(), StoreFault> {
        self.writing = Some((name(path), Vec::new()));
        Ok(())
    }

    fn write(&mut self, _: TransferId, content: &[u8]) -> Result<(), StoreFault> {
        self.writing.as_mut().ok_or(StoreFault::Failed)?.1.extend_from_slice(content);
        Ok(())
    }

    fn commit(&mut self, _: TransferId) -> Result<(), StoreFault> {
        let (name, content) = self.writing.take().ok_or(StoreFault::Failed)?;
        self.files.lock().unwrap().insert(name, content);
        Ok(())
    }

    fn abort(&mut self, _: TransferId) {
        self.writing = None;
    }
}

/// A server of one transfer at a time. An empty datagram ends it.
struct FileServer {
    address: SocketAddr,
    files: SharedFiles,
    thread: Option<JoinHandle<()>>,
}

impl FileServer {
    fn start(is_unlocked: bool) -> FileServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, files) = (socket.local_addr().unwrap(), SharedFiles::default());
        let store = Files { files: files.clone(), writing: None };
        let thread = std::thread::spawn(move || serve(&socket, store, is_unlocked));
        FileServer { address, files, thread: Some(thread) }
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&[], self.address).unwrap();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the server has panicked");
    }
}

fn serve(requests: &UdpSocket, mut store: Files, is_unlocked: bool) {
    let (mut out, mut packet) = (TftpOutput::default(), vec![0; 1024]);
    loop {
        let mut server = TftpServer::new(TftpServerConfig::default());
        let (n_bytes, from) = requests.recv_from(&mut packet).unwrap();
        if n_bytes == 0 {
            return;
        }
        if is_unlocked {
            server.unlock(from.ip(), now());
        }
        server.received(TftpSocket::Requests, from, &packet[..n_bytes], &mut store, now(), &mut out);
        let transfer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let Some(id) = out.opened.first().copied() else {
            send(&mut out, requests, &transfer);
            continue;
        };
        // The client ends first, with a repeated acknowledgement at most.
        transfer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        loop {
            let is_closed = !out.closed.is_empty();
            send(&mut out, requests, &transfer);
            let Ok((n_bytes, from)) = transfer.recv_from(&mut packet) else { break };
            if is_closed {
                break;
            }
            server.received(TftpSocket::Transfer(id), from, &packet[..n_bytes], &mut store, now(), &mut out);
        }
    }
}

fn send(out: &mut TftpOutput, requests: &UdpSocket, transfer: &UdpSocket) {
    for (from, to, packet) in out.datagrams.drain(..) {
        let socket = if from == TftpSocket::Requests { requests } else { transfer };
        socket.send_to(&packet, to).unwrap();
    }
    out.opened.clear();
    out.closed.clear();
}

fn now() -> Now {
    Now { monotonic: Instant::now(), wall: SystemTime::now().into() }
}

#[test]
fn files_of_any_size_are_written_and_read() {
    let server = FileServer::start(true);
    for n_bytes in [0, 1, 511, 512, 513, 100_000] {
        let content: Vec<u8> = (0..n_bytes).map(|index| (index * 7 % 251) as u8).collect();

        upload_file(server.address, "a:\\USER.LUA", &content, PATIENCE).unwrap();

        assert_eq!(server.files.lock().unwrap().values().collect::<Vec<_>>(), [&content]);
        assert!(download_file(server.address, "a:\\user.lua", PATIENCE).unwrap() == content, "{n_bytes}");
    }
}

#[test]
fn a_missing_file_is_named_with_the_reason_of_the_server() {
    let server = FileServer::start(true);

    let error = download_file(server.address, "a:\\NONE.LUA", PATIENCE).unwrap_err();

    let expected = format!(
        "cannot transfer \"a:\\\\NONE.LUA\" with {}: the TFTP server refuses: the file does not exist (error 1)",
        server.address
    );
    assert_eq!(error.to_string(), expected);
    let TransferFailure::Tftp(TftpFailure::Refused { code, .. }) = error.reason else { panic!("{error}") };
    assert_eq!(code, TftpErrorCode::NOT_FOUND);
}

#[test]
fn a_locked_server_is_a_timeout() {
    let server = FileServer::start(false);

    let error = download_file(server.address, "a:\\MAIN.LUA", Duration::from_millis(100)).unwrap_err();

    assert!(matches!(error.reason, TransferFailure::TimedOut(_)), "{error}");
    assert!(error.to_string().ends_with("is the TFTP server of the CLU started?"), "{error}");
}

#[test]
fn a_file_above_the_limit_is_not_sent() {
    let nowhere = ([192, 0, 2, 1], 69).into();

    let error = upload_file(nowhere, "a:\\x", &vec![0; 16 * 1024 * 1024 + 1], PATIENCE).unwrap_err();

    let expected =
        "cannot transfer \"a:\\\\x\" with 192.0.2.1:69: the file has more than the maximum of 16777216 bytes";
    assert_eq!(error.to_string(), expected);
}
