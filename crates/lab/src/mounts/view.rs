//! A path for a mounted file system, for programs that ask for the path of what they work on.
//!
//! What is detached from the mount tree has no path: `getcwd` fails in it, and `realpath` names another file.
//! A view is a process with a mount namespace of its own, made while the mount is still attached. There the
//! mount stays for as long as the process exists. Programs that need a path are run in that namespace.
//!
//! Invariant: nothing is left behind. The process ends with its standard input, so it ends with the lab, even
//! if that is killed with SIGKILL; with it ends its namespace.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::mounted::missing;
use crate::kernel::{named, search_path};
use crate::{Error, Result};

/// Why there can be no views; `None` if they are possible.
pub(crate) fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a mount namespace for them needs root".into());
    }
    missing("unshare").or_else(|| missing("nsenter"))
}

/// A process with a namespace, and the path of the mount in it.
pub(crate) struct View {
    holder: Child,
    /// Removed after the namespace: if a directory is removed, so is what other namespaces have mounted on
    /// it.
    point: Option<TempDir>,
}

impl View {
    /// Starts the process; what is mounted now stays mounted in its namespace.
    pub(crate) fn new() -> Result<View> {
        let mut command = named("unshare");
        command
            .args(["--mount", "--propagation", "private"])
            .args(["--", "sh", "-c", "echo; exec cat"])
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let failed = |e| Error::new(format!("no mount namespace by unshare: {e}"));
        let holder = command.spawn().map_err(failed)?;
        let point = None;
        let mut view = View { holder, point };
        // The first byte comes from the new namespace.
        if let Some(stdout) = &mut view.holder.stdout {
            stdout.read_exact(&mut [0]).map_err(failed)?;
        }
        Ok(view)
    }

    /// Keeps the directory, whose mount it holds, and which is detached elsewhere.
    pub(crate) fn keep(&mut self, point: TempDir) {
        self.point = Some(point);
    }

    /// The root of the mounted file system, for programs in the namespace.
    pub(crate) fn root(&self) -> &Path {
        self.point.as_ref().map_or(Path::new("/"), TempDir::path)
    }

    /// A command that runs `program` in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = named("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command.arg("--").arg(program);
        command
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::output;
    use crate::mounts::mounted::{At, Mounted};

    #[test]
    fn programs_of_a_view_have_a_path_that_others_do_not_see() {
        if let Some(why) = unavailable() {
            throughline_testkit::missing!("{why}");
            return;
        }
        let scratch = tempfile::tempdir().expect("a directory");
        let place = At {
            scratch: scratch.path(),
            visible: true,
        };
        let mount = Mounted::tmpfs(place).expect("a mount");
        let view = mount.view().expect("a view");
        let mut shell = view.command("sh");
        shell.args(["-c", "cd \"$1\" && pwd -P && touch made", "-"]);
        let printed = output(shell.arg(view.root())).expect("it runs").stdout;
        let path = view.root().canonicalize().expect("a directory");
        assert_eq!(
            String::from_utf8_lossy(&printed).trim(),
            path.to_string_lossy()
        );
        assert_eq!(mount.root().stat("made").ok(), Some(0));
        assert!(!path.join("made").exists());
        let holder = format!("/proc/{}", view.holder.id());
        drop(mount);
        assert!(!Path::new(&holder).exists(), "it has ended");
    }
}
