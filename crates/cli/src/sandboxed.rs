//! The sandbox of commands: one that works on images starts no programs, controls no process, and uses no
//! network unless an image is in object storage. With an image of a registry, there is no sandbox. Names of
//! users and groups come from another process (`names.rs`), which is started first.
//!
//! It may open files, because its user names them, and so it can hold less back than the sandbox of a mount's
//! server (`mount/sandbox.rs`). What the system lacks of it is not reported: these commands end soon.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use throughline_face::globals::Globals;
use throughline_sandbox::{Network, Policy, enter};

use crate::args::Command;
use crate::arguments;
use crate::names;
use crate::registry;

/// Rings for the threads of a copy. Threads that get none use system calls.
const RINGS: usize = 16;

/// Environment variable that fakeroot(1) sets.
const FAKEROOT: &str = "FAKEROOTKEY";

/// Drops the rights that the command does not need.
pub(crate) fn enter_for(command: &Command, globals: &Globals) {
    // Other programs keep the credentials of registries.
    if globals.no_sandbox || !command.works_on_images() || any_word_has(registry::SCHEME) {
        return;
    }
    let mut policy = Policy::command();
    policy.rings = Some(RINGS);
    policy.fakeroot = std::env::var_os(FAKEROOT).is_some();
    // Lines of a shell name objects, too.
    if any_word_has("://") || matches!(command, Command::Shell(_)) {
        policy.network = Network::Open;
    }
    if shows_or_reads_names(command)
        && let Err(error) = names::start()
    {
        // It then knows IDs only.
        tracing::info!(%error, "nobody tells the names of users");
    }
    let entered = enter(&policy);
    tracing::debug!(missing = ?entered.missing(), "in the sandbox");
}

/// Whether a command may need names of users and groups once it is in the sandbox.
fn shows_or_reads_names(command: &Command) -> bool {
    use Command as C;
    match command {
        C::Ls(ls) => ls.shows_names(),
        C::Stat(_) | C::Find(_) | C::Chown(_) | C::Getfacl(_) | C::Setfacl(_) | C::Shell(_) => true,
        _ => false,
    }
}

/// Whether a word of the command line contains `text`, in any place: `--backing=s3://` contains `://`.
fn any_word_has(text: &str) -> bool {
    let has = |word: OsString| {
        word.as_bytes()
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    arguments::all().any(has)
}
