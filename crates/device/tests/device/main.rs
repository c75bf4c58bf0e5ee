//! Files and devices.

#[cfg(not(miri))]
mod block_device;
mod common;
#[cfg(not(miri))]
mod devices;
#[cfg(not(miri))]
mod files;
#[cfg(not(miri))]
mod given;
#[cfg(not(miri))]
mod held;
#[cfg(not(miri))]
mod joined;
mod lending;
mod pages;
