//! The text that the programs of coreutils, findutils, attr and acl parse and print, and recognizing the
//! format of a file that is given as an image.
//!
//! | module | text | as in |
//! | --- | --- | --- |
//! | [`find`] | expressions and formats | find |
//! | [`flags`] | `+i`, `----i----` | chattr, lsattr |
//! | [`kind`] | `d`, `directory` | ls, stat |
//! | [`mode`] | `u+x,g-w`, `-rwxr-xr-x` | chmod, ls |
//! | [`owner`] | `USER:GROUP` and the host's names | chown, ls |
//! | [`time`] | dates | touch, ls, stat, find |
//! | [`text`] | quoted names, sizes | ls |
//! | [`format`](mod@format) | `%-10s` | stat, find |
//! | [`regular`] | regular expressions | find, getfattr |
//! | [`paths`] | canonical paths, patterns | readlink, ln, a shell |
//! | [`stat`] | `%a %U` | stat |
//! | [`value`] | values of extended attributes | getfattr, setfattr |
//! | [`acl`] | access control lists | getfacl, setfacl |
//!
//! [`files`] recognizes ext volumes, partition tables and files that are often mistaken for an image. It
//! reads a bounded part of the file, and its results are only for messages.
#![forbid(unsafe_code)]

pub mod acl;
pub mod files;
pub mod find;
pub mod flags;
pub mod format;
pub mod kind;
pub mod mode;
pub mod owner;
pub mod paths;
pub mod regular;
pub mod stat;
pub mod text;
pub mod time;
pub mod value;
