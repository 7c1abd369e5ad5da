//! The driver and the watcher of spvirit. `lab/src/driver/mod.rs` and `lab/src/load/worker.rs` describe their requests.

#![forbid(unsafe_code)]

mod batch;
mod circuit;
mod driver;
mod failed;
mod subscribe;
mod watch;

use std::error::Error;
use std::io::stdin;

use serde_json::{Value, json};

use circuit::{client, number};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // One thread: with more, each reply of a server would wake another one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["get", name] => {
            let got = runtime.block_on(client().pvget(name))?;
            println!("{}", number(&got.value, &["value"]));
        }
        ["watch", numbers] => {
            println!("load worker ready");
            let mut watcher = watch::Watcher::new(numbers == "checked");
            runtime.block_on(converse(async |line| watcher.reply(line).await));
        }
        ["drive"] => {
            let runtime_name = format!("Rust, tokio on one thread, {}", std::env::consts::ARCH);
            let version = env!("CARGO_PKG_VERSION");
            println!("{}", json!({"hello": {"client": "spvirit", "version": version, "runtime": runtime_name}}));
            let mut driver = driver::Driver::default();
            runtime.block_on(converse(async |line| driver.reply(line).await));
        }
        _ => return Err("expected drive, watch NUMBERS or get NAME".into()),
    }
    // Without waiting for subscriptions.
    std::process::exit(0);
}

/// Replies to each line of the input. Between two of them subscriptions run.
async fn converse(mut reply: impl AsyncFnMut(&str) -> Value) {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        println!("{}", reply(&line).await);
    }
}
