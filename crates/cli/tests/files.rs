//! Commands that only process files: `fodo expand`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::path::PathBuf;
use std::process::Output;

use support::{fodo, free_port, run, text};

/// A temporary folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn fodo_in(folder: &PathBuf, arguments: &[&str]) -> Output {
    run(fodo(free_port()).current_dir(folder).args(arguments))
}

#[test]
fn expand_prints_the_database_generated_by_a_substitutions_file() {
    let folder = folder(
        "expand",
        &[
            ("db/a.template", "record(ai, \"$(P)$(N)\") {} # $(Q)\n"),
            ("a.substitutions", "file a.template { pattern {N} {1} {2} }\n"),
        ],
    );

    let kept = fodo_in(&folder, &["expand", "-I", "none:db", "-M", "P=x:", "a.substitutions", "-o", "a.db"]);
    let refused = fodo_in(&folder, &["expand", "-V", "-I", "db", "-M", "P=x:", "a.substitutions"]);

    assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stderr));
    let written = std::fs::read_to_string(folder.join("a.db")).unwrap();
    assert_eq!(written, "record(ai, \"x:1\") {} # $(Q)\nrecord(ai, \"x:2\") {} # $(Q)\n");
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stdout), written.replace("$(Q)", "$(Q,undefined)"));
    assert!(complaint.starts_with("fodo expand: a.template:1:29: macro \"Q\" is not defined"), "{complaint}");
    assert!(complaint.ends_with("loaded by a.substitutions:1\n"), "{complaint}");
}

/// The files expanded by the cases below.
const FILES: [(&str, &str); 11] = [
    ("p.t", "P=$(P) Q=$(Q)\n"),
    ("odd.t", "$(Q=${P}) ${b} $(d,undef) $(P,P=5) \"$(P)\" '$(P)' \\$(P) $(P=a(b)c) $(N$(P)) $(Q='a)b') $("),
    ("top.t", "# $(P)\n  include \"q.t\"\nsubstitute \"P=7,Q=8\"\n$(P)$(Q)\nincludes \"p.t\"\ninfo(x) \"y\""),
    ("d/q.t", "in d $(P)\n"),
    ("d/p.t", "in d P=$(P)\n"),
    ("d/d/q.t", "deeper\n"),
    ("slash.t", "include \"d/q.t\"\n"),
    ("rows", "{P=1,Q=2}\n{P=2}\npattern {P,Q}\n{3,\"4 5\"} {6}\n"),
    ("odd", "file p.t { {P='a b', Q=\"it's\"} {P=a\\,b\n Q=1} {P = 5} {P=\"\"} {P} {P=a b,Q=c\"d\"} }\n"),
    ("scope", "global {Q=g}\nfile \"$(FODO_TEMPLATE).t\" { {P=1,Q=2} {P=3} }\nglobal {Q=h}file p.t{{P=5}}\n"),
    ("include", "file top.t { {P=1} }\nfile q.t { {P=2} {P=3} }\n"),
];

/// Arguments, and the output of `msi` of EPICS Base 7.0.10 for them.
const AS_MSI: [(&[&str], &str); 17] = [
    (&["-MP=1", "p.t"], "P=1 Q=$(Q)\n"),
    (&["-V", "-MP=1", "p.t"], "P=1 Q=$(Q,undefined)\n"),
    (&["-M", "P=$(Q),Q=5", "p.t"], "P=5 Q=5\n"),
    (&["-M", "P=\"a,b\",Q='c d'", "p.t"], "P=a,b Q=c d\n"),
    (&["-M", "P=1,P", "p.t"], "P=$(P) Q=$(Q)\n"),
    (&["-MP=1", "odd.t"], "1 $(b) $(d) 5 \"1\" '$(P)' \\$(P) 1c) $(N1) ab') $("),
    (&["-MP=1", "-I.:d", "top.t"], "# 1\nin d 1\n78\nincludes \"p.t\"\ninfo(x) \"y\""),
    (&["-MP=1", "-Id", "p.t"], "in d P=1\n"),
    (&["-MP=1", "-Id", "./slash.t"], "in d 1\n"),
    (&["-Srows", "p.t"], "P=1 Q=2\nP=2 Q=$(Q)\nP=3 Q=4 5\nP=6 Q=$(Q)\n"),
    (&["-g", "-S", "rows", "p.t"], "P=1 Q=2\nP=2 Q=2\nP=3 Q=4 5\nP=6 Q=4 5\n"),
    (&["-Sodd", "-MQ=9"], "P=ab Q=it's\nP=a,b Q=1\nP=5 Q=9\nP= Q=9\nP=$(P) Q=9\nP=ab Q=cd\n"),
    (&["-Sscope"], "P=1 Q=2\nP=3 Q=g\nP=5 Q=h\n"),
    (&["-g", "-Sscope"], "P=1 Q=2\nP=3 Q=2\nP=5 Q=h\n"),
    (&["-Sscope", "d/q.t"], "in d 1\nin d 3\nin d 5\n"),
    (&["-D", "-oout.db", "-I.:d", "-Sinclude"], "out.db: ./top.t \\\n d/q.t\n"),
    (&["-D", "-oout.db", "-I.:d", "-MP=1", "top.t"], "out.db: ./top.t \\\n d/q.t\n"),
];

#[test]
fn expand_output_is_the_same_as_msi_output() {
    let folder = folder("files-msi", &FILES);

    for (arguments, expected) in AS_MSI {
        let mut command = fodo(free_port());
        let output = run(command.current_dir(&folder).arg("expand").args(arguments).env("FODO_TEMPLATE", "p"));
        assert_eq!(text(&output.stdout), expected, "{arguments:?}");
        assert_eq!(output.status.success(), !arguments.contains(&"-V"), "{arguments:?}");
    }
}

#[test]
fn expand_also_finds_templates_where_msi_does_not_search_for_them() {
    let folder = folder("files-found", &[("top.t", "include \"e/q.t\"\n"), ("d/e/q.t", "found\n")]);

    let output = fodo_in(&folder, &["expand", "-I", "d", "top.t"]);

    assert_eq!(text(&output.stdout), "found\n", "{}", text(&output.stderr));
}
