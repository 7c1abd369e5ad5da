//! The limits of the database, each with its reason.

use std::time::Duration;

/// Maximum nesting of processing through PP links; a deeper link counts as broken. Real databases nest a handful of
/// levels, and every level costs stack. FLNK chains do not nest and have no limit.
pub(crate) const DEPTH_MAX: u16 = 48;
/// Maximum number of records that one chain processes; further links count as broken. Every record may have links to
/// twenty more, so a dozen records can nest into a practically endless chain. No real database has this many records
/// in one chain, and they take less than a second.
pub(crate) const CHAIN_MAX: u64 = 250_000;
/// Maximum number of timers, scanned records, or items of deferred work (CP, RPRO, CA outputs) in one call. Each counts
/// as many as the records that it processes. The rest is left to the next call, so that puts can run in between.
pub(crate) const SLICE_MAX: u64 = 512;
/// The shortest delay. With delays below the clock's resolution some record would always be due. At this limit, a
/// record that restarts itself takes a small part of one processor.
pub(crate) const DELAY_MIN: Duration = Duration::from_micros(100);
/// The longest delay, about ten years: a limit that no clock overflows.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(300_000_000);
/// Posted events that are pending, as in Base. Needed because records that wait for an event and post it twice double
/// the number each time.
pub(crate) const EVENTS_PENDING_MAX: usize = 2000;
/// Pending puts through channels (CA) to records of this database; a link beyond the limit is broken. More than one
/// chain of a real database writes. Needed because records that write to each other twice double the number each time.
pub(crate) const PUTS_PENDING_MAX: usize = 10_000;
/// How often an active record may be asked to process before it goes into SCAN alarm, as in Base.
pub(crate) const LOCK_COUNT_MAX: u8 = 10;
/// Maximum depth of metadata lookups: the metadata of a calc input is that of the linked field, which may be a calc
/// input itself.
pub(crate) const META_DEPTH_MAX: u8 = 8;
/// The queue of a link over pvAccess: some minutes of the fastest scan.
pub(crate) const PVA_QUEUE_SIZE_MAX: i64 = 65_535;
/// The position of a link over pvAccess among those to the same PV, before or after 0, as in pvxs.
pub(crate) const PVA_ORDER_MAX: i64 = 1024;
/// Bytes of a link field read as a long string, as in Base.
pub(crate) const LINK_TEXT_BYTES: u32 = 1024;
/// Iterations of all loops (UNTIL) of one expression, as in synApps.
pub(crate) const CALC_ROUNDS_MAX: usize = 1000;
/// Elements of each array of an acalcout record: an expression may hold 80 arrays at once.
pub(crate) const CALC_ELEMENTS_MAX: u32 = 1 << 20;
/// Errors that are reported for one file before loading stops.
pub(crate) const LOAD_ERRORS_MAX: usize = 100;
/// Record names that are compared with an unknown name to suggest the right one: some milliseconds.
pub(crate) const SUGGESTED_NAMES_MAX: usize = 20_000;
/// Comparisons of names for all suggestions of one loader: a third of a second.
pub(crate) const COMPARED_NAMES_MAX: usize = 1_000_000;
/// Bytes of the source line that an error shows. There may be thousands of errors about one long line, and each keeps a
/// copy.
pub(crate) const SHOWN_LINE_BYTES_MAX: usize = 1024;
/// Fields that a file may set in one inert record; the largest known record type has 312.
pub(crate) const INERT_FIELDS_MAX: usize = 400;
/// Bytes of a field of an inert record, with its NUL; the longest strings in synApps have 131.
pub(crate) const INERT_TEXT_BYTES: u16 = 256;
/// Choices of a site's `menuScan`. Sites have some dozens, and every tick checks the list of each.
pub(crate) const SCAN_CHOICES_MAX: usize = 200;
/// Missing device supports; a real database has some dozens.
pub(crate) const INERT_DEVICES_MAX: usize = 10_000;
/// Nesting of include files.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 20;
/// Files that are read in total for one file, counted each time: twenty files that each include the next one twice
/// would be read a million times.
pub(crate) const INCLUDES_MAX: usize = 10_000;
/// Template instances of one `.substitutions` file; a real one has some thousands.
pub(crate) const INSTANCES_MAX: usize = 1_000_000;
/// Nesting of macros.
pub(crate) const MACRO_DEPTH_MAX: usize = 32;
/// Macro references that are expanded for one line, including nested ones: some milliseconds.
pub(crate) const MACRO_REFERENCES_MAX: usize = 10_000;
/// Bytes of one line after macro expansion; Base accepts 1024.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 16;
/// Nesting of brackets in a JSON value.
pub(crate) const JSON_DEPTH_MAX: usize = 64;
/// Levels of the path of a member of a group. Clients read types of 20 levels, of which an NTScalar needs three.
pub(crate) const GROUP_DEPTH_MAX: usize = 16;
/// The highest index of an element of a structure array in a group: each read sends all elements up to it.
pub(crate) const GROUP_INDEX_MAX: usize = 1023;
/// Elements of one waveform: 1 GiB for the widest kind.
pub(crate) const ELEMENTS_MAX: u32 = 1 << 27;
/// Bytes of a record name, as in Base.
pub(crate) const NAME_BYTES_MAX: usize = 60;
/// Bytes of a channel name with filters, as in Base: rsrv closes the circuit of a client that names a longer one. All
/// filters with every argument take about half of it.
pub(crate) const FILTER_BYTES_MAX: usize = 511;
/// Bytes of an access file. Real files list some hundred users and hosts. If a large log is named by mistake, it is not
/// read to its end.
pub(crate) const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;
/// Nesting of brackets in an unknown block, which is skipped.
pub(crate) const ACCESS_DEPTH_MAX: usize = 64;
/// Nesting of brackets and functions in an expression; every level costs stack. A record's expression has at most
/// 159 characters; the expression of a link or an access rule may have more.
pub(crate) const CALC_DEPTH_MAX: u8 = 64;
/// Values on the stack of an expression, as in Base.
pub(crate) const CALC_STACK_MAX: usize = 80;
/// Width and precision of a format in a string expression: several times the size of a string.
pub(crate) const CALC_WIDTH_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would refuse what its reason mentions.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("an array of a megapixel in an expression", CALC_ELEMENTS_MAX as usize, 1_000_000),
            ("sixty times the longest line of Base", LINE_BYTES_MAX, 60 * 1024),
            ("a gigabyte of doubles", ELEMENTS_MAX as usize * 8, 1_000_000_000),
            ("a hundred thousand hosts", ACCESS_FILE_BYTES_MAX, 100_000 * 40),
        ] {
            assert!(limit >= least, "{limit} has no room for {what}, {least}");
        }
    }
}
