//! Commands that show details of records: addresses, conversions, subscriptions, scan lists, states and access rules.

use std::collections::BTreeMap;

use fodo_data::Scalar;
use fodo_db::{AccessSection, Database, Input, States};

use super::records::{kind_name, matches, quoted, scalar_text, shown};
use super::script::{CommandResult, Flow};
use super::{CommandError, CommandLine, IocStage, Shell};
use crate::names::field_of;

/// `dba record.field`
pub(super) fn address(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a field")?;
    let database = shell.database()?;
    let field = field_of(database, name).map_err(|message| CommandError::Word(1, message))?;
    let facts = database.facts(field);
    let (group, level) = database.access_group(field);
    let group = if group.is_empty() { "DEFAULT".to_owned() } else { group.to_string() };
    let text = format!(
        "Field:         {}\nRecord type:   {}\nType:          {}\nElements:      {}\nWritable:      {}\nAccess group:  \
         {group}, level {}\n",
        database.name(field),
        facts.record_type,
        kind_name(facts.kind),
        facts.count_max,
        if facts.is_read_only { "no" } else { "yes" },
        level as u8
    );
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbtgf record.field`: the value converted to every type.
pub(super) fn show_kinds(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a field")?;
    let database = shell.database()?;
    let field = field_of(database, name).map_err(|message| CommandError::Word(1, message))?;
    let (value, meta) = (database.read(field).value, database.meta(field));
    let mut text = String::new();
    for kind in fodo_db::KINDS {
        let converted = match value.first() {
            None => "(empty)".to_owned(),
            Some(first) => match first.to_kind(kind, Some(&meta)) {
                Ok(Scalar::Text(text)) => quoted(&text.to_str()),
                Ok(Scalar::Enum(state)) => state.to_string(),
                Ok(scalar) => scalar_text(&scalar, &meta),
                Err(error) => error.to_string(),
            },
        };
        text += &format!("{:<13} {converted}\n", format!("{}:", kind_name(kind)));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbtpf("record.field", "value")`
pub(super) fn put_and_show_kinds(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    super::records::put_field(shell, call)?;
    if shell.is_check() { Ok(Flow::Next) } else { show_kinds(shell, call) }
}

/// `dbel [record]`: fields that clients subscribe to.
pub(super) fn listened(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    let IocStage::Running(driver) = &shell.stage else { return Err(CommandError::too_early()) };
    let mut names: Vec<String> = driver.watched().into_iter().map(|field| driver.database().name(field)).collect();
    names.retain(|name| name.rsplit_once('.').is_some_and(|(record, _)| matches(pattern, record)));
    names.sort_unstable();
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    shell.say(&format!("{lines}clients subscribe to {} fields\n", names.len()));
    Ok(Flow::Next)
}

/// `scanpel [event]`
pub(super) fn by_event(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*").to_owned();
    list_scanned(shell, "Event", |database, name| {
        let field = database.field(&format!("{name}.EVNT"));
        field.map(|field| shown(database, field)).filter(|event| matches(&pattern, event))
    })
}

/// `postEvent("go")`
pub(super) fn post_event(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "an event")?.into();
    shell.database()?;
    if let IocStage::Running(driver) = &shell.stage {
        driver.input(Input::PostEvent { name }).map_err(|error| error.to_string())?;
    }
    Ok(Flow::Next)
}

/// `scanpiol`
pub(super) fn by_interrupt(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    list_scanned(shell, "I/O Intr", |_, _| Some(String::new()))
}

/// Lists the records with this SCAN choice, in groups.
fn list_scanned(shell: &mut Shell, scan: &str, group: impl Fn(&Database, &str) -> Option<String>) -> CommandResult {
    let database = shell.database()?;
    let mut lists: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in database.record_names() {
        let is_one = database.field(&format!("{name}.SCAN")).is_some_and(|field| shown(database, field) == scan);
        if let Some(group) = group(database, name).filter(|_| is_one) {
            lists.entry(group).or_default().push(name);
        }
    }
    let mut text = String::new();
    for (group, names) in lists {
        text += &format!("{}: {} records\n", format!("{scan} {group}").trim_end(), names.len());
        names.iter().for_each(|name| text += &format!("  {name}\n"));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

impl Shell {
    fn states(&self) -> Result<&States, CommandError> {
        match &self.stage {
            IocStage::Loading(loader) => Ok(loader.states()),
            _ => self.database().map(Database::states),
        }
    }
}

/// `dbStateCreate name`
pub(super) fn create_state(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let name = call.needed(1, "the name of a state")?;
    shell.states()?.create(name);
    Ok(Flow::Next)
}

/// `dbStateSet name`
pub(super) fn set_state(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    turn_state(shell, call, true)
}

/// `dbStateClear name`
pub(super) fn clear_state(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    turn_state(shell, call, false)
}

fn turn_state(shell: &Shell, call: &CommandLine<'_>, is_on: bool) -> CommandResult {
    let name = call.needed(1, "the name of a state")?;
    match shell.states()?.find(name) {
        Some(state) => state.set(is_on),
        None => {
            return Err(CommandError::Word(1, format!("there is no state \"{name}\"; create it with dbStateCreate")));
        }
    }
    Ok(Flow::Next)
}

/// `dbStateShow [name]`
pub(super) fn show_states(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    list_states(shell, call.argument(1).unwrap_or("*"))
}

/// `dbStateShowAll`
pub(super) fn show_all_states(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    list_states(shell, "*")
}

fn list_states(shell: &mut Shell, pattern: &str) -> CommandResult {
    let states = shell.states()?.all();
    let selected = states.iter().filter(|state| matches(pattern, &state.name().to_str()));
    let text: String =
        selected.map(|state| format!("{} is {}\n", state.name(), if state.is_on() { "on" } else { "off" })).collect();
    shell.say(&text);
    Ok(Flow::Next)
}

/// `aspuag [group]`
pub(super) fn user_groups(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    rules(shell, call, AccessSection::Users)
}

/// `asphag [group]`
pub(super) fn host_groups(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    rules(shell, call, AccessSection::Hosts)
}

/// `asprules [group]`
pub(super) fn access_groups(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    rules(shell, call, AccessSection::Groups)
}

fn rules(shell: &mut Shell, call: &CommandLine<'_>, part: AccessSection) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    let IocStage::Running(driver) = &shell.stage else { return Err(CommandError::too_early()) };
    let text = driver.guard().to_text(part, &|name| matches(pattern, name));
    shell.say(&text.unwrap_or_else(|| "there is no access security file: every client may do everything\n".to_owned()));
    Ok(Flow::Next)
}

/// `aspmem [group]`: the records of each access security group.
pub(super) fn members(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let pattern = call.argument(1).unwrap_or("*");
    let database = shell.database()?;
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, field) in database.record_names().filter_map(|name| Some((name, database.field(name)?))) {
        let (group, _) = database.access_group(field);
        let group = if group.is_empty() { "DEFAULT".to_owned() } else { group.to_string() };
        if matches(pattern, &group) {
            groups.entry(group).or_default().push(name);
        }
    }
    let mut text = String::new();
    for (group, names) in groups {
        text += &format!("{group}: {} records\n", names.len());
        names.iter().for_each(|name| text += &format!("  {name}\n"));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbhcr` and `dbior`
pub(super) fn hardware(shell: &mut Shell, _: &CommandLine<'_>) -> CommandResult {
    let Some(inert) = shell.inert.clone() else { return Err(CommandError::too_early()) };
    let text = if inert.is_empty() { "there are no drivers, and no record needs one\n".to_owned() } else { inert };
    shell.say(&text);
    Ok(Flow::Next)
}

/// `dbCreateAlias(record, alias)`
pub(super) fn create_alias(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let (record, alias) = (call.needed(1, "a record")?, call.needed(2, "another name")?);
    if [record, alias].iter().any(|name| name.contains(['"', '\\', '$'])) {
        return Err(CommandError::Word(0, "names must not contain quotes, backslashes or macros".into()));
    }
    let IocStage::Loading(loader) = &mut shell.stage else {
        return Err("aliases can only be created before iocInit".to_owned().into());
    };
    let statement = format!("alias(\"{record}\", \"{alias}\")");
    let loaded = loader.load("dbCreateAlias", "", &mut |_| Ok(statement.clone().into_bytes()));
    let message = loaded.err().and_then(|errors| errors.into_iter().next()).map(|error| error.message);
    message.map_or(Ok(Flow::Next), |message| Err(CommandError::Word(1, message)))
}
