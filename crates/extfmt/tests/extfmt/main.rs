//! Structures on disk: beside models, beside images of `mke2fs` and the kernel, and damaged.

mod acl;
mod casefold;
mod common;
mod dir_model;
mod exercise;
mod extent_model;
mod hostile;
mod htree_model;
mod images;
mod inode;
mod kernel;
mod volume;
mod walk;
mod xattr;
