//! Counts the instructions of one piece of work with valgrind's callgrind. This program runs itself as a
//! child process, which does the work in a named function, and only that function is counted.

use std::path::Path;

use crate::kernel::{named, output};
use crate::{Error, Result};

/// Whether valgrind is installed.
pub(crate) fn is_there() -> bool {
    output(named("valgrind").arg("--version")).is_ok()
}

/// The number of instructions executed by `function` (a pattern for its full name, with `*`), and by
/// everything that it calls on its own thread, when this program runs with `arguments`. `None` if there is no
/// such function, as in a binary without symbols.
pub(crate) fn instructions(
    function: &str,
    arguments: &[&str],
    scratch: &Path,
) -> Result<Option<u64>> {
    let own = std::env::current_exe()
        .map_err(|e| Error::new(format!("cannot find this program: {e}")))?;
    let out = scratch.join("callgrind.out");
    let output = output(
        named("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--toggle-collect={function}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(own)
            .args(arguments)
            // callgrind counts a string instruction once per byte, so copies must use ordinary instructions.
            .env(
                "GLIBC_TUNABLES",
                "glibc.cpu.x86_rep_movsb_threshold=1073741824",
            ),
    )?;
    Ok(collected(&String::from_utf8_lossy(&output.stderr)))
}

/// The count in callgrind's final output.
fn collected(output: &str) -> Option<u64> {
    let line = output
        .lines()
        .find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let output = "==12== Callgrind\n==12== \n==12== Events    : Ir\n==12== Collected : 51234\n";
        assert_eq!(collected(output), Some(51234));
        assert_eq!(collected("==12== Collected : 0\n"), None);
        assert_eq!(collected(""), None);
    }
}
