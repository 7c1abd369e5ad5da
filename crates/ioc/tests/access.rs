//! Access rules while clients are connected to the IOC.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fodo_ioc::{Ioc, Policy, PutEvent, RunningIoc};
use fodo_net::{Channel, Context, ServerConfig};

const PATIENCE: Duration = Duration::from_secs(10);

const DATABASE: &str = r#"
record(ao, "x") { field(VAL, "1") field(ASG, "CALCULATED") }
record(ao, "key") { field(VAL, "0") field(MDEL, "0.5") field(ADEL, "0") }
record(ao, "free") { field(VAL, "1") }
record(calcout, "slow") { field(CALC, "A") field(ODLY, "0.2") }
record(calcout, "endless") { field(CALC, "A") field(ODLY, "1000") }
"#;

const ACCESS: &str = r#"
HAG(here) { "127.0.0.1" }
ASG(DEFAULT) { RULE(1, WRITE) }
ASG(CALCULATED) { INPA("$(KEY)") INPB("elsewhere") RULE(1, READ) RULE(1, WRITE, TRAPWRITE) { CALC("A=1") } RULE(1, WRITE) { CALC("B=0") } }
ASG(LOCKED) { RULE(1, READ) }
ASG(HERE) { RULE(1, WRITE) { HAG(here) } }
"#;

/// A temporary folder with the two files, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("fodo-access-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("test.db"), DATABASE).unwrap();
        std::fs::write(folder.join("test.acf"), ACCESS).unwrap();
        Folder(folder)
    }

    fn access(&self) -> PathBuf {
        self.0.join("test.acf")
    }

    fn policy(&self) -> Policy {
        Policy { access_file: Some((self.access(), "KEY=key".to_owned())), ..Policy::default() }
    }

    fn load(&self) -> Ioc {
        Ioc::load(&[(self.0.join("test.db"), String::new())]).unwrap()
    }

    fn serve(&self, policy: Policy) -> (RunningIoc, Context) {
        let config = ServerConfig::isolated();
        let running = self.load().with_policy(policy).unwrap().serve(config).unwrap();
        let context = Context::new(running.client_config());
        (running, context)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn channel(context: &Context, name: &str) -> Channel {
    let channel = context.channel(name).unwrap();
    channel.connect_timeout(PATIENCE).unwrap();
    channel
}

fn may_write(channel: &Channel) -> bool {
    channel.facts().unwrap().may_write
}

/// Waits until the server reports the rights.
fn until_may_write(channel: &Channel, expected: bool) {
    let start = Instant::now();
    while may_write(channel) != expected {
        assert!(start.elapsed() < PATIENCE, "the rights do not change");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn file_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn a_change_of_a_calc_rule_is_reported_to_clients_and_applies_to_puts() {
    let folder = Folder::new("calc");
    let (_running, context) = folder.serve(folder.policy());
    let (x, key) = (channel(&context, "x"), channel(&context, "key"));
    assert!(!may_write(&x) && may_write(&key));

    key.put_timeout(1.0, PATIENCE).unwrap();
    until_may_write(&x, true);
    x.put_timeout(5.0, PATIENCE).unwrap();
    key.put_timeout(2.0, PATIENCE).unwrap();
    until_may_write(&x, false);

    assert!(x.put_timeout(6.0, PATIENCE).is_err());
    assert_eq!(x.get_timeout(PATIENCE).unwrap().value, 5.0.into());
}

#[test]
fn a_rule_does_not_see_changes_within_the_monitor_deadband_of_its_input() {
    let folder = Folder::new("deadband");
    let (_running, context) = folder.serve(folder.policy());
    let (x, key) = (channel(&context, "x"), channel(&context, "key"));
    key.put_timeout(1.0, PATIENCE).unwrap();
    until_may_write(&x, true);

    key.put_timeout(0.6, PATIENCE).unwrap();
    // A change of rights would be reported before the response.
    x.get_timeout(PATIENCE).unwrap();
    assert!(may_write(&x));

    key.put_timeout(0.4, PATIENCE).unwrap();
    until_may_write(&x, false);
}

#[test]
fn a_put_to_asg_changes_the_access_rules_of_its_record() {
    let folder = Folder::new("asg");
    let (_running, context) = folder.serve(folder.policy());
    let (free, group) = (channel(&context, "free"), channel(&context, "free.ASG"));
    assert!(may_write(&free));

    group.put_timeout("LOCKED", PATIENCE).unwrap();

    until_may_write(&free, false);
    until_may_write(&group, false);
    assert!(group.put_timeout("DEFAULT", PATIENCE).is_err());
}

#[test]
fn a_reloaded_access_file_applies_to_connected_clients_unless_it_is_invalid() {
    let folder = Folder::new("again");
    let (running, context) = folder.serve(folder.policy());
    let free = channel(&context, "free");

    std::fs::write(folder.access(), "ASG(DEFAULT) { RULE(1, READ) }").unwrap();
    running.reload_access().unwrap();
    until_may_write(&free, false);
    std::fs::write(folder.access(), "ASG(DEFAULT) {\n RULE(1, WRITE)\n HAG(x) }").unwrap();
    let refusal = running.reload_access().unwrap_err().to_string();

    let place = format!("{}:3:2: expected INPA to INPU, or RULE, found \"HAG\"", file_of(&folder.access()));
    assert!(refusal.starts_with(&place), "{refusal}");
    assert!(free.put_timeout(2.0, PATIENCE).is_err());
}

#[test]
fn an_access_file_is_reloaded_after_a_failed_reload() {
    let folder = Folder::new("repaired");
    let (running, context) = folder.serve(folder.policy());
    let free = channel(&context, "free");

    std::fs::write(folder.access(), "ASG(DEFAULT) { RULE(1, READ }").unwrap();
    running.reload_access().unwrap_err();
    assert!(may_write(&free), "the rules read before still apply");
    std::fs::write(folder.access(), "ASG(DEFAULT) { RULE(1, READ) }").unwrap();
    running.reload_access().unwrap();

    until_may_write(&free, false);
}

#[test]
fn a_read_only_server_rejects_every_put_despite_access_rules() {
    let folder = Folder::new("read-only");
    let (_running, context) = folder.serve(Policy { is_read_only: true, ..folder.policy() });
    let free = channel(&context, "free");

    assert!(!may_write(&free));
    assert!(free.put_timeout(2.0, PATIENCE).is_err());
    assert_eq!(free.get_timeout(PATIENCE).unwrap().value, 1.0.into());
}

#[test]
fn access_rules_match_hosts_by_address_if_configured() {
    let folder = Folder::new("address");
    let by_name = folder.serve(folder.policy());
    let by_address = folder.serve(Policy { checks_client_address: true, ..folder.policy() });

    for ((_running, context), is_allowed) in [(by_name, false), (by_address, true)] {
        let free = channel(&context, "free");
        channel(&context, "free.ASG").put_timeout("HERE", PATIENCE).unwrap();
        // The change is reported before the response to a later get.
        let start = Instant::now();
        while may_write(&free) != is_allowed && start.elapsed() < PATIENCE {
            free.get_timeout(PATIENCE).unwrap();
        }
        assert_eq!(may_write(&free), is_allowed);
    }
}

/// A policy that reports every put.
fn noting() -> (Policy, Arc<Mutex<Vec<PutEvent>>>) {
    let notes: Arc<Mutex<Vec<PutEvent>>> = Arc::default();
    let kept = notes.clone();
    let put_listener = Some(Box::new(move |note| kept.lock().unwrap().push(note)) as fodo_ioc::PutCallback);
    (Policy { put_listener, ..Policy::default() }, notes)
}

#[test]
fn a_queued_put_is_logged_after_it_is_written() {
    let folder = Folder::new("waits");
    let (policy, notes) = noting();
    let (_running, context) = folder.serve(policy);
    let slow = channel(&context, "slow.A");

    let puts = [slow.start_put(1.0), slow.start_put(2.0)];
    puts.into_iter().for_each(|put| put.wait_timeout(PATIENCE).unwrap());

    let notes = notes.lock().unwrap();
    let seen: Vec<_> = notes.iter().map(|note| (note.old.clone(), note.new.clone())).collect();
    assert_eq!(seen, [(0.0.into(), 1.0.into()), (1.0.into(), 2.0.into())]);
}

#[test]
fn a_queued_put_of_a_disconnected_client_is_not_logged() {
    let folder = Folder::new("goes");
    let (policy, notes) = noting();
    let (running, context) = folder.serve(policy);
    let first = channel(&context, "endless.A");
    let _goes_on = first.start_put(1.0);
    first.get_timeout(PATIENCE).unwrap();
    let other = Context::new(running.client_config());
    let second = channel(&other, "endless.A");
    let _waits = second.start_put(2.0);
    second.get_timeout(PATIENCE).unwrap();

    other.close();
    let start = Instant::now();
    while running.clients().len() > 1 {
        assert!(start.elapsed() < PATIENCE, "the client does not disconnect");
    }

    let notes = notes.lock().unwrap();
    assert_eq!(notes.iter().map(|note| note.new.clone()).collect::<Vec<_>>(), [1.0.into()]);
    assert_eq!(first.get_timeout(PATIENCE).unwrap().value, 1.0.into());
}

#[test]
fn puts_with_trapwrite_are_logged_with_old_and_new_value() {
    let folder = Folder::new("notes");
    let (Policy { put_listener, .. }, notes) = noting();
    let (_running, context) = folder.serve(Policy { put_listener, ..folder.policy() });
    let (x, key) = (channel(&context, "x"), channel(&context, "key"));

    key.put_timeout(1.0, PATIENCE).unwrap();
    until_may_write(&x, true);
    x.put_timeout(5.0, PATIENCE).unwrap();
    assert!(x.put_timeout("no number", PATIENCE).is_err());

    let notes = notes.lock().unwrap();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    assert_eq!((note.pv.as_str(), &note.old, &note.new), ("x.VAL", &1.0.into(), &5.0.into()));
    assert_eq!(note.by.address.ip(), Ipv4Addr::LOCALHOST);
}
