//! The appendices of study 003, as published.

use serde::Deserialize;

use crate::protocol::LabProtocol;

const FILE: &str = include_str!("../../published/study_003.toml");

/// Bytes per second of the payload of TCP on a link of one gigabit per second: of each 1538 bytes on the wire (preamble,
/// frame, checksum, gap) 1448 are payload.
const WIRE_BYTES_S: f64 = 125e6 * 1448.0 / 1538.0;

/// The same on the laboratory's link between two hosts, whose limit counts each frame without preamble, checksum and gap,
/// also where the kernel passes many segments together.
const LAB_WIRE_BYTES_S: f64 = 125e6 * 1448.0 / 1514.0;

/// The study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCases {
    /// Its number.
    pub study: String,
    /// What it measured.
    pub title: String,
    /// The pairs of client and server that it measured.
    pub cases: [String; 4],
    /// Its tables.
    #[serde(rename = "table")]
    pub tables: Vec<CaseTable>,
}

/// One appendix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseTable {
    /// Its name in results: `N1` to `N3`.
    pub question: String,
    /// What it measures.
    pub title: String,
    /// What its points are.
    pub points_are: String,
    /// The unit of its numbers.
    pub unit: String,
    element_bytes: u64,
    answer_bytes: AnswerBytes,
    /// What must be known to read its numbers.
    pub notes: Vec<String>,
    /// Its rows: Channel Access first, then pvAccess by delay.
    pub rows: Vec<CaseRow>,
}

/// What a server sends for one operation, without the elements of an array.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBytes {
    ca: u64,
    pva: u64,
}

/// One row: a point with one delay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRow {
    /// The protocol.
    pub protocol: LabProtocol,
    /// How long either end waited for more before it sent, in milliseconds.
    pub delay_ms: u32,
    /// Elements of an array, or channels.
    pub point: u64,
    /// The number of each case, as published.
    pub cases: [String; 4],
}

impl PublishedCases {
    /// The embedded study.
    pub fn load() -> Result<PublishedCases, toml::de::Error> {
        toml::from_str(FILE)
    }

    /// The table of this name.
    pub fn table(&self, question: &str) -> Option<&CaseTable> {
        self.tables.iter().find(|table| table.question == question)
    }
}

impl CaseTable {
    /// The points, ascending.
    pub fn points(&self) -> Vec<u64> {
        let of_ca = self.rows.iter().filter(|row| row.protocol == LabProtocol::Ca);
        of_ca.map(|row| row.point).collect()
    }

    /// Operations per second for which a link of one gigabit per second carries the server's answers.
    pub fn wire_hz(&self, protocol: LabProtocol, point: u64) -> f64 {
        WIRE_BYTES_S / self.answer_bytes(protocol, point)
    }

    /// The same for the laboratory's link.
    pub fn lab_wire_hz(&self, protocol: LabProtocol, point: u64) -> f64 {
        LAB_WIRE_BYTES_S / self.answer_bytes(protocol, point)
    }

    fn answer_bytes(&self, protocol: LabProtocol, point: u64) -> f64 {
        let answer = match protocol {
            LabProtocol::Ca => self.answer_bytes.ca,
            LabProtocol::Pva => self.answer_bytes.pva,
        };
        (answer + self.element_bytes * point) as f64
    }
}

/// The number that a published cell contains: commas are ignored, wherever they are.
pub fn number_of(cell: &str) -> Option<f64> {
    cell.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> PublishedCases {
        PublishedCases::load().unwrap()
    }

    fn cell(question: &str, protocol: LabProtocol, delay_ms: u32, point: u64, case: usize) -> f64 {
        let study = study();
        let rows = &study.table(question).unwrap().rows;
        let is_it = |row: &&CaseRow| (row.protocol, row.delay_ms, row.point) == (protocol, delay_ms, point);
        number_of(&rows.iter().find(is_it).unwrap().cases[case - 1]).unwrap()
    }

    #[test]
    fn each_appendix_has_channel_access_and_four_delays_at_every_point() {
        let study = study();

        let n_points: Vec<usize> = study.tables.iter().map(|table| table.points().len()).collect();
        assert_eq!(n_points, [6, 4, 4]);
        for table in &study.tables {
            let mut keys: Vec<_> = table.rows.iter().map(|row| (row.protocol, row.delay_ms, row.point)).collect();
            assert!(keys.is_sorted() && table.points().is_sorted(), "{}", table.title);
            keys.dedup();
            assert_eq!(keys.len(), 5 * table.points().len(), "{}", table.title);
            assert!(
                table.rows.iter().flat_map(|row| &row.cases).all(|cell| number_of(cell).is_some_and(|it| it > 0.0))
            );
            assert!(table.unit.ends_with("/s"), "results take it for a rate");
        }
    }

    #[test]
    fn cells_have_the_numbers_of_the_study() {
        use LabProtocol::{Ca, Pva};

        assert_eq!(cell("N1", Ca, 0, 10, 1), 18_121.0);
        assert_eq!(cell("N1", Ca, 0, 1_000_000, 3), 13.0);
        assert_eq!(cell("N1", Pva, 10, 10_000, 2), 532.0);
        assert_eq!(cell("N2", Pva, 0, 100, 4), 100_567.0);
        assert_eq!(cell("N2", Pva, 5, 1000, 1), 48_678.0);
        assert_eq!(cell("N3", Pva, 0, 1000, 4), 8_028_389.0);
        assert_eq!(cell("N3", Pva, 1, 10, 3), 3521.0);
    }

    #[test]
    fn slips_of_digit_groups_are_read_without_their_commas() {
        use LabProtocol::{Ca, Pva};

        assert_eq!(cell("N2", Ca, 0, 1, 1), 4296.0);
        assert_eq!((cell("N3", Pva, 5, 1000, 3), cell("N3", Pva, 5, 1000, 4)), (161_497.0, 157_966.0));
        assert_eq!((number_of(""), number_of("n.a.")), (None, None));
    }

    #[test]
    fn only_events_over_pvaccess_without_delay_exceed_the_wire() {
        let study = study();
        let mut beyond = Vec::new();
        for table in &study.tables {
            for row in &table.rows {
                let wire_hz = table.wire_hz(row.protocol, row.point);
                if row.cases.iter().filter_map(|cell| number_of(cell)).any(|number| number > wire_hz) {
                    beyond.push((table.question.as_str(), row.protocol, row.delay_ms, row.point));
                }
            }
        }

        assert_eq!(beyond, [("N3", LabProtocol::Pva, 0, 1000)]);
        let events = study.table("N3").unwrap();
        assert_eq!(events.wire_hz(LabProtocol::Pva, 1000).round(), 3_269_036.0);
        assert_eq!(study.table("N1").unwrap().lab_wire_hz(LabProtocol::Pva, 1_000_000).floor(), 14.0);
    }
}
