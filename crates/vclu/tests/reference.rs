//! Compares the page of objects with their tables. `FODO_WRITE_REFERENCE=1` regenerates it.

use std::fmt::Write as _;
use std::path::Path;

use fodo_vclu::{CLASSES, Feature, FeatureAccess, ObjectClass, ObjectMethod, ValueKind};

/// What an object is for; its file has the details.
fn purpose(class: &ObjectClass) -> &'static str {
    match class.name {
        "CLU" => {
            "The CLU itself: its clock, its log, its state and its MQTT broker\n\
             ([connect a virtual CLU to Home Assistant](../how-to/home-assistant.md))."
        }
        "RemoteCLU" => {
            "Another CLU of the project. `execute` sends a script to it and returns its value: a number, a table or a text; `nil`\n\
             without a valid reply within 4 s. The call waits; the CLU handles everything else meanwhile."
        }
        "Timer" => "Counts down once, or again and again.",
        "PID" => "Controls a switched output, so that its input reaches a value.",
        "Calendar" => "Calls a handler at times that a rule in the form of cron describes.",
        "Scheduler" => "Has a value for each part of a week.",
        "Thermostat" => "Switches heating or cooling, with modes for holidays and a schedule.",
        "SunriseSunset" => "Sunrise and sunset of a place.",
        "Presence" => "Whether a room is occupied, from its detectors.",
        "Storage" => "Keeps variables over restarts.",
        "Pv" => {
            "A process variable of EPICS, by Channel Access or pvAccess. `Name` may begin with `ca://` or `pva://`. Each method starts an\n\
             operation and returns `nil` at once. `OnChange` reports each value of `Get` or `Monitor`, `OnPut` that the server has completed\n\
             a put, `OnError` that an operation failed, also after `Timeout`; `Error` has the reason. To set `Value` is to put.\n\
             Arrays are lists; an enum is its number, with its name in `Label`. `Severity` is 3 without a connection. `Timestamp` is in UTC.\n\
             `Merged` counts updates that were replaced because the CLU did not take them in time."
        }
        "MqttTopic" => {
            "Messages of the MQTT broker of the CLU. `Topic` is the filter of `Subscribe`, with `+` and `#`. `OnMessage` reports each\n\
             message: `Message` is a table for JSON, otherwise a number or a text; `MessageTopic` is its topic. The object subscribes\n\
             again by itself. `Publish` sends a table as JSON, with QoS 1; without a topic it uses `Topic`."
        }
        "HttpRequest" => {
            "A request to an HTTP server. `Host` is a name, `http://HOST:PORT` or `https://HOST`; `Query`, headers and body are texts or\n\
             tables. `SendRequest` returns at once; `OnResponse` reports the response, or that there is none: then `StatusCode` is 0, and\n\
             the log has the reason. A body of JSON or a form becomes a table. Redirections are not followed."
        }
        "HttpListener" => {
            "A path at which the CLU answers HTTP requests; all listeners share one port. A request goes to the listener with its `Path`,\n\
             otherwise to one without a path; the `Path` of another listener is refused. `OnRequest` reports the request, and the\n\
             handler sets status, headers and body and calls `SendResponse`; after 5 s the client gets status 504. A body of JSON or\n\
             a form becomes a table."
        }
        _ => "",
    }
}

fn permitted(feature: &Feature) -> String {
    let choices: Vec<String> = feature.choices.iter().map(|(value, name)| format!("{value} {name}")).collect();
    match feature.range {
        Some((min, max)) => format!("{min} to {max}"),
        None => choices.join(", "),
    }
}

/// The kind of a value, with its unit.
fn kind(kind: ValueKind, unit: &str) -> String {
    let name = match kind {
        ValueKind::Number => "number",
        ValueKind::Text => "text",
        ValueKind::TimeStamp => "time stamp",
        ValueKind::Table => "table",
        ValueKind::Any => "any",
    };
    if unit.is_empty() { name.into() } else { format!("{name}, {unit}") }
}

fn features(class: &ObjectClass, text: &mut String) {
    text.push_str("\n| feature | name | value | use | permitted |\n|---|---|---|---|---|\n");
    for feature in class.features {
        let access = match feature.access {
            FeatureAccess::Get => "get",
            FeatureAccess::GetSet => "get, set",
            FeatureAccess::Set => "set",
        };
        let (index, name, value) = (feature.index, feature.name, kind(feature.kind, feature.unit));
        let _ = writeln!(text, "| {index} | `{name}` | {value} | {access} | {} |", permitted(feature));
    }
}

fn methods(class: &ObjectClass, text: &mut String) {
    text.push_str("\n| method | name | arguments |\n|---|---|---|\n");
    let arguments = |method: &ObjectMethod| {
        let parameters = method.parameters.iter();
        let parameters =
            parameters.map(|parameter| format!("`{}` ({})", parameter.name, kind(parameter.kind, parameter.unit)));
        parameters.collect::<Vec<String>>().join(", ")
    };
    for method in class.methods {
        let _ = writeln!(text, "| {} | `{}` | {} |", method.index, method.name, arguments(method));
    }
}

#[test]
fn the_page_of_objects_matches_their_tables() {
    let mut text = String::from(
        "# Objects of a virtual CLU\n\n\
         In Lua, `X = OBJECT:new(class, \"X\")` creates an object. `X:get(feature)` reads a feature and `X:set(feature, value)` sets it,\n\
         `X:execute(method, ...)` calls a method, and `X:add_event(event, function)` adds a handler. What a call cannot do returns\n\
         `nil`, and the log of the CLU has the reason.\n\n\
         Generated from the tables in `crates/vclu/src/object`; a test compares this page with them.\n",
    );
    for class in CLASSES {
        let _ = write!(text, "\n## {} (class {})\n\n{}\n", class.name, class.number, purpose(class));
        if !class.features.is_empty() {
            features(class, &mut text);
        }
        if !class.methods.is_empty() {
            methods(class, &mut text);
        }
        if !class.events.is_empty() {
            text.push_str("\n| event | name |\n|---|---|\n");
            for event in class.events {
                let _ = writeln!(text, "| {} | `{}` |", event.address, event.name);
            }
        }
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/clu-objects.md");
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let differs = page.lines().zip(text.lines()).find(|(page, generated)| page != generated);
    assert!(page == text, "clu-objects.md differs: {differs:?}; regenerate it with FODO_WRITE_REFERENCE=1");
}
