//! `system`, which runs programs of the operating system.

use crate::Terminal;

/// Shell words that run until the file `stop` exists, at most 20 seconds; then they create the file `ended`.
const UNTIL_STOPPED: &str = "n=0; while [ ! -e stop -a $n -lt 400 ]; do n=$((n+1)); ACTION sleep 0.05; done; : > ended";

#[test]
fn a_program_runs_in_the_folder_and_environment_of_the_shell() {
    let mut terminal = Terminal::new();
    terminal.file("a.txt", "from a file\n");
    terminal.assert_goes(
        r#"
> epicsEnvSet AREA "hall 3"
> system 'echo "$AREA"; cat a.txt; echo wrong >&2'
hall 3
from a file
! wrong
> system 'exit 3'
! the program ended with exit status: 3
> system
! a line for the system's shell is missing; usage: system("line")
"#,
    );
}

#[test]
fn the_output_of_a_program_is_complete_even_if_it_is_larger_than_its_queue() {
    let printed = Terminal::new().run("system 'head -c 700000 /dev/zero | tr \"\\0\" x'");

    assert_eq!((printed.len(), printed.trim_matches('x')), (700_000, ""));
}

#[test]
fn a_background_program_does_not_delay_the_shell() {
    for action in ["", "echo noise;"] {
        let mut terminal = Terminal::new();
        terminal.file("wait.sh", &UNTIL_STOPPED.replace("ACTION", action));

        let printed = terminal.run("system 'sh wait.sh & echo started'");

        assert!(printed.starts_with("started\n") || printed.contains("\nstarted\n"), "{printed}");
        assert!(!terminal.folder.join("ended").exists(), "the shell has waited for its background program");
        terminal.file("stop", "");
    }
}
