//! The binary as users and scripts see it: arguments in, output, exit codes and images out. The contents of
//! images are checked by `e2fsck` and `debugfs`, never by our code alone.
#![forbid(unsafe_code)]

mod attributes;
mod beside_coreutils;
mod bisect;
mod changes;
mod common;
mod compared;
mod copy;
mod damage;
mod explain;
mod founding;
mod gated;
mod generated;
mod habits;
mod held;
mod interrupted;
mod kept;
mod lab;
mod mount;
mod overwritten;
mod preloaded;
mod recovered;
mod reported;
mod runs;
mod shell;
mod shown;
mod trouble;
mod tuned;
mod ways;
mod wrong_kind;
