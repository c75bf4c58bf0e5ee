//! Tests of the binary as users and scripts run it: arguments in; output, exit codes and images out. The
//! contents of images are always checked by `e2fsck` or `debugfs` too, not only by our own code.
#![forbid(unsafe_code)]

mod attributes;
mod beside_coreutils;
mod changes;
mod compressed;
mod copied_modes;
mod copy;
mod damage;
mod demonstrated;
mod examples;
mod explain;
mod few_threads;
mod generated;
mod habits;
mod held;
mod helper_of_root;
mod interrupted;
mod json;
mod kept;
mod lab;
mod many_clients;
mod mkfs;
mod mount;
mod objects;
mod other_formats;
mod overlay;
mod overwritten;
mod pack_edges;
mod pack_frame;
mod pack_into;
mod packed;
mod parted;
mod partitions;
mod preloaded;
mod qcow2;
mod recovered;
mod registry;
mod reproduced;
mod resized;
mod s3;
mod sandboxed_commands;
mod secrets;
mod shell;
mod shown;
mod signed;
mod smallest;
mod sources;
mod strangers;
mod targets;
mod trouble;
mod tuned;
mod uploads;
mod ways;
mod wrong_kind;

use throughline_testkit::commands as common;

/// Whether our programs are static, so that no library can be preloaded; prints a note if they are.
fn is_static() -> bool {
    let is_static = cfg!(target_feature = "crt-static");
    if is_static {
        throughline_testkit::left_out!("no library is preloaded into a static program");
    }
    is_static
}

/// Copies a program by another process: children of other tests may have inherited what this one writes to,
/// and the kernel executes no file that somebody may write to.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg(from).arg(to).status();
    assert!(copied.unwrap().success(), "{}", to.display());
}
