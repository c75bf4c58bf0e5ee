//! Images and what they lie in.

mod other_formats;
mod qcow2_cuts;
mod qcow2_features;
mod qcow2_parts;
mod tables;
mod virtual_disk;
