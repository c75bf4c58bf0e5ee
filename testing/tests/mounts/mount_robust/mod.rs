//! Attacks on the mount: killed, filled, damaged, cut off, used without permission, and by clients that
//! disappear. Promises hold, the faulty party gets an error, and nothing hangs.
//!
//! `THROUGHLINE_SEED=n` repeats one chain of kills; `THROUGHLINE_SOAK=1` kills a hundred times under load,
//! and a hundred times on each transport beside programs of many kinds, and runs the memory and idle tests at
//! full length.

mod damage;
mod durable;
mod encrypted;
mod encrypted_changes;
mod failures;
mod full;
mod idle;
mod ignore_case;
mod kills;
mod mapped;
mod memory;
mod nameless;
mod ordinary;
mod place;
mod proc;
mod promises;
mod read_only;
mod rights;
mod saves;
mod stuck;
mod transports;
mod unusual;
mod work;
