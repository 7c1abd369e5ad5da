//! The sockets of the server of a CLU without scripts: tasks are carried out by the test.
#![cfg(unix)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fodo_clu::cipher::CipherKey;
use fodo_clu::command::{Reply, Request, Serial, Session};
use fodo_clu::server::CluServerConfig;
use fodo_clu::tftp::{FilePath, FileStore, StoreFault, TftpServerConfig, TransferId};
use fodo_data::Now;
use fodo_net::clu::{
    CluFiles, CluHandler, CluOutcome, CluOutcomes, CluServerSockets, CluSocketsConfig, CluTask, CluTaskPoll,
};

const LIMIT: Duration = Duration::from_secs(20);

/// No files.
struct NoFiles;

impl FileStore for NoFiles {
    fn read(&mut self, _: &FilePath, _: usize) -> Result<Vec<u8>, StoreFault> {
        Err(StoreFault::NotFound)
    }

    fn begin(&mut self, _: TransferId, _: &FilePath) -> Result<(), StoreFault> {
        Err(StoreFault::NotPermitted)
    }

    fn write(&mut self, _: TransferId, _: &[u8]) -> Result<(), StoreFault> {
        Err(StoreFault::Failed)
    }

    fn commit(&mut self, _: TransferId) -> Result<(), StoreFault> {
        Err(StoreFault::Failed)
    }

    fn abort(&mut self, _: TransferId) {}
}

impl CluFiles for NoFiles {
    fn store_key(&mut self, _: &CipherKey) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn measure(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Passes the tasks to the test.
struct Passed(Mutex<mpsc::Sender<CluTask<u8>>>);

impl CluHandler for Passed {
    type Item = u8;
    type Files = NoFiles;

    fn start(&self, tasks: &mut Vec<CluTask<u8>>) {
        let sender = self.0.lock().unwrap();
        for task in tasks.drain(..) {
            // The test may have ended.
            let _ = sender.send(task);
        }
    }
}

struct World {
    sockets: CluServerSockets<Passed>,
    poll: CluTaskPoll<Passed>,
    outcomes: CluOutcomes<u8>,
    tasks: mpsc::Receiver<CluTask<u8>>,
    client: UdpSocket,
    clu: SocketAddr,
}

fn key() -> CipherKey {
    CipherKey::new([1; 16], [2; 16])
}

fn config(listen: SocketAddr) -> (CluSocketsConfig, CluServerConfig) {
    let config = CluSocketsConfig {
        listen,
        broadcast: None,
        tftp: None,
        tftp_limits: TftpServerConfig::default(),
        clock: Arc::new(|| Now { monotonic: Instant::now(), wall: SystemTime::now().into() }),
    };
    (config, CluServerConfig::new(Serial(1), Ipv4Addr::LOCALHOST, key()))
}

fn start() -> World {
    let (sender, tasks) = mpsc::channel();
    let outcomes = CluOutcomes::new().unwrap();
    let (config, server) = config((Ipv4Addr::LOCALHOST, 0).into());
    let (sockets, poll) =
        CluServerSockets::start(config, server, outcomes.clone(), Passed(Mutex::new(sender)), NoFiles).unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let clu = sockets.address().unwrap();
    World { sockets, poll, outcomes, tasks, client, clu }
}

impl World {
    fn send(&self, script: &str) {
        let (mut command, mut datagram) = (Vec::new(), Vec::new());
        Request::Execute { client: None, session: Session(5), script: script.as_bytes() }.encode(&mut command);
        key().encrypt(&command, &mut datagram);
        self.client.send_to(&datagram, self.clu).unwrap();
    }

    fn receive(&self) -> String {
        let (mut datagram, mut buffer) = ([0; 2048], Vec::new());
        let (n_bytes, from) = self.client.recv_from(&mut datagram).expect("no reply");
        assert_eq!(from, self.clu);
        let text = key().decrypt(&datagram[..n_bytes], &mut buffer).unwrap();
        match Reply::decode(text) {
            Some(Reply::Executed { value, .. }) => String::from_utf8(value.to_vec()).unwrap(),
            _ => String::from_utf8(text.to_vec()).unwrap(),
        }
    }

    /// Ends a task with its script as the value.
    fn echo(&self, task: CluTask<u8>) {
        let CluTask::Execute { reply, script } = task else { panic!("not a script") };
        self.outcomes.push(CluOutcome::Executed { reply, value: script, changes: Vec::new() });
    }
}

#[test]
fn an_address_of_ipv6_is_refused() {
    let (sender, _tasks) = mpsc::channel();
    let (config, server) = config(([0, 0, 0, 0, 0, 0, 0, 1], 0).into());
    let handler = Passed(Mutex::new(sender));

    let started = CluServerSockets::start(config, server, CluOutcomes::new().unwrap(), handler, NoFiles);

    let error = started.err().expect("the CLU has started");
    assert_eq!(error.to_string(), "UDP [::1]:0: a CLU needs IPv4");
}

#[test]
fn a_server_whose_tasks_have_no_thread_passes_them_to_its_handler() {
    let world = start();

    for script in ["first", "second"] {
        world.send(script);
        world.echo(world.tasks.recv_timeout(LIMIT).unwrap());
        world.outcomes.wake();
        assert_eq!(world.receive(), script);
    }
}

#[test]
fn the_thread_of_the_tasks_receives_them_and_sends_their_outcomes_itself() {
    let mut world = start();
    let mut tasks = Vec::new();
    world.poll.turn(Some(Instant::now()), &mut tasks);

    for script in ["first", "second"] {
        world.send(script);
        while tasks.is_empty() {
            // The first turn may still overlap with one of the other thread.
            world.poll.turn(Some(Instant::now() + Duration::from_millis(10)), &mut tasks);
            tasks.extend(world.tasks.try_recv());
        }
        for task in tasks.drain(..) {
            world.echo(task);
        }
        world.poll.turn(Some(Instant::now()), &mut tasks);
        assert_eq!(world.receive(), script);
    }
}

#[test]
fn while_the_thread_of_the_tasks_is_busy_the_other_thread_receives_and_sends() {
    let mut world = start();
    // It works from now on, and never waits again.
    world.poll.turn(Some(Instant::now()), &mut Vec::new());

    for script in ["first", "second"] {
        world.send(script);
        world.echo(world.tasks.recv_timeout(LIMIT).unwrap());
        assert_eq!(world.receive(), script);
    }
}

#[test]
fn a_wake_up_that_the_other_thread_receives_ends_the_next_wait_of_the_thread_of_the_tasks() {
    let mut world = start();
    // It works from now on, so that the other thread waits.
    world.poll.turn(Some(Instant::now()), &mut Vec::new());
    world.outcomes.wake();
    for script in ["first", "second"] {
        world.send(script);
        world.echo(world.tasks.recv_timeout(LIMIT).unwrap());
        assert_eq!(world.receive(), script);
    }

    let until = Instant::now() + LIMIT;
    world.poll.turn(Some(until), &mut Vec::new());

    assert!(Instant::now() < until, "nothing has ended the wait");
}

#[test]
fn a_request_is_refused_when_its_task_is() {
    let world = start();
    world.send("first");

    let CluTask::Execute { reply, .. } = world.tasks.recv_timeout(LIMIT).unwrap() else { panic!("not a script") };
    world.outcomes.push(CluOutcome::Refused { reply });
    world.outcomes.wake();

    assert_eq!(world.receive().as_bytes(), fodo_clu::value::REFUSED);
    assert_eq!(world.sockets.counts().refused, 1);
}

#[test]
fn a_server_that_has_stopped_sends_nothing() {
    let mut world = start();
    world.send("first");
    let task = world.tasks.recv_timeout(LIMIT).unwrap();

    world.sockets.stop();
    world.echo(task);
    let mut tasks = Vec::new();
    world.send("second");
    world.poll.turn(None, &mut tasks);

    assert!(world.poll.is_stopped() && tasks.is_empty());
    world.client.set_nonblocking(true).unwrap();
    assert!(world.client.recv(&mut [0; 64]).is_err());
}
