//! Images for readers of different speed.

use std::sync::{Arc, Weak, mpsc};

use fodo_data::{Array, NodeKind, UnionMember, UnionType, UnionValue};
use fodo_net::{Kind, NodeValue, Server, SharedPv, SharedStructure, Structure, StructureBuilder, StructureType, Value};

use crate::peer::Client;
use crate::{PATIENCE, start};

const IMAGE_BYTES: usize = 10_000_000;
const N_IMAGES: u8 = 12;

/// A value like an NTNDArray: a union of arrays, node 1, and a number, node 2.
fn image() -> Structure {
    let kind = NodeKind::Array { kind: Kind::U8, size: fodo_data::ArraySize::Variable };
    let member = UnionMember { name: "ubyteValue".into(), kind: Arc::new(StructureType::single(kind)) };
    let mut build = StructureBuilder::new("epics:nt/NTNDArray:1.0");
    build.leaf("value", NodeKind::Union(Arc::new(UnionType { id: "".into(), members: vec![member] })));
    Structure::new(Arc::new(build.scalar("uniqueId", Kind::I32).finish()))
}

/// Posts an image with this number, and returns its memory.
fn post(pv: &SharedStructure, number: u8) -> Weak<Vec<u8>> {
    let pixels = Arc::new(vec![number; IMAGE_BYTES]);
    let memory = Arc::downgrade(&pixels);
    let value = Structure::single(Value::Array(Array::U8(pixels)));
    let mut change = pv.new_value();
    change.set_node(1, NodeValue::Union(Some(Box::new(UnionValue { selector: 0, value })))).unwrap();
    change.set("uniqueId", number).unwrap();
    pv.post(&change).unwrap();
    memory
}

/// The number of an image, which all of its pixels have.
fn number(image: &Structure) -> u8 {
    let Some(NodeValue::Union(Some(union))) = image.node(1) else { panic!("there is no image") };
    let Some(Value::Array(Array::U8(pixels))) = union.value.value(0) else { panic!("there are no pixels") };
    assert!(pixels.len() == IMAGE_BYTES && pixels.iter().all(|pixel| *pixel == pixels[0]));
    pixels[0]
}

fn subscribe(server: &Server) -> Client {
    let mut client = Client::new(server);
    let image = client.channel("image");
    client.monitor_structure(image, "");
    client.structure_update();
    client
}

// Row 48 of docs/reference/faults.md.
#[test]
fn a_stalled_reader_of_images_delays_no_other_and_costs_a_few_images_of_memory() {
    let pv = SharedPv::structured(image());
    let server = start([("image", pv.clone())]);
    let mut stalled = subscribe(&server);
    let (sender, received) = mpsc::channel();
    let fast: Vec<_> = (0..2)
        .map(|_| {
            let (mut client, sender) = (subscribe(&server), sender.clone());
            std::thread::spawn(move || {
                for expected in 1..=N_IMAGES {
                    let (image, _, overrun) = client.structure_update();
                    sender.send((number(&image), expected, overrun)).unwrap();
                }
            })
        })
        .collect();

    let mut images = Vec::new();
    for n in 1..=N_IMAGES {
        images.push(post(&pv, n));
        for _ in 0..2 {
            assert_eq!(received.recv_timeout(PATIENCE).unwrap(), (n, n, Vec::new()));
        }
        let queued: usize = server.observer().clients().iter().map(|client| client.queued_bytes).sum();
        assert!(queued < 2 * IMAGE_BYTES, "{queued} bytes are queued");
    }
    fast.into_iter().for_each(|fast| fast.join().unwrap());

    // The image that the socket has taken in part, and the latest ones.
    let n_kept = images.iter().filter(|image| image.strong_count() > 0).count();
    assert!((2..=6).contains(&n_kept), "{n_kept} images are in memory");
    let mut updates = Vec::new();
    while updates.last().is_none_or(|(n, _)| *n < N_IMAGES) {
        let (image, _, overrun) = stalled.structure_update();
        updates.push((number(&image), overrun));
    }
    let counts = server.update_counts();
    assert_eq!(counts.sent + counts.merged, 3 * u64::from(N_IMAGES));
    assert_eq!(counts.merged, u64::from(N_IMAGES) - updates.len() as u64);
    // Exactly the update with the merged changes says so.
    let with_overrun: Vec<_> = updates.iter().filter(|(_, overrun)| !overrun.is_empty()).collect();
    assert_eq!(with_overrun.len(), 1, "{updates:?}");
    assert_eq!(with_overrun[0].1, [1, 2]);
}
