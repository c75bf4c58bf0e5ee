//! All of POSIX that Linux programs use, on our mount and on the kernel's own ext4: the same calls by the
//! same users on two copies of one image. All answers must be equal: results, errno, attributes, contents,
//! and times as relations.
//!
//! ```text
//!  case: one step per line ─┬─► an actor (a process with its ids) on the kernel's ext4 ─► answers ─┐
//!                           └─► an actor with the same ids on our mount ────────────────► answers ─┤
//!                                                                  equal, except for known.rs ◄────┘
//!  all cases of a topic done ─► both trees equal ─► unmount ─► e2fsck -fn ─► the kernel's view of our image
//! ```
//!
//! `THROUGHLINE_CASE='a name'` runs one case of a topic, `THROUGHLINE_TELL=1` prints each step and the
//! kernel's answer.

mod acls;
mod attributes;
mod changes;
mod data;
mod descriptors;
mod directories;
mod flags;
mod handles;
mod judge;
mod known;
mod links;
mod locks;
mod memory;
mod names;
mod permissions;
mod privileges;
mod ranges;
mod script;
mod special;
mod times;
mod volume;
mod xattrs;
