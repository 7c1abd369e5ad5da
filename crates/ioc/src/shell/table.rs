//! Every command: its name, how it is written, what it does.

use super::script::Flow;
use super::{
    Call, Failure, Shell, access, autosave, environment, files, program, put_log, reccaster, records, report, show,
};

/// A command.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    pub(super) help: &'static str,
    /// A check follows it; others do nothing that could be wrong.
    pub(super) is_checked: bool,
    pub(super) run: fn(&mut Shell, &Call<'_>) -> Result<Flow, Failure>,
}

macro_rules! commands {
    ($($name:literal $usage:literal $help:literal $checked:literal $run:path;)*) => {
        /// In alphabetical order.
        pub(super) const COMMANDS: &[Command] = &[
            $(Command {
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
    "addReccasterEnvVars" "(\"NAME\", \"NAME\")" "Tell RecCeivers more variables of the environment" true reccaster::add_variables;
    "addReccasterExcludePattern" "(\"*:x\", \"y:*\")" "Tell RecCeivers nothing of records with such names" true reccaster::keep_back;
    "afterIocRunning" "(\"command\")" "Run a command when iocInit is done" true files::run_afterwards;
    "asInit" "" "Load the access security file again" true access::load_again;
    "asSetFilename" "(\"file\")" "The access security file that iocInit loads" true access::set_file;
    "asSetSubstitutions" "(\"A=1\")" "Macros for the access security file" true access::set_macros;
    "asphag" " [group]" "Groups of hosts of the access security file" false report::host_groups;
    "aspmem" " [group]" "Records by their group of access security" false report::members;
    "asprules" " [group]" "Rules of access security, with what holds now" false report::access_groups;
    "aspuag" " [group]" "Groups of users of the access security file" false report::user_groups;
    "caPutJsonLogInit" "(\"host:port\", -1|0|1|2)" "As caPutLogInit" true put_log::start;
    "caPutJsonLogReconf" " -1|0|1|2" "As caPutLogReconf" true put_log::change;
    "caPutJsonLogShow" "" "As caPutLogShow" false put_log::show;
    "caPutLogInit" "(\"host:port\", -1|0|1|2)" "Which puts go to --put-log: none, those that change a value (0, as without), all" true put_log::start;
    "caPutLogReconf" " -1|0|1|2" "Likewise, later" true put_log::change;
    "caPutLogShow" "" "Which puts are logged" false put_log::show;
    "casr" " [level]" "Clients, and with a level what each keeps waiting" false records::clients;
    "cd" " folder" "Go to a folder; file names mean it" true environment::change_folder;
    "coreRelease" "" "The version of this program" false environment::release;
    "create_manual_set" "(\"file.req\", \"P=x:\")" "Save PVs when manual_save says so" true autosave::set_by_hand;
    "create_monitor_set" "(\"file.req\", seconds, \"P=x:\")" "Save PVs when they have changed" true autosave::set_of_changes;
    "create_periodic_set" "(\"file.req\", seconds, \"P=x:\")" "Save PVs again and again" true autosave::set_in_time;
    "create_triggered_set" "(\"file.req\", \"record.field\", \"P=x:\")" "Save PVs when another is processed or written" true autosave::set_triggered;
    "date" " [format]" "The time, as strftime writes it" false environment::date;
    "dbCreateAlias" "(\"record\", \"alias\")" "Give a record another name, before iocInit" true report::create_alias;
    "dbLoadDatabase" "(\"file.dbd\", \"folders\", \"P=x:\")" "Load the scan rates of a site and breakpoint tables, before the records" true files::load_description;
    "dbLoadRecords" "(\"file.db\", \"P=x:,R=1\")" "Load records, before iocInit" true files::load_records;
    "dbLoadTemplate" "(\"file.substitutions\", \"P=x:\", \"folders\")" "Load the databases of a substitutions file" true files::load_template;
    "dbStateClear" " name" "Turn a named state off" true report::clear_state;
    "dbStateCreate" " name" "Make a named state, for filters and records" true report::create_state;
    "dbStateSet" " name" "Turn a named state on" true report::set_state;
    "dbStateShow" " [pattern]" "Named states and whether they are on" false report::show_states;
    "dbStateShowAll" "" "As dbStateShow" false report::show_all_states;
    "dba" " record.field" "What a field is: type, elements, access" false report::address;
    "dbcar" " [record] [level]" "Links to other IOCs: how many, with 1 those not connected, with 2 all and their servers" false records::outside_links;
    "dbel" " [record]" "Fields that clients listen to" false report::listened;
    "dbgf" " record.field" "Show a value" true records::show_field;
    "dbglob" " pattern [\"fields\"]" "As dbgrep" false records::grep;
    "dbgrep" " pattern [\"fields\"]" "Names of records; * and ? stand for anything" false records::grep;
    "dbhcr" "" "Records that need hardware, which here are simulated" false report::hardware;
    "dbior" "" "As dbhcr" false report::hardware;
    "dbl" " [type|\"\"] [\"fields\"]" "Names of records, of one type, with fields" false records::list;
    "dbla" " [pattern]" "Aliases and their records" false records::aliases;
    "dbli" " [pattern]" "Info items of records by their names" false records::infos;
    "dblsr" " [record]" "Records that links join" false records::joined;
    "dbnr" "" "As dbstat" false records::count;
    "dbpf" "(\"record.field\", \"value\")" "Write a value, and process where a client's put would" true records::put_field;
    "dbpr" " record [level]" "Fields of a record: with 0 those everybody wants to see, to 4 with all" false show::show_record;
    "dbrestoreShow" "" "Files that iocInit restores, and how that went" false autosave::show_restored;
    "dbsr" " [level]" "As casr" false records::clients;
    "dbstat" "" "How many records there are, by type" false records::count;
    "dbtgf" " record.field" "Show a value as every type there is" false report::show_kinds;
    "dbtpf" "(\"record.field\", \"value\")" "As dbpf, then as dbtgf" true report::put_and_show_kinds;
    "dbtr" " record" "Process a record and show it" true show::process;
    "doAfterIocInit" "(\"command\")" "As afterIocRunning" true files::run_afterwards;
    "echo" " words" "Show words" false environment::echo;
    "epicsEnvSet" "(\"NAME\", \"value\")" "Set a variable of the environment" true environment::set_variable;
    "epicsEnvShow" " [pattern]" "Show the environment" false environment::show_variables;
    "epicsEnvUnset" " NAME" "Take a variable out of the environment" true environment::unset_variable;
    "epicsParamShow" "" "Show the variables of the environment that begin with EPICS_" false environment::show_parameters;
    "epicsPrtEnvParams" "" "As epicsParamShow" false environment::show_parameters;
    "epicsThreadSleep" " seconds" "Wait" true environment::pause;
    "errlog" "(\"words\")" "Write a line to stderr" false environment::log;
    "exit" " [code]" "End; in a script that another runs, end that script" true environment::exit;
    "fdbrestore" "(\"file.sav\")" "Write the values of a save file, as a client would" false autosave::put_back;
    "gft" " record.field" "As dbtgf" false report::show_kinds;
    "help" " [pattern]" "Show commands" false environment::help;
    "iocInit" "" "Start: from now on records are served and scanned" true files::start;
    "iocPause" "" "Scan nothing until iocRun; clients stay" true files::pause;
    "iocRun" "" "Go on after iocPause; where iocInit has not come, as that" true files::run;
    "iocsh" "(\"script\")" "As iocshLoad" true environment::load_script;
    "iocshCmd" "(\"command\")" "Run a command" true environment::run_command;
    "iocshLoad" "(\"script\", \"A=1\")" "Run a script with macros of its own" true environment::load_script;
    "iocshRun" "(\"command\", \"A=1\")" "Run a command with macros of its own" true environment::run_command;
    "makeAutosaveFileFromDbInfo" "(\"file.req\", \"info\")" "Write the fields that info items name into a request file" true autosave::request_of_infos;
    "makeAutosaveFiles" "" "Likewise, info_settings.req and info_positions.req, for autosaveFields and autosaveFields_pass0" true autosave::requests_of_infos;
    "manual_save" "(\"file.req\")" "Save a set now" false autosave::save_now;
    "pft" "(\"record.field\", \"value\")" "As dbtpf" true report::put_and_show_kinds;
    "postEvent" "(\"event\")" "Process the records that are scanned by this event" true report::post_event;
    "putenv" "(\"NAME=value\")" "As epicsEnvSet" true environment::put_variable;
    "pwd" "" "Show the folder" false environment::show_folder;
    "reload_manual_set" "(\"file.req\", \"P=x:\")" "Read the request file again, as create_manual_set" true autosave::set_by_hand;
    "reload_monitor_set" "(\"file.req\", seconds, \"P=x:\")" "Likewise, as create_monitor_set" true autosave::set_of_changes;
    "reload_periodic_set" "(\"file.req\", seconds, \"P=x:\")" "Likewise, as create_periodic_set" true autosave::set_in_time;
    "reload_triggered_set" "(\"file.req\", \"record.field\", \"P=x:\")" "Likewise, as create_triggered_set" true autosave::set_triggered;
    "remove_data_set" "(\"file.req\")" "Save a set no longer" false autosave::forget;
    "save_restoreSet_DatedBackupFiles" " 0|1" "Whether the copy of a file that is restored has the date in its name" true autosave::set_dates;
    "save_restoreSet_IncompleteSetsOk" " 0|1" "Whether sets are saved and restored some of whose PVs are not there" true autosave::set_incomplete;
    "save_restoreSet_NumSeqFiles" " number" "How many copies of a save file are kept in turn" true autosave::set_sequence;
    "save_restoreSet_RetrySeconds" " seconds" "How long a save that failed waits" true autosave::set_retry;
    "save_restoreSet_SeqPeriodInSeconds" " seconds" "How long one of the copies stays the youngest" true autosave::set_sequence_period;
    "save_restoreSet_UseStatusPVs" " 0|1" "Whether the records of save_restoreSet_status_prefix are written" true autosave::set_status_use;
    "save_restoreSet_status_prefix" "(\"x:\")" "Write how saving goes to the records x:SR_status and so on, of save_restoreStatus.db" true autosave::set_status_prefix;
    "save_restoreShow" " [level]" "Sets that are saved, and with a level their PVs" false autosave::show_sets;
    "scanpel" " [event]" "Records that are scanned by events" false report::by_event;
    "scanpiol" "" "Records that are scanned by interrupts" false report::by_interrupt;
    "scanppl" " [rate]" "Records that are scanned, by rate" false records::scanned;
    "set_pass0_restoreFile" "(\"file.sav\", \"P=x:\")" "Restore a save file before the records are initialised" true autosave::restore_before;
    "set_pass1_restoreFile" "(\"file.sav\", \"P=x:\")" "Restore a save file after that" true autosave::restore_after;
    "set_requestfile_path" "(\"folder\", \"folder\")" "One more folder with request files" true autosave::add_request_folder;
    "set_savefile_name" "(\"file.req\", \"file.sav\")" "Save a set to another file" false autosave::rename;
    "set_savefile_path" "(\"folder\", \"folder\")" "The folder of save files" true autosave::set_save_folder;
    "system" "(\"line\")" "Run a line of the system's shell" false program::system;
    "var" " [name] [value]" "Show or set a variable" true environment::var;
}

/// The command of a name.
pub(super) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Commands of C programs that set up what here needs no setting up.
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

/// Whether a command is accepted and does nothing.
pub(super) fn is_without_meaning(name: &str) -> bool {
    name.ends_with("_registerRecordDeviceDriver") || WITHOUT_MEANING.contains(&name)
}

/// What `help` shows below the commands.
pub(super) fn other_commands() -> String {
    let mut text = "Accepted without effect:\n".to_owned();
    WITHOUT_MEANING.iter().for_each(|name| text += &format!("  {name}\n"));
    text + "  and names that end in _registerRecordDeviceDriver\n\
            Reported once and ignored, with a reason that help and the name shows:\n  \
            require, ld, seq, startPVAServer, commands of drivers, breakpoints, and what shows the inside of EPICS Base\n"
}

/// Why a command that scripts of the field use is missing; the same text for all that are missing together.
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
        return Some(
            "request files are not made of the names of databases; info items and makeAutosaveFiles do better",
        );
    }
    if ["save_restoreSet_FilePermissions", "save_restoreSet_periodicDatedBackups"].contains(&name) {
        return Some(
            "save files have the permissions that the umask leaves, and copies with dates are made at the start",
        );
    }
    match name {
        "require" => return Some("modules of C code cannot be loaded; what is not built in is missing"),
        "ld" => return Some("libraries of C code cannot be loaded; what is not built in is missing"),
        "startPVAServer" => return Some("PV Access is not served yet; clients use Channel Access"),
        _ => {}
    }
    if ["dbb", "dbc", "dbd", "dbp", "dbs", "dbap"].contains(&name) {
        return Some("there are no breakpoints; dbtr processes a record and shows it");
    }
    let is_of_c =
        ["dbDump", "registry", "epicsMutex", "epicsThread", "ClockTime"].iter().any(|start| name.starts_with(start));
    if is_of_c || OF_C.contains(&name) {
        return Some("it shows how EPICS Base is at work, and nothing here is made like that");
    }
    if name == "seq" || name == "seqShow" {
        return Some("sequences of the state notation language are C code, which cannot be loaded");
    }
    let is_device = ["Configure", "Config", "CreateController", "CreateAxis"].iter().any(|end| name.ends_with(end))
        || ["drv", "asyn", "dev", "stream", "modbus", "motor"].iter().any(|start| name.starts_with(start))
            && name.contains(|character: char| character.is_ascii_uppercase());
    is_device.then_some("drivers are C code, which cannot be loaded; what they drive is not served")
}

/// Whether a line begins with a command that scripts have, or runs another script.
pub fn is_command(line: &str) -> bool {
    let line = line.trim_start();
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let name = line.split(|character| !is_part(character)).next().unwrap_or_default();
    line.starts_with('<') || find(name).is_some() || is_without_meaning(name) || not_supported(name).is_some()
}

/// `; did you mean "dbl"?`, or nothing.
pub(super) fn suggestion(name: &str) -> String {
    closest(name, COMMANDS.iter().map(|command| command.name))
}

/// What to do about a name that is no command.
pub(super) fn hint(name: &str) -> String {
    let guess = suggestion(name);
    if guess.is_empty() {
        "; those of modules and drivers are C code, which cannot be loaded".to_owned()
    } else {
        guess
    }
}

/// The same among other names.
pub(super) fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    crate::names::meant(fodo_db::closest(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_that_help_shows() {
        let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();

        assert_eq!(names, sorted);
    }
}
