//! ext2, ext3, ext4 and jbd2 on disk: bytes to checked types and back, without I/O.
#![forbid(unsafe_code)]
