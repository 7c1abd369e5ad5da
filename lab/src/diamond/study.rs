//! The rows of study 002, as published, and who measures them here.

use serde::Deserialize;

use crate::driver::ClientUnderTest;
use crate::load::tally::UpdateRecording;
use crate::protocol::LabProtocol;
use crate::server::ServerKind;

const FILE: &str = include_str!("../../published/study_002.toml");

/// The study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTables {
    /// Its number.
    pub study: String,
    /// What it measured.
    pub title: String,
    /// Its tables.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
}

/// One table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    /// The study's title.
    pub title: String,
    protocol: LabProtocol,
    /// How values change.
    pub values: ValueSource,
    format: UpdateRecording,
    pairs: Vec<LoadEnds>,
    /// Its rows.
    pub rows: Vec<PublishedLine>,
}

/// How the values of a table change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSource {
    /// A program in Python sets them.
    Python,
    /// The records of an IOC count by themselves.
    Calc,
}

/// A client, and the server to which it subscribes.
pub type LoadEnds = (ClientUnderTest, ServerKind);

/// The cells of a row as published: CPU in per cent, kB/s sent, kB/s received of the server, then of the client.
pub type PublishedCells = [String; 6];

/// One row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLine {
    /// Number of PVs that change.
    pub n_pvs: u32,
    client_pvs: Option<u32>,
    /// Changes of each PV per second.
    pub hz: f64,
    /// Subscriptions to each PV.
    pub n_monitors: u32,
    /// What the study measured; empty where it has no number.
    pub published: PublishedCells,
    /// The study's note.
    pub note: Option<String>,
    protocol: Option<LabProtocol>,
    format: Option<UpdateRecording>,
    pairs: Option<Vec<LoadEnds>>,
    /// Whether the short form has it.
    #[serde(default)]
    short: bool,
}

/// A row with its place in the study.
#[derive(Clone, Copy, Debug)]
pub struct StudyRow<'a> {
    /// Number of its table, from 1.
    pub table_number: usize,
    /// Its number in the table, from 1.
    pub row_number: usize,
    table: &'a PublishedTable,
    /// The row.
    pub line: &'a PublishedLine,
}

impl PublishedTables {
    /// The embedded study.
    pub fn load() -> Result<PublishedTables, toml::de::Error> {
        toml::from_str(FILE)
    }

    /// All rows, or those of the short form.
    pub fn rows(&self, is_short: bool) -> Vec<StudyRow<'_>> {
        let rows = (1..).zip(&self.tables).flat_map(|(number, table)| StudyRow::all_of(number, table));
        rows.filter(|row| row.line.short || !is_short).collect()
    }
}

impl<'a> StudyRow<'a> {
    fn all_of(table_number: usize, table: &'a PublishedTable) -> Vec<StudyRow<'a>> {
        let row = |(index, line)| StudyRow { table_number, row_number: index + 1, table, line };
        table.rows.iter().enumerate().map(row).collect()
    }

    /// The study's title of its table.
    pub fn title(&self) -> &'a str {
        &self.table.title
    }

    /// The protocol.
    pub fn protocol(&self) -> LabProtocol {
        self.line.protocol.unwrap_or(self.table.protocol)
    }

    /// Whether values are requested with time stamps.
    pub fn format(&self) -> UpdateRecording {
        self.line.format.unwrap_or(self.table.format)
    }

    /// How values change.
    pub fn values(&self) -> ValueSource {
        self.table.values
    }

    /// The clients with their servers, those of the study first.
    pub fn pairs(&self) -> &'a [LoadEnds] {
        self.line.pairs.as_deref().unwrap_or(&self.table.pairs)
    }

    /// Number of PVs to which the client subscribes.
    pub fn n_watched(&self) -> u32 {
        self.line.client_pvs.unwrap_or(self.line.n_pvs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> PublishedTables {
        PublishedTables::load().unwrap()
    }

    #[test]
    fn the_seven_tables_have_eighty_rows_and_the_short_form_eight() {
        let study = study();

        let n_rows: Vec<usize> = study.tables.iter().map(|table| table.rows.len()).collect();
        assert_eq!(n_rows, [9, 11, 16, 5, 16, 15, 8]);
        assert_eq!((study.rows(false).len(), study.rows(true).len()), (80, 8));
    }

    #[test]
    fn rows_have_the_numbers_of_the_study() {
        let study = study();
        let rows = study.rows(false);

        let of =
            |table: usize, row: usize| rows.iter().find(|it| (it.table_number, it.row_number) == (table, row)).unwrap();
        let largest = of(5, 16);
        assert_eq!((largest.line.n_pvs, largest.line.hz, largest.line.n_monitors), (1000, 10.0, 1000));
        assert_eq!(largest.line.published, ["118", "4000", "15", "128", "15", "4000"]);
        assert_eq!((of(1, 6).line.n_pvs, of(1, 6).n_watched()), (100, 1));
        assert_eq!(of(1, 9).line.note.as_deref(), Some("cbLow ring buffer full"));
        assert_eq!((of(4, 1).format(), of(3, 1).format()), (UpdateRecording::Time, UpdateRecording::Raw));
        assert_eq!((of(7, 4).line.published[3].as_str(), of(7, 6).protocol()), ("5", LabProtocol::Pva));
    }

    #[test]
    fn every_pair_is_possible_and_each_row_has_the_pair_of_the_study_and_ours() {
        let study = study();
        for row in study.rows(false) {
            let place = (row.table_number, row.row_number);
            assert!(row.pairs().len() > 1, "{place:?}");
            for (client, server) in row.pairs() {
                assert!(client.is_measured_over(row.protocol()), "{place:?} {client:?}");
                assert!(server.is_measured_over(row.protocol()), "{place:?} {server:?}");
                assert_eq!(server.is_set_by_python(), row.values() == ValueSource::Python, "{place:?} {server:?}");
            }
            assert!(row.pairs().first().is_some_and(|(_, server)| server.is_peer()), "{place:?}");
            assert!(row.pairs().iter().any(|(_, server)| !server.is_peer()), "{place:?}");
        }
    }
}
