//! Volumes through a mount, beside the kernel's own. Run over each transport (`./dev test --all`).

mod coherence;
mod damaged;
#[path = "../diary/mod.rs"]
mod diary;
mod failed_requests;
mod kernel_crashes;
mod mount_ops;
mod mount_posix;
mod mount_programs;
mod mount_robust;
mod mounting;
#[path = "../oracle/mod.rs"]
mod oracle;
mod quota;

throughline_testing::mount_server!();
