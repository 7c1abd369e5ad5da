//! Completion of commands, records and fields.

use std::sync::Arc;

use fodo_lock::Mutex;

use super::table;
use crate::driver::DatabaseDriver;
use crate::limit::COMPLETIONS_MAX;

/// Completes typed lines; may be used from any thread. [The module](super#run-a-script) has an example.
#[derive(Clone, Debug, Default)]
pub struct Completer(Arc<Mutex<Option<Arc<DatabaseDriver>>>>);

impl Completer {
    /// Sets the records to complete, after `iocInit`.
    pub(super) fn set_database(&self, driver: Arc<DatabaseDriver>) {
        *self.0.lock() = Some(driver);
    }

    /// Completes the word before `position` (in bytes). Returns where the word starts and the candidates as whole
    /// words, at most some hundred.
    pub fn complete(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let before = line.get(..position).unwrap_or(line);
        let start = before.rfind([' ', '\t', ',', '(', '"', '\'']).map_or(0, |separator| separator + 1);
        let word = before.get(start..).unwrap_or_default();
        let is_command = before.get(..start).is_some_and(|rest| rest.trim().is_empty());
        let wants_command = is_command || before.trim_start().starts_with("help");
        let found = if wants_command { commands(word) } else { self.names(word) };
        (start, found)
    }

    fn names(&self, word: &str) -> Vec<String> {
        let Some(driver) = self.0.lock().clone() else { return Vec::new() };
        let database = driver.database();
        if let Some((record, field)) = word.split_once('.') {
            let fields = database.field_names(record).filter(|name| name.starts_with(field));
            return fields.take(COMPLETIONS_MAX).map(|name| format!("{record}.{name}")).collect();
        }
        let names = database.record_names().filter(|name| name.starts_with(word));
        names.take(COMPLETIONS_MAX).map(str::to_owned).collect()
    }
}

fn commands(word: &str) -> Vec<String> {
    table::COMMANDS.iter().map(|command| command.name.to_owned()).filter(|name| name.starts_with(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_db::Loader;

    #[test]
    fn tab_completes_commands_records_and_fields() {
        let mut loader = Loader::default();
        let text = b"record(ai, \"x:one\") {}\nrecord(ai, \"x:other\") {}\nrecord(ai, y) {}";
        loader.load("a.db", "", &mut |_| Ok(text.to_vec())).unwrap();
        let completer = Completer::default();
        completer
            .set_database(DatabaseDriver::new(loader.finish().unwrap(), crate::access_control::AccessControl::open()));

        assert_eq!(completer.complete("dbLoadR", 7), (0, vec!["dbLoadRecords".to_owned()]));
        assert_eq!(completer.complete("dbpf(\"x:o", 9), (6, vec!["x:one".to_owned(), "x:other".to_owned()]));
        assert_eq!(completer.complete("dbgf x:one.PRE", 14), (5, vec!["x:one.PREC".to_owned()]));
        assert_eq!(completer.complete("help iocI", 9), (5, vec!["iocInit".to_owned()]));
    }
}
