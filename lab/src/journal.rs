//! The progress of a run, one JSON object per line, so that an interrupted run can continue.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::driver::{DriverFailure, Hello};
use crate::result::ResultRow;
use crate::scenario::TaskTimes;

/// The outcome of one task in one repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The task was measured.
    Measured(TaskTimes),
    /// The task failed.
    Failed(DriverFailure),
}

/// A line of the file after the header.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JournalEntry {
    /// The outcome of one task in one repetition.
    Task { key: String, outcome: TaskOutcome },
    /// A driver's greeting.
    Hello { client: String, hello: Hello },
    /// The rows of a load.
    Load { key: String, rows: Vec<ResultRow> },
}

/// The journal file, open for writing, and its previous content.
#[derive(Debug)]
pub struct Journal {
    file: File,
    done: HashMap<String, TaskOutcome>,
    hellos: HashMap<String, Hello>,
    loads: HashMap<String, Vec<ResultRow>>,
}

impl Journal {
    /// Opens a journal for a run described by `header`. With `resumed`, an existing journal continues if it has the
    /// same header; a truncated last line is ignored.
    pub fn open(path: &Path, header: &str, resumed: bool) -> std::io::Result<Journal> {
        let (mut done, mut hellos, mut loads) = (HashMap::new(), HashMap::new(), HashMap::new());
        if resumed {
            let mut lines = BufReader::new(File::open(path).map_err(|why| no_journal(path, &why))?).lines();
            let found = lines.next().transpose()?.unwrap_or_default();
            if found != header {
                return Err(std::io::Error::other(format!(
                    "{} is from a run with other arguments or another build ({}): use the same ones or omit --resume",
                    path.display(),
                    differences(&found, header)
                )));
            }
            for line in lines {
                match serde_json::from_str(&line?) {
                    Ok(JournalEntry::Task { key, outcome }) => drop(done.insert(key, outcome)),
                    Ok(JournalEntry::Hello { client, hello }) => drop(hellos.insert(client, hello)),
                    Ok(JournalEntry::Load { key, rows }) => drop(loads.insert(key, rows)),
                    Err(_cut_short) => {}
                }
            }
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(resumed).truncate(!resumed);
        let mut file = options.open(path)?;
        // Ends a truncated last line, so that the next one starts on its own line.
        writeln!(file, "{}", if resumed { "" } else { header })?;
        Ok(Journal { file, done, hellos, loads })
    }

    /// The outcome of a task before the interruption.
    pub fn done(&self, key: &str) -> Option<&TaskOutcome> {
        self.done.get(key)
    }

    /// A driver's greeting before the interruption.
    pub fn hello(&self, client: &str) -> Option<&Hello> {
        self.hellos.get(client)
    }

    /// The rows of a load before the interruption.
    pub fn load(&self, key: &str) -> Option<&Vec<ResultRow>> {
        self.loads.get(key)
    }

    /// Records the outcome of a task.
    pub fn keep(&mut self, key: &str, outcome: &TaskOutcome) -> std::io::Result<()> {
        self.write(&JournalEntry::Task { key: key.to_owned(), outcome: outcome.clone() })
    }

    /// Records a driver's greeting.
    pub fn keep_hello(&mut self, client: &str, hello: &Hello) -> std::io::Result<()> {
        self.hellos.insert(client.to_owned(), hello.clone());
        self.write(&JournalEntry::Hello { client: client.to_owned(), hello: hello.clone() })
    }

    /// Records the rows of a load.
    pub fn keep_load(&mut self, key: &str, rows: &[ResultRow]) -> std::io::Result<()> {
        self.write(&JournalEntry::Load { key: key.to_owned(), rows: rows.to_vec() })
    }

    fn write(&mut self, entry: &JournalEntry) -> std::io::Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(entry)?)
    }
}

fn no_journal(path: &Path, why: &std::io::Error) -> std::io::Error {
    let path = path.display();
    std::io::Error::new(
        why.kind(),
        format!(
            "no journal to resume from: {path}: {why}. A run keeps it next to its --json FILE and removes it at the \
             end; omit --resume to start a new run"
        ),
    )
}

/// The settings that differ between two headers, as far as they can be parsed.
fn differences(found: &str, header: &str) -> String {
    let settings = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let (found, expected) = (settings(found), settings(header));
    let different = expected.iter().filter(|(name, value)| found.get(*name) != Some(value));
    let words =
        different.map(|(name, value)| format!("{name} is {value}, was {}", found.get(name).unwrap_or(&Value::Null)));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resuming_without_a_journal_or_with_other_settings_returns_an_error() {
        let path = std::env::temp_dir().join(format!("fodo-lab-no-journal-{}", std::process::id()));

        let missing = Journal::open(&path, "{}", true).unwrap_err().to_string();
        drop(Journal::open(&path, r#"{"seed":1,"repetitions":5}"#, false).unwrap());
        let other = Journal::open(&path, r#"{"seed":1,"repetitions":7}"#, true).unwrap_err().to_string();
        std::fs::remove_file(path).unwrap();

        assert!(missing.contains("no journal to resume from") && missing.contains("--resume"), "{missing}");
        assert!(other.contains("repetitions is 7, was 5"), "{other}");
    }

    #[test]
    fn a_resumed_run_keeps_its_finished_tasks_and_rejects_another_run() {
        let path = std::env::temp_dir().join(format!("fodo-lab-journal-{}", std::process::id()));
        let outcome = TaskOutcome::Measured(TaskTimes { ns: 12.5, n_operations: 3, ..TaskTimes::default() });
        let hello = Hello { client: "libca".into(), version: "7".into(), runtime: String::new() };
        let rows = vec![ResultRow { question: "L1".into(), ..ResultRow::default() }];
        let mut journal = Journal::open(&path, "full 1", false).unwrap();
        journal.keep("a", &outcome).unwrap();
        journal.keep_hello("libca", &hello).unwrap();
        journal.keep_load("L1", &rows).unwrap();
        write!(journal.file, "{{\"key\":\"b\",").unwrap();
        drop(journal);

        let mut resumed = Journal::open(&path, "full 1", true).unwrap();
        resumed.keep("c", &outcome).unwrap();
        let again = Journal::open(&path, "full 1", true).unwrap();

        assert_eq!(resumed.done("a"), Some(&outcome));
        assert_eq!((resumed.hello("libca"), resumed.load("L1")), (Some(&hello), Some(&rows)));
        assert_eq!((again.done("b"), again.done("c")), (None, Some(&outcome)));
        assert!(Journal::open(&path, "full 2", true).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
