//! Record types: the fields and the behaviour of each. A new record type is one file and one line in [`registry::TYPES`].

mod a_sub;
mod aai;
mod aao;
mod acalcout;
mod ai;
mod ao;
pub(crate) mod array;
mod bi;
mod bo;
mod busy;
mod c_format;
mod calc;
mod calcout;
mod compress;
pub(crate) mod contract;
pub(crate) mod device;
mod dfanout;
mod event;
mod expression;
mod fanout;
pub(crate) mod field_table;
mod groups;
mod histogram;
pub(crate) mod inert;
mod inputs;
mod int64in;
mod int64out;
mod levels;
mod links;
mod long_text;
mod longin;
mod longout;
mod lsi;
mod lso;
mod mbbi;
mod mbbi_direct;
mod mbbo;
mod mbbo_direct;
mod output;
mod permissive;
mod printf;
mod program;
pub(crate) mod registry;
mod scalcout;
mod sel;
mod selection;
mod seq;
mod simulation;
mod sseq;
mod state;
mod states;
mod stringin;
mod stringout;
mod sub;
mod sub_array;
mod swait;
mod transform;
mod waveform;

pub(crate) use contract::{
    CHANGED, Fields, LockedRecord, Record, RecordType, changes, index_in, is_changed, locked, post_value,
    raise_undefined, record_type,
};
