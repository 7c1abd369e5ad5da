//! A PV as a channel of pvAccess holds it.

use std::sync::{Arc, OnceLock};

use fodo_data::{MetaParts, NormativeLayout, StructureType, normative_type};
use fodo_engine::Rights;
use fodo_engine::ring::Cursor;
use fodo_pva::server::ChannelType;

use crate::server::circuit::ChannelPv;
use crate::server::posts::PostListener;
use crate::server::{NormativeShape, Peer, Pv, ServedPv, StructuredPv};

/// A PV as a channel of pvAccess holds it.
#[derive(Clone)]
pub(crate) enum PvaPv {
    Flat {
        pv: Arc<dyn Pv>,
        layout: Arc<NormativeLayout>,
    },
    Structured(Arc<dyn StructuredPv>),
    /// The server itself.
    Server,
}

impl PvaPv {
    /// Keeps at least this number of posts until [`PvaPv::release`].
    pub(super) fn grow(&self, n_posts: usize) {
        match self {
            PvaPv::Flat { pv, .. } => pv.posts().grow(n_posts),
            PvaPv::Structured(pv) => pv.posts().grow(n_posts),
            PvaPv::Server => {}
        }
    }

    /// A subscription with a queue of this length has ended.
    pub(super) fn release(&self, n_posts: usize) {
        match self {
            PvaPv::Flat { pv, .. } => pv.posts().release(n_posts),
            PvaPv::Structured(pv) => pv.posts().release(n_posts),
            PvaPv::Server => {}
        }
    }
}

impl ChannelPv for PvaPv {
    type Facts = ChannelType;

    fn accept(served: ServedPv) -> Result<(PvaPv, ChannelType), &'static str> {
        match served {
            ServedPv::Flat(pv) => {
                let layout = layout_of(&*pv).ok_or("pvAccess has no type for this PV")?;
                let kind = ChannelType::Flat(layout.clone());
                Ok((PvaPv::Flat { pv, layout }, kind))
            }
            ServedPv::Structured(pv) => {
                let kind = ChannelType::Structured(pv.kind());
                Ok((PvaPv::Structured(pv), kind))
            }
        }
    }

    #[inline]
    fn address(&self) -> usize {
        match self {
            PvaPv::Flat { pv, .. } => Arc::as_ptr(pv).cast::<()>().addr(),
            PvaPv::Structured(pv) => Arc::as_ptr(pv).cast::<()>().addr(),
            PvaPv::Server => 0,
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            PvaPv::Flat { pv, .. } => pv.is_read_only(),
            PvaPv::Structured(pv) => pv.is_read_only(),
            PvaPv::Server => true,
        }
    }

    fn rights(&self, by: &Peer) -> Rights {
        match self {
            PvaPv::Flat { pv, .. } => pv.rights(by),
            PvaPv::Structured(pv) => pv.rights(by),
            PvaPv::Server => super::server_channel::RIGHTS,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            PvaPv::Flat { pv, .. } => pv.is_closed(),
            PvaPv::Structured(pv) => pv.is_closed(),
            PvaPv::Server => false,
        }
    }

    fn listen(&self, listener: Arc<PostListener>) {
        match self {
            PvaPv::Flat { pv, .. } => pv.posts().listen(listener),
            PvaPv::Structured(pv) => pv.posts().listen(listener),
            PvaPv::Server => {}
        }
    }

    fn unlisten(&self, listener: &Arc<PostListener>) {
        match self {
            PvaPv::Flat { pv, .. } => pv.posts().unlisten(listener),
            PvaPv::Structured(pv) => pv.posts().unlisten(listener),
            PvaPv::Server => {}
        }
    }

    fn unsubscribe(&self, listener: &Arc<PostListener>, cursor: &Cursor) {
        match self {
            PvaPv::Flat { pv, .. } => pv.posts().unsubscribe(listener, cursor),
            PvaPv::Structured(pv) => pv.posts().unsubscribe(listener, cursor),
            PvaPv::Server => {}
        }
    }

    fn listeners_changed(&self) {
        match self {
            PvaPv::Flat { pv, .. } => pv.listeners_changed(),
            PvaPv::Structured(pv) => pv.listeners_changed(),
            PvaPv::Server => {}
        }
    }

    fn cancel_put(&self, put: u64) {
        match self {
            PvaPv::Flat { pv, .. } => pv.cancel_put(put),
            PvaPv::Structured(pv) => pv.cancel_put(put),
            PvaPv::Server => {}
        }
    }
}

/// The number of kinds of values, at least.
const N_KINDS: usize = 16;

/// The layout of a PV's type.
fn layout_of(pv: &dyn Pv) -> Option<Arc<NormativeLayout>> {
    let shape = match pv.pv_access() {
        Some(own) => own.shape(),
        None => NormativeShape::from(&pv.facts()),
    };
    shared_layout(shape)
}

/// All PVs of the process with the same type and the same metadata share one layout.
fn shared_layout(NormativeShape { kind, is_array, parts, tag_bits }: NormativeShape) -> Option<Arc<NormativeLayout>> {
    static TYPES: [[OnceLock<Arc<StructureType>>; 2]; N_KINDS] = [const { [const { OnceLock::new() }; 2] }; N_KINDS];
    static LAYOUTS: [[[OnceLock<Arc<NormativeLayout>>; MetaParts::COMBINATIONS]; 2]; N_KINDS] =
        [const { [const { [const { OnceLock::new() }; MetaParts::COMBINATIONS] }; 2] }; N_KINDS];
    let (index, array) = (kind as usize, usize::from(is_array));
    let slot = LAYOUTS.get(index)?[array].get(usize::from(parts.0))?;
    if let (Some(layout), 0) = (slot.get(), tag_bits) {
        return Some(layout.clone());
    }
    let kind = TYPES.get(index)?[array].get_or_init(|| Arc::new(normative_type(kind, is_array)));
    let layout = NormativeLayout::with_parts(kind.clone(), Some(parts))?;
    if tag_bits > 0 {
        return Some(Arc::new(layout.with_tag_bits(tag_bits)));
    }
    Some(slot.get_or_init(|| Arc::new(layout)).clone())
}

#[cfg(test)]
mod tests {
    use fodo_data::{EventMask, Kind, Reading, Structure, StructureBuilder};
    use fodo_engine::ring::Post;

    use super::*;
    use crate::server::{PvFacts, SharedPv};

    /// How many of a hundred posts a PV keeps.
    fn n_kept(pv: &PvaPv) -> usize {
        match pv {
            PvaPv::Flat { pv, .. } => {
                let mut cursor = pv.posts().with_ring(|ring| ring.cursor(EventMask::VALUE));
                for number in 0..100 {
                    pv.posts().post(Post { mask: EventMask::VALUE, reading: Reading::bare(number.into()) });
                }
                pv.posts().with_ring(|ring| std::iter::from_fn(|| ring.next(&mut cursor)).count())
            }
            PvaPv::Structured(pv) => {
                let mut cursor = pv.posts().with_ring(|ring| ring.cursor());
                let value = Arc::new(Structure::new(pv.kind()));
                (0..100).for_each(|_| pv.posts().post(value.clone(), [0].into_iter().collect()));
                pv.posts().with_ring(|ring| std::iter::from_fn(|| ring.next(&mut cursor)).count())
            }
            PvaPv::Server => 0,
        }
    }

    #[test]
    fn a_longer_queue_is_kept_until_it_is_released() {
        let structure = Structure::new(Arc::new(StructureBuilder::new("").scalar("x", Kind::F64).finish()));
        let both: [ServedPv; 2] = [SharedPv::new(1.5).into(), SharedPv::structured(structure).into()];
        for served in both {
            let (pv, _) = PvaPv::accept(served).unwrap();
            let n_usual = n_kept(&pv);

            pv.grow(50);
            let n_grown = n_kept(&pv);
            pv.release(50);

            assert!((1..50).contains(&n_usual), "{n_usual}");
            assert_eq!((n_grown, n_kept(&pv)), (50, n_usual));
        }
    }

    #[test]
    fn every_kind_has_a_layout_that_is_created_once() {
        let kinds = [
            Kind::Bool,
            Kind::I8,
            Kind::I16,
            Kind::I32,
            Kind::I64,
            Kind::U8,
            Kind::U16,
            Kind::U32,
            Kind::U64,
            Kind::F32,
            Kind::F64,
            Kind::Text,
            Kind::Enum,
        ];
        for kind in kinds {
            for (count_max, is_array) in [(1, false), (2, true)] {
                let shape = NormativeShape::from(&PvFacts { kind, count_max, is_read_only: true });

                let layout = shared_layout(shape).unwrap();

                assert_eq!(**layout.kind(), normative_type(kind, is_array));
                assert!(Arc::ptr_eq(&layout, &shared_layout(shape).unwrap()));
                let other = shared_layout(NormativeShape { parts: MetaParts(0), ..shape }).unwrap();
                assert!(Arc::ptr_eq(layout.kind(), other.kind()), "the type is sent once");
            }
        }
    }
}
