//! Attacks on the mount: killed, filled, damaged, cut off, used without permission, and by clients that
//! disappear. Promises hold, the faulty party gets an error, and nothing hangs.
//!
//! `THROUGHLINE_SEED=n` repeats one chain of kills; `THROUGHLINE_SOAK=1` kills a hundred times under load,
//! and a hundred times on each transport beside programs of many kinds, and runs the memory and idle tests at
//! full length.

mod damage;
#[path = "../kill/diary.rs"]
mod diary;
mod durable;
mod encrypted;
mod encrypted_changes;
mod failures;
mod full;
mod idle;
mod ignore_case;
mod kills;
#[path = "../kill/load.rs"]
mod load;
mod mapped;
mod memory;
#[path = "../kill/model.rs"]
mod model;
mod nameless;
#[path = "../oracle/mod.rs"]
mod oracle;
mod ordinary;
mod place;
mod proc;
mod promises;
mod read_only;
mod rights;
mod saves;
mod stuck;
mod transports;
#[path = "../kill/tree.rs"]
mod tree;
mod unusual;
mod work;

throughline_testing::mount_server!();
