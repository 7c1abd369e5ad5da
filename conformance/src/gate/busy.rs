//! Random databases in which records stay active for a while (ODLY, SDLY, the delays of seq, Async Soft Channel), while
//! CP and CPP links, forward links, puts and events reach them.
//!
//! The order in which softIoc's threads run must not matter, so each record has one role: the source is only written, a
//! follower has one CP or CPP link to an earlier record, and a target is processed by earlier records. Links lead
//! to later records only, so processing ends.

use fodo_data::Kind;

use super::RecordName;
use super::random::Dice;
use super::step::{Argument, GateStep};

/// The time for which records are active. Their sums and multiples differ by much more than the duration of a burst.
const DELAYS: [&str; 3] = ["0.25", "0.6", "1.4"];

/// The event of the case; the records of another case must not post it.
const EVENT: &str = "$(P)e";

/// Number of bursts of steps; after each, all records become idle.
const BURSTS: usize = 4;

/// Maximum number of steps in a burst.
const BURST_MAX: u64 = 4;

/// How a record is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessingRole {
    /// By puts only.
    Source,
    /// By its CP or CPP link.
    Follower,
    /// By links of earlier records, or by events.
    Target,
}

type GivenFields = Vec<(String, String)>;

/// The records of a random database.
pub(super) fn records(dice: &mut Dice, n_records: usize) -> Vec<(RecordName, GivenFields)> {
    let mut plan = BusyPlan::new(dice, n_records);
    (0..n_records).map(|number| plan.record(dice, number)).collect()
}

/// Bursts of puts, each followed by a wait until no record is active.
pub(super) fn steps(dice: &mut Dice, records: &[(RecordName, GivenFields)]) -> Vec<GateStep> {
    let mut steps = vec![GateStep::WaitIdle];
    for _ in 0..BURSTS {
        for _ in 0..2 + dice.below(BURST_MAX - 1) {
            let (record, fields) = dice.one_of(records);
            let can_be_processed = !follows_early_value(records, fields);
            let is_scanned = fields.iter().any(|(field, _)| field == "SCAN");
            let takes_numbers = ["ao", "longout", "int64out"].contains(&&*record.record_type) && !is_scanned;
            let (pv, text) = match dice.below(3) {
                1 if takes_numbers && can_be_processed => (record.name.clone(), dice.below(9).to_string()),
                2 if can_be_processed => (format!("{}.PROC", record.name), "1".into()),
                _ => ("r0".to_string(), dice.below(9).to_string()),
            };
            steps.push(GateStep::Write(Argument { pv, kind: Kind::Text, text }));
        }
        steps.push(GateStep::WaitIdle);
    }
    steps
}

/// Whether the record reads one that sets VAL before it waits for ODLY. softIoc reads the value of its last update through
/// a CP link, `fodo ioc` the present one: see the page on differences. For the same reason no number is put to a record that
/// the put does not process.
fn follows_early_value(records: &[(RecordName, GivenFields)], fields: &GivenFields) -> bool {
    let is_source = |name: &str| {
        let prefix = format!("$(P){name} CP");
        fields.iter().any(|(_, link)| link.starts_with(&prefix))
    };
    records.iter().any(|(record, fields)| is_source(&record.name) && fields.iter().any(|(field, _)| field == "ODLY"))
}

/// What is decided before the first record is made.
struct BusyPlan {
    roles: Vec<ProcessingRole>,
    /// The delay of each busy record.
    delays: Vec<Option<&'static str>>,
    /// The records that another one writes: a second writer would make the order matter.
    is_written: Vec<bool>,
    /// Whether the second record posts an event.
    has_event: bool,
}

impl BusyPlan {
    fn new(dice: &mut Dice, n_records: usize) -> BusyPlan {
        let has_event = dice.below(3) == 0;
        let role = |dice: &mut Dice, number| match number {
            0 => ProcessingRole::Source,
            1 if has_event => ProcessingRole::Target,
            _ if dice.below(2) == 0 => ProcessingRole::Follower,
            _ => ProcessingRole::Target,
        };
        let roles = (0..n_records).map(|number| role(dice, number)).collect();
        let mut delays = vec![None; n_records];
        for delay in DELAYS {
            let number = 1 + dice.below(n_records as u64 - 1) as usize;
            delays[number] = Some(delay);
        }
        BusyPlan { roles, delays, is_written: vec![false; n_records], has_event }
    }

    fn record(&mut self, dice: &mut Dice, number: usize) -> (RecordName, GivenFields) {
        let mut fields = GivenFields::new();
        let is_event = self.has_event && number == 1;
        let record_type = match (self.roles[number], self.delays[number]) {
            (ProcessingRole::Source, _) => "ao",
            _ if is_event => "event",
            (ProcessingRole::Follower, delay) => self.follower(dice, number, delay, &mut fields),
            (_, delay) => self.target(dice, number, delay, &mut fields),
        };
        if is_event {
            fields.push(("VAL".into(), EVENT.into()));
        }
        if let Some(forward) = self.later(dice, number).filter(|_| dice.below(2) == 0) {
            fields.push(("FLNK".into(), forward));
        }
        (RecordName { name: format!("r{number}"), record_type: record_type.into() }, fields)
    }

    /// Whether the record is a follower that is never active for a while.
    fn is_immediate_follower(&self, number: usize) -> bool {
        self.roles[number] == ProcessingRole::Follower && self.delays[number].is_none()
    }

    fn follower(
        &mut self,
        dice: &mut Dice,
        number: usize,
        delay: Option<&str>,
        fields: &mut GivenFields,
    ) -> &'static str {
        // How often softIoc processes a record at start that follows another follower depends on a race.
        let sources: Vec<usize> = (0..number).filter(|source| !self.is_immediate_follower(*source)).collect();
        let source = format!("$(P)r{}", dice.one_of(&sources));
        let link = format!("{source}{}{}", *dice.one_of(&[" CP", " CP", " CPP"]), dice.one_of(&["", " MS", " NMS"]));
        let mut set = |field: &str, value: &str| fields.push((field.into(), value.into()));
        let Some(delay) = delay else {
            let record_type = *dice.one_of(&["calc", "longin", "ao"]);
            let field = match record_type {
                "calc" => "INPA",
                "longin" => "INP",
                _ => "DOL",
            };
            set(field, &link);
            let calc = *dice.one_of(&["A", "A+1", "VAL+1"]);
            set("CALC", calc);
            set("OMSL", "closed_loop");
            fields.retain(|(field, _)| has_field(record_type, field));
            return record_type;
        };
        match dice.below(4) {
            0 | 1 => {
                set("INPA", &link);
                let calc = *dice.one_of(&["A", "A+1", "VAL+1"]);
                set("CALC", calc);
                let oopt = *dice.one_of(&["Every Time", "Every Time", "On Change"]);
                set("OOPT", oopt);
                set("ODLY", delay);
                self.write_later(dice, number, "OUT", fields);
                "calcout"
            }
            2 => {
                set("DOL0", &link);
                set("DLY0", delay);
                self.write_later(dice, number, "LNK0", fields);
                "seq"
            }
            _ if dice.below(2) == 0 => {
                set("SIMM", "YES");
                set("SDLY", delay);
                set("SIOL", &link);
                dice.one_of::<&str>(&["ai", "longin", "int64in", "stringin"])
            }
            _ => {
                set("SIMM", "YES");
                set("SDLY", delay);
                set("DOL", &link);
                set("OMSL", "closed_loop");
                self.write_later(dice, number, "SIOL", fields);
                dice.one_of::<&str>(&["ao", "longout", "int64out", "stringout"])
            }
        }
    }

    fn target(
        &mut self,
        dice: &mut Dice,
        number: usize,
        delay: Option<&str>,
        fields: &mut GivenFields,
    ) -> &'static str {
        let mut set = |field: &str, value: &str| fields.push((field.into(), value.into()));
        if self.has_event && dice.below(2) == 0 {
            set("SCAN", "Event");
            set("EVNT", EVENT);
        }
        let Some(delay) = delay else {
            let record_type = *dice.one_of(&["calc", "calc", "ao", "longout", "fanout"]);
            if record_type == "calc" {
                set("CALC", "VAL+1");
            }
            return record_type;
        };
        match dice.below(5) {
            0 => {
                set("CALC", "VAL+1");
                set("ODLY", delay);
                self.write_later(dice, number, "OUT", fields);
                "calcout"
            }
            1 => {
                set("DO0", "5");
                set("DLY0", delay);
                set("DLY1", "0.05");
                self.write_later(dice, number, "LNK1", fields);
                "seq"
            }
            2 => {
                set("SIMM", "YES");
                set("SDLY", delay);
                self.write_later(dice, number, "SIOL", fields);
                dice.one_of::<&str>(&["ao", "longout", "int64out"])
            }
            // Active as long as the later record that the link leads to.
            3 => {
                set("DTYP", "Async Soft Channel");
                let target = self.later(dice, number).unwrap_or_default();
                fields.push(("INP".into(), target));
                dice.one_of::<&str>(&["ai", "longin"])
            }
            _ => {
                set("DTYP", "Async Soft Channel");
                self.write_later(dice, number, "OUT", fields);
                fields.iter_mut().filter(|(field, _)| field == "OUT").for_each(|(_, link)| *link += " CA");
                dice.one_of::<&str>(&["ao", "longout"])
            }
        }
    }

    /// A later record that links may process.
    fn later(&self, dice: &mut Dice, number: usize) -> Option<String> {
        let targets: Vec<usize> =
            (number + 1..self.roles.len()).filter(|later| self.roles[*later] == ProcessingRole::Target).collect();
        (!targets.is_empty()).then(|| format!("$(P)r{}", dice.one_of(&targets)))
    }

    /// Adds an output link to a later record that no other record writes.
    fn write_later(&mut self, dice: &mut Dice, number: usize, field: &str, fields: &mut GivenFields) {
        let is_free = |later: &usize| self.roles[*later] == ProcessingRole::Target && !self.is_written[*later];
        let free: Vec<usize> = (number + 1..self.roles.len()).filter(is_free).collect();
        if free.is_empty() || dice.below(4) == 0 {
            return;
        }
        let later = *dice.one_of(&free);
        self.is_written[later] = true;
        fields.push((field.into(), format!("$(P)r{later}{}", *dice.one_of(&[" PP", " PP", ".PROC"]))));
    }
}

fn has_field(record_type: &str, field: &str) -> bool {
    super::fields_of(record_type).iter().any(|other| other == field)
}
