//! PVs that a running server no longer has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fodo_net::{
    Completion, Context, Kind, MonitorEvent, MonitorOptions, Peer, Posts, PutRefusal, Pv, PvFacts, Reading, ServedPv,
    Server, ServerConfig, Source, Value,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A PV that can be closed, and the source of one such PV and of another one.
struct Door {
    value: f64,
    is_closed: AtomicBool,
    posts: Posts,
}

impl Pv for Door {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: true }
    }

    fn read(&self) -> Reading {
        Reading { time: std::time::SystemTime::now().into(), ..Reading::bare(Value::from(self.value)) }
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        subscribe(self.read());
    }

    fn put(&self, _: Value, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

fn door(value: f64) -> Arc<Door> {
    Arc::new(Door { value, is_closed: AtomicBool::new(false), posts: Posts::new(2) })
}

struct House {
    door: Arc<Door>,
    gate: Arc<Door>,
}

impl Source for House {
    fn serves(&self, name: &str) -> bool {
        self.open(name).is_some()
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        let pv = match name {
            "door" => &self.door,
            "gate" => &self.gate,
            _ => return None,
        };
        let pv: Arc<dyn Pv> = pv.clone();
        (!pv.is_closed()).then(|| pv.into())
    }
}

#[test]
fn clients_of_a_closed_pv_are_disconnected_and_find_it_when_it_is_opened() {
    for protocol in ["ca", "pva"] {
        let house = Arc::new(House { door: door(1.5), gate: door(2.5) });
        let server = Server::start(ServerConfig::isolated(), house.clone()).unwrap();
        let context = Context::new(server.client_config());
        let [door, gate] = ["door", "gate"].map(|name| context.channel(&format!("{protocol}://{name}")).unwrap());
        let monitor = door.monitor(MonitorOptions::default());
        while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}
        assert_eq!(gate.get_timeout(PATIENCE).unwrap().value, 2.5.into());

        house.door.is_closed.store(true, Ordering::Relaxed);
        server.rights_signal().notify_changed();
        assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Disconnected), "{protocol}");
        assert_eq!(gate.get_timeout(PATIENCE).unwrap().value, 2.5.into(), "the connection is still open");
        house.door.is_closed.store(false, Ordering::Relaxed);

        assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))), "{protocol}");
        assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))), "{protocol}");
    }
}
