//! What an image holds after a power cut, a killed process or an error of the device.

mod buffered_cuts;
#[path = "../diary/mod.rs"]
mod diary;
mod kill;
#[path = "../oracle/mod.rs"]
mod oracle;
mod overlay_cuts;
mod pack_into_cuts;
mod power_cuts;
mod power_device;
