// An expression for the examples of the documentation: a server with three PVs on loopback, and a context for it.
{
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};

    use fodo_net::{
        ClientConfig, Completion, Context, EventMask, Meta, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Reading,
        Server, ServerConfig, Severity, Source, Value,
    };

    struct Held {
        facts: PvFacts,
        value: Mutex<Value>,
        posts: Posts,
    }

    impl Pv for Held {
        fn facts(&self) -> PvFacts {
            self.facts.clone()
        }

        fn read(&self) -> Reading {
            Reading::bare(self.value.lock().unwrap().clone())
        }

        fn meta(&self) -> Arc<Meta> {
            Arc::new(Meta { units: "K".into(), ..Meta::default() })
        }

        fn put(&self, value: Value, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
            let mut held = self.value.lock().unwrap();
            *held = value.clone();
            self.posts.push(Post { mask: EventMask::VALUE, reading: Reading::bare(value) });
            completion.into_iter().for_each(Completion::done);
            Ok(())
        }

        fn acknowledge(&self, _: Option<bool>, _: Option<Severity>) -> Result<(), PutRefusal> {
            Err(PutRefusal::ReadOnly)
        }

        fn posts(&self) -> &Posts {
            &self.posts
        }

        fn listeners_changed(&self) {}

        fn attach(&self, attach: &mut dyn FnMut(Reading)) {
            let held = self.value.lock().unwrap();
            attach(Reading::bare(held.clone()));
        }
    }

    struct Table(HashMap<&'static str, Arc<Held>>);

    impl Source for Table {
        fn serves(&self, name: &str) -> bool {
            self.0.contains_key(name)
        }

        fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
            self.0.get(name).map(|pv| pv.clone() as Arc<dyn Pv>)
        }
    }

    let pv = |value: Value, is_read_only| {
        let facts = PvFacts { kind: value.kind(), count_max: value.len() as u32, is_read_only, class_name: "demo" };
        Arc::new(Held { facts, value: Mutex::new(value), posts: Posts::new(8) })
    };
    let table = Table(HashMap::from([
        ("demo:temperature", pv(Value::from(21.5), true)),
        ("demo:gap", pv(Value::from(12.5), false)),
        ("demo:spectrum", pv(Value::from(vec![0.0, 1.0, 4.0]), true)),
    ]));
    let config = ServerConfig {
        interfaces: vec![Ipv4Addr::LOCALHOST],
        port: 0,
        beacons_to_interfaces: false,
        ..ServerConfig::default()
    };
    let server = Server::start(config, Arc::new(table)).unwrap();
    let config = ClientConfig::with_addresses(vec![(Ipv4Addr::LOCALHOST, server.udp_port()).into()]);
    (server, Context::new(config))
}
