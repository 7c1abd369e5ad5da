//! What is done with files alone: `fodo expand`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::path::PathBuf;
use std::process::Output;

use support::{fodo, free_port, run, text};

/// A folder of its own with these files in it.
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
fn expand_prints_the_database_that_a_substitutions_file_means() {
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
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(complaint.starts_with("fodo expand: a.template:1:29: macro \"Q\" is not defined"), "{complaint}");
    assert!(complaint.ends_with("wanted by a.substitutions:1:31\n"), "{complaint}");
}
