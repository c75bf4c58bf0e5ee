//! The binary as a person or a script meets it: arguments in, output, exit codes and images out. What is in an image
//! is judged by `e2fsck` and `debugfs`, never by ourselves alone.
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
