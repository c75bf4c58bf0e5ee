//! Tests of the binary as users and scripts run it: arguments in; output, exit codes and images out. The
//! contents of images are always checked by `e2fsck` or `debugfs` too, not only by our own code.
#![forbid(unsafe_code)]

mod attributes;
mod beside_coreutils;
mod bisect;
mod changes;
mod common;
mod compared;
mod copied_modes;
mod copy;
mod damage;
mod demonstrated;
mod explain;
mod founding;
mod gated;
mod generated;
mod habits;
mod held;
mod interrupted;
mod kept;
mod lab;
mod mkfs;
mod mount;
mod overwritten;
mod pack_edges;
mod pack_frame;
mod pack_into;
mod packed;
mod partitions;
mod preloaded;
mod qcow2;
mod recovered;
mod registry;
mod reported;
mod reproduced;
mod resized;
mod runs;
mod shell;
mod shown;
mod smallest;
mod sources;
mod targets;
mod trouble;
mod tuned;
mod ways;
mod wrong_kind;
