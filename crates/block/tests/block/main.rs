//! Disks and streams of requests.

mod disk;
mod stream;
