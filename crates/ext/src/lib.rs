//! The ext2/ext3/ext4 file system.
#![forbid(unsafe_code)]
