//! The environment of a result as text: machine, settings, peers and method.

use serde_json::Value;

use crate::result::ResultFile;

/// How the laboratory measures, and its limitations.
pub const METHOD: [&str; 8] = [
    "Every client and every server is a separate process on loopback, pinned to a CPU. \"One core\" has both on one, \
     \"two cores\" one on each, \"client not pinned\" lets the client run on all; their results are never mixed.",
    "Each measurement is repeated several times, each time by a new client process, with all contenders in a random \
     order within each repetition, so that drift of the machine affects all equally.",
    "Every client is warmed up by the same rule for each kind of work: rounds of it are repeated until doubling their \
     number no longer changes the median by a tenth, or the time limit is reached (\"not steady\"). P6 to P8 measure \
     the first work of a fresh process. Clients in Python and Java keep one process for all repetitions.",
    "A result is the median of the repetitions. Its interval is the 95 % bootstrap interval.",
    "The floor is a raw socket that moves as many bytes: the cost on this machine without a protocol.",
    "Every measurement is paired with a check of the work: channels connected, values compared, updates counted. If it \
     fails, there is no result.",
    "The studies' values are shown next to ours as published: other machines, whole milliseconds, one run. \
     They show what users are familiar with, not which client is faster.",
    "Loopback has no network card, no switch and no packet loss. Questions of the studies are a closed loop: the \
     next operation starts when the previous one has ended; loads (L) are an open loop.",
];

/// Machine, settings and peers as pairs of name and value.
pub fn all(run: &ResultFile) -> Vec<(String, String)> {
    let mut all = vec![
        ("suite".to_owned(), run.suite.clone()),
        ("started".to_owned(), run.started.clone()),
        ("took".to_owned(), super::number::time(1e9 * run.duration_s)),
    ];
    for (name, value) in run.machine.iter().chain(&run.settings) {
        all.extend(words(value).map(|words| (name.replace('_', " "), words)));
    }
    for peer in &run.peers {
        let parts =
            [peer.version.clone(), peer.runtime.clone(), peer.missing.as_ref().map(|why| format!("missing: {why}"))];
        all.push((peer.name.clone(), parts.into_iter().flatten().collect::<Vec<_>>().join(", ")));
    }
    all
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => Some(values.iter().filter_map(words).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| Some(format!("{} {}", name.replace('_', " "), words(value)?));
            Some(fields.iter().filter_map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Bool(true) => Some("yes".into()),
        Value::Bool(false) => Some("no".into()),
        Value::Number(number) => Some(number.to_string()),
    }
}

/// Summary of the environment, for the top of a page.
pub fn in_one_line(run: &ResultFile) -> String {
    let of = |name: &str| run.machine.get(name).and_then(words);
    let cpus = of("n_cpus").map(|n| format!("{n} CPUs"));
    let version = of("fodo_version").map(|version| format!("fodo {version}"));
    let commit = of("git_commit").map(|commit| format!("commit {commit}"));
    let repetitions = run.settings.get("repetitions").and_then(words).map(|n| format!("{n} repetitions"));
    let parts = [of("cpu_model"), cpus, of("kernel"), version, commit, repetitions];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" \u{b7} ")
}

/// Why the results must not be quoted, if so.
pub fn warning(run: &ResultFile) -> Option<&'static str> {
    let is_optimized = run.machine.get("is_optimized").and_then(Value::as_bool);
    (is_optimized == Some(false)).then_some("Fodo was built WITHOUT optimizations: its results are meaningless.")
}
