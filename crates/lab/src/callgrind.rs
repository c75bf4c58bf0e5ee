//! Instructions of one piece of work, by valgrind's callgrind: this very program is run again as a child that does the
//! work in a function that is named, and only what that function does is counted.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::kernel::search_path;
use crate::{Error, Result};

/// Whether valgrind is there.
pub(crate) fn is_there() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .env("PATH", search_path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Instructions that `function` (a pattern of its full name, with `*`) and all that it calls executed, on its own thread,
/// when this program ran with `arguments`. `None` where it was not found, as in a program without symbols.
pub(crate) fn instructions(
    function: &str,
    arguments: &[&str],
    scratch: &Path,
) -> Result<Option<u64>> {
    let own = std::env::current_exe()
        .map_err(|e| Error::new(format!("cannot find this program: {e}")))?;
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={function}"))
        .arg(format!(
            "--callgrind-out-file={}",
            scratch.join("callgrind.out").display()
        ))
        .arg(own)
        .args(arguments)
        .env("PATH", search_path())
        // A string instruction counts as one for every byte: copies are to be made of ordinary ones.
        .env(
            "GLIBC_TUNABLES",
            "glibc.cpu.x86_rep_movsb_threshold=1073741824",
        )
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::new(format!("cannot run valgrind: {e}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let end = said.lines().rev().take(5).collect::<Vec<_>>().join("; ");
        return Err(Error::new(format!("valgrind: {}: {end}", output.status)));
    }
    Ok(collected(&said))
}

/// The count in callgrind's closing words.
fn collected(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let said = "==12== Callgrind\n==12== \n==12== Events    : Ir\n==12== Collected : 51234\n";
        assert_eq!(collected(said), Some(51234));
        assert_eq!(collected("==12== Collected : 0\n"), None);
        assert_eq!(collected(""), None);
    }
}
