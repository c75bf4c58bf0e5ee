//! Images of disks as people have them: their formats (raw, qcow2, vmdk, vhdx), and the tables of partitions
//! that say where file systems are in them.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("disk.img");
//! # std::fs::write(&path, vec![0; 4096]).unwrap();
//! let disk = std::fs::File::open(path).unwrap();
//! match throughline_image::Table::read(&disk).unwrap() {
//!     Some(table) => println!("{} at byte {}", table.kind, table.named("2").unwrap().start_bytes),
//!     None => println!("no partitions"),
//! }
//! ```
//!
//! Invariants:
//! - Nothing here panics, loops without bound or allocates without bound, whatever the bytes of the disk.
//! - A partition that [`Table::named`], [`Table::place`] or [`Table::volume`] returns is inside the disk, and
//!   overlaps no other partition and no table. That of the first and the last is not shorter than the ext
//!   volume in it.
//!
//! GPT as of the UEFI specification 2.10, chapter 5; MBR as Linux numbers it.
//! Known crates are not used for untrusted bytes: `gpt` 4.1 panics if an entry has another size than 128
//! bytes, and reads as many entries as the header says; `mbrman` 0.6 adds sector numbers without a check.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod allowed;
mod cursor;
mod format;
mod gpt;
mod image_file;
mod mbr;
pub mod overlay;
mod qcow2;
mod source;
mod store;
mod table;
mod vhdx;
mod virtual_disk;
mod vmdk;
mod volume;

pub use allowed::{Backing, NotAllowed, NotWhole};
pub use format::{Doubtful, Format, OnlyRead, UnknownFormat};
pub use source::ReadAt;
pub use store::Store;
pub use table::{Error, Partition, Table};
pub use virtual_disk::{DiskOptions, Object, OpenObject, VirtualDisk, no_objects};
pub use volume::{Signature, volume_at};
