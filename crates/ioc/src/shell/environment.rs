//! Commands for the shell itself: environment, folder, variables, pauses and scripts.

use std::collections::BTreeMap;

use super::access::CHECKS_ADDRESS;
use super::reccaster::{ANSWER_S, HOLD_OFF_MAX_S};
use super::script::{CommandResult, Flow, seconds};
use super::{CommandError, CommandLine, Purpose, Shell, table};
use crate::stats::VERSION;

/// Variables of C programs that scripts set, with their initial values. Only the first four have an effect here.
pub(super) fn variables() -> BTreeMap<&'static str, i64> {
    BTreeMap::from([
        (RECORDS_ONCE_ONLY, 0),
        (CHECKS_ADDRESS, 0),
        HOLD_OFF_MAX_S,
        ANSWER_S,
        ("callbackParallelThreadsDefault", 2),
        ("CASDEBUG", 0),
        ("dbAccessDebugPUTF", 0),
        ("dbBptNotMonotonic", 0),
        ("dbConvertStrict", 0),
        ("dbJLinkDebug", 0),
        ("dbQuietMacroWarnings", 0),
        ("dbRecordsAbcSorted", 0),
        ("dbTemplateMaxVars", 100),
        ("dbThreadRealtimeLock", 1),
        ("exprDebug", 0),
        ("logClientDebug", 0),
        ("softTemplate", 0),
    ])
}

const RECORDS_ONCE_ONLY: &str = "dbRecordsOnceOnly";

/// The version of EPICS Base whose variables and behaviour scripts find.
const BASE_VERSION: [(&str, &str); 8] = [
    ("EPICS_VERSION_MAJOR", "7"),
    ("EPICS_VERSION_MIDDLE", "0"),
    ("EPICS_VERSION_MINOR", "10"),
    ("EPICS_VERSION_PATCH", "0"),
    ("EPICS_VERSION_SNAPSHOT", ""),
    ("EPICS_VERSION_SITE", ""),
    ("EPICS_VERSION_SHORT", "7.0.10"),
    ("EPICS_VERSION_FULL", "7.0.10"),
];

/// The name of this architecture in EPICS Base.
const fn architecture() -> &'static str {
    if cfg!(all(target_os = "macos", target_arch = "x86_64")) {
        "darwin-x86"
    } else if cfg!(target_os = "macos") {
        "darwin-aarch64"
    } else if cfg!(target_arch = "x86_64") {
        "linux-x86_64"
    } else if cfg!(target_arch = "aarch64") {
        "linux-aarch64"
    } else {
        "linux-arm"
    }
}

impl Shell {
    /// Sets an environment variable of this shell.
    pub(super) fn define(&mut self, name: &str, value: &str) {
        self.macros.define(name, value);
        self.environment.lock().insert(name.to_owned(), value.to_owned());
    }

    /// Sets the variables that EPICS Base sets for scripts before it runs the first one.
    pub(super) fn define_variables_of_base(&mut self) {
        self.define("ARCH", architecture());
        BASE_VERSION.iter().for_each(|(name, value)| self.define(name, value));
        self.define_folder();
    }

    fn define_folder(&mut self) {
        self.define("PWD", &self.folder.display().to_string());
    }
}

pub(super) fn set_variable(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a variable")?;
    let value = call.argument(2).unwrap_or_default();
    shell.define(name, value);
    Ok(Flow::Next)
}

/// `putenv("NAME=value")`
pub(super) fn put_variable(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let text = call.needed(1, "NAME=value")?;
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(CommandError::Word(1, format!("\"{text}\" must be NAME=value")));
    };
    shell.define(name, value);
    Ok(Flow::Next)
}

pub(super) fn unset_variable(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a variable")?;
    shell.macros.remove(name);
    shell.environment.lock().remove(name);
    Ok(Flow::Next)
}

pub(super) fn show_variables(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    if !show_matching(shell, |name| super::records::matches(pattern, name)) && !pattern.contains('*') {
        return Err(CommandError::Word(1, format!("{pattern} is not an environment variable")));
    }
    Ok(Flow::Next)
}

/// Shows the variables whose names `is_selected` accepts. Returns whether there are any.
fn show_matching(shell: &mut Shell, is_selected: impl Fn(&str) -> bool) -> bool {
    let names = shell.macros.names().into_iter().filter(|name| is_selected(name));
    let lines: Vec<String> =
        names.map(|name| format!("{name}={}\n", shell.macros.value(name).unwrap_or_default())).collect();
    shell.say(&lines.concat());
    !lines.is_empty()
}

/// `epicsParamShow`
pub(super) fn show_parameters(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    show_matching(shell, |name| name.starts_with("EPICS_") && !name.starts_with("EPICS_VERSION_"));
    Ok(Flow::Next)
}

pub(super) fn change_folder(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a folder")?;
    let folder = shell.path(name);
    match folder.canonicalize() {
        Ok(folder) if folder.is_dir() => {
            shell.folder = folder;
            shell.define_folder();
            Ok(Flow::Next)
        }
        Ok(_) => Err(CommandError::Word(1, format!("\"{name}\" is not a folder"))),
        Err(error) => Err(CommandError::Word(1, format!("cannot change to the folder \"{name}\": {error}"))),
    }
}

/// `coreRelease`
pub(super) fn release(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    shell.say(&format!("{VERSION}\n"));
    Ok(Flow::Next)
}

pub(super) fn show_folder(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    shell.say(&format!("{}\n", shell.folder.display()));
    Ok(Flow::Next)
}

/// `var NAME VALUE`, `var NAME`, `var`
pub(super) fn var(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let Some(name) = call.argument(1) else {
        let all: String = shell.variables.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        shell.say(&all);
        return Ok(Flow::Next);
    };
    let Some((&known, value)) = shell.variables.get_key_value(name) else {
        let guess = table::closest(name, shell.variables.keys().copied());
        return Err(CommandError::Word(1, format!("there is no variable \"{name}\"{guess}")));
    };
    let Some(text) = call.argument(2) else {
        let line = format!("{name} = {value}\n");
        shell.say(&line);
        return Ok(Flow::Next);
    };
    let value = whole(text).ok_or_else(|| CommandError::Word(2, format!("\"{text}\" is not an integer")))?;
    shell.variables.insert(known, value);
    if known == RECORDS_ONCE_ONLY {
        if let super::IocStage::Loading(loader) = &mut shell.stage {
            loader.set_records_once_only(value != 0);
        }
    } else if ![CHECKS_ADDRESS, HOLD_OFF_MAX_S.0, ANSWER_S.0].contains(&known) {
        shell.remark(format!("the variable {name} is stored but has no effect"));
    }
    Ok(Flow::Next)
}

/// Parses an integer; accepts `5.0`, because some of these variables are floating-point numbers in C.
fn whole(text: &str) -> Option<i64> {
    let (number, decimals) = text.split_once('.').unwrap_or((text, ""));
    number.parse().ok().filter(|_| decimals.bytes().all(|digit| digit == b'0'))
}

pub(super) fn date(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    if let Purpose::Run(start) = &shell.purpose {
        let text = (start.date)(call.argument(1).unwrap_or("%Y/%m/%d %H:%M:%S.%6f"));
        shell.say(&format!("{text}\n"));
    }
    Ok(Flow::Next)
}

pub(super) fn echo(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let words: Vec<&str> = call.words.iter().skip(1).map(|word| word.text.as_str()).collect();
    let mut text = fodo_db::unescaped(&words.join(" "));
    text.push(b'\n');
    shell.say_as_it_is(&text);
    Ok(Flow::Next)
}

pub(super) fn log(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let words: Vec<&str> = call.words.iter().skip(1).map(|word| word.text.as_str()).collect();
    shell.complain(&words.join(" "));
    Ok(Flow::Next)
}

pub(super) fn pause(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let duration =
        seconds(call.needed(1, "the number of seconds")?).map_err(|message| CommandError::Word(1, message))?;
    if !shell.is_check() {
        std::thread::sleep(duration);
    }
    Ok(Flow::Next)
}

pub(super) fn exit(_: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let code = match call.argument(1) {
        Some(text) => {
            text.parse().map_err(|_| CommandError::Word(1, format!("\"{text}\" is not a valid exit code")))?
        }
        None => 0,
    };
    Ok(Flow::Exit(code))
}

pub(super) fn help(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let mut text = String::new();
    match call.argument(1) {
        None => {
            text += "Type help NAME for details. Commands:\n";
            for command in table::COMMANDS {
                text += &format!("  {:<34} {}\n", command.name, command.help);
            }
            text += &table::other_commands();
        }
        Some(pattern) => {
            for command in table::COMMANDS.iter().filter(|command| super::records::matches(pattern, command.name)) {
                text += &format!("{}\n  {}\n", command.usage, command.help);
            }
            if text.is_empty() && table::is_accepted_without_effect(pattern) {
                text = format!("{pattern}\n  Accepted without effect: what it sets up is built in or not needed\n");
            } else if let Some(why) = table::not_supported(pattern).filter(|_| text.is_empty()) {
                text = format!("{pattern}\n  Reported once and ignored: {why}\n");
            }
            if text.is_empty() {
                let guess = table::suggestion(pattern);
                return Err(CommandError::Word(1, format!("there is no command \"{pattern}\"{guess}")));
            }
        }
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `iocshLoad("script", "A=1,B=2")`: the macros apply to that script only.
pub(super) fn load_script(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "a script")?;
    with_macros(shell, call.argument(2).unwrap_or_default(), |shell| shell.inner(name))
}

/// `iocshRun("command", "A=1,B=2")`
pub(super) fn run_command(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let line = call.needed(1, "a command")?;
    with_macros(shell, call.argument(2).unwrap_or_default(), |shell| Ok(shell.run_line(line)))
}

fn with_macros(shell: &mut Shell, list: &str, run: impl FnOnce(&mut Shell) -> CommandResult) -> CommandResult {
    let defined: Vec<String> = fodo_db::Macros::parse(list)
        .map_err(|message| CommandError::Word(2, message))?
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let before: Vec<Option<String>> = defined.iter().map(|name| shell.macros.value(name).map(str::to_owned)).collect();
    shell.macros.add(list).map_err(|message| CommandError::Word(2, message))?;
    let outcome = run(shell);
    for (name, value) in defined.iter().zip(before) {
        match value {
            Some(value) => shell.macros.define(name, &value),
            None => shell.macros.remove(name),
        }
    }
    outcome
}
