//! Storage: keeps global variables over restarts.
//!
//! `SYSTEM.Init` writes the stored values to the variables, before `OnInit` runs. From then on, changes are written to a file
//! each second. The file is a table of Lua, replaced as a whole.

use std::collections::BTreeSet;
use std::fs::{self, TryLockError};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{CluObject, Feature, ObjectClass, ObjectContext, ObjectError, ObjectMethod, Parameter, ValueKind};
use crate::limit::{
    NAME_BYTES_MAX, STORAGE_PERIOD, STORED_BYTES_MAX, STORED_NAME_BYTES_MAX, STORED_VARIABLES_MAX, TABLE_DEPTH_MAX,
    TABLE_VALUES_MAX,
};
use crate::log::{LogSeverity, count};
use crate::value::{LuaValue, NumberFormat, TextForm, parse_table};

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 44,
    name: "Storage",
    version: 1,
    features: &[Feature::number(1, "Utilization").unit("%").range(0.0, 100.0)],
    methods: &[
        ObjectMethod::new(3, "EraseAll"),
        ObjectMethod::with(4, "Store", &[Parameter::new("VariableName", ValueKind::Text, "")]),
    ],
    events: &[],
    create: |context| Box::new(Storage::new(context)),
};

struct Storage {
    /// `None` if the CLU has no folder for stored values, or the file cannot be read now and must not be replaced.
    path: Option<PathBuf>,
    /// The values of the file that have not been written to their variables yet.
    restored: Vec<(String, LuaValue)>,
    names: BTreeSet<String>,
    /// Those of the names whose value cannot be stored, so that the log reports each once.
    omitted: BTreeSet<String>,
    /// The contents of the file.
    written: String,
    /// Why the file could not be written, so that the log reports it once.
    failure: Option<String>,
    /// When the variables are compared with the file; `None` before `SYSTEM.Init`.
    next_check: Option<Instant>,
}

impl Storage {
    fn new(context: &mut ObjectContext<'_>) -> Storage {
        let name = context.name();
        let file = file_name(&name);
        let mut path = context.world.storage.as_ref().map(|folder| folder.join(format!("{file}.lua")));
        if file.len() > STORED_NAME_BYTES_MAX && path.take().is_some() {
            count(&context.world.log.counters.storage_errors);
            context.log(LogSeverity::Error, "its name is too long for the name of a file");
        }
        let mut storage = Storage {
            path,
            restored: Vec::new(),
            names: BTreeSet::new(),
            omitted: BTreeSet::new(),
            written: String::new(),
            failure: None,
            next_check: None,
        };
        storage.load(context);
        storage
    }

    /// Reads the file. A file with other contents is kept beside the new one; a file that cannot be read now stays, and the
    /// values are not stored until the next start.
    fn load(&mut self, context: &mut ObjectContext<'_>) {
        let Some(path) = self.path.clone() else {
            context
                .log(LogSeverity::Warning, "stored values are lost at the next start: the CLU has no folder for them");
            return;
        };
        let text = match read_bounded(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return,
            Err(error) => return self.keep_unwritten(&path, &format!("it cannot be read: {error}"), context),
        };
        match parse_table(&text, TextForm::Quoted) {
            Some(LuaValue::Table(entries)) => {
                let named = entries.into_iter().filter_map(|(key, value)| match key {
                    LuaValue::Text(name) => Some((name, value)),
                    _ => None,
                });
                self.restored = named.take(STORED_VARIABLES_MAX).collect();
                self.names = self.restored.iter().map(|(name, _)| name.clone()).collect();
                self.written = text;
            }
            _ => {
                count(&context.world.log.counters.storage_errors);
                let aside = path.with_extension("lua.bad");
                let moved = fs::rename(&path, &aside).map_or_else(
                    |error| format!("it could not be renamed: {error}"),
                    |()| format!("it was renamed to {}", aside.display()),
                );
                context.log(LogSeverity::Error, &format!("{} is not a table of values; {moved}", path.display()));
            }
        }
    }

    fn keep_unwritten(&mut self, path: &Path, reason: &str, context: &ObjectContext<'_>) {
        count(&context.world.log.counters.storage_errors);
        let text = format!("{} is not written until the next start: {reason}", path.display());
        context.log(LogSeverity::Error, &text);
        self.path = None;
    }

    /// Compares the variables with the file after the current call, so that many calls write it once.
    fn check_soon(&mut self, context: &ObjectContext<'_>) {
        if self.next_check.is_some() {
            self.next_check = Some(context.now().monotonic);
        }
    }

    /// Writes the file if a variable has changed.
    fn save(&mut self, context: &mut ObjectContext<'_>) {
        let Some(path) = self.path.clone() else { return };
        if self.written.is_empty() && self.names.is_empty() {
            return;
        }
        let replaced = self.contents(context).and_then(|text| {
            if text != self.written {
                replace_file(&path, &text)?;
                count(&context.world.log.counters.storage_writes);
                self.written = text;
            }
            Ok(())
        });
        let failure = replaced.err().map(|error| format!("{} cannot be written: {error}", path.display()));
        if let Some(failure) = failure.as_ref().filter(|failure| self.failure.as_ref() != Some(*failure)) {
            count(&context.world.log.counters.storage_errors);
            context.log(LogSeverity::Error, failure);
        }
        self.failure = failure;
    }

    /// The variables as a table of Lua that [`Storage::load`] can read.
    fn contents(&mut self, context: &ObjectContext<'_>) -> io::Result<String> {
        let mut text = String::from("{");
        let (mut n_values, mut omitted) = (1, BTreeSet::new());
        for name in &self.names {
            let value = context.variables.get(name);
            let value = value.map_err(|reason| io::Error::other(format!("the variable {name}: {reason}")))?;
            if value == LuaValue::Nil {
                continue;
            }
            if !is_plain(&value, 1) {
                omitted.insert(name.clone());
                continue;
            }
            n_values += 1 + count_values(&value);
            if n_values > TABLE_VALUES_MAX {
                return Err(io::Error::other(format!("it would have more than {TABLE_VALUES_MAX} values")));
            }
            let entry = LuaValue::Table(vec![(name.as_str().into(), value)]).to_text(NumberFormat::Full);
            let entry = entry.strip_prefix('{').and_then(|entry| entry.strip_suffix('}')).unwrap_or_default();
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(entry);
            if text.len() >= STORED_BYTES_MAX {
                return Err(io::Error::other(format!("it would be longer than {STORED_BYTES_MAX} bytes")));
            }
        }
        text.push('}');
        for name in omitted.difference(&self.omitted) {
            count(&context.world.log.counters.storage_errors);
            let reason = format!("has a function, an object or more than {TABLE_DEPTH_MAX} nested tables");
            context.log(LogSeverity::Error, &format!("the variable {name} {reason}, and is not stored"));
        }
        self.omitted = omitted;
        Ok(text)
    }
}

impl CluObject for Storage {
    fn get(&self, _index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        LuaValue::Number((self.names.len() * 100 / STORED_VARIABLES_MAX) as f64)
    }

    fn set(&mut self, _index: u16, _value: LuaValue, _context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        Err(ObjectError::Unavailable)
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        if index == 3 {
            self.names.clear();
            self.restored.clear();
            self.check_soon(context);
            return Ok(LuaValue::Nil);
        }
        let [LuaValue::Text(name)] = arguments else {
            return Err(ObjectError::Failed { reason: "Store needs the name of a variable".into() });
        };
        if name.len() > NAME_BYTES_MAX {
            let reason = format!("the name of a stored variable has at most {NAME_BYTES_MAX} bytes");
            return Err(ObjectError::Failed { reason });
        }
        if !self.names.contains(name) && self.names.len() == STORED_VARIABLES_MAX {
            let reason = format!("a Storage object keeps at most {STORED_VARIABLES_MAX} variables");
            return Err(ObjectError::Failed { reason });
        }
        self.names.insert(name.clone());
        self.check_soon(context);
        Ok(LuaValue::Nil)
    }

    fn init(&mut self, context: &mut ObjectContext<'_>) {
        for (name, value) in mem::take(&mut self.restored) {
            let set = context.variables.set(&name, &value);
            // Otherwise the file would soon lose the value.
            if let (Err(reason), Some(path)) = (set, self.path.clone()) {
                self.keep_unwritten(&path, &format!("the variable {name} cannot be restored: {reason}"), context);
            }
        }
        self.next_check = Some(context.now().monotonic + STORAGE_PERIOD);
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_check
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.save(context);
        self.next_check = Some(context.now().monotonic + STORAGE_PERIOD);
    }

    /// Before `SYSTEM.Init`, the variables do not have the stored values: the file stays as it is.
    fn stop(&mut self, context: &mut ObjectContext<'_>) {
        if self.next_check.is_some() {
            self.save(context);
        }
    }
}

/// Locks the folder for stored values, because two CLUs with the same folder would replace each other's files. Returns `None`
/// if the folder cannot be locked at all; then it most often cannot be written either, which each Storage object reports.
pub(crate) fn lock_folder(folder: &Path) -> Result<Option<fs::File>, String> {
    let path = folder.join("lock");
    let opened = fs::create_dir_all(folder)
        .and_then(|()| fs::File::options().create(true).truncate(false).write(true).open(path));
    let Ok(file) = opened else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            let folder = folder.display();
            Err(format!("another virtual CLU keeps its stored values in {folder}; stop it or use another folder"))
        }
    }
}

/// Whether a value can be stored: it contains no function and no object, and is not nested too deep to be read again.
fn is_plain(value: &LuaValue, depth: usize) -> bool {
    match value {
        LuaValue::Object(_) | LuaValue::Opaque(_) => false,
        _ if depth > TABLE_DEPTH_MAX => false,
        LuaValue::Table(entries) => {
            entries.iter().all(|(key, value)| is_plain(key, depth + 1) && is_plain(value, depth + 1))
        }
        _ => true,
    }
}

/// The values within a value, with the keys of its tables and itself.
fn count_values(value: &LuaValue) -> usize {
    match value {
        LuaValue::Table(entries) => {
            1 + entries.iter().map(|(key, value)| count_values(key) + count_values(value)).sum::<usize>()
        }
        _ => 1,
    }
}

/// The name of an object as the name of a file.
fn file_name(name: &str) -> String {
    let mut safe = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            safe.push(char::from(byte));
        } else {
            safe.push_str(&format!("%{byte:02x}"));
        }
    }
    safe
}

fn read_bounded(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > STORED_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("it is longer than {STORED_BYTES_MAX} bytes")));
    }
    fs::read_to_string(path)
}

/// Replaces a file: a crash leaves the old contents or the new ones.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let new = path.with_extension("lua.new");
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_become_safe_and_distinct_file_names() {
        assert_eq!(file_name("STO_0001"), "STO_0001");
        assert_eq!(file_name("../x"), "%2e%2e%2fx");
        assert_ne!(file_name("a.b"), file_name("a/b"));
    }
}
