//! The table of commands with their usage and help texts.

use super::script::Flow;
use super::{
    CommandError, CommandLine, Shell, access, autosave, environment, files, groups, program, put_log, reccaster,
    records, report, show,
};

/// A command.
pub(super) struct ShellCommand {
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    pub(super) help: &'static str,
    /// Whether a check runs it; the others cannot contain errors.
    pub(super) is_checked: bool,
    pub(super) run: fn(&mut Shell, &CommandLine<'_>) -> Result<Flow, CommandError>,
}

macro_rules! commands {
    ($($name:literal $usage:literal $help:literal $checked:literal $run:path;)*) => {
        /// All commands, in alphabetical order.
        pub(super) const COMMANDS: &[ShellCommand] = &[
            $(ShellCommand {
                name: $name,
                usage: concat!($name, $usage),
                help: $help,
                is_checked: $checked,
                run: $run,
            },)*
        ];
    };
}

commands! {
    "addReccasterEnvVars" "(\"NAME\", \"NAME\")" "Send additional environment variables to RecCeivers" true reccaster::add_variables;
    "addReccasterExcludePattern" "(\"*:x\", \"y:*\")" "Do not send records with matching names to RecCeivers" true reccaster::keep_back;
    "afterIocRunning" "(\"command\")" "Run a command after iocInit" true files::run_afterwards;
    "asInit" "" "Reload the access security file" true access::load_again;
    "asSetFilename" "(\"file\")" "Set the access security file that iocInit loads" true access::set_file;
    "asSetSubstitutions" "(\"A=1\")" "Set the macros for the access security file" true access::set_macros;
    "asphag" " [group]" "Show the host groups of the access security file" false report::host_groups;
    "aspmem" " [group]" "List records by access security group" false report::members;
    "asprules" " [group]" "Show the access security rules and their current state" false report::access_groups;
    "aspuag" " [group]" "Show the user groups of the access security file" false report::user_groups;
    "caPutJsonLogInit" "(\"host:port\", -1|0|1|2)" "Same as caPutLogInit" true put_log::start;
    "caPutJsonLogReconf" " -1|0|1|2" "Same as caPutLogReconf" true put_log::change;
    "caPutJsonLogShow" "" "Same as caPutLogShow" false put_log::show;
    "caPutLogInit" "(\"host:port\", -1|0|1|2)" "Select the puts for --put-log: -1 none, 0 those that change a value (default), 1 or 2 all" true put_log::start;
    "caPutLogReconf" " -1|0|1|2" "Change the selection of caPutLogInit" true put_log::change;
    "caPutLogShow" "" "Show which puts are logged" false put_log::show;
    "casr" " [level]" "Show clients; with a level also their queues" false records::clients;
    "cd" " folder" "Change the folder for relative file names" true environment::change_folder;
    "coreRelease" "" "Show the version of this program" false environment::release;
    "create_manual_set" "(\"file.req\", \"P=x:\")" "Save PVs on manual_save" true autosave::set_by_hand;
    "create_monitor_set" "(\"file.req\", seconds, \"P=x:\")" "Save PVs after changes" true autosave::set_of_changes;
    "create_periodic_set" "(\"file.req\", seconds, \"P=x:\")" "Save PVs periodically" true autosave::set_in_time;
    "create_triggered_set" "(\"file.req\", \"record.field\", \"P=x:\")" "Save PVs when a trigger PV is processed or written" true autosave::set_triggered;
    "date" " [format]" "Show the time in strftime format" false environment::date;
    "dbCreateAlias" "(\"record\", \"alias\")" "Create an alias of a record, before iocInit" true report::create_alias;
    "dbLoadDatabase" "(\"file.dbd\", \"folders\", \"P=x:\")" "Load site-specific scan rates and breakpoint tables, before the records" true files::load_description;
    "dbLoadGroup" "(\"file.json\", \"P=x:,R=1\")" "Load groups of PVs, before iocInit; \"-file.json\" removes those of a file" true groups::load;
    "dbLoadRecords" "(\"file.db\", \"P=x:,R=1\")" "Load records, before iocInit" true files::load_records;
    "dbLoadTemplate" "(\"file.substitutions\", \"P=x:\", \"folders\")" "Load the databases of a substitutions file, before iocInit" true files::load_template;
    "dbStateClear" " name" "Turn a named state off" true report::clear_state;
    "dbStateCreate" " name" "Create a named state for filters and records" true report::create_state;
    "dbStateSet" " name" "Turn a named state on" true report::set_state;
    "dbStateShow" " [pattern]" "Show named states and whether they are on" false report::show_states;
    "dbStateShowAll" "" "Same as dbStateShow" false report::show_all_states;
    "dba" " record.field" "Show the address of a field: type, elements, access" false report::address;
    "dbcar" " [record] [level]" "Count links to other IOCs; level 1 lists those that do not work and why, 2 all" false records::outside_links;
    "dbel" " [record]" "List fields that clients subscribe to" false report::listened;
    "dbgf" " record.field" "Show a value" true records::show_field;
    "dbglob" " pattern [\"fields\"]" "Same as dbgrep" false records::grep;
    "dbgrep" " pattern [\"fields\"]" "List records by name; * and ? are wildcards" false records::grep;
    "dbhcr" "" "List simulated records, which need hardware" false report::hardware;
    "dbior" "" "Same as dbhcr" false report::hardware;
    "dbl" " [type|\"\"] [\"fields\"]" "List records, optionally of one type, with fields" false records::list;
    "dbla" " [pattern]" "List aliases and their records" false records::aliases;
    "dbli" " [pattern]" "List info items by name" false records::infos;
    "dblsr" " [record]" "List sets of records joined by links" false records::joined;
    "dbnr" "" "Same as dbstat" false records::count;
    "dbpf" "(\"record.field\", \"value\")" "Write a value, and process the record as a client's put does" true records::put_field;
    "dbpr" " record [level]" "Show fields of a record: level 0 the most important, 4 all" false show::show_record;
    "dbpvar" " [record] [level]" "Same as dbpvxr" false records::pva_links;
    "dbpvxr" " [record] [level]" "Count links over pvAccess; level 1 lists those that do not work and why, 2 all" false records::pva_links;
    "dbrestoreShow" "" "Show the files that iocInit restores, and the result" false autosave::show_restored;
    "dbsr" " [level]" "Same as casr" false records::clients;
    "dbstat" "" "Count records by type" false records::count;
    "dbtgf" " record.field" "Show a value converted to every type" false report::show_kinds;
    "dbtpf" "(\"record.field\", \"value\")" "dbpf followed by dbtgf" true report::put_and_show_kinds;
    "dbtr" " record" "Process a record and show it" true show::process;
    "doAfterIocInit" "(\"command\")" "Same as afterIocRunning" true files::run_afterwards;
    "echo" " words" "Print words" false environment::echo;
    "epicsEnvSet" "(\"NAME\", \"value\")" "Set an environment variable" true environment::set_variable;
    "epicsEnvShow" " [pattern]" "Show environment variables" false environment::show_variables;
    "epicsEnvUnset" " NAME" "Remove an environment variable" true environment::unset_variable;
    "epicsParamShow" "" "Show the environment variables that begin with EPICS_" false environment::show_parameters;
    "epicsPrtEnvParams" "" "Same as epicsParamShow" false environment::show_parameters;
    "epicsThreadSleep" " seconds" "Wait" true environment::pause;
    "errlog" "(\"words\")" "Write a line to stderr" false environment::log;
    "exit" " [code]" "End the IOC; in a nested script, end that script" true environment::exit;
    "fdbrestore" "(\"file.sav\")" "Write the values of a save file, as a client would" false autosave::put_back;
    "gft" " record.field" "Same as dbtgf" false report::show_kinds;
    "help" " [pattern]" "Show commands" false environment::help;
    "iocInit" "" "Start serving and scanning the records" true files::start;
    "iocPause" "" "Stop scanning until iocRun; clients stay connected" true files::pause;
    "iocRun" "" "Continue after iocPause; before iocInit, same as iocInit" true files::run;
    "iocsh" "(\"script\")" "Same as iocshLoad" true environment::load_script;
    "iocshCmd" "(\"command\")" "Run a command" true environment::run_command;
    "iocshLoad" "(\"script\", \"A=1\")" "Run a script with its own macros" true environment::load_script;
    "iocshRun" "(\"command\", \"A=1\")" "Run a command with its own macros" true environment::run_command;
    "makeAutosaveFileFromDbInfo" "(\"file.req\", \"info\")" "Write the fields named in info items to a request file" true autosave::request_of_infos;
    "makeAutosaveFiles" "" "Write info_settings.req (autosaveFields) and info_positions.req (autosaveFields_pass0)" true autosave::requests_of_infos;
    "manual_save" "(\"file.req\")" "Save a set now" false autosave::save_now;
    "pft" "(\"record.field\", \"value\")" "Same as dbtpf" true report::put_and_show_kinds;
    "postEvent" "(\"event\")" "Process the records scanned by this event" true report::post_event;
    "putenv" "(\"NAME=value\")" "Same as epicsEnvSet" true environment::put_variable;
    "pvxgl" " [level] [pattern]" "List groups of PVs; level 1 shows their number of members, 2 the members, 3 also triggers" false groups::list;
    "pvxsl" " [level]" "List the PVs that pvAccess serves; level 1 shows where each list comes from" false groups::names;
    "pvxsr" " [level]" "Show clients of pvAccess; with a level also their queues" false groups::clients;
    "pwd" "" "Show the current folder" false environment::show_folder;
    "reload_manual_set" "(\"file.req\", \"P=x:\")" "Read the request file again, otherwise as create_manual_set" true autosave::set_by_hand;
    "reload_monitor_set" "(\"file.req\", seconds, \"P=x:\")" "Read the request file again, otherwise as create_monitor_set" true autosave::set_of_changes;
    "reload_periodic_set" "(\"file.req\", seconds, \"P=x:\")" "Read the request file again, otherwise as create_periodic_set" true autosave::set_in_time;
    "reload_triggered_set" "(\"file.req\", \"record.field\", \"P=x:\")" "Read the request file again, otherwise as create_triggered_set" true autosave::set_triggered;
    "remove_data_set" "(\"file.req\")" "Stop saving a set" false autosave::forget;
    "save_restoreSet_DatedBackupFiles" " 0|1" "Whether the backup copy of a restored file has the date in its name" true autosave::set_dates;
    "save_restoreSet_IncompleteSetsOk" " 0|1" "Whether sets with missing PVs are saved and restored" true autosave::set_incomplete;
    "save_restoreSet_NumSeqFiles" " number" "Set the number of sequence files, copies of a save file overwritten in rotation" true autosave::set_sequence;
    "save_restoreSet_RetrySeconds" " seconds" "Set the delay before a failed save is retried" true autosave::set_retry;
    "save_restoreSet_SeqPeriodInSeconds" " seconds" "Set the time between two sequence files" true autosave::set_sequence_period;
    "save_restoreSet_UseStatusPVs" " 0|1" "Whether the records of save_restoreSet_status_prefix are updated" true autosave::set_status_use;
    "save_restoreSet_status_prefix" "(\"x:\")" "Write the autosave status to the records of save_restoreStatus.db, x:SR_status and others" true autosave::set_status_prefix;
    "save_restoreShow" " [level]" "Show autosave sets; with a level also their PVs" false autosave::show_sets;
    "scanpel" " [event]" "List records scanned by events" false report::by_event;
    "scanpiol" "" "List records scanned by I/O interrupts" false report::by_interrupt;
    "scanppl" " [rate]" "List periodically scanned records by rate" false records::scanned;
    "set_pass0_restoreFile" "(\"file.sav\", \"P=x:\")" "Restore a save file before record initialisation" true autosave::restore_before;
    "set_pass1_restoreFile" "(\"file.sav\", \"P=x:\")" "Restore a save file after record initialisation" true autosave::restore_after;
    "set_requestfile_path" "(\"folder\", \"folder\")" "Add a folder with request files" true autosave::add_request_folder;
    "set_savefile_name" "(\"file.req\", \"file.sav\")" "Change the save file of a set" false autosave::rename;
    "set_savefile_path" "(\"folder\", \"folder\")" "Set the folder of save files" true autosave::set_save_folder;
    "system" "(\"line\")" "Run a command line in the system's shell" false program::system;
    "var" " [name] [value]" "Show or set a variable" true environment::var;
}

/// Finds a command by name.
pub(super) fn find(name: &str) -> Option<&'static ShellCommand> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Commands of C programs that configure things which need no configuration here.
const WITHOUT_MEANING: [&str; 24] = [
    "caPutJsonLogSetTimeFmt",
    "caPutLogSetTimeFmt",
    "callbackParallelThreads",
    "callbackSetQueueSize",
    "dbPutAttribute",
    "dbPvdTableSize",
    "eltc",
    "errlogInit",
    "errlogInit2",
    "installLastResortEventProvider",
    "iocBuild",
    "iocLogDisable",
    "iocLogInit",
    "iocLogPrefix",
    "reboot_restoreDebug",
    "registerAllRecordDeviceDrivers",
    "registryDump",
    "save_restoreSet_CAReconnect",
    "save_restoreSet_CallbackTimeout",
    "save_restoreSet_Debug",
    "save_restoreSet_NFSHost",
    "scanOnceSetQueueSize",
    "setIocLogDisable",
    "set_saveTask_priority",
];

/// Whether a command is accepted without effect.
pub(super) fn is_accepted_without_effect(name: &str) -> bool {
    name.ends_with("_registerRecordDeviceDriver") || WITHOUT_MEANING.contains(&name)
}

/// The end of the output of `help`, after the commands.
pub(super) fn other_commands() -> String {
    let mut text = "Accepted without effect:\n".to_owned();
    WITHOUT_MEANING.iter().for_each(|name| text += &format!("  {name}\n"));
    text + "  and names that end in _registerRecordDeviceDriver\n\
            Reported once and ignored; help NAME shows the reason:\n  \
            require, ld, seq, startPVAServer, commands of drivers, breakpoints, and commands that show internals of EPICS Base\n"
}

/// Why a known command of other IOCs is missing; the same text for all commands missing for the same reason.
pub(super) fn not_supported(name: &str) -> Option<&'static str> {
    const OF_C: [&str; 16] = [
        "asDumpHash",
        "callbackQueueShow",
        "dbLockShowLocked",
        "dbNotifyDump",
        "dbPvdDump",
        "dbReportDeviceConfig",
        "dbjlr",
        "generalTimeReport",
        "iocLogShow",
        "scanOnceQueueShow",
        "taskwdShow",
        "dbtpn",
        "tpn",
        "ascar",
        "asdbdump",
        "astac",
    ];
    if name == "autosaveBuild" {
        return Some("request files are not built from database names; use info items and makeAutosaveFiles");
    }
    if ["save_restoreSet_FilePermissions", "save_restoreSet_periodicDatedBackups"].contains(&name) {
        return Some("the umask sets the permissions of save files, and dated copies are made only at the start");
    }
    match name {
        "require" => return Some("modules of C code cannot be loaded; only built-in features are available"),
        "ld" => return Some("libraries of C code cannot be loaded; only built-in features are available"),
        "startPVAServer" => return Some("PV Access is not served yet; clients use Channel Access"),
        _ => {}
    }
    if ["dbb", "dbc", "dbd", "dbp", "dbs", "dbap"].contains(&name) {
        return Some("there are no breakpoints; use dbtr to process a record and show it");
    }
    let is_of_c =
        ["dbDump", "registry", "epicsMutex", "epicsThread", "ClockTime"].iter().any(|start| name.starts_with(start));
    if is_of_c || OF_C.contains(&name) {
        return Some("it shows internals of EPICS Base that do not exist here");
    }
    if name == "seq" || name == "seqShow" {
        return Some("programs of the state notation language are C code, which cannot be loaded");
    }
    let is_device = ["Configure", "Config", "CreateController", "CreateAxis"].iter().any(|end| name.ends_with(end))
        || ["drv", "asyn", "dev", "stream", "modbus", "motor"].iter().any(|start| name.starts_with(start))
            && name.contains(|character: char| character.is_ascii_uppercase());
    is_device.then_some("drivers are C code, which cannot be loaded; their devices are not served")
}

/// Whether a line begins with a known command of scripts, or runs another script.
pub fn is_command(line: &str) -> bool {
    let line = line.trim_start();
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let name = line.split(|character| !is_part(character)).next().unwrap_or_default();
    line.starts_with('<') || find(name).is_some() || is_accepted_without_effect(name) || not_supported(name).is_some()
}

/// `; did you mean "dbl"?`, or nothing.
pub(super) fn suggestion(name: &str) -> String {
    closest(name, COMMANDS.iter().map(|command| command.name))
}

/// A hint for an unknown command.
pub(super) fn hint(name: &str) -> String {
    let guess = suggestion(name);
    if guess.is_empty() {
        "; commands of modules and drivers are C code, which cannot be loaded".to_owned()
    } else {
        guess
    }
}

/// The same suggestion among the given names.
pub(super) fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    crate::names::suggestion_text(fodo_db::closest_match(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_table_is_in_help_order() {
        let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();

        assert_eq!(names, sorted);
    }
}
