//! On what and how the numbers of a result were taken, in words.

use serde_json::Value;

use crate::result::ResultFile;

/// How the laboratory measures, and what it does not claim.
pub const METHOD: [&str; 8] = [
    "Every client and every server is a process of its own on loopback, pinned to a CPU. \"One core\" has both on \
     one, \"two cores\" one on each, \"client not pinned\" lets the client run on all; they are never mixed.",
    "Each number is taken several times, each time by a new client process, with all contenders in a random order \
     within each repetition, so that drift of the machine hits all alike.",
    "Every client is warmed up by the same rule for each kind of work: rounds of it are repeated until twice as many no \
     longer change the median by a tenth, or the time for it is over (\"not steady\"). P6 to P8 ask what the first work of \
     a fresh process takes. Clients in Python and Java keep one process for all repetitions.",
    "A number is the median of the repetitions. The interval beside it is the bootstrap's of 95 %.",
    "The floor is a raw socket that moves as many bytes: what this machine costs without a protocol.",
    "Every number has a twin that proves the work: channels connected, values compared, updates counted. When it \
     fails, there is no number.",
    "The studies' values stand beside ours as they were published: other machines, whole milliseconds, one run. \
     They say what users know, not who is faster.",
    "Loopback has no network card, no switch and no packet loss. Questions of the studies are a closed loop: the \
     next operation starts when the last has ended; loads (L) are not.",
];

/// Machine, settings and peers: name and value.
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

/// What a reader has to know before the first number.
pub fn in_one_line(run: &ResultFile) -> String {
    let of = |name: &str| run.machine.get(name).and_then(words);
    let cpus = of("n_cpus").map(|n| format!("{n} CPUs"));
    let version = of("fodo_version").map(|version| format!("fodo {version}"));
    let commit = of("git_commit").map(|commit| format!("commit {commit}"));
    let repetitions = run.settings.get("repetitions").and_then(words).map(|n| format!("{n} repetitions"));
    let parts = [of("cpu_model"), cpus, of("kernel"), version, commit, repetitions];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" \u{b7} ")
}

/// Why the numbers must not be quoted, when they must not.
pub fn warning(run: &ResultFile) -> Option<&'static str> {
    let is_optimized = run.machine.get("is_optimized").and_then(Value::as_bool);
    (is_optimized == Some(false)).then_some("Fodo was built WITHOUT optimizations: our numbers mean nothing.")
}
