//! `fodo top`: shows the clients of a server, the slowest first.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use fodo_net::{Error, Kind, Protocol, Request};
use serde_json::{Map, Value as Json};

use super::{context, fail};
use crate::client::{ClientFlags, ProtocolFlag, seconds};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Show the clients of a server, the slowest first
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The --status-prefix of the server
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Seconds between two reports
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,
    /// Print one report, then end
    #[arg(long)]
    once: bool,
    /// Maximum number of clients to show
    #[arg(long, value_name = "N", default_value_t = 30)]
    rows: usize,
    #[command(flatten)]
    client: ClientFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo ioc --status-prefix x:ioc plant.db
  fodo top x:ioc
  fodo top --once --json x:ioc | jq '.list[0]'

It reads the PV PREFIX:STATUS, which a server with a status prefix refreshes every second: totals
and the clients, those with the longest waiting data first. WAITING is - for a client that reads
its data; it grows for a client that does not, and MERGED counts the updates that were replaced by
later ones. The totals are also PVs: PREFIX:CLIENTS, CHANNELS, SUBSCRIPTIONS, QUEUED_BYTES,
UPDATES_POSTED (for subscriptions), UPDATES_SENT, UPDATES_MERGED and UPDATES_DROPPED (queued when
their subscription ended); posted updates that are in none of these three are still queued.
Further: SEARCHES, REFUSED (requests beyond the limits of a client or its host), FLAWED (truncated
datagrams and invalid names), CPU (percent of a core), MEM_RSS (bytes).

JSON keys: the names of these PVs in lower case, and list: address, protocol (ca, pva), user, host,
channels, subscriptions, queued_bytes, pvs_waiting (with updates not included in queued_bytes),
sent, merged, waiting_s (null if nothing waits); error as for get.";

/// The escape sequence that clears a terminal and moves to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let client = match context(ProtocolFlag::default(), outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let (sender, stopped) = mpsc::channel();
    // It fails only if the receiver is gone, that is, when the program is already stopping.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let pv = format!("{}:STATUS", arguments.prefix);
    let channel = match client.context.channel(&format!("{}://{pv}", Protocol::Ca)) {
        Ok(channel) => channel,
        Err(error) => return fail(&pv, &error, arguments.client.json, outlet),
    };
    let request = Request { kind: Some(Kind::U8), ..Request::default() };
    let clears = !arguments.once && !arguments.client.json && io::stdout().is_terminal();
    loop {
        let read = channel.get_with_timeout(request, arguments.client.timeout);
        let status = read.and_then(|reading| parsed(&pv, &reading.value.long_text().unwrap_or_default().to_str()));
        let exit = match status {
            Ok(status) => {
                let text = if arguments.client.json { json::line(status) } else { table(&status, arguments.rows) };
                outlet.out.write_all(if clears { CLEAR } else { "" }.as_bytes())?;
                outlet.out.write_all(text.as_bytes())?;
                outlet.out.flush()?;
                Exit::Done
            }
            Err(error) => fail(&pv, &error, arguments.client.json, outlet)?,
        };
        // A lost server may return; a server that was never found is not waited for.
        let ends = arguments.once || matches!(exit, Exit::NotFound | Exit::BadValue | Exit::Refused);
        if ends || stopped.recv_timeout(arguments.every) != Err(RecvTimeoutError::Timeout) {
            return Ok(exit);
        }
    }
}

fn parsed(pv: &str, text: &str) -> Result<Map<String, Json>, Error> {
    serde_json::from_str(text).map_err(|error| {
        let reason = format!("is not a server status: {error}");
        Error::misuse(pv, reason, "pass the prefix that the server has as --status-prefix")
    })
}

fn table(status: &Map<String, Json>, n_rows: usize) -> String {
    let total = |key: &str| status.get(key).and_then(Json::as_f64).unwrap_or(f64::NAN);
    let mut text = format!(
        "{} clients, {} channels, {} subscriptions; {} queued; {} updates posted, {} sent, {} merged; {} searches; CPU {:.1} %, \
         memory {}\n",
        total("clients"),
        total("channels"),
        total("subscriptions"),
        bytes(total("queued_bytes")),
        total("updates_posted"),
        total("updates_sent"),
        total("updates_merged"),
        total("searches"),
        total("cpu"),
        bytes(total("mem_rss")),
    );
    let clients = status.get("list").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    text += &format!(
        "{:<21}  {:<20}  {:>8}  {:>6}  {:>10}  {:>5}  {:>9}  {:>9}  {:>8}\n",
        "CLIENT", "USER@HOST", "CHANNELS", "SUBSCR", "QUEUED", "PVS", "SENT", "MERGED", "WAITING"
    );
    for client in clients.iter().take(n_rows) {
        text += &row(client);
    }
    if clients.len() > n_rows {
        text += &format!("and {} more (--rows)\n", clients.len() - n_rows);
    }
    text
}

fn row(client: &Json) -> String {
    // A client can send any name, so control characters are escaped for the terminal.
    let word = |key: &str| client[key].as_str().unwrap_or("?").escape_debug().to_string();
    let number = |key: &str| client[key].as_u64().unwrap_or(0);
    let waiting = client["waiting_s"].as_f64().map_or("-".to_owned(), |waiting| format!("{waiting:.1} s"));
    format!(
        "{:<21}  {:<20}  {:>8}  {:>6}  {:>10}  {:>5}  {:>9}  {:>9}  {waiting:>8}\n",
        word("address"),
        format!("{}@{}", word("user"), word("host")),
        number("channels"),
        number("subscriptions"),
        bytes(client["queued_bytes"].as_f64().unwrap_or(0.0)),
        number("pvs_waiting"),
        number("sent"),
        number("merged"),
    )
}

fn bytes(n: f64) -> String {
    match n {
        n if n >= 1024.0 * 1024.0 => format!("{:.1} MiB", n / 1024.0 / 1024.0),
        n if n >= 1024.0 => format!("{:.1} KiB", n / 1024.0),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_top_row_shows_the_client_and_its_queued_updates() {
        let client = json!({"address": "10.0.0.2:4000", "user": "o\u{1b}p", "host": "desk", "channels": 3,
            "subscriptions": 2, "queued_bytes": 2048, "pvs_waiting": 1, "sent": 9, "merged": 4, "waiting_s": 1.5});

        let words: Vec<String> = row(&client).split_whitespace().map(str::to_owned).collect();

        assert_eq!(
            words,
            ["10.0.0.2:4000", "o\\u{1b}p@desk", "3", "2", "2.0", "KiB", "1", "9", "4", "1.5", "s"].map(str::to_owned)
        );
    }

    #[test]
    fn an_invalid_server_status_is_an_error() {
        let error = parsed("x:STATUS", "hello").unwrap_err();

        assert!(error.to_string().contains("is not a server status"), "{error}");
    }

    #[test]
    fn the_table_of_top_begins_with_the_totals_and_limits_the_number_of_clients() {
        let client = |name: &str| json!({"address": name, "user": "op", "host": "desk", "waiting_s": null});
        let status = json!({"clients": 3, "channels": 5, "subscriptions": 4, "queued_bytes": 100, "updates_posted": 9,
            "updates_sent": 7, "updates_merged": 2, "searches": 11, "cpu": 12.34, "mem_rss": 3_145_728,
            "list": [client("a:1"), client("b:1"), client("c:1")]});
        let status = status.as_object().unwrap();

        let limited = table(status, 2);

        let lines: Vec<&str> = limited.lines().collect();
        assert_eq!(
            lines[0],
            "3 clients, 5 channels, 4 subscriptions; 100 B queued; 9 updates posted, 7 sent, 2 merged; 11 searches; \
             CPU 12.3 %, memory 3.0 MiB"
        );
        assert!(lines[1].starts_with("CLIENT ") && lines[1].ends_with(" WAITING"), "{limited}");
        let first: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(first, ["a:1", "op@desk", "0", "0", "0", "B", "0", "0", "0", "-"]);
        assert!(lines[3].starts_with("b:1 "), "{limited}");
        assert_eq!(lines[4..], ["and 1 more (--rows)"]);
        assert!(table(status, 3).lines().last().unwrap().starts_with("c:1 "));
    }

    #[test]
    fn sizes_are_shown_with_the_largest_unit_that_is_not_above_them() {
        let shown = [0.0, 1023.0, 1024.0, 1536.0, 1_048_575.0, 1_048_576.0, 5_767_168.0].map(bytes);

        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1024.0 KiB", "1.0 MiB", "5.5 MiB"]);
    }
}
