//! Record fields as PVs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fodo_data::{Meta, Reading, Severity, Value};
use fodo_db::{FieldRef, Input, PutError, PutId};
use fodo_net::{Completion, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Rights, Source};

use crate::limit;
use crate::turn::Crank;

/// The records of a database as a source of PVs.
#[derive(Debug)]
pub struct Records {
    crank: Arc<Crank>,
    /// One object for each field that somebody has a channel to.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    pvs: HashMap<FieldRef, Weak<RecordPv>>,
    /// At this size those that nobody holds any more are dropped.
    prune_at: usize,
}

impl Records {
    pub fn new(crank: Arc<Crank>) -> Records {
        Records { crank, open: Mutex::default() }
    }
}

impl Source for Records {
    fn serves(&self, name: &str) -> bool {
        self.crank.database().field(name).is_some()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
        let field = self.crank.database().field(name)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pv) = open.pvs.get(&field).and_then(Weak::upgrade) {
            return Some(pv);
        }
        let pv = RecordPv::new(self.crank.clone(), field);
        if open.pvs.len() >= open.prune_at {
            open.pvs.retain(|_, pv| pv.strong_count() > 0);
            open.prune_at = (2 * open.pvs.len()).max(1024);
        }
        open.pvs.insert(field, Arc::downgrade(&pv));
        Some(pv)
    }
}

/// One field of one record.
#[derive(Debug)]
pub struct RecordPv {
    crank: Arc<Crank>,
    field: FieldRef,
    posts: Posts,
    me: Weak<RecordPv>,
}

impl RecordPv {
    fn new(crank: Arc<Crank>, field: FieldRef) -> Arc<RecordPv> {
        let n_posts = match crank.database().facts(field).count_max {
            1 => limit::SCALAR_POSTS,
            _ => limit::ARRAY_POSTS,
        };
        Arc::new_cyclic(|me| RecordPv { crank, field, posts: Posts::new(n_posts), me: me.clone() })
    }

    pub fn field(&self) -> FieldRef {
        self.field
    }

    pub fn has_listeners(&self) -> bool {
        self.posts.has_listeners()
    }

    pub fn post(&self, post: Post) {
        self.posts.push(post);
    }
}

impl Pv for RecordPv {
    fn facts(&self) -> PvFacts {
        let facts = self.crank.database().facts(self.field);
        let is_read_only = facts.is_read_only;
        PvFacts { kind: facts.kind, count_max: facts.count_max, is_read_only, class_name: facts.record_type }
    }

    fn read(&self) -> Reading {
        self.crank.database().read(self.field)
    }

    fn meta(&self) -> Arc<Meta> {
        self.crank.database().meta(self.field)
    }

    fn allowed(&self, by: &Peer) -> Rights {
        self.crank.guard().allowed(self.crank.database(), self.field, by)
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.crank.put(self.field, value, Some(by), completion).map_err(refusal)
    }

    fn give_up(&self, put: u64) {
        self.crank.give_up(self.field, PutId(put));
    }

    fn acknowledge(&self, transient: Option<bool>, severity: Option<Severity>) -> Result<(), PutRefusal> {
        self.crank.input(Input::Acknowledge { field: self.field, transient, severity }).map_err(refusal)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn listeners_changed(&self) {
        if let Some(me) = self.me.upgrade() {
            self.crank.watch(&me);
        }
    }

    fn attach(&self, attach: &mut dyn FnMut(Reading)) {
        self.crank.hold(&mut || attach(self.read()));
    }
}

/// As the network says it.
pub fn refusal(error: PutError) -> PutRefusal {
    match error {
        PutError::ReadOnly => PutRefusal::ReadOnly,
        other => PutRefusal::Rejected(other.to_string()),
    }
}
