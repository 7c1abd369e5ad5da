//! The findings of a check.

use std::collections::HashSet;

use fodo_db::{Database, GroupDefinitions, LoadError, Macros, record_types};

use crate::autosave::request::{self, RequestedPv};
use crate::group;
use crate::limit::REQUEST_ERRORS_MAX;
use crate::names::field_of;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// Not an error, but different from the final system, such as a simulated record.
    Note,
    /// It works, but probably not as intended.
    Warning,
    /// It does not load or has no effect.
    Error,
}

/// A problem found by a check. [The module](super#check-a-script) has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// The severity.
    pub weight: FindingLevel,
    /// The message and its position.
    pub error: LoadError,
}

/// The errors of a request file and, with a database, the PVs that it does not contain. Included files are opened
/// relative to the current folder. PVs of `missing` records, which were left out because of errors, are not reported.
///
/// ```
/// use std::collections::HashSet;
///
/// use fodo_db::Macros;
/// use fodo_ioc::shell::check_request_file;
///
/// for error in check_request_file("absent.req", &Macros::default(), None, &HashSet::new()) {
///     println!("{error}"); // the file cannot be read
/// }
/// ```
pub fn check_request_file(
    file: &str,
    macros: &Macros,
    database: Option<&Database>,
    missing: &HashSet<String>,
) -> Vec<LoadError> {
    let request = match request::read(file, macros, &mut |name| crate::file::read(name)) {
        Ok(request) => request,
        Err(error) => return vec![LoadError::of_file(file, format!("it cannot be read: {error}"))],
    };
    if request.pvs.is_empty() && request.errors.is_empty() {
        return vec![LoadError::of_file(file, "it names no PV, so nothing is saved".to_owned())];
    }
    let unknown = database.map_or(Vec::new(), |database| unknown_pvs(database, &request.pvs, missing));
    request.errors.into_iter().chain(unknown).collect()
}

/// The errors of groups, which [`Loader::take_groups`](fodo_db::Loader::take_groups) returns, in a database without
/// `missing` records, which were left out because of errors.
///
/// ```
/// use std::collections::HashSet;
///
/// use fodo_db::Loader;
/// use fodo_ioc::shell::check_groups;
///
/// let mut loader = Loader::default();
/// let text = r#"record(ai, "x") { info(Q:group, {"beam": {"x": {+channel: "VLA"}}}) }"#;
/// loader.load("beam.db", "", &mut |_| Ok(text.into()))?;
/// let definitions = loader.take_groups();
/// for error in check_groups(&loader.finish()?, definitions, &HashSet::new()) {
///     println!("{error}"); // record "x" has no field "VLA"; did you mean "VAL"?
/// }
/// # Ok::<(), Vec<fodo_db::LoadError>>(())
/// ```
pub fn check_groups(database: &Database, definitions: GroupDefinitions, missing: &HashSet<String>) -> Vec<LoadError> {
    group::resolve(database, definitions, missing).errors
}

/// Errors for PVs that do not exist in the database, each with its position; limited in number.
pub(super) fn unknown_pvs(database: &Database, pvs: &[RequestedPv], missing: &HashSet<String>) -> Vec<LoadError> {
    let is_missing = |name: &str| name.split('.').next().is_some_and(|record| missing.contains(record));
    // The fields of a simulated record type are unknown.
    let is_inert = |name: &str| {
        let record = name.split('.').next().and_then(|record| database.field(record));
        record.is_some_and(|record| !record_types().any(|known| known == database.facts(record).record_type))
    };
    let is_unknown = |pv: &&RequestedPv| database.field(&pv.pv).is_none() && !is_missing(&pv.pv) && !is_inert(&pv.pv);
    let unknown: Vec<&RequestedPv> = pvs.iter().filter(is_unknown).collect();
    let error = |requested: &&RequestedPv| {
        let message = field_of(database, &requested.pv).err()?;
        Some(LoadError { message, ..requested.at.clone() })
    };
    let mut errors: Vec<LoadError> = unknown.iter().take(REQUEST_ERRORS_MAX).filter_map(error).collect();
    if let Some(next) = unknown.get(REQUEST_ERRORS_MAX) {
        let message = format!("from here on, {} more PVs do not exist", unknown.len() - REQUEST_ERRORS_MAX);
        errors.push(LoadError { message, ..next.at.clone() });
    }
    errors
}
