//! The server without a kernel: requests go in as bytes; replies and notifications come out as bytes.
//!
//! ```text
//!  test ─ Mount::ask ─► socket ─► Channel::receive, Server::serve ─► socket ─► Reply
//! ```
//!
//! The tests write and read these bytes as `linux/fuse.h` defines them, not with the server's own structures.
//! The volume is in memory, on a device that fails on demand.

mod access;
mod attributes;
mod bytes;
mod damage;
mod data;
mod device;
mod directories;
mod failures;
mod forget;
mod handles;
mod harness;
mod init;
mod ioctls;
mod links;
mod names;
mod protocol;
mod ranges;
mod renames;
mod shutting;
mod small_files;
mod turns;
mod volume_ioctls;
mod write_back;
mod xattrs;
