//! Instructions of one piece of work, by valgrind's callgrind: this very program is run again as a child that does the
//! work in a function that is named, and only what that function does is counted.

use std::path::Path;
use std::process::Command;

use crate::kernel::output;
use crate::{Error, Result};

/// Whether valgrind is there.
pub(crate) fn is_there() -> bool {
    output(Command::new("valgrind").arg("--version")).is_ok()
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
    let out = scratch.join("callgrind.out");
    let output = output(
        Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--toggle-collect={function}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(own)
            .args(arguments)
            // A string instruction counts as one for every byte: copies are to be made of ordinary ones.
            .env(
                "GLIBC_TUNABLES",
                "glibc.cpu.x86_rep_movsb_threshold=1073741824",
            ),
    )?;
    Ok(collected(&String::from_utf8_lossy(&output.stderr)))
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
