//! The order of locks, and its check in debug builds.

/// The locks that a thread holds while it takes others, in the order in which they are taken.
///
/// The list is here, below all crates that have locks, because an order exists only for all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// `ioc`: the slot of the running IOC, held while a command uses it.
    RunningIoc,
    /// `ioc`: the sets of autosave, held while values are read and files are written.
    Autosave,
    /// `ioc`: the connections of the metrics page, held while it is generated.
    MetricsPage,
    /// `ioc`: the connection to the RecCeiver, held while the records are listed.
    RecCaster,
    /// `ioc`: one input of the database at a time, from decoding to the delivery of its events.
    Driver,
    /// `db`: the queues and timers of the database.
    Engine,
    /// `ioc`: the fields that have a channel, held while a new one reads its facts.
    OpenPvs,
    /// `ioc`: the value of a group, held while its members are read.
    Group,
    /// `ioc`: the channels with filters of one field, held while their filters see a change.
    FilteredPvs,
    /// `ioc`: the filters of one channel.
    FilterChain,
    /// `db`: one record. Two records are never locked at once.
    Record,
    /// `lab`: the updates of one subscription.
    LoadTally,
    /// `vclu`: the values of the PVs of a CLU, held while new ones are posted.
    CluValues,
    /// `net`: the value of a `SharedPv` or a `SharedStructure`, held while it is posted.
    SharedPv,
    /// `net`: the latest posts of a PV, held while the circuits that listen are notified.
    Posts,
    /// `net`: the list of searches that contexts share.
    Searches,
    /// `net`: a circuit of the client.
    Circuit,
    /// `net`: the circuits of a context, held while a new one is opened.
    ContextCircuits,
    /// `net`: the callback threads of a context, held while they are started.
    ContextCallbacks,
    /// `net`: a channel of the client.
    Channel,
    /// `net`: the names that the client searches for.
    Search,
    /// `net`: the connection to a name server.
    NameServer,
    /// `net`: the deadlines of awaited operations.
    Deadlines,
    /// `net`: the server of a CLU, held while it stores files and keys.
    CluServer,
    /// `net`: the connection to a CLU.
    CluConnection,
    /// Every other lock: no lock is taken while it is held.
    Leaf,
}

/// The rank of a lock; takes no space in a release build.
#[derive(Clone, Copy)]
pub(crate) struct RankOf {
    #[cfg(debug_assertions)]
    rank: Rank,
}

/// A lock that this thread holds, or is about to take; takes no space in a release build.
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that this thread holds, ascending.
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl RankOf {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only a debug build checks the order"))]
    pub(crate) const fn new(rank: Rank) -> RankOf {
        RankOf {
            #[cfg(debug_assertions)]
            rank,
        }
    }
}

impl Held {
    /// Panics if a lock of this rank is out of order now, else counts it as held.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "only a debug build checks the order"))]
    pub(crate) fn check(of: RankOf) -> Held {
        #[cfg(debug_assertions)]
        {
            let rank = of.rank;
            // A thread that is ending has no list any more.
            let last = HELD.try_with(|held| held.borrow().last().copied()).ok().flatten();
            if let Some(last) = last {
                assert!(last < rank, "{rank:?} locked while {last:?} is held; see docs/explanations/locks.md");
            }
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
        }
        Held {
            #[cfg(debug_assertions)]
            rank: of.rank,
        }
    }

    /// Panics if this thread holds another lock.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn check_only_one(&self) {
        #[cfg(debug_assertions)]
        {
            let (rank, n_held) = (self.rank, HELD.try_with(|held| held.borrow().len()).unwrap_or_default());
            assert!(n_held <= 1, "waiting with {rank:?} while another lock is held; see docs/explanations/locks.md");
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        // As in `check`.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(index) = held.iter().rposition(|rank| *rank == self.rank) {
                held.remove(index);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    /// What stands between two marks, in each line that has both.
    fn listed<'a>(lines: impl Iterator<Item = &'a str>, before: &str, after: char) -> Vec<&'a str> {
        lines.filter_map(|line| line.trim().strip_prefix(before)?.split_once(after)).map(|(name, _)| name).collect()
    }

    #[test]
    fn the_page_on_locks_lists_the_ranks_in_their_order() {
        let source = include_str!("rank.rs");
        let (_, ranks) = source.split_once("pub enum Rank {").unwrap();
        let (ranks, _) = ranks.split_once("\n}").unwrap();
        let mut ranks = listed(ranks.lines().filter(|line| !line.contains("///")), "", ',');
        assert_eq!(ranks.pop(), Some("Leaf"));

        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanations/locks.md"));

        assert_eq!(listed(page.unwrap().lines(), "| `", '`'), ranks);
    }
}
