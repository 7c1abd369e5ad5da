//! The bounds of the database, each with its reason.

use std::time::Duration;

/// How deep processing may nest through PP links before one of them counts as broken. Plants nest
/// a handful; every level costs stack. FLNK chains do not nest and have no limit.
pub(crate) const DEPTH_MAX: u16 = 48;
/// Records that one chain may process before its links count as broken. Every record that a link leads to may lead to
/// twenty more, so that a dozen records nest into a chain without end; no plant has as many records in one chain as
/// this, and they take less than a second.
pub(crate) const CHAIN_MAX: u64 = 250_000;
/// Timers, records of scan lists, or deferred work (CP, RPRO, CA outputs) that one call does, counted each with the
/// records that it processes. The rest is left to the next call, so that puts get in between.
pub(crate) const SLICE_MAX: u64 = 512;
/// The shortest delay: some record is due for ever where delays are below the clock's resolution. A record that starts
/// itself anew takes a small part of one processor.
pub(crate) const DELAY_MIN: Duration = Duration::from_micros(100);
/// The longest delay, ten years: clocks end somewhere.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(300_000_000);
/// Events that were posted and wait, as in Base. Records that post an event twice and wait for it double them.
pub(crate) const EVENTS_PENDING_MAX: usize = 2000;
/// Puts through channels (CA) to records that are here which wait; a link beyond it is broken. Larger than what one
/// chain of a plant writes. Records that write to each other twice double them.
pub(crate) const PUTS_PENDING_MAX: usize = 10_000;
/// How often a record may be found active before it goes into SCAN alarm, as in Base.
pub(crate) const LOCK_COUNT_MAX: u8 = 10;
/// `meta` of calc inputs asks the linked record, which may ask its own.
pub(crate) const META_DEPTH_MAX: u8 = 8;
/// Bytes of a link field read as a long string, as in Base.
pub(crate) const LINK_TEXT_BYTES: u32 = 1024;
/// Rounds of all loops (UNTIL) of one expression, as synApps has it.
pub(crate) const CALC_ROUNDS_MAX: usize = 1000;
/// Elements of each array of an acalcout record: an expression may hold 80 arrays at once.
pub(crate) const CALC_ELEMENTS_MAX: u32 = 1 << 20;
/// Errors that one file reports before it gives up.
pub(crate) const LOAD_ERRORS_MAX: usize = 100;
/// Names of records that are compared with a wrong one to suggest the right one: some milliseconds.
pub(crate) const SUGGESTED_NAMES_MAX: usize = 20_000;
/// Comparisons of names for all suggestions of one loader: a third of a second.
pub(crate) const COMPARED_NAMES_MAX: usize = 1_000_000;
/// Bytes of a line that an error shows. Thousands of remarks may be about one longer line, and each would keep it.
pub(crate) const SHOWN_LINE_BYTES_MAX: usize = 1024;
/// Fields that the file of one inert record may add; the largest record type there is has 312.
pub(crate) const INERT_FIELDS_MAX: usize = 400;
/// Bytes of a field of an inert record, with its NUL: the longest texts of synApps have 131.
pub(crate) const INERT_TEXT_BYTES: u16 = 256;
/// Choices of a site's `menuScan`. Sites have some dozens, and every tick looks at the list of each.
pub(crate) const SCAN_CHOICES_MAX: usize = 200;
/// Device supports that may be missing; a plant has some dozens.
pub(crate) const INERT_DEVICES_MAX: usize = 10_000;
/// Files that may include one another.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 20;
/// Files that one file includes in all, itself counted, and each as often as it is read: twenty that each include the next
/// one twice would be read a million times.
pub(crate) const INCLUDES_MAX: usize = 10_000;
/// Databases that one `.substitutions` file may ask for; a plant has some thousands.
pub(crate) const INSTANCES_MAX: usize = 1_000_000;
/// Macros that may stand inside one another.
pub(crate) const MACRO_DEPTH_MAX: usize = 32;
/// Macros that one line may need, those inside others included: some milliseconds.
pub(crate) const MACRO_REFERENCES_MAX: usize = 10_000;
/// Bytes that one line may have after its macros are replaced; Base takes 1024.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 16;
/// Brackets inside one another in a JSON value.
pub(crate) const JSON_DEPTH_MAX: usize = 64;
/// Elements of one waveform: 1 GiB of the widest kind.
pub(crate) const ELEMENTS_MAX: u32 = 1 << 27;
/// Bytes of a record's name, as in Base.
pub(crate) const NAME_BYTES_MAX: usize = 60;
/// Bytes of a channel's name that has filters, as searches may have. All filters with every argument take half of it.
pub(crate) const FILTER_BYTES_MAX: usize = 1024;
/// Bytes of an access file. Plants list some hundred users and hosts; a log that was named by mistake
/// is not read to its end.
pub(crate) const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;
/// Brackets inside one another in a block that is skipped, since what it says is not known here.
pub(crate) const ACCESS_DEPTH_MAX: usize = 64;
/// How deep brackets and functions of an expression may nest; every level costs stack. A record's expression has at most
/// 159 characters; that of a link or of an access rule may have more.
pub(crate) const CALC_DEPTH_MAX: u8 = 64;
/// Values that an expression may hold at once, as in Base.
pub(crate) const CALC_STACK_MAX: usize = 80;
/// Columns and digits that a format of a string expression may ask for: several times what fits into a string.
pub(crate) const CALC_WIDTH_MAX: usize = 256;
