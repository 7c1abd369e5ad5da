//! Commands for groups of PVs and for pvAccess.

use fodo_db::MemberMapping;
use fodo_net::Protocol;

use super::records::{client_lines, matches};
use super::script::{CommandResult, Flow};
use super::show::level;
use super::{CommandError, CommandLine, Shell, files};
use crate::group::{GroupLayout, shown_path};

/// `dbLoadGroup("file.json", "P=x:,R=1")`; `-` before the name removes the groups of the file, `-*` those of all files.
pub(super) fn load(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let file = call.needed(1, "a JSON file with groups")?;
    let macros = call.argument(2).unwrap_or_default();
    if let Some(file) = file.strip_prefix('-') {
        let mut is_found = false;
        files::load(shell, "", |loader, _| {
            is_found = loader.unload_groups(file, macros);
            Ok(())
        })?;
        if !is_found && file != "*" {
            shell.remark(format!("\"{file}\" is not loaded with the macros \"{macros}\": no group is removed"));
        }
        return Ok(Flow::Next);
    }
    files::load(shell, "", |loader, open| loader.load_groups(file, macros, open))
}

/// `pvxgl [level] [pattern]`
pub(super) fn list(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let (level, pattern) = (level(call, 1)?, call.argument(2).unwrap_or("*"));
    let text = match &*shell.place.lock() {
        None => return Err(CommandError::too_early()),
        Some(running) => {
            let groups = running.groups().iter().map(|group| group.layout());
            groups.filter(|group| matches(pattern, &group.name)).map(|group| shown(group, level)).collect::<String>()
        }
    };
    shell.say(&text);
    Ok(Flow::Next)
}

/// A group with the details of a level.
fn shown(group: &GroupLayout, level: u8) -> String {
    let mut text = format!("{}\n", group.name);
    if level == 0 {
        return text;
    }
    let atomic = if group.is_atomic { "atomic" } else { "not atomic" };
    text += &format!("  {atomic}, {} members\n", group.members.len());
    if level == 1 {
        return text;
    }
    for member in &group.members {
        let own = &member.definition;
        let path = shown_path(&own.path);
        text += &format!("  {path} {}", own.mapping.name());
        if let MemberMapping::Const(value) = &own.mapping {
            text += &value.first().map_or(String::new(), |value| format!(" {}", value.to_text(None)));
        }
        for (name, value) in [("id", &own.id), ("channel", &own.channel)] {
            if !value.is_empty() {
                text += &format!(" {name} {value}");
            }
        }
        text += &own.put_order.map_or(String::new(), |order| format!(" putorder {order}"));
        text.push('\n');
        if level > 2 && !own.triggers.is_empty() {
            let names = own.triggers.iter().filter_map(|index| group.members.get(*index));
            let names: Vec<String> = names.map(|member| shown_path(&member.definition.path)).collect();
            text += &format!("    triggers {}\n", names.join(", "));
        }
    }
    text
}

/// `pvxsl [level]`
pub(super) fn names(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let has_headings = level(call, 1)? > 0;
    let database = shell.database()?;
    let aliases: Vec<String> = database.aliases().iter().map(|(alias, _)| alias.to_string()).collect();
    let mut lists =
        vec![("records", database.record_names().map(str::to_owned).collect::<Vec<_>>()), ("aliases", aliases)];
    if let Some(running) = &*shell.place.lock() {
        lists.push(("groups", running.groups().iter().map(|group| group.layout().name.clone()).collect()));
    }
    let mut text = String::new();
    for (what, names) in lists {
        if has_headings {
            text += &format!("# {what}: {}\n", names.len());
        }
        names.iter().for_each(|name| text += &format!("{name}\n"));
    }
    shell.say(&text);
    Ok(Flow::Next)
}

/// `pvxsr [level]`
pub(super) fn clients(shell: &mut Shell, call: &CommandLine<'_>) -> CommandResult {
    let is_long = level(call, 1)? > 0;
    let text = match &*shell.place.lock() {
        None => return Err(CommandError::too_early()),
        Some(running) => match running.pva_tcp_port() {
            None => "pvAccess is not served\n".to_owned(),
            Some(port) => {
                let mut clients = running.clients();
                clients.retain(|client| client.protocol == Protocol::Pva);
                let lines: String = clients.iter().map(|client| client_lines(client, is_long)).collect();
                format!("pvAccess on TCP {port}: {} clients\n{lines}", clients.len())
            }
        },
    };
    shell.say(&text);
    Ok(Flow::Next)
}
