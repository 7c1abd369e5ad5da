//! A network namespace with nothing in it but loopback: what runs inside can neither disturb nor reach anybody.

use std::path::Path;
use std::process::{Command, Stdio};

/// Brings loopback up without needing `ip`: SIOCSIFFLAGS on `lo` with IFF_UP and IFF_RUNNING.
const LOOPBACK_UP: &str = "\
if command -v ip >/dev/null 2>&1; then ip link set lo up; else python3 -c '
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack(\"16sh14x\", b\"lo\", 0x41))
'; fi";

/// How a namespace can be had here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// With the rights of the user who runs this.
    Direct,
    /// With a user namespace around it.
    WithUser,
}

impl Sandbox {
    /// The first way that works here; `None` where namespaces are not permitted.
    pub fn find() -> Option<Sandbox> {
        [Sandbox::Direct, Sandbox::WithUser].into_iter().find(|sandbox| {
            let script = Path::new("/dev/null");
            let mut command = sandbox.bash(script);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    }

    /// `bash SCRIPT` inside. Background processes of the script end with it: they live in its process namespace.
    pub fn bash(self, script: &Path) -> Command {
        let flags = match self {
            Sandbox::Direct => "--net",
            Sandbox::WithUser => "--map-root-user",
        };
        let mut command = Command::new("unshare");
        command.args([flags, "--net", "--pid", "--fork", "--kill-child", "bash", "-c"]);
        command.arg(format!("{LOOPBACK_UP} && exec bash \"$0\"")).arg(script);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_loopback_is_inside() {
        let Some(sandbox) = Sandbox::find() else { return };
        let script = std::env::temp_dir().join(format!("fodo-sandbox-{}", std::process::id()));
        std::fs::write(&script, "cut -s -d: -f1 /proc/net/dev | tr -d ' '").unwrap();

        let printed = sandbox.bash(&script).output().unwrap();
        std::fs::remove_file(&script).unwrap();

        assert_eq!(String::from_utf8_lossy(&printed.stdout).trim(), "lo");
    }
}
