//! Archives and container images, read and written.

mod common;
mod exercise;
mod hostile;
mod images;
mod linear;
mod oracle;
mod replaced;
mod unread;
